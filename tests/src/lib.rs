//! Simulated model servers, the test harness and the scenarios.
//!
//! - [`engine`]: a model server's engine as a pure state machine, with the speed of
//!   a [`profile`];
//! - [`virtual_clock`]: many engines and their arrivals without any IO;
//! - [`server`]: the same engine behind a socket, for a client not to be told from
//!   vLLM, with failures to order;
//! - [`client`]: a client that sees every byte, chunk and pause;
//! - [`gateway`]: the gateway itself, in process;
//! - [`lab`]: policies compared on virtual time;
//! - [`net`]: namespaces for the data path's tests, client, gateway and pods in one each;
//! - [`place`]: on loopback, or in such a network;
//! - [`wait`]: how tests wait for something.

pub mod answer;
mod block_map;
pub mod client;
pub mod engine;
pub mod gateway;
pub mod histogram;
pub mod lab;
pub mod place;
pub mod profile;
pub mod server;
pub mod tokenizer;
pub mod virtual_clock;
pub mod wait;

pub use gateway_testnet as net;
