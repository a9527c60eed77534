//! Turns a model's name into a pool and the name its engines know.
//!
//! In order:
//!
//! 1. a rewrite rule for exactly this name (a canary may split a name that is
//!    itself served, so it goes first);
//! 2. a pool's model, further served name or alias;
//! 3. a LoRA adapter, configured or found at the engines;
//! 4. a rewrite rule for any name;
//! 5. the default pool, unchanged: its engines may know the name;
//! 6. unknown.
//!
//! The order and the rules follow the inference extension's `InferenceModelRewrite`
//! (v1alpha2). A target of a rule is looked up by steps 2 and 3 only, so that
//! rules cannot chase each other. The table never changes; a reload builds another.

mod build;
pub mod models;

use std::collections::HashMap;
use std::sync::Arc;

pub use build::RouteError;
pub use models::{Discovered, ModelCard};

/// What a [`RouteTable`] is built from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RouteSettings {
    /// Names by pool; a pool is called by its place in this list.
    pub pools: Vec<PoolNames>,
    /// Rewrite rules; of several that match, the first counts.
    pub rewrites: Vec<Rewrite>,
    /// Pool of requests with no model or an unknown one.
    pub default_pool: Option<usize>,
}

/// The names by which clients reach a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PoolNames {
    /// The model all its engines serve. `None`: whatever they say they serve.
    pub model: Option<Arc<str>>,
    /// Other names for it; the engines are sent `model` instead.
    pub aliases: Vec<Arc<str>>,
    /// Other names that the engines know themselves; passed unchanged.
    pub served: Vec<Arc<str>>,
    /// LoRA adapters, besides those found at the engines.
    pub adapters: Vec<Arc<str>>,
}

/// A rewrite rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rewrite {
    /// Names it is for; empty is for any name.
    pub models: Vec<Arc<str>>,
    /// What the name becomes, by lot.
    pub targets: Vec<Target>,
}

/// One outcome of a rewrite rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Share, relative to the rule's other targets.
    pub weight: u32,
    /// The name instead: a pool's model, served name or alias, or an adapter.
    pub model: Arc<str>,
}

/// Where a request goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// Place of the pool in [`RouteSettings::pools`].
    pub pool: usize,
    /// The name its engines know.
    pub target: Arc<str>,
    /// Whether the engine must be sent `target` in place of the client's name, and
    /// the client its own name in the answer.
    pub rename: bool,
    /// The LoRA adapter, when `target` is one.
    pub adapter: Option<Arc<str>>,
}

/// No pool serves this model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownModel;

/// Model names to pools.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    names: HashMap<Arc<str>, Name>,
    /// Rules by exact name, and the first rule for any name.
    exact: HashMap<Arc<str>, Arc<[Target]>>,
    generic: Option<Arc<[Target]>>,
    default: Option<Fallback>,
    settings: RouteSettings,
}

/// What a configured name stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Name {
    pool: usize,
    target: Arc<str>,
    kind: Kind,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A LoRA adapter.
    Adapter,
    /// A base model.
    Base,
}

#[derive(Clone, Debug)]
struct Fallback {
    pool: usize,
    /// What to call the model of a request that names none.
    unnamed: Arc<str>,
}

impl RouteTable {
    /// Builds the table.
    ///
    /// # Errors
    ///
    /// A name that stands for two things, a rule that leads nowhere.
    pub fn new(settings: RouteSettings) -> Result<Self, RouteError> {
        build::build(settings)
    }

    /// What it was built from.
    #[must_use]
    pub fn settings(&self) -> &RouteSettings {
        &self.settings
    }

    /// Finds the pool for `model`, the name in the request.
    ///
    /// # Errors
    ///
    /// The name is unknown, or missing, and there is no default pool.
    pub fn resolve(
        &self,
        model: Option<&str>,
        discovered: &Discovered,
        rng: &mut fastrand::Rng,
    ) -> Result<Route, UnknownModel> {
        let Some(asked) = model else {
            let default = self.default.as_ref().ok_or(UnknownModel)?;
            return Ok(default.route(Arc::clone(&default.unnamed)));
        };
        if let Some(targets) = self.exact.get(asked) {
            return self.rewritten(asked, targets, discovered, rng);
        }
        if let Some(route) = self.named(asked, discovered) {
            return Ok(route);
        }
        if let Some(targets) = &self.generic {
            return self.rewritten(asked, targets, discovered, rng);
        }
        let default = self.default.as_ref().ok_or(UnknownModel)?;
        Ok(default.route(asked.into()))
    }

    /// Whether `model` is a configured name or found at an engine, and so needs neither
    /// a rule for any name nor the default pool.
    #[must_use]
    pub fn knows(&self, model: &str, discovered: &Discovered) -> bool {
        self.exact.contains_key(model)
            || self.names.contains_key(model)
            || discovered.find(model).is_some()
    }

    fn rewritten(
        &self,
        asked: &str,
        targets: &[Target],
        discovered: &Discovered,
        rng: &mut fastrand::Rng,
    ) -> Result<Route, UnknownModel> {
        let target = draw(targets, rng).ok_or(UnknownModel)?;
        // A target may be an adapter that no engine has loaded yet.
        let route = self.named(&target.model, discovered).ok_or(UnknownModel)?;
        Ok(Route { rename: *route.target != *asked, ..route })
    }

    /// Steps 2 and 3.
    fn named(&self, asked: &str, discovered: &Discovered) -> Option<Route> {
        if let Some(name) = self.names.get(asked) {
            return Some(Route {
                pool: name.pool,
                target: Arc::clone(&name.target),
                rename: *name.target != *asked,
                adapter: (name.kind == Kind::Adapter).then(|| Arc::clone(&name.target)),
            });
        }
        let (target, pool, kind) = discovered.find(asked)?;
        let adapter = (kind == Kind::Adapter).then(|| Arc::clone(target));
        Some(Route { pool, target: Arc::clone(target), rename: false, adapter })
    }
}

impl Fallback {
    fn route(&self, target: Arc<str>) -> Route {
        Route { pool: self.pool, target, rename: false, adapter: None }
    }
}

/// Draws a target by weight. `None` when all weigh nothing, which a table's never do.
fn draw<'a>(targets: &'a [Target], rng: &mut fastrand::Rng) -> Option<&'a Target> {
    let total: u64 = targets.iter().map(|target| u64::from(target.weight)).sum();
    if total == 0 {
        return None;
    }
    let mut left = rng.u64(0..total);
    targets.iter().find(|target| {
        let weight = u64::from(target.weight);
        let hit = left < weight;
        left = left.saturating_sub(weight);
        hit
    })
}

#[cfg(test)]
mod tests;
