use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use carom_bench::Magic;
use carom_bench::account::{Account, Idle, Node, Workload};
use carom_bench::plan::{Roles, Row};
use carom_bench::record::{NodeFiles, Record};
use carom_bench::report::{Kind, Limit};
use carom_netns::{Host, Lab};
use carom_terminal::interrupt::Interrupt;

use super::costs::{Cost, Costs, CpuReading};
use super::failure::Failure;
use super::faults::Faults;
use super::leftovers;
use super::limits::Limits;
use super::losses::Losses;
use super::scratch;
use super::syscalls::SyscallCounter;
use super::system::System;
use crate::nodes::Nodes;

/// One run of one system.
pub(super) struct Trial<'a> {
    pub(super) lab: &'a Lab,
    pub(super) row: &'a Row,
    pub(super) system: &'a System,
    pub(super) scratch: &'a Path,
    pub(super) interrupt: &'a Interrupt,
    /// `true` if the system calls of the nodes are counted, which slows them down.
    pub(super) counts_syscalls: bool,
}

/// The result of a run.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) account: Account,
    /// Name and version that the first node reported.
    pub(super) version: String,
    /// Time limit at which the run was ended.
    pub(super) limit: Option<Limit>,
    /// Sentences on the run from its nodes.
    pub(super) remarks: BTreeSet<String>,
    /// System calls of all nodes between `go` and the end, if they were counted.
    pub(super) syscalls: Option<u64>,
}

impl Trial<'_> {
    pub(super) fn run(&self) -> Result<Measured, Failure> {
        let folders = scratch::folders(self.scratch, self.row.nodes as usize)
            .map_err(|error| format!("cannot prepare {}: {error}", self.scratch.display()))?;
        let ended = match (self.row.file_mib, &self.system.files) {
            (Some(mib), Some(commands)) => self.send_file(mib.into(), commands, &folders),
            _ => self.run_in(&folders),
        };
        Losses::end(self.lab)?;
        for host in self.lab.hosts() {
            leftovers::kill(host)?;
        }
        ended
    }

    fn run_in(&self, folders: &[PathBuf]) -> Result<Measured, Failure> {
        let limits = Limits::of(self.row, self.system.kind);
        let magic = Magic(RandomState::new().hash_one(folders).to_le_bytes());
        let mut nodes = Nodes::new();
        for (index, folder) in folders.iter().enumerate() {
            let host = &self.lab.hosts()[index];
            let command = self.system.command(host, &self.work(index, magic, folder), folder);
            let command = command.map_err(|error| format!("cannot write the settings: {error}"))?;
            nodes.start(command, &folder.join("log"))?;
        }
        if !self.wait(&mut nodes, limits.ready, |nodes| nodes.have_printed("ready", |_| true))? {
            return Err(nodes.silent("ready").into());
        }
        self.pause(&mut nodes, Duration::from_secs(self.system.warm_up_s))?;
        // Some systems do not start while datagrams are lost.
        let losses = Losses::begin(self.lab, self.row, folders)?;
        let calls = self.count_syscalls()?;
        let is_limited = self.row.link_mbit.is_some();
        let before = Costs::before(self.hosts(), is_limited)?;
        let go = SystemTime::now();
        let (limit, killed) = self.transfer(&mut nodes, &limits)?;
        let end = SystemTime::now();
        let costs = Costs::after(self.hosts(), is_limited, &killed)?.since(&before);
        let calls = calls.into_iter().map(|it| it.finish(go, end));
        let calls = calls.collect::<Result<Vec<u64>, _>>()?;
        let idle = self.idle(&mut nodes)?;
        nodes.stop(limits.stop)?;
        let measured = self.account(&nodes, folders, losses, &costs, &idle, magic)?;
        let syscalls = self.counts_syscalls.then(|| calls.iter().sum());
        Ok(Measured { limit, syscalls, ..measured })
    }

    /// Returns the arguments of a node.
    fn work(&self, index: usize, magic: Magic, folder: &Path) -> Vec<String> {
        let Row { nodes, groups, messages, rate, size, roles, .. } = self.row;
        let role = match (roles, index) {
            (Roles::AllMembers, _) => "member",
            (Roles::OneSender, 0) => "sender",
            (Roles::OneSender, _) => "receiver",
        };
        let peers: Vec<String> =
            self.hosts().iter().map(|host| host.address().to_string()).collect();
        let pairs = [
            ("--role", role.to_owned()),
            ("--index", index.to_string()),
            ("--nodes", nodes.to_string()),
            ("--address", peers[index].clone()),
            ("--groups", groups.to_string()),
            ("--messages", messages.to_string()),
            ("--rate", rate.to_string()),
            ("--size", size.to_string()),
            ("--magic", magic.to_string()),
            ("--dir", folder.display().to_string()),
            ("--peers", peers.join(",")),
        ];
        let background = self.row.background_mib.map(|mib| ("--background-mib", mib.to_string()));
        let pairs = pairs.into_iter().chain(background);
        pairs.flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Returns the hosts of the nodes.
    fn hosts(&self) -> &[Host] {
        &self.lab.hosts()[..self.row.nodes as usize]
    }

    fn count_syscalls(&self) -> Result<Vec<SyscallCounter>, Failure> {
        let hosts = self.hosts().iter().filter(|_| self.counts_syscalls);
        hosts.map(SyscallCounter::attach).collect()
    }

    /// Sends the messages, with the faults of the row. Returns the limit that was reached, and the
    /// processor times of the nodes that were killed.
    fn transfer(
        &self,
        nodes: &mut Nodes,
        limits: &Limits,
    ) -> Result<(Option<Limit>, BTreeMap<usize, CpuReading>), Failure> {
        nodes.write("go");
        let mut faults = Faults::starting(self.row);
        let sends = |index: usize| self.row.roles == Roles::AllMembers || index == 0;
        let receives = |index: usize| self.row.receives(index as u32);
        let mut give_up = Instant::now() + limits.transfer;
        let mut is_sent = false;
        while Instant::now() < give_up {
            let is_complete = nodes.have_printed("complete", receives);
            let now_sent = nodes.have_printed("sent", sends);
            if now_sent && is_complete && faults.next_in().is_none() {
                return Ok((None, faults.killed));
            }
            if now_sent && !is_sent {
                is_sent = true;
                give_up = Instant::now() + limits.delivery;
            }
            self.poll(nodes, faults.next_in())?;
            faults.apply(self.lab, nodes)?;
        }
        Ok((limits.reached(is_sent), faults.killed))
    }

    /// Leaves the nodes alone for the time of the row. Returns what each of them used meanwhile, or
    /// nothing if the row has no such time.
    fn idle(&self, nodes: &mut Nodes) -> Result<Vec<Idle>, Failure> {
        let Some(seconds) = self.row.idle_s else { return Ok(Vec::new()) };
        self.pause(nodes, QUIET)?;
        let (start, before) = (Instant::now(), Costs::before(self.hosts(), false)?);
        self.pause(nodes, Duration::from_secs(seconds.into()))?;
        let after = Costs::after(self.hosts(), false, &BTreeMap::new())?;
        let span_ns = start.elapsed().as_nanos() as u64;
        let idle = after.since(&before).into_iter();
        Ok(idle.map(|Cost { cpu_ns, packets, .. }| Idle { span_ns, cpu_ns, packets }).collect())
    }

    fn wait(
        &self,
        nodes: &mut Nodes,
        timeout: Duration,
        is_done: impl Fn(&Nodes) -> bool,
    ) -> Result<bool, Failure> {
        let give_up = Instant::now() + timeout;
        while Instant::now() < give_up {
            if is_done(nodes) {
                return Ok(true);
            }
            self.poll(nodes, None)?;
        }
        Ok(is_done(nodes))
    }

    fn pause(&self, nodes: &mut Nodes, length: Duration) -> Result<(), Failure> {
        self.wait(nodes, length, |_| false).map(|_| ())
    }

    /// Waits for a line, for at most `timeout` and for at most the time in which Ctrl-C must be
    /// noticed.
    fn poll(&self, nodes: &mut Nodes, timeout: Option<Duration>) -> Result<(), Failure> {
        if self.interrupt.is_asked() {
            return Err(Failure::Interrupted);
        }
        nodes.poll(timeout.map_or(TURN, |timeout| timeout.min(TURN)))?;
        Ok(())
    }

    fn account(
        &self,
        nodes: &Nodes,
        folders: &[PathBuf],
        losses: Losses,
        costs: &[Cost],
        idle: &[Idle],
        magic: Magic,
    ) -> Result<Measured, Failure> {
        let (mut all, mut remarks) = (Vec::new(), BTreeSet::new());
        for (index, drops) in losses.drops(magic)?.into_iter().enumerate() {
            let folder = &folders[index];
            let is_killed = nodes.is_killed(index);
            let files = match is_killed {
                true => NodeFiles::default(),
                false => NodeFiles::read(folder).map_err(|error| error.to_string())?,
            };
            let is_own = |it: &Record| it.sender as usize == index && it.number < self.row.messages;
            if !files.sent.iter().all(is_own) {
                return Err(
                    format!("node {index} recorded messages that it had not to send").into()
                );
            }
            let receives = self.row.receives(index as u32) && !is_killed;
            let Cost { cpu_ns, packets, udp_errors, link_drops } = costs[index];
            // A background transfer would be a part of both.
            let is_alone = self.row.background_mib.is_none();
            remarks.extend(cpu_ns.is_none().then(|| {
                format!("a process of node {index} ended during the run: its CPU is not known")
            }));
            all.push(Node {
                files,
                receives,
                is_killed,
                drops,
                cpu_ns: cpu_ns.filter(|_| is_alone),
                packets: is_alone.then_some(packets),
                kernel_drops: Some(udp_errors),
                link_drops,
                idle: idle.get(index).copied(),
            });
        }
        remarks.extend(all.iter().flat_map(|node| node.files.report.remarks.iter().cloned()));
        let version = all[0].files.report.system.clone();
        let Row { groups, size, rate, .. } = *self.row;
        let account = Account::of(&all, &Workload { groups, size, rate });
        Ok(Measured { account, version, remarks, ..Measured::default() })
    }
}

/// Returns `true` if the run of Carom lacks something that it has promised. A killed node leaves no
/// record of what it sent, so that its messages count as unknown.
pub(super) fn is_broken(row: &Row, system: &System, account: &Account) -> bool {
    let is_complete = match row.kill {
        Some(_) => account.missing == 0 && account.duplicates == 0,
        None => account.is_complete(),
    };
    system.kind == Kind::Carom && !(is_complete && system.order.is_kept(account))
}

/// Time after the last delivery after which nodes count as idle.
pub(super) const QUIET: Duration = Duration::from_secs(5);
const TURN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use carom_bench::plan::Plan;

    use super::*;

    #[test]
    fn carom_keeps_the_order_that_its_settings_promise() {
        let row = |settings: &str| {
            let text = format!(
                "[[row]]\nname = \"a\"\nsystems = [\"carom\"]\nnodes = 3\nmessages = 10\n\
                 rate = 0\nsize = 32\nsettings = \"{settings}\""
            );
            Plan::parse(&text).expect("it is valid").rows.remove(0)
        };
        let breaks = |settings: &str, name: &str, orders_agree: bool, out_of_order: u64| {
            let row = row(settings);
            let account = Account { orders_agree, out_of_order, ..Account::default() };
            let system = System::find(name, &row, Path::new("/")).expect("it is part of Carom");
            is_broken(&row, &system, &account)
        };
        assert!(breaks("default", "carom:ordered", false, 0));
        assert!(breaks("default", "carom:ordered", true, 1));
        assert!(breaks("ordered", "carom", false, 0), "the settings are those of the row");
        assert!(!breaks("ordered", "carom", true, 0));
        assert!(!breaks("ordered", "carom:bulk", false, 0));
        assert!(breaks("default", "carom:bulk", true, 1));
        assert!(!breaks("default", "carom", false, 1), "it promises no order");
    }
}
