//! Multicast of a file as fast as the links permit, without congestion control (RDCM 4.1).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use carom_proto::{Class, Event, Rng, Time};
use carom_sim::{Happening, HostIx, Traffic};

use super::plane::{Plane, Setting};
use super::protocol::Protocol;
use super::scene::{SLICE, Scene};
use super::tally::{Seen, Tally};
use crate::delays::Delays;
use crate::work::{Env, Run};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BulkRun {
    pub(crate) setting: Setting,
    pub(crate) protocol: Protocol,
    pub(crate) packets: u32,
    /// Number of receivers that leave, and of others that join, evenly over the time in which the
    /// packets are sent.
    pub(crate) changes: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BulkOutcome {
    pub(crate) receivers: u32,
    pub(crate) incomplete: u32,
    /// Mean goodput as a share of the link's capacity, 0 to 1. An incomplete receiver counts as 0.
    pub(crate) mean_share: f64,
    /// Goodput of the last receiver to complete, as a share. It is 0 if a receiver is incomplete.
    pub(crate) least_share: f64,
    /// Mean goodput of the receivers, in bits of payload per second.
    pub(crate) goodput: f64,
    pub(crate) tree_links: u32,
    /// Bytes carried by all links until the last receiver has everything.
    pub(crate) footprint: Footprint,
    /// Delays from the multicast to the first repair, if the multicast did not arrive.
    pub(crate) delays: Delays,
    pub(crate) counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Footprint {
    pub(crate) data: u64,
    pub(crate) repairs: u64,
    pub(crate) control: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Number of packets whose multicast did not arrive.
    pub(crate) lost: u64,
    pub(crate) repairs: u64,
    /// Repairs received for packets whose multicast arrived too, before or after the repair.
    pub(crate) repairs_astray: u64,
    /// Repairs received beyond the first, for packets whose multicast did not arrive.
    pub(crate) repairs_again: u64,
    pub(crate) copies: u64,
    /// Number of pairs of a node and a packet that it repaired.
    pub(crate) repaired_by_nodes: u64,
    pub(crate) most_copies: u64,
    /// Largest number of nodes to which one node sent repairs of a packet.
    pub(crate) most_served: u64,
    pub(crate) most_requests: u64,
    /// Largest number of nodes that requested a packet from one node.
    pub(crate) most_requesters: u64,
    pub(crate) most_control: u64,
}

struct Ledger {
    begin: Time,
    /// Number of messages that each receiver that stays in the group lacks.
    lacking: BTreeMap<HostIx, u32>,
    complete: Vec<Duration>,
    sent_at: Vec<Time>,
}

/// Time limit of a run, as a multiple of the packets' transmission time on the link.
const MOST_TIMES: u32 = 100;
const MOST: Duration = Duration::from_millis(500);

impl Run for BulkRun {
    type Outcome = BulkOutcome;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let plane = self.setting.plane();
        let changes = Changes::draw(self.changes, &plane);
        let mut scene = Scene::new(plane, self.protocol, true);
        scene.begin(env)?;
        let before = scene.world.footprint();
        let packet_time = self.protocol.packet_time(&self.setting);
        let mut ledger = Ledger::new(&scene, self.packets, &changes);
        let each = packet_time * self.packets / (self.changes + 1);
        let mut changes = changes.0.into_iter().zip(1..).peekable();
        let end = ledger.begin + packet_time * self.packets * MOST_TIMES + MOST;
        let mut look = ledger.begin;
        while ledger.incomplete() > 0 && scene.world.now() < end {
            let now = scene.world.now();
            if now >= look {
                look = now + SLICE;
                if env.ends() {
                    return None;
                }
            }
            while let Some(((leaver, joiner), _)) =
                changes.next_if(|(_, number)| ledger.begin + each * *number <= now)
            {
                scene.leave(leaver);
                scene.join(joiner);
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

    fn cost(&self) -> f64 {
        let times = if self.protocol == Protocol::Srm { 8.0 } else { 2.0 };
        times * self.setting.group.receivers() as f64 * f64::from(self.packets)
    }
}

impl BulkRun {
    fn outcome(&self, scene: &Scene, ledger: Ledger, footprint: Footprint) -> BulkOutcome {
        let packet_time = self.protocol.packet_time(&self.setting);
        let at_most = f64::from(self.packets) * packet_time.as_secs_f64();
        let bits = 8.0 * f64::from(self.packets) * self.setting.payload_bytes as f64;
        let receivers = ledger.lacking.len();
        // Incomplete receivers count as zero, because a part of the file is useless.
        let mean = |total: f64| total / receivers as f64;
        let each = ledger.complete.iter().map(Duration::as_secs_f64);
        let last = ledger.complete.iter().max().filter(|_| ledger.incomplete() == 0);
        let tally = |host| scene.world.machine(HostIx(host)).and_then(|it| it.tally.as_ref());
        let (mut counts, mut delays) = (Counts::default(), Vec::new());
        for tally in ledger.stayers().filter_map(tally) {
            let seen = ledger.of(tally);
            counts.add_receiver(seen, ledger.sent_at.len());
            let repaired = seen.iter().zip(&ledger.sent_at).filter(|(it, _)| !it.came);
            delays.extend(repaired.filter_map(|(it, sent)| Some(it.first_at?.since(*sent))));
        }
        for host in ledger.stayers().chain([scene.plane.sender()]) {
            tally(host).into_iter().for_each(|it| counts.add_server(ledger.of(it), it.control));
        }
        BulkOutcome {
            receivers: receivers as u32,
            incomplete: ledger.incomplete() as u32,
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
    /// Creates the account of the receivers that stay.
    fn new(scene: &Scene, packets: u32, changes: &Changes) -> Self {
        let stays = |host: &u32| changes.0.iter().all(|(leaver, _)| leaver != host);
        let stayers = scene.plane.receivers().filter(stays);
        let lacking = stayers.map(|host| (HostIx(host), packets)).collect();
        Self { begin: scene.world.now(), lacking, complete: Vec::new(), sent_at: Vec::new() }
    }

    fn stayers(&self) -> impl Iterator<Item = u32> {
        self.lacking.keys().map(|host| host.0)
    }

    fn incomplete(&self) -> usize {
        self.lacking.len() - self.complete.len()
    }

    /// Returns the observations of the counted packets: the first packet only started the group.
    fn of<'a>(&self, tally: &'a Tally) -> &'a [Seen] {
        tally.packets.get(1..).unwrap_or_default()
    }

    fn note(&mut self, happening: &Happening<Event>) {
        let Event::Message(_) = &happening.event else { return };
        let Some(lacking) = self.lacking.get_mut(&happening.host) else { return };
        assert!(*lacking > 0, "{:?} got more messages than were sent", happening.host);
        *lacking -= 1;
        if *lacking == 0 {
            self.complete.push(happening.at.since(self.begin));
        }
    }
}

/// Pairs of a receiver that leaves and of another host that joins.
struct Changes(Vec<(u32, u32)>);

impl Changes {
    fn draw(count: u32, plane: &Plane) -> Self {
        if count == 0 {
            return Self(Vec::new());
        }
        let mut rng = Rng::new(plane.setting.seed ^ CHANGES);
        let mut leavers: Vec<u32> = plane.receivers().collect();
        let is_outside = |host: &u32| !leavers.contains(host) && *host != plane.sender();
        let mut joiners: Vec<u32> = (0..plane.cluster.hosts()).filter(is_outside).collect();
        rng.choose_to_front(&mut leavers, count as usize);
        rng.choose_to_front(&mut joiners, count as usize);
        Self(leavers.into_iter().zip(joiners).take(count as usize).collect())
    }
}

/// Separates the random choice of changes from other choices with the same seed.
const CHANGES: u64 = 0xC4A2_6E5F;

impl Counts {
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

    fn add_server(&mut self, seen: &[Seen], control: u64) {
        for it in seen {
            self.copies += u64::from(it.copies);
            self.repaired_by_nodes += u64::from(it.copies > 0);
            self.most_copies = self.most_copies.max(u64::from(it.copies));
            self.most_served = self.most_served.max(u64::from(it.served));
            self.most_requests = self.most_requests.max(u64::from(it.requests));
            self.most_requesters = self.most_requesters.max(u64::from(it.requesters));
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

    /// Returns the bytes that messages and repairs take on all links: the paper's footprint.
    pub(crate) fn of_messages(&self) -> u64 {
        self.data + self.repairs
    }
}

impl fmt::Display for BulkRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { loss, detect_after, .. } = &self.setting;
        let loss = 100.0 * loss.rate();
        write!(f, "{} at {loss} % loss, detected after {detect_after:?}", self.protocol.name())?;
        match self.changes {
            0 => Ok(()),
            changes => write!(f, ", {changes} receivers replaced"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use carom_proto::{GroupId, How, Message, NodeId, SeqNo};

    use super::*;

    fn message(host: HostIx, ms: u64) -> Happening<Event> {
        let (group, sender, seqno) = (GroupId(1), NodeId(1), SeqNo(1));
        let (payload, missing_for) = (Bytes::new(), Duration::ZERO);
        let (how, age, place) = (How::Direct, None, None);
        let message = Message { group, sender, seqno, payload, how, age, missing_for, place };
        Happening { at: Time(ms * 1_000_000), host, event: Event::Message(message) }
    }

    /// Returns the account of a receiver that stays and has been delivered its only message, and of
    /// another one that left.
    fn complete() -> Ledger {
        let lacking = [(HostIx(3), 1)].into();
        let (complete, sent_at) = (Vec::new(), Vec::new());
        let mut ledger = Ledger { begin: Time(0), lacking, complete, sent_at };
        ledger.note(&message(HostIx(4), 1));
        assert_eq!(ledger.incomplete(), 1);
        ledger.note(&message(HostIx(3), 2));
        ledger
    }

    #[test]
    fn receiver_is_complete_with_its_last_message() {
        let ledger = complete();
        assert_eq!(ledger.incomplete(), 0);
        assert_eq!(ledger.stayers().collect::<Vec<_>>(), [3]);
        assert_eq!(ledger.complete, [Duration::from_millis(2)]);
    }

    #[test]
    #[should_panic(expected = "HostIx(3) got more messages than were sent")]
    fn message_beyond_the_last_one_is_not_ignored() {
        complete().note(&message(HostIx(3), 3));
    }
}
