//! Scenarios about fleets: which endpoint answers, whether any does, and what the
//! gateway tells about it.
#![allow(
    clippy::float_cmp,
    clippy::format_collect,
    clippy::needless_for_each,
    clippy::unwrap_used,
    reason = "counters are whole numbers, what fails in a helper fails its test, and short reads well"
)]

mod adapters;
mod admin;
mod ask;
mod auth;
mod capacity;
mod crowd;
mod defer;
mod drain;
mod engines;
mod fairness;
mod gpus;
mod health;
mod lots;
mod memory;
mod metrics;
mod models;
mod peers;
mod prefixes;
mod probes;
mod reload;
mod rename;
mod retries;
mod secrets;
mod sessions;
mod spread;
