//! A file multicast as fast as the links carry it, without congestion control (RDCM 4.1).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use carom_proto::{Class, Event, Time};
use carom_sim::{Happening, HostIx, Traffic};

use super::protocol::Protocol;
use super::rider::Rider;
use super::scene::{SLICE, Scene, Setting};
use super::tally::{Seen, Tally};
use crate::lateral::Delays;
use crate::work::Ends;

/// So many messages to all receivers, one behind the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BulkRun {
    pub(crate) setting: Setting,
    pub(crate) protocol: Protocol,
    pub(crate) packets: u32,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BulkOutcome {
    pub(crate) receivers: u32,
    /// Receivers that do not have everything in the end.
    pub(crate) incomplete: u32,
    /// What the receivers got of what the link carries of such packets, 0 to 1: the mean, and that
    /// of the last to have everything.
    pub(crate) mean_share: f64,
    pub(crate) least_share: f64,
    /// Payload that a receiver got in a second, on average over the receivers, in bits.
    pub(crate) goodput: f64,
    /// Links of the tree.
    pub(crate) tree_links: u32,
    /// Bytes over all links until the last receiver had everything.
    pub(crate) footprint: Footprint,
    /// How long after its multicast a packet came that was repaired.
    pub(crate) delays: Delays,
    pub(crate) counts: Counts,
}

/// Bytes that links carried, summed over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Footprint {
    pub(crate) data: u64,
    pub(crate) repairs: u64,
    pub(crate) control: u64,
}

/// What all nodes have seen, a packet at a receiver counting as one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Packets whose multicast did not come.
    pub(crate) lost: u64,
    /// Repairs received.
    pub(crate) repairs: u64,
    /// Of these, at receivers whom the multicast had reached, or reached later.
    pub(crate) repairs_astray: u64,
    /// Of these, at receivers that had lost the packet and had been repaired already.
    pub(crate) repairs_again: u64,
    /// Repairs that nodes sent, of how many packets by how many nodes, and the most of one.
    pub(crate) copies: u64,
    pub(crate) repaired_by_nodes: u64,
    pub(crate) most_copies: u64,
    /// The most requests for one packet that one node got.
    pub(crate) most_requests: u64,
    /// What the busiest node got of requests, acknowledgements and the like.
    pub(crate) most_control: u64,
}

/// Who has how much.
struct Ledger {
    begin: Time,
    packets: u32,
    /// Messages that each receiver still lacks.
    lacking: BTreeMap<HostIx, u32>,
    complete: Vec<Duration>,
    /// When the packets were sent, in order.
    sent_at: Vec<Time>,
}

/// Times what the packets take of a link, and what is waited for in any case.
const MOST_TIMES: u32 = 100;
const MOST: Duration = Duration::from_millis(500);

impl BulkRun {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<BulkOutcome> {
        let mut scene = self.setting.plane().scene(self.protocol, true);
        scene.begin(ends)?;
        let before = scene.world.footprint();
        let packet_time = scene.plane.packet_time(self.protocol);
        let mut ledger = Ledger::new(&scene, self.packets);
        let end = ledger.begin + packet_time * self.packets * MOST_TIMES + MOST;
        let mut look = ledger.begin;
        while !ledger.lacking.is_empty() && scene.world.now() < end {
            let now = scene.world.now();
            if now >= look {
                look = now + SLICE;
                if ends() {
                    return None;
                }
            }
            let is_left = ledger.sent_at.len() < self.packets as usize;
            if is_left && scene.idle_at() <= now && scene.send().is_ok() {
                ledger.sent_at.push(now);
            }
            let next = scene.idle_at().max(now + Duration::from_nanos(1));
            let next = if is_left { next.min(now + SLICE) } else { now + SLICE };
            scene.run_until(next, &mut |happening| ledger.note(happening));
        }
        let footprint = Footprint::of(&scene.world.footprint().since(&before));
        Some(self.outcome(&scene, ledger, footprint))
    }

    /// How many datagrams arrive at nodes, roughly.
    pub(crate) fn deliveries(&self) -> f64 {
        let times = if self.protocol == Protocol::Srm { 8.0 } else { 2.0 };
        times * self.setting.group.receivers() as f64 * f64::from(self.packets)
    }

    fn outcome(&self, scene: &Scene, ledger: Ledger, footprint: Footprint) -> BulkOutcome {
        let packet_time = scene.plane.packet_time(self.protocol);
        let at_most = f64::from(self.packets) * packet_time.as_secs_f64();
        let bits = 8.0 * f64::from(self.packets) * self.setting.payload_bytes as f64;
        let receivers = scene.plane.receivers().len();
        // Who has not got everything has got nothing that is of use.
        let mean = |total: f64| total / receivers as f64;
        let each = ledger.complete.iter().map(Duration::as_secs_f64);
        let last = ledger.complete.iter().max().filter(|_| ledger.lacking.is_empty());
        let tally = |host| scene.world.machine(HostIx(host)).and_then(Rider::tally);
        let (mut counts, mut delays) = (Counts::default(), Vec::new());
        for tally in scene.plane.receivers().filter_map(tally) {
            let seen = ledger.of(tally);
            counts.add_receiver(seen, ledger.sent_at.len());
            let repaired = seen.iter().zip(&ledger.sent_at).filter(|(it, _)| !it.came);
            delays.extend(repaired.filter_map(|(it, sent)| Some(it.first_at?.since(*sent))));
        }
        for host in scene.plane.receivers().chain([scene.plane.sender()]) {
            tally(host).into_iter().for_each(|it| counts.add_server(ledger.of(it), it.control()));
        }
        BulkOutcome {
            receivers: receivers as u32,
            incomplete: ledger.lacking.len() as u32,
            mean_share: mean(each.clone().map(|it| at_most / it).sum()),
            least_share: last.map_or(0.0, |last| at_most / last.as_secs_f64()),
            goodput: mean(each.map(|it| bits / it).sum()),
            tree_links: scene.plane.tree.links().len() as u32,
            footprint,
            delays: Delays::new(delays.into_iter()),
            counts,
        }
    }
}

impl Ledger {
    fn new(scene: &Scene, packets: u32) -> Self {
        let lacking = scene.plane.receivers().map(|host| (HostIx(host), packets)).collect();
        let begin = scene.world.now();
        Self { begin, packets, lacking, complete: Vec::new(), sent_at: Vec::new() }
    }

    /// What a node has seen of the packets that count: not of the first, which began the group.
    fn of<'a>(&self, tally: &'a Tally) -> &'a [Seen] {
        tally.packets().get(1..).unwrap_or_default()
    }

    fn note(&mut self, happening: &Happening<Event>) {
        let Event::Message(_) = &happening.event else { return };
        let Some(lacking) = self.lacking.get_mut(&happening.host) else {
            unreachable!("{} got more than {} messages", happening.host, self.packets)
        };
        *lacking -= 1;
        if *lacking == 0 {
            self.lacking.remove(&happening.host);
            self.complete.push(happening.at.since(self.begin));
        }
    }
}

impl Counts {
    /// What a receiver has got, of so many packets.
    fn add_receiver(&mut self, seen: &[Seen], packets: usize) {
        let came = seen.iter().filter(|it| it.came).count();
        self.lost += (packets - came) as u64;
        for it in seen {
            let repairs = u64::from(it.repairs);
            self.repairs += repairs;
            match it.came {
                true => self.repairs_astray += repairs,
                false => self.repairs_again += repairs.saturating_sub(1),
            }
        }
    }

    /// What a node has done for others.
    fn add_server(&mut self, seen: &[Seen], control: u64) {
        for it in seen {
            self.copies += u64::from(it.copies);
            self.repaired_by_nodes += u64::from(it.copies > 0);
            self.most_copies = self.most_copies.max(u64::from(it.copies));
            self.most_requests = self.most_requests.max(u64::from(it.requests));
        }
        self.most_control = self.most_control.max(control);
    }
}

impl Footprint {
    fn of(traffic: &Traffic) -> Self {
        let bytes = |class| traffic.multicast.bytes(class) + traffic.unicast.bytes(class);
        Self {
            data: bytes(Class::Data),
            repairs: bytes(Class::Repair) + bytes(Class::Retransmission),
            control: bytes(Class::Control),
        }
    }

    /// What is of messages, for the first time or again: what the paper counts.
    pub(crate) fn of_messages(&self) -> u64 {
        self.data + self.repairs
    }
}

impl fmt::Display for BulkRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { loss, detect_after, .. } = &self.setting;
        let loss = 100.0 * loss.rate();
        write!(f, "{} at {loss} % a link, found after {detect_after:?}", self.protocol.name())
    }
}
