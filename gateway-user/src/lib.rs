//! The daemon: listens, scrapes, forwards; every decision is made in `gateway-core`.
//!
//! Start reading at [`app`], which builds and connects all parts; then
//! [`proxy`], where a request lives.

mod access_log;
mod admin;
pub mod app;
pub mod args;
pub mod auth;
mod carrier;
pub mod cli;
pub mod clock;
pub mod config;
mod datapath;
pub mod drain;
pub mod endpoint;
mod fetch;
pub mod gateway;
pub mod kernel;
pub mod metrics;
mod models;
mod peers;
pub mod pool;
pub mod proxy;
mod readiness;
pub mod reload;
mod scrape;
mod signals;
mod sk_msg;
mod splice;
mod steer;
pub mod telemetry;
pub mod tls;
