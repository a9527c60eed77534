//! Whether answers go from socket to socket, pool by pool, and why not.

use crate::config::{Config, Datapath, PoolConfig};
use crate::metrics::Metrics;
use crate::sk_msg::Fionread;
use crate::splice::Node;

/// Why a kernel is not to be trusted with sockets of programs that ask it this.
const FIONREAD: &str = "this kernel tells the owner of an enrolled socket that there is nothing to \
     read (FIONREAD); if no engine of the pool asks, set `acceptBrokenFionread: true`";

/// Attaches and tries what moves answers from socket to socket, if a pool asks for it, and
/// tells what came of it.
pub(crate) fn start_sk_msg(config: &Config, node: Option<&Node>, metrics: &Metrics) {
    let gauge = metrics.kernel.with_label_values(&["sk_msg"]);
    gauge.set(0);
    let Some(node) = node.filter(|_| pools(config).next().is_some()) else { return };
    node.start_sk_msg();
    for pool in pools(config) {
        match off(node, pool) {
            None => {
                gauge.set(1);
                tracing::info!(pool = &*pool.name, "sk_msg: on");
            }
            Some(why) => tracing::warn!(pool = &*pool.name, "sk_msg: off: {why}"),
        }
    }
}

/// What is on, for people.
pub(crate) fn describe(config: &Config, node: &Node) -> String {
    let states: Vec<String> = pools(config)
        .map(|pool| match off(node, pool) {
            None => format!("on for pool {}", pool.name),
            Some(why) => format!("off for pool {}: {why}", pool.name),
        })
        .collect();
    if states.is_empty() { "off: no pool asks for it".to_owned() } else { states.join("; ") }
}

fn pools(config: &Config) -> impl Iterator<Item = &PoolConfig> {
    config.pools.iter().filter(|pool| pool.datapath == Datapath::SkMsg)
}

/// Why answers of a pool that asks for it do not go so.
fn off(node: &Node, pool: &PoolConfig) -> Option<String> {
    match node.sk_msg() {
        None => Some("not started".to_owned()),
        Some(Err(why)) => Some(why.to_owned()),
        Some(Ok((_, Fionread::Wrong))) if !pool.accept_broken_fionread => Some(FIONREAD.to_owned()),
        Some(Ok(_)) => None,
    }
}
