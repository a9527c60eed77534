//! The part of the conversion that looks at the whole: addresses, access, names.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use gateway_core::peer::Peers;
use gateway_core::route::{Rewrite, RouteError, RouteSettings, RouteTable, Target};

use super::at::{At, Place};
use super::error::ConfigError;
use super::peers::peers;
use super::switch::Section;
use super::{ApiKey, Auth, Config, DrainConfig, Limits, LogConfig, PoolConfig, Source};
use super::{address, pool, raw};
use crate::args::Overrides;

impl TryFrom<Source> for Config {
    type Error = ConfigError;

    fn try_from(Source(mut source): Source) -> Result<Self, ConfigError> {
        pool::fill_in(&mut source);
        let listen = source.listen.0.iter().map(address::parse_listener);
        let listen = listen.collect::<Result<Vec<_>, _>>()?;
        let auth = auth(&source, &listen)?;
        let peers = peers(&source.peers)?;
        let mut pools = pools(&source)?;
        for pool in pools.iter_mut().filter(|_| peers.is_some()) {
            pool.settings.peers = Peers::Known;
        }
        Ok(Self {
            admin: address::parse_listener(&source.admin.listen)?,
            workers: NonZeroUsize::new(source.workers.into()),
            log: LogConfig {
                level: source.log.level,
                format: source.log.format,
                access: source.log.access,
            },
            limits: limits(&source.limits)?,
            peers,
            drain: DrainConfig { settle: source.drain.settle.0, deadline: source.drain.deadline.0 },
            request_id_headers: source
                .request_id_headers
                .iter()
                .map(pool::header_name)
                .collect::<Result<_, _>>()?,
            debug_headers: source.debug_headers,
            routes: routes(&source, &pools)?,
            objectives: source.objectives.clone(),
            listen,
            auth,
            pools,
            overrides: Overrides::default(),
            source,
        })
    }
}

fn auth(source: &raw::Config, listen: &[std::net::SocketAddr]) -> Result<Auth, ConfigError> {
    if listen.is_empty() {
        let fix = "give at least one, such as 127.0.0.1:8080";
        return Err(ConfigError::placed(None, "there is no address to listen on", fix));
    }
    let Some(auth) = &source.auth else {
        let open = listen.iter().position(|address| !address.ip().is_loopback());
        return match open.map(|index| &source.listen.0[index]) {
            None => Ok(Auth::None),
            Some(address) => Err(ConfigError::at(
                address,
                format!("others can reach `{}`, and nothing says who may", &**address),
                "configure auth.apiKeys, or write `auth: none` to let everybody in",
            )),
        };
    };
    let Section::On(section) = &auth.value else { return Ok(Auth::None) };
    if section.api_keys.is_empty() {
        let fix = "list apiKeys, or write `auth: none` to let everybody in";
        return Err(ConfigError::at(auth, "no key opens this gateway", fix));
    }
    let mut seen = HashMap::new();
    let keys = section.api_keys.iter().map(|key| api_key(key, &mut seen));
    Ok(Auth::ApiKeys(keys.collect::<Result<_, _>>()?))
}

fn api_key(
    key: &At<raw::ApiKey>,
    seen: &mut HashMap<String, Option<Place>>,
) -> Result<ApiKey, ConfigError> {
    if key.name.is_empty() {
        let fix = "give it a name, which logs and fairness use";
        return Err(ConfigError::at(key, "a key has no name", fix));
    }
    if seen.insert(key.name.value.clone(), key.name.place).is_some() {
        let problem = format!("key `{}` is defined twice", &*key.name);
        return Err(ConfigError::at(&key.name, problem, "give each key its own name"));
    }
    Ok(ApiKey {
        name: key.name.value.clone(),
        key: key.source().resolve(key.place)?,
        models: key.models.clone(),
    })
}

fn limits(limits: &raw::Limits) -> Result<Limits, ConfigError> {
    let head = &limits.head_bytes;
    if !(1024..=16 << 20).contains(&head.0) {
        let problem = format!("headBytes is {}", head.value);
        return Err(ConfigError::at(head, problem, "give a size from 1KiB to 16MiB"));
    }
    if limits.buffered_bytes.0 < head.0 {
        let problem = format!("bufferedBytes is {}", limits.buffered_bytes.value);
        let fix = "give it at least headBytes, or nothing can be received";
        return Err(ConfigError::at(&limits.buffered_bytes, problem, fix));
    }
    if *limits.connections == 0 {
        let fix = "give it at least 1";
        return Err(ConfigError::at(&limits.connections, "connections is 0", fix));
    }
    Ok(Limits {
        head_bytes: head.0 as usize,
        buffered_bytes: limits.buffered_bytes.0,
        connections: *limits.connections as usize,
    })
}

fn pools(source: &raw::Config) -> Result<Vec<PoolConfig>, ConfigError> {
    if source.pools.is_empty() {
        let fix = "define at least one under `pools`, with a name and endpoints";
        return Err(ConfigError::placed(None, "there are no pools", fix));
    }
    let mut seen = HashMap::new();
    let mut pools = Vec::with_capacity(source.pools.len());
    for raw in &source.pools {
        let pool = PoolConfig::convert(raw, source.debug_headers)?;
        if let Some(first) = seen.insert(pool.name.clone(), raw.name.place) {
            let place = first.map(|place| format!(" (first on line {})", place.line));
            let problem =
                format!("pool `{}` is defined twice{}", pool.name, place.unwrap_or_default());
            return Err(ConfigError::at(&raw.name, problem, "give each pool its own name"));
        }
        pools.push(pool);
    }
    Ok(pools)
}

fn routes(source: &raw::Config, pools: &[PoolConfig]) -> Result<RouteTable, ConfigError> {
    let default_pool = match &source.default_pool {
        None => only_open_pool(pools),
        Some(name) => Some(pools.iter().position(|pool| pool.name == **name).ok_or_else(|| {
            let known: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
            let fix = format!("name one of the pools: {}", known.join(", "));
            ConfigError::at(name, format!("default pool `{}` does not exist", &**name), fix)
        })?),
    };
    let rewrites = source.rewrites.iter().map(rewrite).collect::<Result<_, _>>()?;
    let names = pools.iter().map(|pool| pool.names.clone()).collect();
    let settings = RouteSettings { pools: names, rewrites, default_pool };
    RouteTable::new(settings).map_err(|error| route_error(source, &error))
}

/// The pool that takes whatever its engines serve, if there is just one: then a name that
/// is not known (yet) can only be meant for it.
fn only_open_pool(pools: &[PoolConfig]) -> Option<usize> {
    let mut open = pools.iter().enumerate().filter(|(_, pool)| pool.names.model.is_none());
    let first = open.next()?;
    open.next().is_none().then_some(first.0)
}

fn rewrite(rule: &At<raw::Rewrite>) -> Result<Rewrite, ConfigError> {
    let weighted = rule.targets.iter().filter(|target| target.weight.is_some()).count();
    if weighted != 0 && weighted != rule.targets.len() {
        let fix = "give all targets of the rule a weight, or none";
        return Err(ConfigError::at(rule, "some targets have a weight and some do not", fix));
    }
    Ok(Rewrite {
        models: rule.matches.iter().map(|rule| rule.model.value.as_str().into()).collect(),
        targets: rule
            .targets
            .iter()
            .map(|target| Target {
                weight: target.weight.unwrap_or(1),
                model: target.model_rewrite.as_str().into(),
            })
            .collect(),
    })
}

/// Finds the place that the error is about.
fn route_error(source: &raw::Config, error: &RouteError) -> ConfigError {
    let place = match error {
        RouteError::AliasOfNothing { alias, pool } => name_place(source, *pool, alias, 0),
        RouteError::Duplicate { name, first, second } => {
            name_place(source, *second, name, usize::from(first == second))
        }
        RouteError::NoTargets { rewrite }
        | RouteError::Shadowed { rewrite }
        | RouteError::UnknownTarget { rewrite, .. }
        | RouteError::ZeroWeights { rewrite } => {
            source.rewrites.get(*rewrite).and_then(|rule| rule.place)
        }
        RouteError::UnknownDefault => source.default_pool.as_ref().and_then(|name| name.place),
    };
    let text = error.to_string();
    let (problem, fix) = text.split_once("; ").unwrap_or((&text, "check it"));
    ConfigError::placed(place, problem, fix)
}

/// Where a pool mentions a name for the `nth` time.
fn name_place(source: &raw::Config, pool: usize, name: &Arc<str>, nth: usize) -> Option<Place> {
    let pool = source.pools.get(pool)?;
    let lists = [&pool.served_names, &pool.aliases, &pool.lora_adapters];
    let mut names = pool.model_name.iter().chain(lists.into_iter().flatten());
    let found = names.by_ref().filter(|candidate| candidate.value == **name).nth(nth);
    found.map_or(pool.place, |name| name.place)
}
