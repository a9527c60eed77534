//! The deciding half of the gateway: values in, values out.
//!
//! A request's journey through this crate:
//!
//! 1. [`http1`] checks the head and says how the body is framed;
//! 2. [`body`] reads the body as it arrives and finds what routing needs: the
//!    model, whether to stream, the prompt's block hashes ([`prefix`]);
//! 3. [`route`] turns the model name into a pool and a target model;
//! 4. [`admission`] lets the request go on at once, queues it or sheds it;
//! 5. [`pool`] picks an endpoint by its [`policy`] from the latest [`signals`]
//!    and reserves room there at once;
//! 6. [`retry`] says whether a failed attempt may be repeated, [`health`] ejects
//!    endpoints that keep failing;
//! 7. [`sse`] finds the first token and the usage in the answer on its way back.
//!
//! Nothing here reads a clock, a socket, a file or a random device: [`Time`] and
//! random numbers are arguments, so that the daemon and the routing lab run the
//! same code.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests expect values that are exact"))]

pub mod admission;
pub mod body;
pub mod dcgm;
pub mod engine;
pub mod exposition;
pub mod health;
pub mod http1;
mod json;
pub mod peer;
pub mod policy;
pub mod pool;
pub mod prefix;
pub mod rename;
pub mod request;
pub mod retry;
pub mod route;
mod score;
pub mod signals;
pub mod sse;
pub mod time;

pub use request::RequestView;
pub use signals::Signals;
pub use time::Time;
