//! The command that installs multicast trees in the network.

use std::fmt;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use carom_proto::rdcm::manager::{TreeChange, TreeLink, TreeMember};
use carom_proto::rdcm::topology::Topology;
use carom_proto::{GroupId, MulticastPool};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// A command that installs the multicast trees of bulk groups in the network.
///
/// It is run by `sh -c` for each change of a tree, with a JSON description of the tree on its
/// standard input. At most one command of a group runs at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeCommand {
    /// The shell command.
    pub command: String,
    /// Time after which a command is killed, with all processes of its process group. Default:
    /// 10 s.
    pub timeout: Duration,
    /// Pool from which the nodes draw the multicast addresses of groups. Default: the default pool.
    pub pool: MulticastPool,
}

impl TreeCommand {
    /// Returns the default settings for a shell command.
    pub fn new(command: impl Into<String>) -> Self {
        let timeout = Duration::from_secs(10);
        Self { command: command.into(), timeout, pool: MulticastPool::default() }
    }
}

/// Description of a multicast tree on the standard input of a [`TreeCommand`].
#[derive(Clone, Debug, Serialize)]
struct Description {
    /// Id of the group.
    group: String,
    /// Multicast address of the group.
    address: String,
    /// Number of the tree, above those of earlier trees.
    version: u64,
    /// The sender, or `None` if the tree is to be removed.
    sender: Option<DescribedNode>,
    receivers: Vec<DescribedNode>,
    /// All links of the tree.
    links: Vec<DescribedLink>,
    /// Links that the last installed tree does not have.
    added: Vec<DescribedLink>,
    /// Links that only the last installed tree has.
    removed: Vec<DescribedLink>,
}

#[derive(Clone, Debug, Serialize)]
struct DescribedNode {
    node: String,
    host: String,
}

#[derive(Clone, Debug, Serialize)]
struct DescribedLink {
    from: String,
    to: String,
    bits_per_second: Option<u64>,
}

/// Starts commands, and reports their ends.
#[derive(Debug)]
pub(crate) struct TreeCommands {
    settings: TreeCommand,
    ends: mpsc::Sender<CommandEnd>,
    running: JoinSet<()>,
    kill: watch::Sender<()>,
}

#[derive(Debug)]
pub(crate) struct CommandEnd {
    pub(crate) group: GroupId,
    pub(crate) result: Result<(), String>,
}

/// Reason why a command has not installed a tree.
#[derive(Debug)]
enum Failure {
    Start(io::Error),
    Failed(ExitStatus, String),
    TimedOut(Duration),
    Deposed,
}

/// Kills the process group of a command that is dropped before it has ended.
struct ProcessGroup(Option<Pid>);

/// Maximum length of the part of standard error that is reported, in bytes.
const MAX_ERROR_BYTES: u64 = 1000;

impl TreeCommands {
    pub(crate) fn new(settings: TreeCommand, ends: mpsc::Sender<CommandEnd>) -> Self {
        Self { settings, ends, running: JoinSet::new(), kill: watch::Sender::new(()) }
    }

    /// Runs the command for a tree in the background.
    pub(crate) fn start(&mut self, topology: &Topology, change: &TreeChange) {
        while self.running.try_join_next().is_some() {}
        let description = Description::new(topology, &self.settings.pool, change);
        let (settings, ends, group) = (self.settings.clone(), self.ends.clone(), change.group);
        let version = change.version;
        let mut kill = self.kill.subscribe();
        self.running.spawn(async move {
            let result = tokio::select! {
                result = run(&settings, &description) => result,
                Ok(()) = kill.changed() => Err(Failure::Deposed),
            };
            let result = result.map_err(|failure| failure.to_string());
            match &result {
                Ok(()) => tracing::info!(%group, version, "the tree is installed"),
                Err(error) => tracing::warn!(%group, version, %error, "the tree is not installed"),
            }
            // The process may have ended.
            let _ = ends.send(CommandEnd { group, result }).await;
        });
    }

    /// Kills all commands, because this process no longer decides about trees.
    pub(crate) fn kill(&self) {
        self.kill.send_replace(());
    }

    /// Waits until all commands have ended. Those that run longer than `within` are killed.
    pub(crate) async fn finish(&mut self, within: Duration) {
        let ended = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(within, ended).await.is_err() {
            tracing::warn!(commands = self.running.len(), "killing commands that install trees");
            self.running.shutdown().await;
        }
    }
}

async fn run(settings: &TreeCommand, description: &Description) -> Result<(), Failure> {
    let mut input = serde_json::to_vec(description).expect("strings and numbers can be written");
    input.push(b'\n');
    let mut command = Command::new("sh");
    command.args(["-c", &settings.command]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Failure::Start)?;
    let mut group = ProcessGroup(child.id().map(|id| Pid::from_raw(id as i32)));
    let ended = tokio::time::timeout(settings.timeout, finish(&mut child, &input)).await;
    let Ok(ended) = ended else { return Err(Failure::TimedOut(settings.timeout)) };
    let (status, errors) = ended.map_err(Failure::Start)?;
    group.0 = None;
    if status.success() { Ok(()) } else { Err(Failure::Failed(status, errors)) }
}

/// Passes the description to a command, and waits until it has ended and closed standard error.
async fn finish(child: &mut Child, input: &[u8]) -> io::Result<(ExitStatus, String)> {
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command need not read its input.
            let _ = stdin.write_all(input).await;
        }
    };
    let read = async {
        match stderr {
            Some(stderr) => beginning(stderr).await,
            None => String::new(),
        }
    };
    let ((), errors, status) = tokio::join!(write, read, child.wait());
    Ok((status?, errors))
}

/// Returns the beginning of a stream, which is read to its end.
async fn beginning(mut stream: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is reported.
    let _ = (&mut stream).take(MAX_ERROR_BYTES).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may have ended.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Description {
    fn new(topology: &Topology, pool: &MulticastPool, change: &TreeChange) -> Self {
        let node = |member: &TreeMember| DescribedNode {
            node: member.node.to_string(),
            host: topology.name(member.host).to_owned(),
        };
        let link = |link: &TreeLink| DescribedLink {
            from: topology.name(link.from).to_owned(),
            to: topology.name(link.to).to_owned(),
            bits_per_second: topology.speed(link.link).map(|speed| speed.bits_per_second()),
        };
        Self {
            group: change.group.to_string(),
            address: pool.address(change.group).to_string(),
            version: change.version,
            sender: change.sender.as_ref().map(node),
            receivers: change.receivers.iter().map(node).collect(),
            links: change.links.iter().map(link).collect(),
            added: change.added.iter().map(link).collect(),
            removed: change.removed.iter().map(link).collect(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the command cannot be run: {error}"),
            Self::Failed(status, errors) if errors.is_empty() => {
                write!(f, "the command failed with {status}")
            }
            Self::Failed(status, errors) => write!(f, "the command failed with {status}: {errors}"),
            Self::TimedOut(time) => write!(f, "the command was killed after {time:?}"),
            Self::Deposed => write!(f, "the command was killed: the manager has moved"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use carom_proto::NodeId;
    use carom_proto::rdcm::topology::{LinkId, Vertex};

    use super::*;

    fn change() -> (Topology, TreeChange) {
        let topology = Topology::racks(&[1, 1]).expect("racks");
        let sender = TreeMember { node: NodeId(1), host: Vertex(0) };
        let receiver = TreeMember { node: NodeId(2), host: Vertex(1) };
        let link = TreeLink { from: Vertex(0), to: Vertex(2), link: LinkId(0) };
        let change = TreeChange {
            group: GroupId(5),
            version: 7,
            sender: Some(sender),
            receivers: vec![receiver],
            links: vec![link],
            added: vec![link],
            removed: Vec::new(),
        };
        (topology, change)
    }

    async fn await_file(path: &std::path::Path) {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end_of(command: &str, timeout: Duration) -> CommandEnd {
        let (topology, change) = change();
        let (sender, mut ends) = mpsc::channel(1);
        let settings = TreeCommand { timeout, ..TreeCommand::new(command) };
        let mut commands = TreeCommands::new(settings, sender);
        commands.start(&topology, &change);
        ends.recv().await.expect("every command ends")
    }

    #[tokio::test]
    async fn command_gets_the_tree_as_json_on_its_input() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let file = folder.path().join("tree.json");
        let command = format!("cat > '{}'", file.display());
        let end = end_of(&command, Duration::from_secs(30)).await;
        assert_eq!((end.group, end.result), (GroupId(5), Ok(())));
        let text = std::fs::read_to_string(file).expect("the command has written it");
        let tree: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let link = serde_json::json!(
            [{ "from": "host 0", "to": "rack 0", "bits_per_second": 1_000_000_000_u64 }]
        );
        let expected = serde_json::json!({
            "group": GroupId(5).to_string(),
            "address": "239.77.0.6",
            "version": 7,
            "sender": { "node": NodeId(1).to_string(), "host": "host 0" },
            "receivers": [{ "node": NodeId(2).to_string(), "host": "host 1" }],
            "links": link,
            "added": link,
            "removed": [],
        });
        assert_eq!(tree, expected);
    }

    #[tokio::test]
    async fn failure_of_a_command_is_reported_with_its_error() {
        let end = end_of("echo no such bridge >&2; exit 3", Duration::from_secs(30)).await;
        let error = end.result.expect_err("it failed");
        assert_eq!(error, "the command failed with exit status: 3: no such bridge");
        let many = "yes 2>/dev/null | head -c 100000 >&2; exit 1";
        let error = end_of(many, Duration::from_secs(30)).await.result.expect_err("it failed");
        assert!(error.len() < 2000, "{} bytes", error.len());
    }

    #[tokio::test]
    async fn slow_command_is_killed_with_all_its_processes() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let file = folder.path().join("late");
        let command = format!("(sleep 2; touch '{}') & sleep 60", file.display());
        let begun = Instant::now();
        let error = end_of(&command, Duration::from_millis(200)).await.result.expect_err("late");
        assert_eq!(error, "the command was killed after 200ms");
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!file.exists(), "a process of the command has survived");
    }

    #[tokio::test]
    async fn commands_are_killed_and_reported_when_the_manager_moves() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (topology, change) = change();
        let (sender, mut ends) = mpsc::channel(2);
        let command = format!("touch '{}'; sleep 1; touch '{}'", path("begun"), path("late"));
        let mut commands = TreeCommands::new(TreeCommand::new(command), sender);
        commands.start(&topology, &change);
        await_file(&folder.path().join("begun")).await;
        commands.kill();
        let error = ends.recv().await.expect("it is reported").result.expect_err("it was killed");
        assert_eq!(error, "the command was killed: the manager has moved");
        commands.start(&topology, &change);
        let result = ends.recv().await.expect("it is reported").result;
        assert_eq!(result, Ok(()), "later commands run");
    }

    #[tokio::test]
    async fn running_commands_end_or_are_killed_when_the_registry_stops() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (topology, change) = change();
        let (sender, _ends) = mpsc::channel(2);
        let command = format!("sleep 0.3; touch '{}'", path("done"));
        let mut commands = TreeCommands::new(TreeCommand::new(command), sender.clone());
        commands.start(&topology, &change);
        commands.finish(Duration::from_secs(30)).await;
        assert!(folder.path().join("done").exists());
        let command = format!("touch '{}'; sleep 2; touch '{}'", path("begun"), path("late"));
        let mut commands = TreeCommands::new(TreeCommand::new(command), sender);
        commands.start(&topology, &change);
        await_file(&folder.path().join("begun")).await;
        commands.finish(Duration::ZERO).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!folder.path().join("late").exists(), "the command has survived");
    }
}
