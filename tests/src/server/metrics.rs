//! `/metrics`: vLLM's page, or that of another engine.
//!
//! The page is a template (`metrics/vllm.txt`: every family's HELP and TYPE line in
//! vLLM's order, and what Python's client says of its process) filled with readings
//! of the engines. Families that need what a simulation does not have (FLOPs,
//! images) are there and zero, so that a scraper meets the real size and shape.

use std::fmt::Write as _;

use super::driver::Driver;
use super::failure::MetricsFault;
use super::latency::Latencies;
use super::log::count;
use super::options::Flavour;
use super::outlet::Whole;
use super::shared::{Shared, lock};
use crate::engine::{Load, Stats};

mod exposition;
mod http_families;
mod lora;
mod other;
mod vllm;

pub(super) use http_families::{Exchange, HttpStats};
pub(super) use lora::LoraSeries;

/// One engine at the moment of a scrape.
struct Reading {
    load: Load,
    stats: Stats,
    latencies: Latencies,
}

/// `GET /metrics`
pub(super) async fn respond(shared: &Shared) -> Whole {
    count(&shared.totals.scrapes);
    let fault = shared.current_failures().metrics;
    if fault.delay_seconds > 0.0 {
        tokio::time::sleep(std::time::Duration::from_secs_f64(fault.delay_seconds)).await;
    }
    if let Some(status) = fault.status {
        return Whole::bare(status, "");
    }
    let page = page(shared, &fault);
    // As vLLM's OpenAPI description has it.
    Whole::typed(200, "text/plain; version=1.0.0; charset=utf-8", page.into_bytes())
}

fn page(shared: &Shared, fault: &MetricsFault) -> String {
    if let Some(page) = lock(&shared.frozen_page).clone() {
        return without(&page, &fault.missing);
    }
    let readings = readings(&shared.driver);
    let page = match shared.options.flavour {
        Flavour::Vllm => vllm::page(shared, &readings),
        other => other::page(other, shared, &readings),
    };
    if fault.frozen {
        *lock(&shared.frozen_page) = Some(page.clone());
    }
    without(&page, &fault.missing)
}

fn readings(driver: &Driver) -> Vec<Reading> {
    driver.read(|load, stats, latencies| Reading {
        load: load.clone(),
        stats: stats.clone(),
        latencies: latencies.clone(),
    })
}

/// The page without some families.
fn without(page: &str, missing: &[String]) -> String {
    if missing.is_empty() {
        return page.to_owned();
    }
    let mut kept = String::with_capacity(page.len());
    let mut skip = false;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")) {
            let name = rest.split(' ').next().unwrap_or_default();
            skip = missing.iter().any(|missing| missing == name);
        }
        if !skip {
            let _infallible = writeln!(kept, "{line}");
        }
    }
    kept
}
