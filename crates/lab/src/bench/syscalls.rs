use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use carom_netns::{Host, Process};

use super::failure::Failure;
use super::processes;

/// A running record of the system calls of all processes on a host, by strace. It slows them down.
pub(super) struct SyscallCounter {
    host: String,
    process: Process,
    /// Reads the time of each call, in microseconds since the epoch.
    times: JoinHandle<Vec<u64>>,
}

impl SyscallCounter {
    /// Returns the reason why this machine cannot count system calls, or `None` if it can.
    pub(super) fn unavailable() -> Option<String> {
        let mut command = Command::new("strace");
        command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().err().map(|error| format!("cannot start strace: {error}"))
    }

    /// Attaches to the processes that run on the host, with all their threads.
    pub(super) fn attach(host: &Host) -> Result<Self, Failure> {
        let processes = processes::on(host)?;
        let mut command = Command::new("strace");
        // Ctrl-C is for the bench.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
        // A line for each call, with its time and without decoding its arguments.
        command.args(["-f", "-ttt", "-qq", "-e", "raw=all", "-e", "signal=none"]);
        for process in &processes {
            command.args(["-p", &process.to_string()]);
        }
        let mut process = Process::start(command)?;
        let log = process.child().stderr.take().expect("it is a pipe");
        let counter = Self { host: host.name(), process, times: thread::spawn(|| times(log)) };
        let is_attached = || processes.iter().all(|process| is_traced(*process));
        match wait_for(is_attached) {
            true => Ok(counter),
            false => Err(counter.late("attach to")),
        }
    }

    /// Detaches, and returns the number of calls between two times.
    pub(super) fn finish(mut self, from: SystemTime, to: SystemTime) -> Result<u64, Failure> {
        self.process.interrupt()?;
        if !wait_for(|| self.process.child().try_wait().is_ok_and(|it| it.is_some())) {
            return Err(self.late("detach from"));
        }
        let times = self.times.join().expect("the reading thread does not panic");
        Ok(calls(&times, micros(from), micros(to)))
    }

    fn late(&self, tried: &str) -> Failure {
        let (host, seconds) = (&self.host, PATIENCE.as_secs());
        format!("strace did not {tried} the processes on {host} within {seconds} s").into()
    }
}

/// Returns `false` if it is not done in time.
fn wait_for(mut is_done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + PATIENCE;
    while !is_done() {
        if Instant::now() > give_up {
            return false;
        }
        thread::sleep(TURN);
    }
    true
}

fn is_traced(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    // A process that has ended has nothing to count.
    tracer.is_none_or(|tracer| tracer.trim() != "0")
}

/// Returns the times of the calls in a log of strace, up to its end.
fn times(log: impl Read) -> Vec<u64> {
    let lines = BufReader::new(log).split(b'\n').map_while(io::Result::ok);
    lines.filter_map(|line| time(str::from_utf8(&line).ok()?)).collect()
}

/// Returns the time of a line `[pid PID] SECONDS.MICROSECONDS NAME(...`, whose first part is
/// missing while a single thread is traced. Other lines, such as the second one of an interrupted
/// call, are no calls.
fn time(line: &str) -> Option<u64> {
    let line = match line.strip_prefix("[pid ") {
        Some(rest) => rest.split_once("] ")?.1,
        None => line,
    };
    let (time, call) = line.split_once(' ')?;
    let (seconds, micros) = time.split_once('.')?;
    let is_call = call.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let time = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    time.checked_add(micros.parse().ok()?).filter(|_| is_call)
}

fn calls(times: &[u64], from: u64, to: u64) -> u64 {
    times.iter().filter(|time| (from..=to).contains(*time)).count() as u64
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

const PATIENCE: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_run_are_counted_once() {
        let log = "\
1700000000.000009 ppoll(0x7ffc, 0x1, 0, 0, 0x8) = 0x1
strace: Process 12 attached
[pid     7] 1700000001.000001 recvfrom(0x3, 0x55d2, 0x5dc, 0, 0, 0 <unfinished ...>
[pid    12] 1700000001.500000 sendto(0x3, 0x55d2, 0x40, 0, 0x7ffc, 0x10) = 0x40
[pid     7] 1700000001.600000 <... recvfrom resumed>) = 0x40
[pid     7] 1700000002.000000 +++ exited with 0 +++
[pid    12] 1700000003.000000 close(0x3)
";
        let times = times(log.as_bytes());
        let all = [0, 1, 1, 3].map(|seconds| (1_700_000_000 + seconds) * 1_000_000);
        assert_eq!(times, [all[0] + 9, all[1] + 1, all[2] + 500_000, all[3]]);
        let at = |seconds: u64| micros(UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds));
        assert_eq!(calls(&times, at(1), at(2)), 2, "before `go` and after the end are left out");
    }
}
