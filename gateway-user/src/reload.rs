//! Reads the configuration file again when it changes, or at SIGHUP.
//!
//! The content is compared, not the time stamp: a mounted `ConfigMap` changes by
//! swapping a link, and some editors write a new file. A file that does not parse
//! is refused with its line, once per version, and what runs goes on running.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Config;
use crate::datapath;
use crate::gateway::{Gateway, Site};
use crate::metrics::Metrics;
use crate::signals;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where the configuration came from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, with the content that was last read.
    File(PathBuf, String),
    /// The command line: nothing to read again.
    Flags,
}

/// Watches the source for as long as the daemon runs.
pub(crate) async fn watch(
    source: Source,
    gateway: Arc<Gateway>,
    publish: watch::Sender<Arc<Site>>,
) {
    let Source::File(path, mut last) = source else {
        // The sender must live on, or the scrapers would stop.
        return publish.closed().await;
    };
    loop {
        let asked = tokio::select! {
            () = tokio::time::sleep(INTERVAL) => false,
            () = signals::reload() => true,
        };
        let text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => text,
            Err(error) => {
                if asked {
                    tracing::warn!(path = %path.display(), %error, "cannot read the configuration");
                }
                continue;
            }
        };
        if text == last && !asked {
            continue;
        }
        apply(&path, &text, &gateway, &publish);
        last = text;
    }
}

fn apply(
    path: &std::path::Path,
    text: &str,
    gateway: &Gateway,
    publish: &watch::Sender<Arc<Site>>,
) {
    let result = match gateway.site.load().config.reread(text) {
        Ok(config) => {
            let old = gateway.site.load_full();
            warn_of_fixed(&old.config, &config);
            datapath::start_sk_msg(&config, gateway.node.as_deref(), &gateway.metrics);
            let site = Arc::new(Site::build(Arc::new(config), Some(&old), gateway.clock));
            gateway.site.store(Arc::clone(&site));
            forget_gone(&old, &site, &gateway.metrics);
            publish.send_replace(site);
            tracing::info!(path = %path.display(), "configuration reloaded");
            "ok"
        }
        Err(error) => {
            tracing::error!(
                path = %path.display(),
                "configuration refused, the running one stays: {error}"
            );
            "refused"
        }
    };
    gateway.metrics.reloads.with_label_values(&[result]).inc();
}

/// Endpoints come and go for years; their counters must not stay for ever.
fn forget_gone(old: &Site, new: &Site, metrics: &Metrics) {
    for pool in &old.pools {
        let kept = new.pools.iter().find(|kept| kept.name() == pool.name());
        for endpoint in &pool.config.endpoints {
            if !kept.is_some_and(|kept| kept.has_address(&endpoint.name)) {
                // An error says that nothing was ever sent there.
                let _ = metrics.picks.remove_label_values(&[&**pool.name(), &endpoint.name]);
            }
        }
    }
}

/// Some settings are decided at start.
fn warn_of_fixed(old: &Config, new: &Config) {
    if old.listen != new.listen || old.admin != new.admin || old.workers != new.workers {
        tracing::warn!("listen, admin and workers change only with a restart");
    }
}
