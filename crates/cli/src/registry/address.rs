use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use carom_registry::{DEFAULT_HTTP_PORT, DEFAULT_PORT};
use carom_terminal::{CliError, plain};

/// Resolves `names`, each HOST or HOST:PORT, to IPv4 addresses without duplicates.
pub(crate) fn resolve(names: &[String]) -> Result<Vec<SocketAddr>, CliError> {
    let mut all = Vec::new();
    for name in names {
        let with_port = match name.parse::<SocketAddr>() {
            Ok(address) => address.to_string(),
            Err(_) if name.contains(':') => name.clone(),
            Err(_) => format!("{name}:{DEFAULT_PORT}"),
        };
        let found = with_port.to_socket_addrs().map_err(|error| {
            let cause = format!("registry {name:?} cannot be resolved: {}", plain(&error));
            CliError::new(cause, "use the address of a `carom registry`, HOST or HOST:PORT")
        })?;
        all.extend(found.filter(SocketAddr::is_ipv4));
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        let cause = format!("registry {} has no IPv4 address", names.join(", "));
        return Err(CliError::new(cause, "use the IPv4 address of a `carom registry`"));
    }
    Ok(all)
}

pub(super) fn default_http() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_HTTP_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_has_that_of_the_service() {
        let names = ["10.0.0.5", "10.0.0.6:9", "10.0.0.5:7402"].map(str::to_owned);
        let found = resolve(&names).expect("they are addresses");
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.5:7402", "10.0.0.6:9"]);
        let error = resolve(&["10.0.0.5:x".to_owned()]).expect_err("it has no port");
        assert!(error.to_string().contains("10.0.0.5:x"), "{error}");
    }
}
