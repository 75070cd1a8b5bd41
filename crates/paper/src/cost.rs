//! Processor time for receiving a data packet, and its parts.
//!
//! One engine receives the packets of all other members of its groups from memory. The parts are
//! separated by leaving work out. Without repairs (c = 0), a packet is still decoded, accounted and
//! delivered. With short messages, the bins are still kept, but there is almost nothing to XOR.
//!
//! The result is the processor time of this thread, as the minimum of several rounds.

use std::fmt;
use std::time::Duration;

use carom_proto::lateral::packet::Packet;
use carom_proto::lateral::packet::symbol::{Arena, Symbol};
use carom_proto::lateral::{Config, Counters, Lateral};
use carom_proto::wire::Datagram;
use carom_proto::{
    Engine as _, GroupId, GroupSettings, LOOK_AHEAD, NodeId, Profile, RateOfFire, Rng, SeqNo, Time,
    ViewChange, ViewChangeKind,
};
use nix::time::{ClockId, clock_gettime};
use smallvec::SmallVec;

use crate::lateral::{Groups, Membership, group_id, node_id};
use crate::work::{Env, Run};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CostRun {
    pub(crate) nodes: u32,
    pub(crate) membership: Membership,
    pub(crate) payload_bytes: usize,
    pub(crate) packets: u32,
    /// Number of rounds. The fastest one counts.
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CostOutcome {
    pub(crate) xors_per_packet: f64,
    pub(crate) repairs_per_packet: f64,
    pub(crate) bins: u64,
    /// Number of groups shared with another node, summed over the nodes. It limits `bins`.
    pub(crate) shared_groups: u64,
    /// Processor time per data packet. It differs from run to run.
    pub(crate) ns: Nanoseconds,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Nanoseconds {
    pub(crate) all: f64,
    /// Decoding, accounting and delivery.
    pub(crate) accounting: f64,
    /// Keeping the bins and making repairs, without the XORs.
    pub(crate) bins: f64,
    pub(crate) xor: f64,
}

impl Run for CostRun {
    type Outcome = CostOutcome;
    const IS_ALONE: bool = true;

    fn run(&self, env: Env<'_>) -> Option<Self::Outcome> {
        let groups = self.membership.draw(self.nodes, &mut Rng::new(self.seed));
        let node = groups.hosts().next()?;
        let bench = |c: u8, payload_bytes: usize| {
            let rate = |rate: RateOfFire| RateOfFire::new(rate.r, c.min(rate.c));
            (!env.ends()).then(|| Bench::new(self, &groups, node, rate, payload_bytes))
        };
        let mut whole = bench(u8::MAX, self.payload_bytes)?;
        let mut no_bins = bench(0, self.payload_bytes)?;
        let mut short = bench(u8::MAX, SHORT_BYTES)?;
        let mut short_no_bins = bench(0, SHORT_BYTES)?;
        let before = whole.engine.counters();
        let mut least = [f64::INFINITY; 4];
        for _ in 0..self.rounds {
            let benches = [&mut whole, &mut no_bins, &mut short, &mut short_no_bins];
            for (least, bench) in least.iter_mut().zip(benches) {
                *least = least.min(bench.round(self.packets));
                if env.ends() {
                    return None;
                }
            }
        }
        let [all, accounting, short, short_accounting] = least;
        let bins = (short - short_accounting).max(0.0);
        let xor = (all - accounting - bins).max(0.0);
        let ns = Nanoseconds { all, accounting, bins, xor };
        Some(outcome(&whole.engine, &before, shared_groups(&groups, node), ns))
    }

    fn cost(&self) -> f64 {
        0.0
    }
}

fn outcome(
    engine: &Lateral,
    before: &Counters,
    shared_groups: u64,
    ns: Nanoseconds,
) -> CostOutcome {
    let counters = engine.counters();
    let packets = (counters.packets_binned - before.packets_binned) as f64;
    CostOutcome {
        xors_per_packet: (counters.xors - before.xors) as f64 / packets,
        repairs_per_packet: (counters.repairs_sent - before.repairs_sent) as f64 / packets,
        bins: engine.bins_and_missing().0 as u64,
        shared_groups,
        ns,
    }
}

fn shared_groups(groups: &Groups, node: u32) -> u64 {
    groups.of(node).iter().map(|group| groups.members(*group).len() as u64 - 1).sum()
}

struct Bench {
    engine: Lateral,
    streams: Vec<(GroupId, NodeId, SeqNo)>,
    symbol: Symbol,
    batch: Vec<Vec<u8>>,
    out: Vec<u8>,
    rng: Rng,
    now: Time,
}

impl Bench {
    fn new(
        run: &CostRun,
        groups: &Groups,
        node: u32,
        rate: impl Fn(RateOfFire) -> RateOfFire,
        payload_bytes: usize,
    ) -> Self {
        let mut rng = Rng::new(run.seed ^ 0xc057);
        let config = Config { buffer_bytes: 4 << 20, ..Config::as_in_the_papers() };
        let mut engine = Lateral::new(node_id(node), config, rng.next_u64());
        let mut streams = Vec::new();
        for group in groups.of(node) {
            let profile = Profile::TimeCritical(rate(groups.rate(*group, node)));
            let (id, settings) = (group_id(*group), GroupSettings { profile, name_check: 0 });
            engine.join(Time(0), id, settings).expect("plans are checked before they are run");
            for member in groups.members(*group).iter().filter(|member| **member != node) {
                let (member, kind) = (node_id(*member), ViewChangeKind::Joined);
                let change = ViewChange { group: id, node: member, kind, version: 1 };
                engine.handle_view(Time(0), &change);
                streams.push((id, member, SeqNo::FIRST));
            }
        }
        let symbol =
            Symbol::of_message(&mut Arena::default(), Time(0), None, &vec![0xA5; payload_bytes]);
        let batch = (0..BATCH).map(|_| Vec::with_capacity(2048)).collect();
        let mut bench = Self { engine, streams, symbol, batch, out: Vec::new(), rng, now: Time(0) };
        // All streams must be open and all buffers in use before the measurement.
        let warm_up = 4 * bench.streams.len() as u32 + 40_000;
        bench.round(warm_up);
        bench
    }

    /// Receives about `packets` data packets, in full batches. Returns the nanoseconds per packet.
    fn round(&mut self, packets: u32) -> f64 {
        let batches = packets.div_ceil(BATCH as u32).max(1);
        let mut spent = Duration::ZERO;
        for _ in 0..batches {
            self.refill();
            let begun = processor_time();
            self.receive();
            spent += processor_time().saturating_sub(begun);
        }
        spent.as_nanos() as f64 / f64::from(batches * BATCH as u32)
    }

    fn refill(&mut self) {
        for datagram in &mut self.batch {
            let choice = self.rng.below(self.streams.len());
            let (group, node, seqno) = &mut self.streams[choice];
            datagram.clear();
            let packet =
                Packet::Data { seqno: *seqno, confirm: false, symbol: self.symbol.bytes() };
            packet.encode(*node, *group, 1, datagram);
            *seqno = seqno.next();
        }
    }

    fn receive(&mut self) {
        for datagrams in self.batch.chunks(LOOK_AHEAD) {
            let datagrams = datagrams.iter().map(|it| Datagram::parse(it).expect("a datagram"));
            let datagrams: SmallVec<[Datagram<'_>; LOOK_AHEAD]> = datagrams.collect();
            self.engine.look_ahead(&datagrams);
            for datagram in &datagrams {
                self.now.0 += 1_000_000;
                self.engine.handle_datagram(self.now, datagram);
                while self.engine.poll_transmit(&mut self.out).is_some() {
                    self.out.clear();
                }
                while self.engine.poll_event().is_some() {}
            }
        }
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl fmt::Display for CostRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU time, {}", self.membership)
    }
}

/// Number of datagrams passed to the engine at once, as after a `recvmmsg`.
const BATCH: usize = 64;
const SHORT_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_told_apart_and_the_counts_are_the_same_twice() {
        let rate = RateOfFire::new(8, 5);
        let membership = Membership::Random { groups_per_node: 16, mean_size: 10, rate };
        let (nodes, payload_bytes, packets, rounds, seed) = (64, 1024, 2_000, 2, 1);
        let run = CostRun { nodes, membership, payload_bytes, packets, rounds, seed };
        let [one, two] = [(); 2].map(|()| run.run(&|| false).expect("the run is not ended early"));
        assert!((3.5..=5.05).contains(&one.xors_per_packet), "{}", one.xors_per_packet);
        assert!(one.bins > 0 && one.bins <= one.shared_groups);
        assert!(one.ns.all > one.ns.accounting && one.ns.accounting > 0.0);
        assert_eq!((one.xors_per_packet, one.bins), (two.xors_per_packet, two.bins));
        assert_eq!(run.run(&|| true), None);
    }
}
