//! An endpoint's address: where to connect, and how to call it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use gateway_core::pool::EndpointId;
use prometheus::IntCounter;

use crate::tls::Tls;

/// A model server as the daemon reaches it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The pool's name for it.
    pub id: EndpointId,
    /// `host:port`: its name in metrics and logs, and the `Host` of requests to it.
    pub authority: Arc<str>,
    host: Arc<str>,
    ip: Option<IpAddr>,
    port: u16,
    tls: Option<Tls>,
    /// Counts the requests sent to it.
    picks: OnceLock<IntCounter>,
}

impl Endpoint {
    /// The endpoint at `host` (a name, an IPv4 or a bare IPv6 address) and `port`.
    #[must_use]
    pub fn new(id: EndpointId, host: &str, port: u16) -> Self {
        let ip = host.parse().ok();
        let authority = match ip {
            Some(ip) => SocketAddr::new(ip, port).to_string(),
            None => format!("{host}:{port}"),
        };
        Self {
            id,
            authority: authority.into(),
            host: host.into(),
            ip,
            port,
            tls: None,
            picks: OnceLock::new(),
        }
    }

    /// The same, spoken to over TLS.
    #[must_use]
    pub fn over(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The counter of requests sent to it, found by `find` once: looking a counter up by its
    /// labels hashes them and takes a lock.
    pub fn picks(&self, find: impl FnOnce() -> IntCounter) -> &IntCounter {
        self.picks.get_or_init(find)
    }

    /// How to speak TLS to it, if it wants TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The address, when no name must be resolved first.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.ip.map(|ip| SocketAddr::new(ip, self.port))
    }

    /// Host name or address, without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}
