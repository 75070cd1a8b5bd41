use std::env::current_exe;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};

use carom_netns::Loss;
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::lab::{Host, Running};
use crate::member::Member;
use crate::record::Process;

pub(crate) struct Site<'a> {
    pub(crate) host: &'a Host,
    pub(crate) has_fault: bool,
    pub(crate) is_sender: bool,
    pub(crate) kind: Kind,
    number: u32,
    rate: u32,
    folder: PathBuf,
    starts: u32,
    running: Option<(Running, ChildStdin)>,
    leaving: Option<Running>,
}

impl<'a> Site<'a> {
    pub(crate) fn new(host: &'a Host, number: u32, kind: Kind, rate: u32, folder: &Path) -> Self {
        let mut site = Self {
            host,
            has_fault: false,
            is_sender: !kind.has_one_sender(),
            kind,
            number,
            rate,
            folder: folder.to_path_buf(),
            starts: 0,
            running: None,
            leaving: None,
        };
        site.lose(0);
        site.start();
        site
    }

    /// Starts the host's next process. A process that was ordered to leave has had time for it.
    pub(crate) fn start(&mut self) {
        self.leaving = None;
        self.starts += 1;
        let member = Member {
            kind: self.kind,
            host: self.number,
            start: self.starts,
            address: self.host.address(),
            rate: self.rate,
            record: self.record(self.starts).display().to_string(),
        };
        let [word, member] = member.args();
        let program = current_exe().expect("this program has a path");
        let mut command = self.host.command(&program.display().to_string(), &[&word, &member]);
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let stdin = running.stdin();
        self.running = Some((running, stdin));
    }

    pub(crate) fn kill(&mut self) {
        if let Some((mut running, _)) = self.running.take() {
            running.kill();
        }
    }

    pub(crate) fn leave(&mut self) {
        self.leaving = self.running.take().map(|(running, _)| running);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some((running, _)) = &self.running {
            running.signal(signal);
        }
    }

    pub(crate) fn order(&mut self, order: &str) {
        if let Some((_, stdin)) = &mut self.running {
            writeln!(stdin, "{order}").expect("the process reads its orders");
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn is_first_start(&self) -> bool {
        self.starts == 1 && self.is_running()
    }

    pub(crate) fn make_sender(&mut self) {
        self.is_sender = true;
        self.order("publish");
    }

    /// Replaces the share of datagrams that the host loses.
    pub(crate) fn lose(&self, percent: u32) {
        let probability = f64::from(percent.max(LEAST_LOSS_PERCENT)) / 100.0;
        let loss = Loss::Independent { probability };
        self.host.set_loss(&loss).expect("nft is available");
    }

    pub(crate) fn process(&self) -> Process {
        Process { host: self.number, start: self.starts }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (Process, PathBuf)> {
        (1..=self.starts).map(|start| (Process { host: self.number, start }, self.record(start)))
    }

    fn record(&self, start: u32) -> PathBuf {
        self.folder.join(format!("{}-{start}.txt", self.number))
    }

    pub(crate) fn end(&mut self) -> Option<String> {
        let (mut running, stdin) = self.running.take()?;
        drop(stdin);
        let status = running.end();
        (!status.success()).then(|| {
            let (process, said) = (self.process(), running.said.seen.join("\n"));
            format!("{process} ended with {status}: {said}")
        })
    }
}

/// Every host loses this share of datagrams also without a fault.
const LEAST_LOSS_PERCENT: u32 = 1;
