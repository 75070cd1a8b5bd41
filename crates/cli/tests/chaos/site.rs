use std::collections::BTreeSet;
use std::env::current_exe;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};

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
    filter: Filter,
    starts: u32,
    running: Option<(Running, ChildStdin)>,
    leaving: Option<Running>,
}

#[derive(Default)]
pub(crate) struct Filter {
    pub(crate) deaf_to: BTreeSet<Ipv4Addr>,
    pub(crate) loss_percent: u32,
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
            filter: Filter::default(),
            starts: 0,
            running: None,
            leaving: None,
        };
        site.filter(|_| {});
        site.start();
        site
    }

    pub(crate) fn address(&self) -> Ipv4Addr {
        self.host.address.parse().expect("the lab gave it an address")
    }

    /// Starts the host's next process. A process that was ordered to leave has had time for it.
    pub(crate) fn start(&mut self) {
        self.leaving = None;
        self.starts += 1;
        let member = Member {
            kind: self.kind,
            host: self.number,
            start: self.starts,
            address: self.address(),
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

    pub(crate) fn filter(&mut self, change: impl FnOnce(&mut Filter)) {
        change(&mut self.filter);
        let drops = self.filter.deaf_to.iter().map(|address| format!("ip saddr {address} drop"));
        let percent = self.filter.loss_percent.max(LEAST_LOSS_PERCENT);
        let chance = match percent {
            100.. => String::new(),
            _ => format!("numgen random mod 100 < {percent}"),
        };
        let loss = format!("meta l4proto udp {chance} drop");
        let drops = drops.chain([loss]);
        let rules: String = drops.map(|rule| format!("add rule ip chaos in {rule}; ")).collect();
        let base = "add table ip chaos; \
            add chain ip chaos in { type filter hook input priority 0; policy accept; }; \
            flush chain ip chaos in; ";
        self.host.firewall(&format!("{base}{rules}")).expect("the firewall is available");
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
