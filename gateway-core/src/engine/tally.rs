//! Combines the rows of a page into one reading.

use super::{CacheInfo, Signal};
use crate::exposition::Row;
use crate::signals::{Adapters, Signals};

/// What was counted so far. Nothing of a family seen is not the same as zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    waiting: Option<f64>,
    running: Option<f64>,
    preemptions: Option<f64>,
    kv_usage: Mean,
    old_kv_usage: Mean,
    block_size: Option<f64>,
    blocks: Option<f64>,
    /// Blocks by the labels of an info series; a gauge of its own is preferred.
    blocks_in_labels: Option<f64>,
    /// The newest row of vLLM's request view.
    requests: Option<LoraRequests>,
    loaded: Option<Vec<String>>,
    max_loaded: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    rows: u32,
}

/// A row of `lora_requests_info`; its value is the time at which it was true.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
struct LoraRequests {
    time: f64,
    max: u32,
    running: Vec<String>,
    waiting: Vec<String>,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value.min(1.0);
        self.rows += 1;
    }

    fn value(self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / f64::from(self.rows))
    }
}

fn add(sum: &mut Option<f64>, value: f64) {
    *sum = Some(sum.unwrap_or(0.0) + value);
}

fn most(of: &mut Option<f64>, value: f64) {
    *of = Some(of.unwrap_or(0.0).max(value));
}

impl Tally {
    /// Counts a row. What is not a finite number of at least 0 is missing.
    pub(super) fn count(&mut self, signal: &Signal, row: &Row) {
        let value = row.value;
        if !value.is_finite() || value < 0.0 {
            return;
        }
        match signal {
            Signal::Waiting => add(&mut self.waiting, value),
            Signal::Running => add(&mut self.running, value),
            Signal::Preemptions => add(&mut self.preemptions, value),
            Signal::Blocks => add(&mut self.blocks, value),
            Signal::KvUsage => self.kv_usage.add(value),
            Signal::OldKvUsage => self.old_kv_usage.add(value),
            Signal::BlockSize => most(&mut self.block_size, value),
            Signal::LoraMax => most(&mut self.max_loaded, value),
            Signal::CacheInfo(labels) => self.cache_info(labels, row),
            Signal::LoraRequests => self.lora_requests(row),
            Signal::LoraLoaded => self.lora_loaded(row),
        }
    }

    fn cache_info(&mut self, labels: &CacheInfo, row: &Row) {
        let number = |label: &str| row.labels.value(label)?.parse::<u32>().ok().map(f64::from);
        if let Some(size) = number(&labels.block_size_label) {
            most(&mut self.block_size, size);
        }
        if let Some(blocks) = number(&labels.blocks_label) {
            add(&mut self.blocks_in_labels, blocks);
        }
    }

    /// A row per combination of adapters ever seen is left on the page; only the
    /// newest is true.
    fn lora_requests(&mut self, row: &Row) {
        let names = |label| row.labels.value(label).as_deref().map(comma_separated);
        let max = row.labels.value("max_lora").and_then(|max| max.trim().parse().ok());
        let requests = LoraRequests {
            time: row.value,
            max: max.unwrap_or(0),
            running: names("running_lora_adapters").unwrap_or_default(),
            waiting: names("waiting_lora_adapters").unwrap_or_default(),
        };
        if self.requests.as_ref().is_none_or(|newest| *newest < requests) {
            self.requests = Some(requests);
        }
    }

    /// Newer vLLM says what is resident: a row per adapter and level of memory.
    fn lora_loaded(&mut self, row: &Row) {
        let loaded = self.loaded.get_or_insert_default();
        let on_gpu =
            row.labels.value("level").is_none_or(|level| level.eq_ignore_ascii_case("gpu"));
        if on_gpu && row.value > 0.0 {
            loaded.extend(row.labels.value("adapter_name"));
        }
    }

    pub(super) fn into_signals(self) -> Signals {
        let whole = |number: Option<f64>| number.map(|number| number as u32);
        Signals {
            waiting: self.waiting,
            running: self.running,
            kv_usage: self.kv_usage.value().or(self.old_kv_usage.value()),
            block_size: whole(self.block_size),
            blocks: whole(self.blocks.or(self.blocks_in_labels)),
            preemptions: self.preemptions,
            adapters: self.adapters(),
        }
    }

    fn adapters(self) -> Option<Adapters> {
        if self.requests.is_none() && self.loaded.is_none() {
            return None;
        }
        let (max, mut running, waiting) = match self.requests {
            Some(requests) => (requests.max, requests.running, requests.waiting),
            None => (0, Vec::new(), Vec::new()),
        };
        running.extend(self.loaded.unwrap_or_default());
        running.sort_unstable();
        running.dedup();
        let max = self.max_loaded.map_or(max, |max| max as u32);
        Some(Adapters { max, running, waiting })
    }
}

/// Names in a list, sorted, without duplicates.
fn comma_separated(list: &str) -> Vec<String> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}
