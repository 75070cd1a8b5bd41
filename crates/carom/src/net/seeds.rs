use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::shared::addressing::DEFAULT_PORT;
use crate::shared::error::StartError;

/// Resolves seeds to addresses. Omits `own`, so that all nodes can be given the same list.
pub(crate) fn resolve(seeds: &[String], own: SocketAddr) -> Result<Vec<SocketAddr>, StartError> {
    let failed = |seed: &str, reason| StartError::Seed { seed: seed.into(), reason };
    let mut addresses = resolve_all(seeds, DEFAULT_PORT, failed)?;
    addresses.retain(|address| *address != own);
    Ok(addresses)
}

pub(crate) fn resolve_registries(registries: &[String]) -> Result<Vec<SocketAddr>, StartError> {
    let failed = |address: &str, reason| StartError::Registry { address: address.into(), reason };
    resolve_all(registries, DEFAULT_REGISTRY_PORT, failed)
}

fn resolve_all(
    names: &[String],
    default_port: u16,
    failed: impl Fn(&str, String) -> StartError,
) -> Result<Vec<SocketAddr>, StartError> {
    let mut addresses = Vec::new();
    for name in names {
        let found = resolve_one(name, default_port).map_err(|reason| failed(name, reason))?;
        addresses.extend(found);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

pub(crate) fn resolve_one(name: &str, default_port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(ip) = name.parse::<IpAddr>() {
        return only_ipv4([SocketAddr::new(ip, default_port)]);
    }
    let resolved = match name.rsplit_once(':') {
        Some((host, port)) => {
            let port: u16 = port
                .parse()
                .map_err(|_| format!("expected a port from 1 to 65535, not {port:?}"))?;
            if host.is_empty() || port == 0 {
                return Err("expected HOST:PORT with a port from 1 to 65535".into());
            }
            (host.trim_matches(['[', ']']), port).to_socket_addrs()
        }
        None if name.is_empty() => return Err("the address is empty".into()),
        None => (name, default_port).to_socket_addrs(),
    };
    only_ipv4(resolved.map_err(|error| format!("the host name cannot be resolved: {error}"))?)
}

fn only_ipv4(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    let addresses: Vec<SocketAddr> = addresses.into_iter().filter(SocketAddr::is_ipv4).collect();
    match addresses.is_empty() {
        true => Err("it has no IPv4 address".into()),
        false => Ok(addresses),
    }
}

const DEFAULT_REGISTRY_PORT: u16 = 7402;

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: SocketAddr =
        SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), DEFAULT_PORT);

    fn resolved(seeds: &[&str]) -> Result<Vec<SocketAddr>, StartError> {
        let seeds: Vec<String> = seeds.iter().map(|seed| (*seed).to_owned()).collect();
        resolve(&seeds, OWN)
    }

    #[test]
    fn seeds_have_the_default_port_unless_they_name_one() {
        let addresses = resolved(&["10.0.0.2", "10.0.0.3:9", "10.0.0.2:7400"]).expect("addresses");
        let text: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        assert_eq!(text, ["10.0.0.2:7400", "10.0.0.3:9"]);
    }

    #[test]
    fn services_have_a_port_of_their_own_and_errors_that_say_so() {
        let registries = |registry: &str| resolve_registries(&[registry.to_owned()]);
        let addresses = registries("10.0.0.2").expect("an address");
        assert_eq!(addresses, ["10.0.0.2:7402".parse().expect("an address")]);
        let error = registries("10.0.0.1:0").expect_err("no port");
        assert!(error.to_string().starts_with("registry \"10.0.0.1:0\" is invalid: "), "{error}");
    }

    #[test]
    fn the_node_is_not_its_own_seed() {
        assert_eq!(resolved(&["10.0.0.1"]).expect("nothing left"), []);
    }

    #[test]
    fn what_is_no_address_is_an_error_that_names_it() {
        for bad in ["", ":7400", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:0", "[::1]:7400", "::1"] {
            let error = resolved(&[bad]).expect_err(bad);
            assert!(
                error.to_string().starts_with(&format!("seed {bad:?} is invalid: ")),
                "{error}"
            );
        }
    }
}
