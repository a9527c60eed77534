//! What the engines say they serve, and the list a client is given.
//!
//! The list names exactly what a request may name: configured names, whether or
//! not an engine answers just now, and the adapters and models that engines report.
//! Cards are taken over from the engines, so that `max_model_len`, `parent` and
//! `root` stay what they say.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Kind, PoolNames, RouteTable};

/// An entry of `/v1/models`: OpenAI's fields, and vLLM's beyond them.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ModelCard {
    /// Name.
    pub id: Arc<str>,
    /// Always `model`.
    #[serde(default = "object")]
    pub object: Arc<str>,
    /// Seconds since 1970.
    #[serde(default)]
    pub created: u64,
    /// Who made it.
    #[serde(default = "owner")]
    pub owned_by: Arc<str>,
    /// Where it is loaded from, or what it is another name for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Arc<str>>,
    /// Base model of an adapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<str>>,
    /// Longest context, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u64>,
}

fn object() -> Arc<str> {
    "model".into()
}

fn owner() -> Arc<str> {
    "inference-gateway".into()
}

impl ModelCard {
    fn named(id: &Arc<str>) -> Self {
        Self {
            id: Arc::clone(id),
            object: object(),
            created: 0,
            owned_by: owner(),
            root: None,
            parent: None,
            max_model_len: None,
        }
    }
}

/// What one pool's engines answered: the cards of all of them, in any order.
pub type PoolCards = Vec<ModelCard>;

/// Names found at the engines, beyond the configured ones.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Discovered {
    names: HashMap<Arc<str>, (usize, Kind)>,
}

impl Discovered {
    /// Adds `name`, as found at an engine of `pool`. The first pool to have a name keeps it.
    pub fn insert(&mut self, name: &str, pool: usize, kind: Kind) {
        if !self.names.contains_key(name) {
            self.names.insert(name.into(), (pool, kind));
        }
    }

    /// How many names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn find(&self, name: &str) -> Option<(&Arc<str>, usize, Kind)> {
        let (name, &(pool, kind)) = self.names.get_key_value(name)?;
        Some((name, pool, kind))
    }
}

impl RouteTable {
    /// What can be reached because engines serve it: adapters in every pool; base models
    /// only where the pool takes whatever its engines serve. `cards` is by pool.
    #[must_use]
    pub fn discover(&self, cards: &[PoolCards]) -> Discovered {
        let mut found = Discovered::default();
        for (index, (pool, cards)) in self.settings.pools.iter().zip(cards).enumerate() {
            for card in cards.iter().filter(|card| !self.names.contains_key(&card.id)) {
                match kind(card) {
                    Kind::Base if pool.model.is_some() => {}
                    kind => found.insert(&card.id, index, kind),
                }
            }
        }
        found
    }

    /// The list for a client who may use what `allowed` says: no name twice, pools in
    /// their order, in each the model, its other names, then adapters by name.
    pub fn list(&self, cards: &[PoolCards], allowed: impl Fn(&str) -> bool) -> Vec<ModelCard> {
        let found = self.discover(cards);
        let none = PoolCards::new();
        let mut list = Vec::new();
        for (index, pool) in self.settings.pools.iter().enumerate() {
            let cards = cards.get(index).unwrap_or(&none);
            list_pool(&mut list, pool, cards, |name| {
                found.find(name).is_some_and(|(_, pool, _)| pool == index)
            });
        }
        for rule in &self.settings.rewrites {
            list.extend(rule.models.iter().map(ModelCard::named));
        }
        let mut seen = HashSet::new();
        list.retain(|card| allowed(&card.id) && seen.insert(Arc::clone(&card.id)));
        list
    }
}

fn kind(card: &ModelCard) -> Kind {
    if card.parent.is_some() { Kind::Adapter } else { Kind::Base }
}

fn list_pool(
    list: &mut Vec<ModelCard>,
    pool: &PoolNames,
    cards: &PoolCards,
    is_found: impl Fn(&str) -> bool,
) {
    let card = |name: &Arc<str>| cards.iter().find(|card| card.id == *name).cloned();
    for name in pool.model.iter().chain(&pool.served) {
        list.push(card(name).unwrap_or_else(|| ModelCard::named(name)));
    }
    for alias in &pool.aliases {
        let base = pool.model.as_ref().and_then(card);
        let base = base.unwrap_or_else(|| ModelCard::named(alias));
        list.push(ModelCard { id: Arc::clone(alias), root: pool.model.clone(), ..base });
    }
    let first = list.len();
    for name in &pool.adapters {
        list.push(
            card(name).unwrap_or_else(|| ModelCard {
                parent: pool.model.clone(),
                ..ModelCard::named(name)
            }),
        );
    }
    list.extend(cards.iter().filter(|card| is_found(&card.id)).cloned());
    // Engines answer in any order; base models of an open pool go first.
    list[first..]
        .sort_by(|a, b| (kind(a) == Kind::Adapter, &a.id).cmp(&(kind(b) == Kind::Adapter, &b.id)));
}

#[cfg(test)]
mod tests;
