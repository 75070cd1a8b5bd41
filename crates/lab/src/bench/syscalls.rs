use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use carom_netns::{Host, Process};

use super::failure::Failure;
use super::leftovers;

/// A running count of the system calls of all processes on a host, by strace. It slows them down.
pub(super) struct SyscallCounter {
    process: Process,
    summary: PathBuf,
}

impl SyscallCounter {
    /// Returns the reason why this machine cannot count system calls, or `None` if it can.
    pub(super) fn unavailable() -> Option<String> {
        let mut command = Command::new("strace");
        command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().err().map(|error| format!("cannot start strace: {error}"))
    }

    /// Attaches to the processes that run on the host, with all their threads.
    pub(super) fn attach(host: &Host, folder: &Path) -> Result<Self, Failure> {
        let processes = leftovers::processes(host)?;
        let summary = folder.join("syscalls");
        let mut command = Command::new("strace");
        // Ctrl-C is for the bench.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(["-f", "-c", "-o"]).arg(&summary);
        for process in &processes {
            command.args(["-p", &process.to_string()]);
        }
        let counter = Self { process: Process::start(command)?, summary };
        let give_up = Instant::now() + ATTACHING;
        while !processes.iter().all(|process| is_traced(*process)) {
            if Instant::now() > give_up {
                let host = host.name();
                return Err(format!("strace did not attach to the processes on {host}").into());
            }
            thread::sleep(TURN);
        }
        Ok(counter)
    }

    /// Detaches, and returns the number of calls.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.process.interrupt()?;
        self.process.wait()?;
        let path = self.summary.display();
        let text = fs::read_to_string(&self.summary);
        Ok(calls(&text.map_err(|error| format!("cannot read {path}: {error}"))?))
    }
}

fn is_traced(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    // A process that has ended has nothing to count.
    tracer.is_none_or(|tracer| tracer.trim() != "0")
}

/// Returns the sum of the fourth column of strace's summary, without its own total, whose columns
/// depend on the version.
fn calls(summary: &str) -> u64 {
    let rows = summary.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let calls = rows.filter(|row| row.last() != Some(&"total")).filter_map(|row| {
        row.first()?.parse::<f64>().ok()?;
        row.get(3)?.parse::<u64>().ok()
    });
    calls.sum()
}

const ATTACHING: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_summed_with_and_without_errors() {
        let summary = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 75.00    0.000300           3       100           sendto
 25.00    0.000100          10        10         4 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.000400           3       110         4 total
";
        assert_eq!(calls(summary), 110);
        assert_eq!(calls(""), 0);
    }
}
