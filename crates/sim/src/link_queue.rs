//! One direction of a link in use: its queue, losses, background flows and traffic.

use core::time::Duration;

use carom_proto::loss::LossInjector;
use carom_proto::{Class, Rng, Time};

use crate::counters::PerClass;
use crate::ethernet::{bytes_on_the_wire, transmission_time};
use crate::topology::{Jitter, Link};

/// The traffic of links, including all headers, the preamble, and the gap between frames.
///
/// Connections between machines use no bandwidth and are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent to groups, or to all hosts.
    pub multicast: PerClass,
    /// Datagrams sent to one host.
    pub unicast: PerClass,
    /// Number of carried datagrams of [`Background`] flows.
    pub background: u64,
    /// Number of bytes of the carried background datagrams.
    pub background_bytes: u64,
    /// Number of datagrams, including background datagrams, that a link dropped because of its loss
    /// model, a full queue or a failure of the link. Drops before a shared cable are not counted.
    pub not_carried: u64,
}

/// A flow of UDP datagrams at a constant rate over one direction of a link. It uses bandwidth and
/// queue space like other traffic, but has no receiver.
///
/// The gaps between datagrams are random, from 0.5 to 1.5 times their mean. With constant gaps, one
/// of two flows can suffer all losses, because its datagrams always arrive just after those of the
/// other flow (S. Floyd, V. Jacobson, *On Traffic Phase Effects in Packet-Switched Gateways*,
/// 1992).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Background {
    /// Offered rate on the wire, in bits per second, including headers.
    pub bits_per_second: u64,
    /// Size, in bytes, of the UDP payload of each datagram.
    pub datagram_bytes: usize,
    /// Time of the first datagram.
    pub begin: Time,
    /// Time at which the flow ends.
    pub end: Time,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) bytes: u64,
    pub(crate) class: Class,
    pub(crate) is_multicast: bool,
    pub(crate) may_be_lost: bool,
}

#[derive(Debug)]
pub(crate) struct LinkState {
    busy_until: Time,
    pub(crate) loss: LossInjector,
    flows: Vec<Flow>,
    pub(crate) traffic: Traffic,
    pub(crate) is_dead: bool,
}

#[derive(Debug)]
struct Flow {
    next: Time,
    bytes: u64,
    mean_gap: Duration,
    end: Time,
    rng: Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    Lost,
    QueueFull,
    Dead,
}

impl Traffic {
    /// Returns the number of multicast and unicast bytes, without background flows.
    pub fn bytes(&self) -> u64 {
        self.multicast.all_bytes() + self.unicast.all_bytes()
    }

    /// Returns the difference from `before`, an earlier state of the same counters.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            multicast: self.multicast.since(&before.multicast),
            unicast: self.unicast.since(&before.unicast),
            background: self.background - before.background,
            background_bytes: self.background_bytes - before.background_bytes,
            not_carried: self.not_carried - before.not_carried,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.multicast.add_all(&other.multicast);
        self.unicast.add_all(&other.unicast);
        self.background += other.background;
        self.background_bytes += other.background_bytes;
        self.not_carried += other.not_carried;
    }

    pub(crate) fn count(&mut self, load: Load) {
        let kind = if load.is_multicast { &mut self.multicast } else { &mut self.unicast };
        kind.add(load.class, load.bytes as usize);
    }
}

impl LinkState {
    pub(crate) fn new(link: &Link, seed: u64) -> Self {
        Self {
            busy_until: Time::ZERO,
            loss: LossInjector::new(link.loss, seed),
            flows: Vec::new(),
            traffic: Traffic::default(),
            is_dead: false,
        }
    }

    /// Sends a datagram into the link at `now`, and returns its time of arrival at the other end.
    /// On links with a bandwidth limit, calls must be in order of time. A lost datagram uses no
    /// bandwidth, and neither does a datagram that finds the queue full.
    pub(crate) fn cross(
        &mut self,
        now: Time,
        load: Load,
        link: &Link,
        rng: &mut Rng,
    ) -> Result<Time, Dropped> {
        let leaves = self.enter(now, load, link).inspect_err(|_| self.traffic.not_carried += 1)?;
        self.traffic.count(load);
        Ok(leaves + link.latency(rng))
    }

    fn enter(&mut self, now: Time, load: Load, link: &Link) -> Result<Time, Dropped> {
        if self.is_dead {
            return Err(Dropped::Dead);
        }
        if load.may_be_lost && self.loss.drops_next() {
            return Err(Dropped::Lost);
        }
        let Some(bandwidth) = link.bandwidth else { return Ok(now) };
        if !self.flows.is_empty() {
            self.advance_flows(now, link);
        }
        self.enqueue(now, load.bytes, bandwidth, link.queue_bytes).ok_or(Dropped::QueueFull)
    }

    pub(crate) fn traffic(&mut self, now: Time, link: &Link) -> &Traffic {
        self.advance_flows(now, link);
        &self.traffic
    }

    pub(crate) fn add_flow(&mut self, flow: Background, seed: u64) {
        let bytes = bytes_on_the_wire(flow.datagram_bytes);
        let mean_gap = transmission_time(bytes, flow.bits_per_second);
        let (next, end, rng) = (flow.begin, flow.end, Rng::new(seed));
        self.flows.push(Flow { next, bytes, mean_gap, end, rng });
    }

    fn advance_flows(&mut self, now: Time, link: &Link) {
        let Some(bandwidth) = link.bandwidth else { return };
        loop {
            let due = self.flows.iter().enumerate().filter(|(_, flow)| flow.next <= now);
            let Some(first) = due.min_by_key(|(_, flow)| flow.next).map(|(index, _)| index) else {
                return;
            };
            let flow = &mut self.flows[first];
            let (at, bytes) = (flow.next, flow.bytes);
            flow.next = at + flow.mean_gap / 2 + Jitter::Uniform(flow.mean_gap).draw(&mut flow.rng);
            if at >= flow.end {
                self.flows.swap_remove(first);
            } else if !self.is_dead
                && self.enqueue(at, bytes, bandwidth, link.queue_bytes).is_some()
            {
                self.traffic.background += 1;
                self.traffic.background_bytes += bytes;
            } else {
                self.traffic.not_carried += 1;
            }
        }
    }

    fn enqueue(
        &mut self,
        now: Time,
        bytes: u64,
        bits_per_second: u64,
        queue_bytes: u64,
    ) -> Option<Time> {
        let waits = self.busy_until.since(now);
        if waits > transmission_time(queue_bytes, bits_per_second) {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + transmission_time(bytes, bits_per_second);
        Some(self.busy_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s, so that a byte takes one microsecond.
    const BANDWIDTH: u64 = 8_000_000;

    fn load(bytes: u64) -> Load {
        Load { bytes, class: Class::Data, is_multicast: true, may_be_lost: true }
    }

    #[test]
    fn a_full_queue_drops_and_a_busy_link_delays() {
        let link = Link::of_delay(Duration::from_micros(10)).with_bandwidth(BANDWIDTH, 2000);
        let mut state = LinkState::new(&link, 1);
        let mut rng = Rng::new(1);
        let mut cross = |now| state.cross(Time(now), load(1000), &link, &mut rng);
        assert_eq!(cross(0), Ok(Time(1_010_000)));
        assert_eq!(cross(0), Ok(Time(2_010_000)));
        assert_eq!(cross(0), Ok(Time(3_010_000)));
        assert_eq!(cross(0), Err(Dropped::QueueFull));
        assert_eq!(cross(5_000_000), Ok(Time(6_010_000)));
        let traffic = state.traffic(Time(6_000_000), &link);
        assert_eq!(traffic.multicast.datagrams(Class::Data), 4);
        assert_eq!((traffic.bytes(), traffic.not_carried), (4000, 1));
    }

    fn arrived(state: &mut LinkState, link: &Link, count: u64, interval_us: u64) -> u64 {
        let mut rng = Rng::new(1);
        let mut cross =
            |index: u64| state.cross(Time(index * interval_us * 1000), load(1000), link, &mut rng);
        (0..count).filter(|index| cross(*index).is_ok()).count() as u64
    }

    fn flow(bits_per_second: u64, end: Time) -> Background {
        Background { bits_per_second, datagram_bytes: 1000 - 66, begin: Time(0), end }
    }

    #[test]
    fn a_background_flow_takes_its_share_while_it_lasts() {
        let link = Link::instant().with_bandwidth(BANDWIDTH, 20_000);
        let mut state = LinkState::new(&link, 1);
        let second = Time(1_000_000_000);
        state.add_flow(flow(BANDWIDTH / 4, second), 1);
        // Flows of 90 % and 25 % exceed the link's capacity. Both lose about the same share.
        let got = arrived(&mut state, &link, 900, 1111);
        let traffic = *state.traffic(second, &link);
        let (carried, offered) = (got + traffic.background, 900 + 250);
        assert!((offered - 20..offered + 20).contains(&(carried + traffic.not_carried)));
        assert!((995..=1025).contains(&carried), "the link is full: {traffic:?}");
        assert!((720..860).contains(&got), "{got} of 900");
        assert!((180..240).contains(&traffic.background), "{traffic:?}");
        let after = (0..900).filter(|index| {
            let at = second + Duration::from_micros(index * 1111);
            state.cross(at, load(1000), &link, &mut Rng::new(1)).is_ok()
        });
        assert_eq!(after.count(), 900, "it has ended");
        let later = second + Duration::from_secs(2);
        assert_eq!(state.traffic(later, &link).background, traffic.background);
    }

    #[test]
    fn a_background_flow_that_fits_delays_and_loses_nothing() {
        let link = Link::instant().with_bandwidth(BANDWIDTH, 20_000);
        let mut state = LinkState::new(&link, 1);
        state.add_flow(flow(BANDWIDTH / 4, Time(1_000_000_000)), 1);
        assert_eq!(arrived(&mut state, &link, 700, 1428), 700);
        let traffic = *state.traffic(Time(1_000_000_000), &link);
        assert!((240..260).contains(&traffic.background), "{traffic:?}");
        assert_eq!(traffic.background_bytes, 1000 * traffic.background);
        assert_eq!((traffic.bytes(), traffic.not_carried), (700_000, 0));
    }

    #[test]
    fn a_dead_link_carries_nothing() {
        let link = Link::instant().with_bandwidth(BANDWIDTH, 20_000);
        let mut state = LinkState::new(&link, 1);
        state.add_flow(flow(BANDWIDTH / 4, Time(1_000_000_000)), 1);
        state.is_dead = true;
        assert_eq!(arrived(&mut state, &link, 10, 1000), 0);
        let traffic = *state.traffic(Time(1_000_000_000), &link);
        assert_eq!((traffic.background, traffic.bytes()), (0, 0));
        assert!((250..270).contains(&traffic.not_carried), "{traffic:?}");
    }
}
