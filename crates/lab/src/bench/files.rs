//! Transfers of one file to all receivers.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carom_bench::account::Account;
use carom_netns::{Loss, Process};

use super::failure::Failure;
use super::manifest::FileCommands;
use super::trial::{Measured, Trial};
use crate::nodes::LogTail;

impl Trial<'_> {
    /// Sends a file of `mib` mebibytes from node 0 to the others, by the commands of the system.
    pub(super) fn send_file(
        &self,
        mib: u64,
        commands: &FileCommands,
        folders: &[PathBuf],
    ) -> Result<Measured, Failure> {
        let file = folders[0].join(NAME);
        write_noise(&file, mib << 20).map_err(|error| format!("{}: {error}", file.display()))?;
        for host in &self.lab.hosts()[1..folders.len()] {
            let loss = Loss::Independent { probability: self.row.loss.share };
            host.set_loss(&loss)?;
        }
        let receivers = 1..folders.len();
        let started = receivers.clone().map(|node| self.start(node, &commands.receiver, folders));
        let mut processes = started.collect::<Result<Vec<_>, _>>()?;
        let is_over = |_: &mut Process| false;
        let mut sender = {
            // As long as a receiver takes to join.
            self.wait_file(&mut processes[0], Duration::from_secs(1), is_over)?;
            self.start(0, &commands.sender, folders)?
        };
        let begin = Instant::now();
        let has_ended =
            |process: &mut Process| process.child().try_wait().is_ok_and(|it| it.is_some());
        if !self.wait_file(&mut sender, LIMIT, has_ended)? {
            let seconds = LIMIT.as_secs();
            return Err(format!("the sender did not end within {seconds} s").into());
        }
        let seconds = begin.elapsed().as_secs_f64();
        let status = sender.wait()?;
        if !status.success() {
            let log = LogTail::of(&folders[0].join("log"));
            return Err(format!("the sender failed: {status}{log}").into());
        }
        for receiver in processes.iter_mut().filter(|_| commands.receiver_ends) {
            self.wait_file(receiver, STOP, has_ended)?;
        }
        drop(processes);
        let is_copied = |node: &usize| {
            let copy = self.filled(&commands.copy, *node, folders);
            is_same(&file, Path::new(&copy)).unwrap_or(false)
        };
        let copies = receivers.filter(is_copied).count() as u64;
        let expected = folders.len() as u64 - 1;
        let rate = (copies == expected).then(|| (mib << 20) as f64 / seconds);
        let account = Account {
            receivers: expected,
            sent: 1,
            expected,
            delivered: copies,
            missing: expected - copies,
            orders_agree: true,
            goodput_slowest: rate,
            goodput_mean: rate,
            ..Account::default()
        };
        let version = self.system.version.clone();
        Ok(Measured { account, version, ..Measured::default() })
    }

    fn start(
        &self,
        node: usize,
        words: &[String],
        folders: &[PathBuf],
    ) -> Result<Process, Failure> {
        let words: Vec<String> =
            words.iter().map(|word| self.filled(word, node, folders)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (program, args) = words.split_first().ok_or_else(|| "it has no command".to_owned())?;
        let mut command = self.lab.hosts()[node].command(program, args);
        let log = File::create(folders[node].join("log"));
        let logs = log.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = logs.map_err(|error| format!("cannot write a log: {error}"))?;
        command.stdout(out).stderr(err).process_group(0);
        Ok(Process::start(command)?)
    }

    /// Replaces the words in braces that `crates/lab/peers/uftp/manifest.toml` describes.
    fn filled(&self, word: &str, node: usize, folders: &[PathBuf]) -> String {
        let file = folders[0].join(NAME);
        word.replace("{file}", &file.display().to_string())
            .replace("{name}", NAME)
            .replace("{folder}", &folders[node].display().to_string())
            .replace("{address}", &self.lab.hosts()[node].address().to_string())
            .replace("{receivers}", &(folders.len() - 1).to_string())
    }

    /// Waits until `is_done`. Returns `false` after the timeout.
    fn wait_file(
        &self,
        process: &mut Process,
        timeout: Duration,
        is_done: impl Fn(&mut Process) -> bool,
    ) -> Result<bool, Failure> {
        let give_up = Instant::now() + timeout;
        while !is_done(process) {
            if Instant::now() > give_up {
                return Ok(false);
            }
            if self.interrupt.wait(Duration::from_millis(10)) {
                return Err(Failure::Interrupted);
            }
        }
        Ok(true)
    }
}

fn write_noise(path: &Path, bytes: u64) -> io::Result<()> {
    let mut noise = File::open("/dev/urandom")?.take(bytes);
    io::copy(&mut noise, &mut File::create(path)?).map(|_| ())
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut left = one.metadata()?.len();
    while left > 0 {
        let bytes = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        one.read_exact(&mut ours[..bytes])?;
        other.read_exact(&mut theirs[..bytes])?;
        if ours[..bytes] != theirs[..bytes] {
            return Ok(false);
        }
        left -= bytes as u64;
    }
    Ok(true)
}

const NAME: &str = "file.bin";
const CHUNK: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_compared_by_content() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        write_noise(&one, 3 << 20).expect("the folder is writable");
        std::fs::copy(&one, &other).expect("the folder is writable");
        assert!(is_same(&one, &other).expect("both exist"));
        let mut bytes = std::fs::read(&other).expect("it exists");
        *bytes.last_mut().expect("it is not empty") ^= 1;
        std::fs::write(&other, bytes).expect("the folder is writable");
        assert!(!is_same(&one, &other).expect("both exist"));
        assert!(is_same(&one, &dir.path().join("none")).is_err());
    }
}
