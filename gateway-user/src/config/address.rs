//! Addresses of listeners and of engines.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::at::At;
use super::error::ConfigError;

/// Where an HTTP server is.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HttpAddress {
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Name, IPv4 or bare IPv6 address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path and query, from the slash on; `/` when none was given.
    pub path: String,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
}

impl HttpAddress {
    /// `host:port`, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, self.port).to_string(),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }

    /// Reads `[http[s]://]host[:port][/path]`; the port of https is 443.
    pub(super) fn parse(
        text: &At<String>,
        what: &str,
        default_port: u16,
    ) -> Result<Self, ConfigError> {
        parse(text, default_port).ok_or_else(|| {
            let problem = format!("`{}` is not an address of {what}", &**text);
            ConfigError::at(text, problem, "write for example http://10.0.0.1:8000")
        })
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

fn parse(text: &str, default_port: u16) -> Option<HttpAddress> {
    let text = text.trim();
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
        Some(_) => return None,
        None => (Scheme::Http, text),
    };
    let default_port = if scheme == Scheme::Https { 443 } else { default_port };
    let path_at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path_at);
    let (host, port) = split_port(authority, default_port)?;
    let is_host = !host.is_empty()
        && host.len() <= 253
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if port == 0 || !(is_host || host.parse::<IpAddr>().is_ok()) {
        return None;
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return None;
    }
    let path = if path.is_empty() { "/" } else { path };
    Some(HttpAddress { scheme, host: host.to_owned(), port, path: path.to_owned() })
}

/// Host without brackets, and port.
fn split_port(authority: &str, default_port: u16) -> Option<(&str, u16)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, port.parse().ok()?)),
            None if rest.is_empty() => Some((host, default_port)),
            None => None,
        };
    }
    match authority.rsplit_once(':') {
        // A bare IPv6 address has several colons and no port.
        Some((host, _)) if host.contains(':') => Some((authority, default_port)),
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((authority, default_port)),
    }
}

/// Reads the address of a listener: an IP address or `localhost`, and a port. Port 0
/// lets the kernel choose.
pub(super) fn parse_listener(text: &At<String>) -> Result<SocketAddr, ConfigError> {
    let local = |port: &str| {
        let port = port.parse().ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    };
    let parsed = match text.strip_prefix("localhost:") {
        Some(port) => local(port),
        None => text.parse().ok(),
    };
    parsed.ok_or_else(|| {
        let problem = format!("`{}` is not an address to listen on", &**text);
        ConfigError::at(text, problem, "write an IP address and a port, such as 0.0.0.0:8080")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<String> {
        parse(text, 8000).map(|address| address.to_string())
    }

    #[test]
    fn scheme_port_and_path_are_optional() {
        for (text, expected) in [
            ("10.0.0.1", "http://10.0.0.1:8000/"),
            ("engine-0.engines:30000", "http://engine-0.engines:30000/"),
            ("HTTP://10.0.0.1:9400/metrics", "http://10.0.0.1:9400/metrics"),
            ("https://engine", "https://engine:443/"),
            ("[::1]:9000", "http://[::1]:9000/"),
            ("http://[::1]", "http://[::1]:8000/"),
            ("fd00::7", "http://[fd00::7]:8000/"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["", "http://", "ftp://a", "a:b", "a:99999", "a:0", "a b", "[::1", "[::1]x", "[x]:1"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn listeners_have_an_address_and_a_port() {
        let listener = |text: &str| parse_listener(&At::of(text.to_owned()));
        assert_eq!(listener("localhost:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(listener("[::]:8080").unwrap().to_string(), "[::]:8080");
        let error = listener("8080").unwrap_err();
        assert!(error.to_string().contains("0.0.0.0:8080"));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "\\PC{0,30}") {
            if let Some(address) = parse(&text, 8000) {
                prop_assert_eq!(parse(&address.to_string(), 1), Some(address));
            }
        }
    }
}
