use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::error::NodeError;

/// The settings of a node of Carom or of plain sockets. Missing settings have the defaults of the
/// product.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    pub(super) profile: Profile,
    /// Rate-of-fire (r, c) of a time-critical group.
    pub(super) rate_of_fire: Option<(u8, u8)>,
    /// Bytes of the largest IP packet.
    pub(super) mtu: Option<u16>,
    /// UDP port of all multicast traffic.
    pub(super) multicast_port: Option<u16>,
    /// Address of a registry, in a network without discovery.
    pub(super) registry: Option<String>,
    /// `true` if data only goes by multicast, in a network that does not answer probes of paths.
    pub(super) only_multicast: bool,
    /// Events that the queue of a group holds.
    pub(super) queue: Option<usize>,
    /// `true` if the kernel stamps the datagrams that plain sockets receive.
    pub(super) kernel_times: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Profile {
    #[default]
    TimeCritical,
    Ordered,
    Bulk,
}

impl Settings {
    pub(super) fn read(path: Option<&Path>) -> Result<Self, NodeError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let tried = format!("cannot read {}", path.display());
        let text = fs::read_to_string(path).map_err(NodeError::io(&tried))?;
        toml::from_str(&text).map_err(|error| NodeError::Settings { path: path.to_owned(), error })
    }

    pub(super) fn group_profile(&self) -> carom::Profile {
        match (self.profile, self.rate_of_fire) {
            (Profile::TimeCritical, None) => carom::Profile::time_critical(),
            (Profile::TimeCritical, Some((r, c))) => {
                carom::Profile::time_critical().rate_of_fire(r, c)
            }
            (Profile::Ordered, _) => carom::Profile::ordered(),
            (Profile::Bulk, _) => carom::Profile::bulk(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_defaults_of_the_product() {
        let defaults = Settings::read(None).expect("there is no file");
        assert_eq!(defaults.group_profile(), carom::Profile::time_critical());
        let dir = tempfile::tempdir().expect("a folder for the test");
        let path = dir.path().join("tuned.toml");
        let read = |text: &str| {
            fs::write(&path, text).expect("the folder is writable");
            Settings::read(Some(&path))
        };
        let tuned =
            read("profile = \"time-critical\"\nrate_of_fire = [4, 3]").expect("it is valid");
        assert_eq!(tuned.group_profile(), carom::Profile::time_critical().rate_of_fire(4, 3));
        let ordered = read("profile = \"ordered\"\nmtu = 9000").expect("it is valid");
        assert_eq!(ordered.group_profile(), carom::Profile::ordered());
        assert_eq!(ordered.registry, None);
        let managed = read("registry = \"10.0.0.1\"\nonly_multicast = true").expect("it is valid");
        assert!(managed.registry.as_deref() == Some("10.0.0.1") && managed.only_multicast);
        let error = read("speed = 1").expect_err("it is invalid").to_string();
        assert!(error.contains("tuned.toml") && error.contains("unknown field `speed`"), "{error}");
    }
}
