use core::fmt::{self, Display};
use core::time::Duration;

use carom_proto::Rng;
use carom_proto::loss::Loss;
use carom_sim::scenario::Scenario;
use carom_sim::{Disturbance, Fault, HostIx};

use super::settings::{Settings, is_without_multicast};
use crate::seeds::{keeps_ids, may_be_later};

/// The hosts of a scenario, without the network and the settings of the engines.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Hosts that can become members. The first host sends first.
    pub all: Vec<HostIx>,
    /// Maximum delay of view changes.
    pub delay: Duration,
    /// Loss model of every host until a fault replaces it.
    pub loss: Loss,
    /// Kinds of faults that can occur: a random subset, which makes rare combinations likely.
    pub kinds: Vec<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A member is killed. The other members get a report at once, later, or after the faults.
    Crash,
    /// A member is killed, and a node starts again on its host.
    Restart,
    Pause,
    /// A member leaves, and rejoins later.
    Churn,
    Partition,
    OneWay,
    Link,
    Disturb,
    Loss,
    Slow,
    Hold,
    /// The sender leaves or is killed, and another member sends.
    Sender,
    /// Another member begins to send, although there may be a sender.
    Rival,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Join(HostIx),
    Leave(HostIx),
    /// The node is killed, without a report to the other nodes.
    Kill(HostIx),
    /// The failure of the node is reported to the other nodes.
    Report(HostIx),
    /// A node starts on the host, as a new node or as a new incarnation of the previous one, and
    /// joins the group.
    Restart(HostIx),
    /// A member is killed and starts again at once, without a report of its failure.
    Bounce(HostIx),
    Fault(Fault),
    /// A link of the sender's tree, or any link, is cut, unless this would disconnect hosts.
    CutLink {
        is_of_tree: bool,
        /// Number of the link, modulo the number of links.
        number: usize,
    },
    MendLinks,
    Send {
        /// Host that publishes, or `None` for the sender, or a member that knows of no sender.
        host: Option<HostIx>,
        count: u32,
        bytes: usize,
    },
    Confirm,
    /// The application on a host pauses receipt (`true`), or resumes it.
    Hold(HostIx, bool),
    /// Multicast reception at a host is disabled (`true`), or enabled.
    Deafen(HostIx, bool),
    /// All nodes learn which hosts have no multicast reception.
    LearnPaths,
    /// A host receives a packet in the name of another node.
    Forge {
        to: HostIx,
        /// Seed of the forged packet.
        draw: u64,
    },
    SenderLeaves,
    SenderDies,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::Crash,
        Self::Restart,
        Self::Pause,
        Self::Churn,
        Self::Partition,
        Self::OneWay,
        Self::Link,
        Self::Disturb,
        Self::Loss,
        Self::Slow,
        Self::Hold,
        Self::Sender,
        Self::Rival,
    ];
}

/// Creates the scenario of `seed`, with 2 to 16 hosts and a random subset of all kinds of faults.
pub(crate) fn scenario(seed: u64) -> Scenario<Hosts, Step> {
    let mut rng = Rng::new(seed ^ 0x6275_6c6b);
    let all = Settings::of_seed(seed).hosts;
    let delay = Duration::from_micros([0, 0, 1000, 20_000, 100_000][rng.below(5)]);
    let losses = [
        Loss::None,
        Loss::None,
        Loss::None,
        Loss::Uniform(0.01),
        Loss::Uniform(0.05),
        Loss::Burst { rate: 0.03, length: 10 },
    ];
    let loss = losses[rng.below(losses.len())];
    let share = [0.0, 0.1, 0.2, 0.4, 1.0][rng.below(5)];
    let kinds = Kind::ALL.into_iter().filter(|_| rng.chance(share)).collect();
    let mut draft = Draft { hosts: Hosts { all, delay, loss, kinds }, steps: Vec::new() };
    draft.draw_steps(&mut rng);
    if is_without_multicast(seed) && rng.chance(0.6) {
        draft.draw_paths(&mut rng);
    }
    if keeps_ids(seed) {
        draft.draw_bounces(seed);
    }
    if may_be_later(seed) {
        draft.draw_forgeries(seed);
    }
    Scenario { seed, participants: draft.hosts, steps: draft.steps }
}

struct Draft {
    hosts: Hosts,
    steps: Vec<(Duration, Step)>,
}

impl Draft {
    /// Draws bursts of messages, often just before a fault, which then affects packets in flight.
    fn draw_steps(&mut self, rng: &mut Rng) {
        for host in self.hosts.all.clone() {
            let late = if rng.chance(0.15) { rng.below(2000) } else { rng.below(20) };
            self.add(Duration::from_millis(late as u64), Step::Join(host));
        }
        let mut at = Duration::from_millis([20, 20, 150][rng.below(3)]);
        self.send(at, Some(self.hosts.all[0]), rng);
        if self.hosts.kinds.contains(&Kind::Rival) {
            let apart = Duration::from_micros([0, 500, 20_000][rng.below(3)]);
            self.send(at + apart, Some(self.any_host(rng)), rng);
        }
        let pause_us = [5_000, 30_000, 120_000][rng.below(3)];
        let share = [0.05, 0.15, 0.4][rng.below(3)];
        for _ in 0..8 + rng.below(30) {
            at += Duration::from_micros(rng.below(pause_us) as u64);
            if rng.chance(0.08) {
                self.add(at, Step::Confirm);
            }
            if rng.chance(0.8) {
                self.send(at, None, rng);
            }
            if rng.chance(share) && !self.hosts.kinds.is_empty() {
                let kind = self.hosts.kinds[rng.below(self.hosts.kinds.len())];
                self.fault(at, kind, rng);
            }
        }
        self.steps.sort_by_key(|(at, _)| *at);
    }

    fn draw_paths(&mut self, rng: &mut Rng) {
        let end = self.steps.last().map_or(0, |(at, _)| at.as_millis() as usize);
        for _ in 0..1 + rng.below(6) {
            let at = Duration::from_millis(rng.below(end.max(1)) as u64);
            let (host, is_deaf) = (self.any_host(rng), rng.chance(0.5));
            self.add(at, Step::Deafen(host, is_deaf));
            let learnt = at + Duration::from_millis([0, 20, 600][rng.below(3)]);
            self.add(learnt, Step::LearnPaths);
        }
        self.steps.sort_by_key(|(at, _)| *at);
    }

    /// Draws restarts that are too fast for any membership to notice.
    fn draw_bounces(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xb00_7e4a);
        if !rng.chance(0.6) {
            return;
        }
        for _ in 0..1 + rng.below(3) {
            let near = self.steps[rng.below(self.steps.len())].0;
            let at = near + Duration::from_micros(rng.below(20_000) as u64);
            let host = self.any_host(&mut rng);
            self.add(at, Step::Bounce(host));
        }
        self.steps.sort_by_key(|(at, _)| *at);
    }

    fn draw_forgeries(&mut self, seed: u64) {
        let mut rng = Rng::new(seed ^ 0xf0e6_ed00);
        if !rng.chance(0.2) {
            return;
        }
        let end = self.steps.last().map_or(0, |(at, _)| at.as_micros() as usize);
        for _ in 0..1 + rng.below(60) {
            let at = Duration::from_micros(rng.below(end.max(1)) as u64);
            let (to, draw) = (self.any_host(&mut rng), rng.next_u64());
            self.add(at, Step::Forge { to, draw });
        }
        self.steps.sort_by_key(|(at, _)| *at);
    }

    fn any_host(&self, rng: &mut Rng) -> HostIx {
        self.hosts.all[rng.below(self.hosts.all.len())]
    }

    fn some_hosts(&self, rng: &mut Rng) -> Vec<HostIx> {
        let share = if rng.chance(0.5) { 0.4 } else { 1.5 / self.hosts.all.len() as f64 };
        self.hosts.all.iter().copied().filter(|_| rng.chance(share)).collect()
    }

    fn fault(&mut self, at: Duration, kind: Kind, rng: &mut Rng) {
        let host = self.any_host(rng);
        let spans_ms = [5, 100, 500, 1000, 3000];
        let end = at + Duration::from_millis(spans_ms[rng.below(spans_ms.len())]);
        let (begins, ends) = match kind {
            Kind::Crash | Kind::Restart => return self.crash(at, host, kind, rng),
            Kind::Sender => return self.change_sender(at, rng),
            Kind::Rival => return self.send(at, Some(host), rng),
            Kind::Churn => {
                self.add(at, Step::Leave(host));
                return self.add(end, Step::Join(host));
            }
            Kind::Link => {
                let (is_of_tree, number) = (rng.chance(0.6), rng.below(1000));
                self.add(at, Step::CutLink { is_of_tree, number });
                return self.add(end, Step::MendLinks);
            }
            Kind::Hold => {
                self.add(at, Step::Hold(host, true));
                return self.add(end, Step::Hold(host, false));
            }
            Kind::Pause => (Fault::Pause(host), Fault::Resume(host)),
            Kind::Partition => (Fault::Partition(self.some_hosts(rng)), Fault::Heal),
            Kind::OneWay => {
                let (from, to) = (self.some_hosts(rng), self.some_hosts(rng));
                (Fault::OneWay(from, to), Fault::Heal)
            }
            Kind::Disturb => {
                let disturbance = draw_disturbance(rng);
                (Fault::Disturb(disturbance), Fault::Disturb(Disturbance::default()))
            }
            Kind::Loss => {
                let loss = Loss::Uniform([0.1, 0.5, 1.0][rng.below(3)]);
                (Fault::Loss(host, loss), Fault::Loss(host, self.hosts.loss))
            }
            Kind::Slow => {
                let extra = Duration::from_micros([50, 500, 3_000][rng.below(3)]);
                (Fault::Slow(host, extra), Fault::Slow(host, Duration::ZERO))
            }
        };
        self.add(at, Step::Fault(begins));
        self.add(end, Step::Fault(ends));
    }

    fn crash(&mut self, at: Duration, host: HostIx, kind: Kind, rng: &mut Rng) {
        self.add(at, Step::Kill(host));
        let reported = at + Duration::from_millis([0, 20, 600, 2000][rng.below(4)]);
        if kind == Kind::Restart || rng.chance(0.8) {
            self.add(reported, Step::Report(host));
        }
        if kind == Kind::Restart {
            let again = reported + Duration::from_millis([0, 5, 300][rng.below(3)]);
            self.add(again, Step::Restart(host));
        }
    }

    /// Draws the end of the sender. The next one begins before or after all members have noticed.
    fn change_sender(&mut self, at: Duration, rng: &mut Rng) {
        let next = self.any_host(rng);
        let reported = at + Duration::from_millis([0, 20, 600][rng.below(3)]);
        match rng.chance(0.5) {
            true => self.add(at, Step::SenderLeaves),
            false => {
                self.add(at, Step::SenderDies);
                let hosts = self.hosts.all.clone();
                hosts.into_iter().for_each(|host| self.add(reported, Step::Report(host)));
            }
        }
        for _ in 0..1 + rng.below(3) {
            let soon = reported + Duration::from_millis([0, 5, 150, 1500][rng.below(4)]);
            let host = if rng.chance(0.5) { next } else { self.any_host(rng) };
            self.send(soon, Some(host), rng);
        }
    }

    fn send(&mut self, at: Duration, host: Option<HostIx>, rng: &mut Rng) {
        let most = [40, 1000, 4000, 4000, 15_000, 60_000][rng.below(6)];
        let bytes = if rng.chance(0.02) { 0 } else { 8 + rng.below(most) };
        let count = 1 + rng.below((RUSH_BYTES / bytes.max(1000)).clamp(1, 40)) as u32;
        self.add(at, Step::Send { host, count, bytes });
    }

    fn add(&mut self, at: Duration, step: Step) {
        self.steps.push((at, step));
    }
}

fn draw_disturbance(rng: &mut Rng) -> Disturbance {
    Disturbance {
        reorder: [0.0, 0.05, 0.3][rng.below(3)],
        duplicate: [0.0, 0.05, 0.3][rng.below(3)],
        corrupt: [0.0, 0.01, 0.1][rng.below(3)],
        spread: Duration::from_micros([500, 5_000, 50_000][rng.below(3)]),
    }
}

impl Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, delay, loss, kinds } = self;
        let hosts: Vec<u32> = all.iter().map(|host| host.0).collect();
        writeln!(f, "hosts {hosts:?}, view delay {delay:?}, loss {loss}")?;
        writeln!(f, "kinds of faults: {kinds:?}")
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => write!(f, "{fault:?}"),
            step => write!(f, "{step:?}"),
        }
    }
}

const RUSH_BYTES: usize = 60_000;
