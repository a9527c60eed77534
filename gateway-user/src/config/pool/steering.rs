//! A pool's virtual address.

use std::net::{IpAddr, SocketAddr};

use super::super::error::ConfigError;
use super::super::raw;
use super::SteeringConfig;

/// What is done about connections to the pool's virtual address.
pub(super) fn steering(raw: &raw::Pool) -> Result<Option<SteeringConfig>, ConfigError> {
    let Some(text) = &raw.virtual_ip else {
        return match &raw.mode {
            None => Ok(None),
            Some(mode) => Err(ConfigError::at(
                mode,
                "mode says what becomes of connections to virtualIp, and there is none",
                "give virtualIp, such as 127.1.0.1:8000, or drop mode",
            )),
        };
    };
    let fix = "give an address and a port, such as 127.1.0.1:8000 or [fd00::1]:8000";
    let wrong =
        |problem: &str| ConfigError::at(text, format!("virtualIp `{}` {problem}", &**text), fix);
    let address: SocketAddr = text.parse().map_err(|_| wrong("is not an address"))?;
    if !is_for_clients(address.ip()) || address.port() == 0 {
        return Err(wrong("is not one that clients can connect to"));
    }
    let mode = raw.mode.as_ref().map(|mode| mode.value).unwrap_or_default();
    Ok(Some(SteeringConfig { address, mode }))
}

/// Whether sockets of its family connect to it, whatever interface they take.
fn is_for_clients(ip: IpAddr) -> bool {
    let is_of_one_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    // A mapped address is one of IPv4 to the programs and one of IPv6 to the rest.
    ip == ip.to_canonical() && !ip.is_unspecified() && !ip.is_multicast() && !is_of_one_link
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SteeringMode;
    use crate::config::at::At;

    fn pool(address: Option<&str>, mode: Option<SteeringMode>) -> raw::Pool {
        raw::Pool {
            virtual_ip: address.map(|address| At::of(address.to_owned())),
            mode: mode.map(At::of),
            ..raw::Pool::default()
        }
    }

    #[test]
    fn a_virtual_address_alone_sends_connections_to_the_gateway() {
        let config = steering(&pool(Some("127.1.0.1:8000"), None)).unwrap().unwrap();
        assert_eq!(config.address.to_string(), "127.1.0.1:8000");
        assert_eq!(config.mode, SteeringMode::Request);
        let config = steering(&pool(Some("[fd00::1]:8000"), None)).unwrap().unwrap();
        assert_eq!(config.address.to_string(), "[fd00::1]:8000");
        assert_eq!(steering(&pool(None, None)).unwrap(), None);
    }

    #[test]
    fn what_nobody_can_connect_to_is_refused() {
        let v4 = ["127.1.0.1", "0.0.0.0:80", "127.1.0.1:0", "224.0.0.1:80", "x"];
        let v6 = ["fd00::1", "[::]:80", "[fd00::1]:0", "[ff02::1]:80", "[fe80::1]:80"];
        for wrong in v4.into_iter().chain(v6).chain(["[::ffff:127.1.0.1]:80"]) {
            let error = steering(&pool(Some(wrong), None)).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("127.1.0.1:8000"), "{error}");
        }
    }

    #[test]
    fn a_mode_without_an_address_is_refused() {
        let error = steering(&pool(None, Some(SteeringMode::Connection))).unwrap_err();
        assert!(error.to_string().contains("virtualIp"), "{error}");
    }
}
