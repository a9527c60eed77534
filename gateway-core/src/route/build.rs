//! Builds a route table, and says why one cannot be built.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::{Fallback, Kind, Name, PoolNames, RouteSettings, RouteTable, Target};

/// Why settings do not make a route table. Pools and rules are called by their
/// place in the settings.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// An alias needs a model to stand for.
    #[error("alias `{alias}` stands for nothing; give its pool a model name")]
    AliasOfNothing {
        /// Which alias.
        alias: Arc<str>,
        /// Which pool.
        pool: usize,
    },
    /// A name would lead to two places.
    #[error("model `{name}` is named twice; a name can belong to one pool only, once")]
    Duplicate {
        /// Which name.
        name: Arc<str>,
        /// The pool that named it first.
        first: usize,
        /// The pool that named it again.
        second: usize,
    },
    /// A rule has no targets.
    #[error("the rule has no targets; give it at least one")]
    NoTargets {
        /// Which rule.
        rewrite: usize,
    },
    /// A rule can never apply.
    #[error("the rule never applies: an earlier one matches all it matches; remove it")]
    Shadowed {
        /// Which rule.
        rewrite: usize,
    },
    /// A rule leads to a name that nothing serves.
    #[error("no pool serves target `{target}`; name a pool's model, alias or adapter")]
    UnknownTarget {
        /// Which rule.
        rewrite: usize,
        /// Which name.
        target: Arc<str>,
    },
    /// All targets of a rule weigh nothing.
    #[error("all targets weigh 0; give at least one a weight")]
    ZeroWeights {
        /// Which rule.
        rewrite: usize,
    },
    /// The default pool is not among the pools.
    #[error("the default pool is not one of the pools")]
    UnknownDefault,
}

pub(super) fn build(settings: RouteSettings) -> Result<RouteTable, RouteError> {
    let mut names = HashMap::new();
    for (index, pool) in settings.pools.iter().enumerate() {
        add_pool(&mut names, index, pool)?;
    }
    // A pool that takes whatever its engines serve may learn any name later.
    let open = settings.pools.iter().any(|pool| pool.model.is_none());
    let mut table = RouteTable { names, ..RouteTable::default() };
    for (index, rule) in settings.rewrites.iter().enumerate() {
        check_targets(&table, index, &rule.targets, open)?;
        let targets: Arc<[Target]> = rule.targets.as_slice().into();
        let mut applies = false;
        for name in &rule.models {
            // The first rule counts.
            if let Entry::Vacant(entry) = table.exact.entry(Arc::clone(name)) {
                entry.insert(Arc::clone(&targets));
                applies = true;
            }
        }
        if rule.models.is_empty() && table.generic.is_none() {
            table.generic = Some(targets);
            applies = true;
        }
        if !applies {
            return Err(RouteError::Shadowed { rewrite: index });
        }
    }
    if let Some(pool) = settings.default_pool {
        let names = settings.pools.get(pool).ok_or(RouteError::UnknownDefault)?;
        let unnamed = names.model.clone().unwrap_or_else(|| "default".into());
        table.default = Some(Fallback { pool, unnamed });
    }
    table.settings = settings;
    Ok(table)
}

fn add_pool(
    names: &mut HashMap<Arc<str>, Name>,
    index: usize,
    pool: &PoolNames,
) -> Result<(), RouteError> {
    let mut add = |name: &Arc<str>, target: &Arc<str>, kind| match names.entry(Arc::clone(name)) {
        Entry::Vacant(entry) => {
            entry.insert(Name { pool: index, target: Arc::clone(target), kind });
            Ok(())
        }
        Entry::Occupied(entry) => Err(RouteError::Duplicate {
            name: Arc::clone(name),
            first: entry.get().pool,
            second: index,
        }),
    };
    for name in pool.model.iter().chain(&pool.served) {
        add(name, name, Kind::Base)?;
    }
    for alias in &pool.aliases {
        let Some(model) = &pool.model else {
            return Err(RouteError::AliasOfNothing { alias: Arc::clone(alias), pool: index });
        };
        add(alias, model, Kind::Base)?;
    }
    for adapter in &pool.adapters {
        add(adapter, adapter, Kind::Adapter)?;
    }
    Ok(())
}

fn check_targets(
    table: &RouteTable,
    rewrite: usize,
    targets: &[Target],
    open: bool,
) -> Result<(), RouteError> {
    if targets.is_empty() {
        return Err(RouteError::NoTargets { rewrite });
    }
    if targets.iter().all(|target| target.weight == 0) {
        return Err(RouteError::ZeroWeights { rewrite });
    }
    let unknown = targets.iter().find(|target| !open && !table.names.contains_key(&target.model));
    match unknown {
        Some(target) => {
            Err(RouteError::UnknownTarget { rewrite, target: Arc::clone(&target.model) })
        }
        None => Ok(()),
    }
}
