//! TLS towards endpoints whose address begins with `https://`.

use std::io;
use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How to speak TLS to one endpoint.
#[derive(Clone)]
pub struct Tls {
    connector: TlsConnector,
    /// `None`: no certificate can name it, so no connection can be made.
    name: Option<ServerName<'static>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tls {
    /// TLS to `host`, verified against `roots`.
    #[must_use]
    pub fn new(host: &str, roots: &Roots) -> Self {
        let name = ServerName::try_from(host.to_owned()).ok();
        Self { connector: TlsConnector::from(Arc::clone(&roots.config)), name }
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let unnameable = || io::Error::new(io::ErrorKind::InvalidInput, "not a name for TLS");
        let name = self.name.clone().ok_or_else(unnameable)?;
        self.connector.connect(name, stream).await
    }
}

/// The authorities that engines' certificates are verified against: the system's,
/// or those in the file that `SSL_CERT_FILE` names.
#[derive(Clone, Debug)]
pub struct Roots {
    config: Arc<ClientConfig>,
}

impl Roots {
    /// Reads the system's authorities. Those that cannot be read are logged; an
    /// endpoint signed by one of them will fail to connect.
    #[must_use]
    pub fn system() -> Self {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "cannot read a certificate authority");
        }
        let (added, _) = roots.add_parsable_certificates(found.certs);
        tracing::debug!(authorities = added, "certificate authorities read");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { config: Arc::new(config) }
    }
}
