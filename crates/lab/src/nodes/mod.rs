//! The processes of nodes that a harness starts, and their lines.

mod log_tail;

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use carom_netns::Process;

pub(crate) use self::log_tail::LogTail;

/// The processes of one run, one for each node. They are killed when this is dropped.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    lines: Receiver<(usize, Option<String>)>,
    sender: Sender<(usize, Option<String>)>,
}

struct Node {
    process: Process,
    input: Option<ChildStdin>,
    log: PathBuf,
    lines: Vec<String>,
    has_ended: bool,
    is_killed: bool,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        let (sender, lines) = channel();
        Self { nodes: Vec::new(), lines, sender }
    }

    /// Starts the next node. Its standard error goes to the file `log`.
    pub(crate) fn start(&mut self, mut command: Command, log: &Path) -> Result<(), String> {
        let index = self.nodes.len();
        let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        // Ctrl-C is for the bench, which then ends its nodes.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut process = Process::start(command).map_err(|error| error.cause().to_owned())?;
        let (input, output) = (process.child().stdin.take(), process.child().stdout.take());
        let sender = self.sender.clone();
        if let Some(output) = output {
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                while let Some(line) = next_line(&mut output) {
                    // Without a reader, the run is over.
                    let _ = sender.send((index, Some(line)));
                }
                let _ = sender.send((index, None));
            });
        }
        let (log, lines) = (log.to_owned(), Vec::new());
        self.nodes.push(Node { process, input, log, lines, has_ended: false, is_killed: false });
        Ok(())
    }

    /// Writes a line to all nodes that have not ended.
    pub(crate) fn write(&mut self, line: &str) {
        for node in &mut self.nodes {
            if let Some(input) = &mut node.input {
                // A node that has ended is noticed by the end of its output.
                let _ = writeln!(input, "{line}").and_then(|()| input.flush());
            }
        }
    }

    /// Waits up to `timeout` for a line or an end. Returns an error if a node has ended.
    pub(crate) fn poll(&mut self, timeout: Duration) -> Result<(), String> {
        match self.lines.recv_timeout(timeout) {
            Ok((index, Some(line))) => {
                let lines = &mut self.nodes[index].lines;
                if lines.len() < MOST_LINES {
                    lines.push(line);
                }
            }
            Ok((index, None)) => {
                let node = &mut self.nodes[index];
                node.has_ended = true;
                if !node.is_killed {
                    return Err(format!("node {index} ended early{}", node.last_words()));
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        Ok(())
    }

    /// Returns `true` if all of these nodes that were not killed have printed `line`.
    pub(crate) fn have_printed(&self, line: &str, which: impl Fn(usize) -> bool) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.all(|(index, node)| !which(index) || node.is_killed || node.has_printed(line))
    }

    /// Returns the last lines of the log of the first node that has not printed `line`.
    pub(crate) fn silent(&self, line: &str) -> String {
        let mut nodes = self.nodes.iter().enumerate();
        let silent = nodes.find(|(_, node)| !node.has_printed(line));
        silent.map_or_else(String::new, |(index, node)| {
            format!("node {index} did not print '{line}'{}", node.last_words())
        })
    }

    /// Ends a node by SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) -> Result<(), String> {
        let node = &mut self.nodes[index];
        node.is_killed = true;
        node.process.kill().map_err(|error| error.cause().to_owned())
    }

    /// Returns `true` if the node was killed.
    pub(crate) fn is_killed(&self, index: usize) -> bool {
        self.nodes[index].is_killed
    }

    /// Stops all nodes, and waits for their ends. Nodes that do not end in time are killed.
    pub(crate) fn stop(&mut self, patience: Duration) -> Result<(), String> {
        self.write("stop");
        let give_up = Instant::now() + patience;
        let mut failure = None;
        for (index, node) in self.nodes.iter_mut().enumerate().filter(|(_, it)| !it.is_killed) {
            let reason = match end_until(&mut node.process, give_up) {
                Some(status) if status.success() => continue,
                Some(status) => format!("node {index} failed: {status}"),
                None => format!("node {index} did not end after `stop`"),
            };
            failure.get_or_insert(format!("{reason}{}", node.last_words()));
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Node {
    fn has_printed(&self, line: &str) -> bool {
        self.lines.iter().any(|it| it == line)
    }

    fn last_words(&self) -> LogTail {
        LogTail::of(&self.log)
    }
}

/// Waits for the end of a process. Kills it at `give_up`, and then returns `None`.
pub(crate) fn end_until(process: &mut Process, give_up: Instant) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = process.child().try_wait() {
            return Some(status);
        }
        if Instant::now() > give_up {
            // It fails if the process has just ended.
            let _ = process.kill();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a line without the white space around it. What is not UTF-8 is replaced, and bytes beyond
/// [`LONGEST_LINE`] become further lines. Returns `None` at the end.
fn next_line(output: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    match output.take(LONGEST_LINE).read_until(b'\n', &mut line) {
        Ok(1..) => Some(String::from_utf8_lossy(&line).trim().to_owned()),
        Ok(0) | Err(_) => None,
    }
}

const LONGEST_LINE: u64 = 4096;
/// A node prints three lines that matter.
const MOST_LINES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn started(scripts: &[&str]) -> (Nodes, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let mut nodes = Nodes::new();
        for (index, script) in scripts.iter().enumerate() {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let log = dir.path().join(index.to_string());
            nodes.start(command, &log).expect("sh is installed");
        }
        (nodes, dir)
    }

    fn wait(nodes: &mut Nodes, line: &str) -> Result<(), String> {
        while !nodes.have_printed(line, |_| true) {
            nodes.poll(Duration::from_secs(10))?;
        }
        Ok(())
    }

    #[test]
    fn nodes_are_stopped_by_a_line() {
        let script = "echo ready; read go; echo $go; read stop; test $stop = stop";
        let (mut nodes, _dir) = started(&[script, script]);
        wait(&mut nodes, "ready").expect("both print it");
        nodes.write("go");
        wait(&mut nodes, "go").expect("both print it");
        assert_eq!(nodes.stop(Duration::from_secs(10)), Ok(()));
    }

    #[test]
    fn node_that_ends_early_is_reported_with_its_log() {
        let (mut nodes, _dir) = started(&["echo ready; read go", "echo broken >&2; exit 3"]);
        let failure = wait(&mut nodes, "ready").expect_err("one has ended");
        assert_eq!(failure, "node 1 ended early: broken");
    }

    #[test]
    fn output_that_is_no_text_does_not_end_a_node() {
        let script = "printf '\\377\\n'; head -c 100000 /dev/zero; printf '\\nready\\n'; read stop";
        let (mut nodes, _dir) = started(&[script]);
        wait(&mut nodes, "ready").expect("it prints it");
        let longest = nodes.nodes[0].lines.iter().map(String::len).max();
        assert!(longest <= Some(4096), "{longest:?}");
        assert_eq!(nodes.stop(Duration::from_secs(10)), Ok(()));
    }

    #[test]
    fn node_that_does_not_stop_is_killed() {
        let (mut nodes, _dir) = started(&["echo ready; exec sleep 1000"]);
        wait(&mut nodes, "ready").expect("it prints it");
        let failure = nodes.stop(Duration::from_millis(20)).expect_err("it sleeps");
        assert_eq!(failure, "node 0 did not end after `stop`");
    }

    #[test]
    fn killed_node_is_not_waited_for() {
        let script = "echo ready; read stop; test $stop = stop";
        let (mut nodes, _dir) = started(&[script, script]);
        wait(&mut nodes, "ready").expect("both print it");
        nodes.kill(1).expect("it runs");
        assert!(nodes.have_printed("sent", |index| index == 1));
        assert_eq!(nodes.stop(Duration::from_secs(10)), Ok(()));
    }
}
