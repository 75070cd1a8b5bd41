//! Accounting of a run: the packets owed, those whose multicast did not arrive, and their recovery.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carom_proto::{How, PacketId, Time};
use carom_sim::{Happening, HostIx};

use super::member::Told;
use super::membership::Groups;
use super::stays::Stays;
use crate::delays::Delays;

/// The account of a run. It counts packets that are sent from `counts` on and before `until`.
pub(super) struct Ledger {
    groups: Rc<Groups>,
    stays: Rc<Stays>,
    counts: Time,
    until: Time,
    tallies: Vec<Tally>,
    given_up: u64,
}

#[derive(Clone, Debug, Default)]
struct Tally {
    expected: u64,
    direct: u64,
    /// Repaired packets that are not known to have been overtaken.
    repaired: BTreeMap<(HostIx, [u64; 3]), Repaired>,
    overtaken: u64,
}

#[derive(Clone, Copy, Debug)]
struct Repaired {
    by_fec: bool,
    age: Duration,
    missing_for: Duration,
}

/// The outcome of the losses in one group, or in all groups.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupOutcome {
    pub(crate) expected: u64,
    /// Number of expected packets whose multicast did not arrive.
    pub(crate) lost: u64,
    /// Delays of the lost packets that were recovered from repairs.
    pub(crate) fec: Delays,
    /// Delays of the lost packets that were retransmitted after a NAK.
    pub(crate) nak: Delays,
    /// Delays from the multicast to the detection of the loss, of the packets in `nak`.
    pub(crate) discovery: Delays,
    pub(crate) missing: u64,
    /// Number of packets that were repaired while they were still in flight.
    pub(crate) overtaken: u64,
    /// Repairs as a share of the data packets and repairs of this group that arrived. A repair
    /// counts toward each group in proportion to its packets. `None` if groups are not separated.
    pub(crate) overhead: Option<f64>,
}

impl Ledger {
    pub(super) fn new(groups: Rc<Groups>, stays: Rc<Stays>, counts: Time, until: Time) -> Self {
        let tallies = vec![Tally::default(); groups.tags()];
        Self { groups, stays, counts, until, tallies, given_up: 0 }
    }

    pub(super) fn tags(&self) -> usize {
        self.tallies.len()
    }

    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    pub(super) fn note_sent(&mut self, now: Time, group: u32, sender: u32) {
        if (self.counts..self.until).contains(&now) {
            let members = self.groups.members(group).iter();
            let others = members.filter(|host| **host != sender && self.stays.owe(**host, now));
            self.tallies[self.groups.tag(group)].expected += others.count() as u64;
        }
    }

    pub(super) fn note(&mut self, happening: Happening<Told>) {
        let Happening { at, host, event } = happening;
        match event {
            Told::Delivered { id, how, age, missing_for } => {
                let sent = at.before(age);
                let counts = (self.counts..self.until).contains(&sent);
                if !counts || !self.stays.owe(host.0, sent) {
                    return;
                }
                let tally = self.tally(id);
                match how {
                    How::Direct => tally.direct += 1,
                    How::Recovered(_) => {
                        tally.repair(host, id, Repaired { by_fec: true, age, missing_for });
                    }
                    How::Retransmitted(_) => {
                        tally.repair(host, id, Repaired { by_fec: false, age, missing_for });
                    }
                }
            }
            Told::Overtaken(id) => {
                let tally = self.tally(id);
                let known = tally.repaired.remove(&key(host, id));
                tally.overtaken += u64::from(known.is_some());
            }
            Told::GaveUp(count) if at >= self.counts => self.given_up += u64::from(count),
            Told::GaveUp(_) => {}
        }
    }

    pub(super) fn close(self) -> Vec<GroupOutcome> {
        self.tallies.into_iter().map(Tally::close).collect()
    }

    fn tally(&mut self, id: PacketId) -> &mut Tally {
        &mut self.tallies[self.groups.tag(id.group.0 - 1)]
    }
}

impl Tally {
    fn repair(&mut self, host: HostIx, id: PacketId, repaired: Repaired) {
        self.repaired.insert(key(host, id), repaired);
    }

    fn close(self) -> GroupOutcome {
        let Self { expected, direct, repaired, overtaken } = self;
        let delays = |by_fec: bool| {
            Delays::new(repaired.values().filter(|it| it.by_fec == by_fec).map(|it| it.age))
        };
        let asked_for = repaired.values().filter(|it| !it.by_fec);
        let discovery = Delays::new(asked_for.map(|it| it.age.saturating_sub(it.missing_for)));
        let lost = expected - direct - overtaken;
        let (fec, nak) = (delays(true), delays(false));
        let missing = lost - (fec.len() + nak.len()) as u64;
        GroupOutcome { expected, lost, fec, nak, discovery, missing, overtaken, overhead: None }
    }
}

fn key(host: HostIx, id: PacketId) -> (HostIx, [u64; 3]) {
    (host, [id.sender.0, u64::from(id.group.0), u64::from(id.seqno.0)])
}

impl GroupOutcome {
    pub(crate) fn recovered_share(&self) -> f64 {
        self.fec.len() as f64 / self.lost as f64
    }

    pub(crate) fn recovered_percent(&self) -> f64 {
        100.0 * self.recovered_share()
    }

    /// Returns one standard deviation of the share, assuming independent losses and recoveries.
    pub(crate) fn sigma(&self) -> f64 {
        let share = self.recovered_share();
        (share * (1.0 - share) / self.lost as f64).sqrt()
    }

    pub(crate) fn delivered_share(&self) -> f64 {
        (self.expected - self.missing) as f64 / self.expected as f64
    }
}

#[cfg(test)]
mod tests {
    use carom_proto::{NodeId, RateOfFire, Rng, SeqNo};

    use super::super::membership::{Membership, group_id};
    use super::*;

    const SENDER: NodeId = NodeId(7);

    fn ledger() -> Ledger {
        let rate = RateOfFire::default();
        let groups = Membership::OneGroup { size: 2, rate, odd: rate }.draw(2, &mut Rng::new(1));
        Ledger::new(Rc::new(groups), Rc::new(Stays::for_ever()), Time::ZERO, Time::MAX)
    }

    fn id(number: u32) -> PacketId {
        PacketId { sender: SENDER, group: group_id(0), seqno: SeqNo(number) }
    }

    fn note(ledger: &mut Ledger, event: Told) {
        ledger.note(Happening { at: Time(1_000_000_000), host: HostIx(1), event });
    }

    fn deliver(ledger: &mut Ledger, number: u32, how: How) {
        let [age, missing_for] = [9, 4].map(Duration::from_millis);
        note(ledger, Told::Delivered { id: id(number), how, age, missing_for });
    }

    #[test]
    fn overtaken_packets_are_neither_lost_nor_recovered() {
        let mut ledger = ledger();
        (1..=7).for_each(|_| ledger.note_sent(Time(1), 0, 0));
        deliver(&mut ledger, 1, How::Direct);
        for number in [2, 3, 4] {
            deliver(&mut ledger, number, How::Recovered(SENDER));
        }
        for number in [5, 6] {
            deliver(&mut ledger, number, How::Retransmitted(SENDER));
        }
        // The multicasts of three of them arrive later. Packet 7 does not arrive at all.
        [2, 3, 5].into_iter().for_each(|number| note(&mut ledger, Told::Overtaken(id(number))));
        let [outcome] = &ledger.close()[..] else { panic!("one kind of group") };
        assert_eq!((outcome.expected, outcome.overtaken), (7, 3));
        assert_eq!((outcome.lost, outcome.missing), (3, 1));
        assert_eq!((outcome.fec.len(), outcome.nak.len(), outcome.discovery.len()), (1, 1, 1));
        assert!((outcome.recovered_share() - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_was_not_repaired_is_not_counted_as_overtaken() {
        let mut ledger = ledger();
        (1..=2).for_each(|_| ledger.note_sent(Time(1), 0, 0));
        deliver(&mut ledger, 1, How::Direct);
        deliver(&mut ledger, 2, How::Recovered(SENDER));
        [1, 2, 2].into_iter().for_each(|number| note(&mut ledger, Told::Overtaken(id(number))));
        let [outcome] = &ledger.close()[..] else { panic!("one kind of group") };
        assert_eq!((outcome.overtaken, outcome.lost, outcome.missing), (1, 0, 0));
    }
}
