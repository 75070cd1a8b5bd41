//! The addresses that a node begins with.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::error::StartError;
use crate::sockets::DEFAULT_PORT;

/// The addresses of `seeds`, each `HOST:PORT` or `HOST`, of which a name may have several. `own`
/// is left out: a list of all nodes may be given to each of them.
pub(crate) fn resolve(seeds: &[String], own: SocketAddr) -> Result<Vec<SocketAddr>, StartError> {
    let mut addresses = Vec::new();
    for seed in seeds {
        addresses.extend(resolve_one(seed)?);
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses.retain(|address| *address != own);
    Ok(addresses)
}

fn resolve_one(seed: &str) -> Result<Vec<SocketAddr>, StartError> {
    let failed = |reason: String| StartError::Seed { seed: seed.into(), reason };
    if let Ok(ip) = seed.parse::<IpAddr>() {
        return only_ipv4(seed, [SocketAddr::new(ip, DEFAULT_PORT)]);
    }
    let resolved = match seed.rsplit_once(':') {
        Some((host, port)) => {
            let port: u16 = port.parse().map_err(|_| failed(format!("{port:?} is no port")))?;
            if host.is_empty() || port == 0 {
                return Err(failed("host and port are needed".into()));
            }
            (host.trim_matches(['[', ']']), port).to_socket_addrs()
        }
        None if seed.is_empty() => return Err(failed("it is empty".into())),
        None => (seed, DEFAULT_PORT).to_socket_addrs(),
    };
    only_ipv4(seed, resolved.map_err(|error| failed(format!("cannot be resolved: {error}")))?)
}

fn only_ipv4(
    seed: &str,
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> Result<Vec<SocketAddr>, StartError> {
    let addresses: Vec<SocketAddr> = addresses.into_iter().filter(SocketAddr::is_ipv4).collect();
    if addresses.is_empty() {
        return Err(StartError::Seed {
            seed: seed.into(),
            reason: "it has no IPv4 address".into(),
        });
    }
    Ok(addresses)
}

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
    fn the_node_is_not_its_own_seed() {
        assert_eq!(resolved(&["10.0.0.1"]).expect("nothing left"), []);
    }

    #[test]
    fn what_is_no_address_is_an_error_that_names_it() {
        for bad in ["", ":7400", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:0", "[::1]:7400", "::1"] {
            let error = resolved(&[bad]).expect_err(bad);
            assert!(error.to_string().starts_with(&format!("seed {bad:?}: ")), "{error}");
        }
    }
}
