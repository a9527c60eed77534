//! Scenarios about fleets: which endpoint answers, whether any does, and what the
//! gateway tells about it.

mod adapters;
mod admin;
mod ask;
mod auth;
mod capacity;
mod drain;
mod engines;
mod fairness;
mod gpus;
mod health;
mod memory;
mod metrics;
mod models;
mod prefixes;
mod probes;
mod reload;
mod rename;
mod retries;
mod secrets;
mod sessions;
mod spread;
