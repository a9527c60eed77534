//! Simulated model servers and the gateway in front of them, as real processes.
//!
//! What demo and client tests have in common. Everything listens on the loopback
//! interface, on ports that were free a moment ago, and ends with its owner.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::child::{Child, free_addresses};
use crate::machine;

/// How long a server may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the programs are built.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Build {
    /// As operators run them.
    Release,
    /// As the tests are; quick to build.
    Test,
}

/// The built programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    gateway: PathBuf,
    engines: PathBuf,
}

/// Running model servers, all in one process.
#[derive(Debug)]
pub(crate) struct Engines {
    /// Where each listens, in the order they were described in.
    pub(crate) addresses: Vec<SocketAddr>,
    _child: Child,
}

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    /// Where clients connect.
    pub(crate) listen: SocketAddr,
    /// Where operators look.
    pub(crate) admin: SocketAddr,
    /// Its configuration file.
    pub(crate) config: PathBuf,
    child: Child,
}

impl Programs {
    /// Builds them.
    ///
    /// # Errors
    ///
    /// When they do not build; cargo has said why.
    pub(crate) fn build(how: Build) -> Result<Self> {
        let mut cargo = machine::cargo(&["build", "--package", "inference-gateway"])?;
        cargo.args(["--package", "gateway-tests", "--bins"]);
        let profile = match how {
            Build::Release => {
                cargo.arg("--release");
                "release"
            }
            Build::Test => "debug",
        };
        machine::run(&mut cargo, "cannot build the gateway and the simulated model servers")?;
        let built = machine::target()?.join(profile);
        let (gateway, engines) = (built.join("inference-gateway"), built.join("simulated-engine"));
        Ok(Self { gateway, engines })
    }

    /// Starts one model server per description, `key=value,...` as
    /// `simulated-engine --server` takes it; logs go to `home`.
    ///
    /// # Errors
    ///
    /// When they do not listen in time.
    pub(crate) fn start_engines(&self, descriptions: &[String], home: &Path) -> Result<Engines> {
        let addresses = free_addresses(descriptions.len())?;
        let mut command = Command::new(&self.engines);
        for (description, address) in descriptions.iter().zip(&addresses) {
            command.arg("--server").arg(format!("{description},port={}", address.port()));
        }
        let mut child = Child::spawn("simulated-engine", &mut command, &home.join("engines.log"))?;
        for address in &addresses {
            child.wait_listening(*address, PATIENCE)?;
        }
        Ok(Engines { addresses, _child: child })
    }

    /// Starts the gateway and waits until it is ready for requests. `config` makes
    /// its file from the addresses to listen on, first for clients, then for operators.
    ///
    /// # Errors
    ///
    /// When it does not become ready in time.
    pub(crate) fn start_gateway(
        &self,
        home: &Path,
        config: impl FnOnce(SocketAddr, SocketAddr) -> String,
    ) -> Result<Gateway> {
        let addresses = free_addresses(2)?;
        let (listen, admin) = (addresses[0], addresses[1]);
        let file = home.join("gateway.yaml");
        fs::write(&file, config(listen, admin))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = Command::new(&self.gateway);
        command.args(["run", "--config"]).arg(&file);
        let mut child = Child::spawn("inference-gateway", &mut command, &home.join("gateway.log"))?;
        child.wait_listening(listen, PATIENCE)?;
        child.wait_listening(admin, PATIENCE)?;
        let gateway = Gateway { listen, admin, config: file, child };
        gateway.wait_ready()?;
        Ok(gateway)
    }
}

impl Gateway {
    /// Waits until the gateway knows a model server that can take requests.
    fn wait_ready(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let (status, body) = get(self.admin, "/readyz?verbose")?;
            if status == 200 {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("the gateway is not ready: {body}\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The last lines the gateway wrote.
    pub(crate) fn log_tail(&self) -> String {
        self.child.log_tail()
    }
}

/// Fetches `path`: the status and the body.
///
/// # Errors
///
/// When there is no answer, or not one of HTTP.
pub(crate) fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let failure = || format!("cannot fetch http://{address}{path}");
    let mut stream = TcpStream::connect(address).with_context(failure)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(failure)?;
    parse(&answer).with_context(failure)
}

/// Takes an answer apart whose body ends with the connection.
fn parse(answer: &[u8]) -> Option<(u16, String)> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nwait";
        assert_eq!(parse(answer), Some((503, "wait".to_owned())));
        assert_eq!(parse(b"SSH-2.0\r\n\r\n"), None);
    }
}
