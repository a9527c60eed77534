//! The path of a request: client, handler, endpoint, and back.

pub(crate) mod answer;
pub mod api;
mod client;
mod connection;
pub mod error;
mod forward;
mod handler;
mod headers;
mod http2;
mod intake;
pub(crate) mod record;
pub(crate) mod reply;
mod transport;
mod upload;
pub(crate) mod upstream;
pub(crate) mod worker;
