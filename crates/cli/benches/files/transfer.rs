//! One transfer by `carom send` and `carom recv`, each in a namespace.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::lab::{Lab, RunCarom as _, Running};

#[derive(Clone, Copy)]
pub(crate) struct Transfer<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) dir: &'a Path,
    pub(crate) file: &'a Path,
    pub(crate) loss: f64,
    /// Copies of each packet to relay, for a transfer without multicast.
    pub(crate) copies: Option<&'a str>,
    pub(crate) disturbance: Option<Disturbance>,
}

#[derive(Clone, Copy)]
pub(crate) enum Disturbance {
    /// Once `after_mib` MiB have been multicast, the last receiver but two is killed, the last but
    /// one stops for five seconds, and the last one starts.
    Several {
        after_mib: u64,
    },
    Slow,
}

pub(crate) struct Outcome {
    pub(crate) rates: Vec<f64>,
    pub(crate) most_memory: Option<u64>,
    pub(crate) stragglers: Stragglers,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stragglers {
    pub(crate) left_behind: usize,
    pub(crate) fetched_bytes: u64,
    pub(crate) kernel_dropped: u64,
}

impl Outcome {
    pub(crate) fn slowest(&self) -> f64 {
        self.rates.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

const PAUSE: Duration = Duration::from_secs(5);
/// Durations for which a slow receiver is stopped, and then runs.
const STOPPED: Duration = Duration::from_millis(300);
const RUNNING: Duration = Duration::from_millis(100);

impl Disturbance {
    fn count(self) -> usize {
        match self {
            Self::Several { .. } => 3,
            Self::Slow => 1,
        }
    }
}

impl Transfer<'_> {
    pub(crate) fn run(&self) -> Outcome {
        let count = self.lab.hosts().len() - 1;
        let disturbed = self.disturbance.map_or(0, Disturbance::count);
        assert!(count > disturbed, "at least {} receivers are needed", disturbed + 1);
        // A late receiver, the last one, is not started yet.
        let is_one_late = matches!(self.disturbance, Some(Disturbance::Several { .. }));
        let at_first = count - usize::from(is_one_late);
        let mut receivers: Vec<Running> = (1..=at_first).map(|it| self.receiver(it)).collect();
        receivers.iter_mut().for_each(|it| drop(it.said.wait_for("waiting for a transfer")));
        let file = self.file.to_str().expect("a UTF-8 path");
        let expected = at_first.to_string();
        let mut args = vec!["send", file, "--to", "bench", "--json", "--interface", "eth0"];
        args.extend(["--patience", "8s"]);
        args.extend(["--receivers", &expected]);
        let way = self.way();
        args.extend(way.iter().map(String::as_str));
        args.extend(self.copies.iter().flat_map(|copies| ["--copies", copies]));
        let mut sender = self.lab.host(1).start(&args);
        sender.wrote.wait_until("the beginning", |line| event(line) == "began");
        let began = Instant::now();
        let pids: Vec<Pid> = receivers.iter().chain([&sender]).map(Running::id).collect();
        thread::scope(|scope| {
            let watch = scope.spawn(|| most_memory(&pids));
            let took = self.follow(&mut sender, &mut receivers, began);
            let stragglers = self.end(sender, receivers);
            let bytes = fs::metadata(self.file).expect("the file exists").len() as f64;
            let rates = took.iter().map(|took| bytes / took.as_secs_f64()).collect();
            let most_memory = Some(watch.join().expect("it reads"));
            Outcome { rates, most_memory, stragglers }
        })
    }

    fn follow(
        &self,
        sender: &mut Running,
        receivers: &mut Vec<Running>,
        began: Instant,
    ) -> Vec<Duration> {
        if let Some(Disturbance::Several { after_mib }) = self.disturbance {
            self.disturb(after_mib, sender, receivers);
        }
        let undisturbed = receivers.len() - self.disturbance.map_or(0, Disturbance::count);
        let is_slow = matches!(self.disturbance, Some(Disturbance::Slow));
        let slow = receivers.last().filter(|_| is_slow).map(Running::id);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                while let Some(slow) = slow.filter(|_| !is_over.load(Ordering::Relaxed)) {
                    kill(slow, Signal::SIGSTOP).expect("it runs");
                    thread::sleep(STOPPED);
                    kill(slow, Signal::SIGCONT).expect("it runs");
                    thread::sleep(RUNNING);
                }
            });
            let took = await_finished(sender, undisturbed, began);
            is_over.store(true, Ordering::Relaxed);
            took
        })
    }

    /// Returns the flags by which nodes find each other.
    fn way(&self) -> Vec<String> {
        if self.copies.is_none() {
            return Vec::new();
        }
        let seed = self.lab.host(2).address().to_string();
        ["--path", "unicast", "--seed"].map(str::to_owned).into_iter().chain([seed]).collect()
    }

    fn target(&self, number: usize) -> PathBuf {
        self.dir.join(format!("r{number}"))
    }

    fn receiver(&self, number: usize) -> Running {
        let (target, loss) = (self.target(number), self.loss.to_string());
        fs::create_dir_all(&target).expect("a directory");
        let target = target.to_str().expect("a UTF-8 path");
        let name = format!("r{number}");
        let mut args = vec!["recv", "--from", "bench", target, "--name", &name, "--json"];
        args.extend(["--interface", "eth0"]);
        if self.loss > 0.0 {
            args.extend(["--loss", &loss]);
        }
        let way = self.way();
        args.extend(way.iter().map(String::as_str));
        self.lab.host(number + 1).start(&args)
    }

    fn disturb(&self, after_mib: u64, sender: &mut Running, receivers: &mut Vec<Running>) {
        let bytes = after_mib << 20;
        sender.wrote.wait_until("progress", |line| {
            event(line) == "progress" && parsed(line)["bytes"].as_u64() >= Some(bytes)
        });
        let number = receivers.len() + 1;
        receivers[number - 3].kill();
        receivers[number - 2].signal(Signal::SIGSTOP);
        let late = self.receiver(number);
        receivers.push(late);
        thread::sleep(PAUSE);
        receivers[number - 2].signal(Signal::SIGCONT);
    }

    fn end(&self, mut sender: Running, mut receivers: Vec<Running>) -> Stragglers {
        let killed = match self.disturbance {
            Some(it @ Disturbance::Several { .. }) => Some(receivers.len() - it.count()),
            _ => None,
        };
        // The killed receiver did not get the file, which the sender reports.
        sender.end_with(i32::from(killed.is_some()));
        let is_left = |line: &&String| line.contains(" is evicted: ");
        let left_behind = sender.said.seen.iter().filter(is_left).count();
        let mut stragglers = Stragglers { left_behind, ..Stragglers::default() };
        let sent = blake3_of(self.file);
        for (place, receiver) in receivers.iter_mut().enumerate() {
            if Some(place) != killed {
                receiver.end_with(0);
                let told = parsed(receiver.wrote.seen.last().expect("a summary"));
                let number = |it: &Value| it.as_u64().unwrap_or(0);
                stragglers.fetched_bytes +=
                    number(&told["peer_bytes"]) + number(&told["sender_bytes"]);
                stragglers.kernel_dropped += number(&told["network"]["kernel_dropped"]);
                let name = self.file.file_name().expect("a file");
                assert_eq!(blake3_of(&self.target(place + 1).join(name)), sent, "r{}", place + 1);
            }
            fs::remove_dir_all(self.target(place + 1)).expect("the directory exists");
        }
        stragglers
    }
}

fn await_finished(sender: &mut Running, count: usize, began: Instant) -> Vec<Duration> {
    let mut took = Vec::new();
    while took.len() < count {
        let what = "all others to finish";
        let line = sender.wrote.wait_until(what, |line| event(line) == "finished");
        let name = parsed(&line)["receiver"].as_str().map(str::to_owned);
        let number = name.and_then(|name| name.strip_prefix('r')?.parse::<usize>().ok());
        if number.expect("receivers have numbers") <= count {
            took.push(began.elapsed());
        }
    }
    took
}

/// Waits until these processes have ended. Returns the peak memory, in bytes, of the largest one.
fn most_memory(pids: &[Pid]) -> u64 {
    let resident = |pid: &Pid| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    let mut most = 0;
    while let Some(largest) = pids.iter().filter_map(resident).max() {
        most = most.max(largest);
        thread::sleep(Duration::from_millis(50));
    }
    most << 10
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn event(line: &str) -> String {
    parsed(line)["event"].as_str().unwrap_or_default().to_owned()
}

fn blake3_of(file: &Path) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    let read = File::open(file).and_then(|file| hasher.update_reader(file).map(|it| it.finalize()));
    read.unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

pub(crate) fn noise(count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}
