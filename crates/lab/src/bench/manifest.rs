use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use carom_bench::plan::Roles;
use carom_bench::report::Order;
use serde::Deserialize;

/// The description of a peer that was built: `manifest.toml` in its folder.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Manifest {
    /// Command that starts a node, without the arguments that all systems share. `{out}` stands for
    /// the folder of all peers. Empty if the system only sends files.
    #[serde(default)]
    pub(super) start: Vec<String>,
    /// Files with settings, by name.
    #[serde(default)]
    pub(super) settings: BTreeMap<String, String>,
    /// Order of delivery that the system promises.
    #[serde(default)]
    order: Order,
    /// Order that it promises among members, if it differs.
    #[serde(default)]
    order_of_members: Option<Order>,
    pub(super) supports: Vec<String>,
    /// Largest number of groups.
    #[serde(default)]
    pub(super) groups: u32,
    /// Pause in seconds between `ready` and `go`, where a sender does not see its receivers.
    #[serde(default)]
    pub(super) warm_up_s: u64,
    /// Expected seconds from the start of a node to `ready`, with its own warm-up.
    #[serde(default)]
    pub(super) start_s: f64,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// Command that prints the version.
    #[serde(default)]
    pub(super) version: Vec<String>,
    /// Commands that transfer a file, by the name of the settings.
    #[serde(default)]
    pub(super) files: BTreeMap<String, FileCommands>,
}

/// The commands that transfer a file. They contain words in braces.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FileCommands {
    pub(super) sender: Vec<String>,
    pub(super) receiver: Vec<String>,
    /// Path of a receiver's copy.
    pub(super) copy: String,
    /// `true` if a receiver ends by itself.
    pub(super) receiver_ends: bool,
}

impl Manifest {
    /// Reads the manifest of a peer in the folder of all peers. The error is the reason why the
    /// peer cannot be measured.
    pub(super) fn read(peers: &Path, name: &str) -> Result<Self, String> {
        let path = peers.join(name).join("manifest.toml");
        let Ok(text) = fs::read_to_string(&path) else {
            let reason = fs::read_to_string(peers.join(format!("{name}.skipped")));
            return Err(match reason {
                Ok(reason) => format!("not built: {}", reason.trim()),
                Err(_) => format!("not built: {} is missing", path.display()),
            });
        };
        toml::from_str(&text).map_err(|error| format!("{} is invalid: {error}", path.display()))
    }

    /// Returns the order of delivery that the peer promises to nodes with these roles.
    pub(super) fn order(&self, roles: Roles) -> Order {
        match (roles, self.order_of_members) {
            (Roles::AllMembers, Some(order)) => order,
            _ => self.order,
        }
    }

    /// Returns `true` if the peer has an ability, such as `members`.
    pub(super) fn supports(&self, ability: &str) -> bool {
        self.supports.iter().any(|it| it == ability)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn peer_that_was_not_built_has_a_reason() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let reason = || Manifest::read(dir.path(), "norm").expect_err("it is missing");
        assert!(reason().starts_with("not built: "), "{}", reason());
        fs::write(dir.path().join("norm.skipped"), "g++ is missing\n").expect("it is writable");
        assert_eq!(reason(), "not built: g++ is missing");
    }

    #[test]
    fn batched_cyclone_is_the_tuned_one_with_write_batching() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/cyclone");
        let values = |name: &str| {
            let text = fs::read_to_string(folder.join(name)).expect("it exists");
            let lines = text.lines().map(str::trim).filter(|line| line.contains("</"));
            lines.map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let (tuned, batched) = (values("tuned.xml"), values("batched.xml"));
        let differing: Vec<&String> = tuned.symmetric_difference(&batched).collect();
        assert_eq!(differing, ["<WriteBatch>true</WriteBatch>"]);
    }

    #[test]
    fn manifests_of_all_peers_are_valid() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        for name in super::super::system::PEERS {
            let manifest = Manifest::read(&peers, name).expect("it is valid");
            assert!(!manifest.supports.is_empty(), "{name}");
            assert!((0.0..60.0).contains(&manifest.start_s), "{name}");
            let members = manifest.order(Roles::AllMembers);
            let is_total = ["corosync", "jgroups"].contains(&name);
            assert_eq!(members == Order::Total, is_total, "{name}");
            let files = manifest.settings.values();
            files.for_each(|file| assert!(peers.join(name).join(file).exists(), "{name}: {file}"));
        }
    }
}
