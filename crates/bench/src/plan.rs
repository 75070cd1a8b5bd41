//! The plan of a benchmark: rows, each with systems that are measured in turns.
//!
//! ```toml
//! [[row]]
//! name = "fan-out-loss-1"
//! systems = ["carom", "aeron", "raw"]
//! nodes = 9
//! messages = 20_000
//! rate = 2_000
//! size = 1_024
//! loss = { share = 0.01 }
//! ```

use serde::Deserialize;

/// A list of rows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The rows, in the order of the report.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A case that is measured with several systems.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name, unique in the plan.
    pub name: String,
    /// Names of the systems, in the order of the report.
    pub systems: Vec<String>,
    /// Those of `systems` that are measured only in the first repetition, to save time. Default:
    /// none.
    #[serde(default)]
    pub once: Vec<String>,
    /// Name of the settings of each system. Default: `default`.
    #[serde(default = "default_settings")]
    pub settings: String,
    /// Number of nodes, at least 2, with the senders.
    pub nodes: u32,
    /// Number of racks to which the nodes are distributed. Default: 1.
    #[serde(default = "one")]
    pub racks: u32,
    /// Bytes of the largest IP packet on all links. Default: 1500.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u32,
    /// Megabits per second that each host can send and receive. Default: no limit.
    #[serde(default)]
    pub link_mbit: Option<u32>,
    /// Number of groups. Default: 1.
    #[serde(default = "one")]
    pub groups: u32,
    /// Messages of each sender.
    pub messages: u32,
    /// Messages per second of each sender. 0 means as fast as possible.
    pub rate: f64,
    /// Bytes of a message, at least 32.
    pub size: usize,
    /// Size in mebibytes of a file that node 0 sends instead of messages, with `messages = 1`.
    /// Default: none.
    #[serde(default)]
    pub file_mib: Option<u32>,
    /// Size in mebibytes of a background transfer: node 0 also sends so many bytes in messages of
    /// the same size, as fast as possible, in a second group with the same receivers. The run ends
    /// with the messages, not with this transfer. Default: none.
    #[serde(default)]
    pub background_mib: Option<u32>,
    /// Seconds for which the nodes are left alone after the last delivery, while what they use is
    /// measured. Default: none.
    #[serde(default)]
    pub idle_s: Option<u32>,
    /// Loss of datagrams at the receivers. Default: none.
    #[serde(default)]
    pub loss: Loss,
    /// Intervals in which nodes receive nothing. Default: none.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// Nodes that send. Default: one sender.
    #[serde(default)]
    pub roles: Roles,
    /// Node that is killed. Default: none.
    #[serde(default)]
    pub kill: Option<Kill>,
    /// Number of runs of each system that is not in `once`. Default: 1.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// Earlier row of the same bench with which the report compares the systems of this one.
    /// Default: none.
    #[serde(default)]
    pub baseline: Option<String>,
    /// Largest permitted difference in CPU between each other system and `raw`, in percent of a
    /// processor, which the report evaluates. Default: none.
    #[serde(default)]
    pub cpu_points: Option<f64>,
}

/// The loss of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Share of datagrams, 0 to 1.
    pub share: f64,
    /// `true` if a datagram is lost at the uplink of a rack, on its way from other racks, and thus
    /// at all receivers of the rack together. Default: `false`.
    #[serde(default)]
    pub shared: bool,
}

/// An interval in which a node receives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Index of the node.
    pub node: u32,
    /// Start, in milliseconds after the start of sending.
    pub at_ms: u64,
    /// Duration in milliseconds.
    pub ms: u64,
}

/// The end of a node by SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Index of the node.
    pub node: u32,
    /// Time in milliseconds after the start of sending.
    pub at_ms: u64,
}

/// The roles of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Roles {
    /// Node 0 sends, and all others receive.
    #[default]
    OneSender,
    /// Every node sends and receives.
    AllMembers,
}

/// A plan is not valid.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML, or has wrong fields.
    #[error("the plan is invalid: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value is not allowed.
    #[error("row '{row}': {field} {value} is invalid: expected {allowed}")]
    Value {
        /// Name of the row.
        row: String,
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: String,
        /// Description of the allowed values.
        allowed: &'static str,
    },
}

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// Returns an error if the plan has a wrong field or a value that is not allowed.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text)?;
        for (index, row) in plan.rows.iter().enumerate() {
            row.check()?;
            let is_new = plan.rows[..index].iter().all(|other| other.name != row.name);
            row.require(is_new, "name", &row.name, "a name that no other row has")?;
        }
        Ok(plan)
    }
}

impl Row {
    /// Returns `true` if node `index` receives messages.
    pub fn receives(&self, index: u32) -> bool {
        self.roles == Roles::AllMembers || index > 0
    }

    /// Returns the number of runs of a system.
    pub fn runs_of(&self, system: &str) -> u32 {
        if self.once.iter().any(|name| name == system) { 1 } else { self.repetitions }
    }

    /// Returns the number of runs of all systems.
    pub fn runs(&self) -> u64 {
        self.systems.iter().map(|system| u64::from(self.runs_of(system))).sum()
    }

    fn check(&self) -> Result<(), PlanError> {
        // The name becomes a part of a file name.
        let is_in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = self.name.bytes().all(is_in_names) && !self.name.starts_with(['.']);
        let allowed = "letters, digits, '-', '_' and '.'";
        self.require(is_name && !self.name.is_empty(), "name", &self.name, allowed)?;
        let systems = self.systems.join(", ");
        self.require(!self.systems.is_empty(), "systems", systems, "at least one system")?;
        let unknown = self.once.iter().find(|name| !self.systems.contains(name));
        let unknown = unknown.map_or("", |name| name);
        self.require(unknown.is_empty(), "once", unknown, "systems of the row")?;
        self.require(self.nodes >= 2, "nodes", self.nodes, "at least 2")?;
        let racks = (1..=self.nodes).contains(&self.racks);
        self.require(racks, "racks", self.racks, "1 to the number of nodes")?;
        self.require(self.groups > 0, "groups", self.groups, "at least 1")?;
        self.require(self.messages > 0, "messages", self.messages, "at least 1")?;
        let rate = self.rate >= 0.0 && self.rate.is_finite();
        self.require(rate, "rate", self.rate, "0 or more messages per second")?;
        self.require(self.size >= crate::HEADER_BYTES, "size", self.size, "at least 32 bytes")?;
        let share = (0.0..1.0).contains(&self.loss.share);
        self.require(share, "loss.share", self.loss.share, "0 to less than 1")?;
        let has_uplinks = !self.loss.shared || self.racks > 1;
        self.require(has_uplinks, "loss.shared", true, "false, or at least 2 racks")?;
        let link = self.link_mbit.unwrap_or(1);
        self.require(link > 0, "link_mbit", link, "at least 1")?;
        let is_alone = self.background_mib.is_none() || self.roles == Roles::OneSender;
        self.require(is_alone, "background_mib", "a size", "no size, or one sender")?;
        let idle = self.idle_s.unwrap_or(1);
        self.require(idle > 0, "idle_s", idle, "at least 1")?;
        let is_over = self.idle_s.is_none() || self.background_mib.is_none() && self.kill.is_none();
        self.require(is_over, "idle_s", idle, "no value in a row with background_mib or kill")?;
        self.require(self.repetitions > 0, "repetitions", self.repetitions, "at least 1")?;
        self.check_faults()?;
        self.check_raw()?;
        self.check_file()
    }

    fn check_faults(&self) -> Result<(), PlanError> {
        let outages = self.outages.iter().map(|outage| ("outages.node", outage.node));
        let kill = self.kill.iter().map(|kill| ("kill.node", kill.node));
        for (field, node) in outages.chain(kill) {
            self.require(node < self.nodes, field, node, "the index of a node")?;
        }
        // The drops of a receiver are recorded either at itself or at its uplink.
        let is_recorded = !self.loss.shared || self.outages.is_empty();
        self.require(is_recorded, "loss.shared", true, "false in a row with outages")?;
        let has_sender = self.roles == Roles::AllMembers || self.kill.is_none_or(|it| it.node > 0);
        self.require(has_sender, "kill.node", 0, "a node other than the only sender")
    }

    /// Checks what is needed to measure `raw`, and to compare with it.
    fn check_raw(&self) -> Result<(), PlanError> {
        let mut raw = self.systems.iter().filter(|name| name.split(':').next() == Some(RAW));
        let is_small = self.size <= LARGEST_DATAGRAM || raw.next().is_none();
        self.require(is_small, "size", self.size, "at most 65507 bytes in a row with raw")?;
        let Some(points) = self.cpu_points else { return Ok(()) };
        let has_raw = self.systems.iter().any(|name| name == RAW);
        self.require(has_raw, "cpu_points", points, "no value, or raw among the systems")?;
        self.require(self.rate > 0.0, "cpu_points", points, "no value, or a rate above 0")?;
        let has_cpu = self.background_mib.is_none();
        self.require(has_cpu, "cpu_points", points, "no value, or no background_mib")
    }

    /// Checks that a row with a file demands nothing that only messages have.
    fn check_file(&self) -> Result<(), PlanError> {
        let Some(mib) = self.file_mib else { return Ok(()) };
        self.require(mib > 0, "file_mib", mib, "at least 1")?;
        let is_one = self.messages == 1;
        self.require(is_one, "messages", self.messages, "1 in a row with a file")?;
        self.require(self.rate == 0.0, "rate", self.rate, "0 in a row with a file")?;
        let others = [
            ("roles", self.roles != Roles::OneSender),
            ("loss.shared", self.loss.shared),
            ("outages", !self.outages.is_empty()),
            ("kill", self.kill.is_some()),
            ("background_mib", self.background_mib.is_some()),
            ("idle_s", self.idle_s.is_some()),
        ];
        let given = others.iter().find(|(_, is_given)| *is_given);
        given.map_or(Ok(()), |(field, _)| {
            self.require(false, field, "of a row with a file", "no value")
        })
    }

    fn require(
        &self,
        is_allowed: bool,
        field: &'static str,
        value: impl ToString,
        allowed: &'static str,
    ) -> Result<(), PlanError> {
        if is_allowed {
            return Ok(());
        }
        Err(PlanError::Value { row: self.name.clone(), field, value: value.to_string(), allowed })
    }
}

const RAW: &str = "raw";
/// Bytes of the largest UDP datagram over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;

fn default_settings() -> String {
    "default".to_owned()
}

fn one() -> u32 {
    1
}

fn ethernet_mtu() -> u32 {
    1500
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "[[row]]\nname = \"a\"\nsystems = [\"carom\", \"raw\"]\nnodes = 3\n\
                       messages = 10\nrate = 0\nsize = 32\n";

    fn error(more: &str) -> String {
        Plan::parse(&format!("{ROW}{more}")).expect_err("it is invalid").to_string()
    }

    #[test]
    fn row_has_defaults_for_the_rest() {
        let plan = Plan::parse(ROW).expect("it is valid");
        let row = &plan.rows[0];
        assert_eq!((row.racks, row.groups, row.repetitions), (1, 1, 1));
        assert_eq!((&*row.settings, row.roles, row.kill), ("default", Roles::OneSender, None));
        assert_eq!((row.mtu, row.link_mbit, row.background_mib), (1500, None, None));
        assert!(!row.receives(0) && row.receives(2));
    }

    #[test]
    fn row_may_have_faults() {
        let more = "racks = 2\nloss = { share = 0.05 }\nroles = \"all-members\"\n\
                    kill = { node = 2, at_ms = 500 }\noutages = [{ node = 1, at_ms = 5, ms = 20 }]";
        let plan = Plan::parse(&format!("{ROW}{more}")).expect("it is valid");
        let row = &plan.rows[0];
        assert_eq!(row.loss, Loss { share: 0.05, shared: false });
        assert_eq!(row.kill, Some(Kill { node: 2, at_ms: 500 }));
        assert_eq!(row.outages, [Outage { node: 1, at_ms: 5, ms: 20 }]);
        assert!(row.receives(0));
    }

    #[test]
    fn systems_measured_once_have_one_run() {
        let plan = Plan::parse(&format!("{ROW}repetitions = 3\nonce = [\"raw\"]"));
        let row = &plan.expect("it is valid").rows[0];
        assert_eq!((row.runs_of("carom"), row.runs_of("raw"), row.runs()), (3, 1, 4));
        assert!(error("once = [\"norm\"]").contains("once norm is invalid: expected systems of"));
    }

    #[test]
    fn shared_losses_need_racks_with_uplinks() {
        let message = error("loss = { share = 0.1, shared = true }");
        assert!(message.contains("loss.shared true is invalid: expected false, or"), "{message}");
        let shared = "racks = 2\nloss = { share = 0.1, shared = true }";
        let plan = Plan::parse(&format!("{ROW}{shared}")).expect("it is valid");
        assert!(plan.rows[0].loss.shared);
        let message = error(&format!("{shared}\noutages = [{{ node = 1, at_ms = 5, ms = 20 }}]"));
        assert!(message.contains("loss.shared true is invalid: expected false in"), "{message}");
    }

    #[test]
    fn only_sender_is_not_killed() {
        let kill = "kill = { node = 0, at_ms = 5 }";
        let message = error(kill);
        assert!(message.contains("kill.node 0 is invalid: expected a node other"), "{message}");
        assert!(Plan::parse(&format!("{ROW}roles = \"all-members\"\n{kill}")).is_ok());
    }

    #[test]
    fn comparison_of_cpu_needs_raw_at_a_rate_and_nothing_beside() {
        let paced = ROW.replace("rate = 0", "rate = 10\ncpu_points = 10");
        assert!(Plan::parse(&paced).is_ok());
        let error = |row: &str| Plan::parse(row).expect_err("it is invalid").to_string();
        let without = error(&paced.replace("\"raw\"", "\"raw:stamped\""));
        assert!(without.contains("cpu_points 10 is invalid: expected no value, or raw among"));
        let unpaced = error(&format!("{ROW}cpu_points = 10"));
        assert!(unpaced.contains("expected no value, or a rate above 0"), "{unpaced}");
        let beside = error(&format!("{paced}background_mib = 1"));
        assert!(beside.contains("expected no value, or no background_mib"), "{beside}");
    }

    #[test]
    fn message_of_raw_fits_into_a_datagram() {
        let large = ROW.replace("size = 32", "size = 65508");
        let message = Plan::parse(&large).expect_err("it is invalid").to_string();
        assert!(message.contains("size 65508 is invalid: expected at most 65507"), "{message}");
        assert!(Plan::parse(&large.replace(", \"raw\"", "")).is_ok());
    }

    #[test]
    fn row_with_a_file_has_nothing_of_messages() {
        let row = ROW.replace("messages = 10", "messages = 1");
        let error = |row: String| Plan::parse(&row).expect_err("it is invalid").to_string();
        assert!(Plan::parse(&format!("{row}file_mib = 1")).is_ok());
        assert!(error(format!("{row}file_mib = 0")).contains("file_mib 0 is invalid"));
        assert!(error(format!("{ROW}file_mib = 1")).contains("messages 10 is invalid: expected 1"));
        let paced = row.replace("rate = 0", "rate = 10");
        assert!(error(format!("{paced}file_mib = 1")).contains("rate 10 is invalid: expected 0"));
        for (field, value) in [
            ("roles", "\"all-members\""),
            ("outages", "[{ node = 1, at_ms = 5, ms = 20 }]"),
            ("kill", "{ node = 1, at_ms = 5 }"),
            ("background_mib", "1"),
        ] {
            let message = error(format!("{row}file_mib = 1\n{field} = {value}"));
            let refused = format!("{field} of a row with a file is invalid: expected no value");
            assert!(message.contains(&refused), "{message}");
        }
        let shared = "racks = 2\nloss = { share = 0.1, shared = true }";
        let message = error(format!("{row}file_mib = 1\n{shared}"));
        assert!(message.contains("loss.shared of a row with a file"), "{message}");
    }

    #[test]
    fn background_transfer_needs_a_single_sender() {
        let message = error("background_mib = 1\nroles = \"all-members\"");
        assert!(message.contains("background_mib"), "{message}");
        assert!(error("link_mbit = 0").contains("link_mbit 0 is invalid: expected at least 1"));
    }

    #[test]
    fn values_that_are_not_allowed_are_named() {
        assert!(error("colour = 1").contains("unknown field `colour`"));
        assert!(error("racks = 4").contains("row 'a': racks 4 is invalid: expected 1 to"));
        let path = ROW.replace("\"a\"", "\"../a\"");
        let error_of_path = Plan::parse(&path).expect_err("it is invalid").to_string();
        assert!(error_of_path.contains("name ../a is invalid"), "{error_of_path}");
        assert!(error("loss = { share = 1.0 }").contains("loss.share 1 is invalid"));
        assert!(error("kill = { node = 3, at_ms = 0 }").contains("kill.node 3"));
        assert!(error(ROW).contains("name a is invalid: expected a name that no other row has"));
    }
}
