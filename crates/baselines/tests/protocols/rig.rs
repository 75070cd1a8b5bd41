use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::*;

use crate::world::Host;
pub(crate) use crate::world::{GROUP, MILLISECOND, SECOND};

pub(crate) type World = crate::world::World<dyn Engine>;

impl World {
    pub(crate) fn new(
        hosts: usize,
        loss: Loss,
        seed: u64,
        make: impl Fn(Origin, u64) -> Box<dyn Engine> + 'static,
    ) -> Self {
        let mut world = Self::with_engines(hosts, Profile::Guest, loss, seed, make);
        world.set_mean_delay(MILLISECOND / 10);
        (0..hosts).for_each(|number| world.join(number, GROUP));
        world
    }

    pub(crate) fn set_mean_delay(&mut self, mean: Duration) {
        self.delay = mean / 2..mean * 3 / 2;
    }

    /// Lets the host receive datagrams of a group that it has not joined.
    pub(crate) fn listen(&mut self, number: usize, group: GroupId) {
        self.hosts[number].groups.insert(group);
    }

    pub(crate) fn fail(&mut self, number: usize) {
        self.crash(number);
        for group in std::mem::take(&mut self.hosts[number].groups) {
            self.announce(number, group, ViewChangeKind::Failed);
        }
    }

    pub(crate) fn sends(&mut self, number: usize, rounds: std::ops::Range<usize>) {
        rounds.for_each(|round| _ = self.send(number, &payload(number, round)));
    }

    /// Sends `count` messages from every host, one per `interval`, at different times.
    pub(crate) fn everybody_sends(&mut self, count: usize, interval: Duration) {
        let pause = interval / self.hosts.len() as u32;
        for round in 0..count {
            for number in 0..self.hosts.len() {
                self.send(number, &payload(number, round));
                self.run_for(pause);
            }
        }
    }

    /// Asserts that every host has settled messages 1 to `count` of every other host exactly once.
    pub(crate) fn assert_all_settled(&self, count: usize) -> usize {
        let mut lost_in_all = 0;
        for host in &self.hosts {
            for sender in self.hosts.iter().filter(|sender| sender.id != host.id) {
                let (got, lost) = host.account(sender.id);
                let mut all = [&got[..], &lost].concat();
                all.sort_unstable();
                let of = (host.id, sender.id);
                let is_all = all.into_iter().eq(1..=count as u32);
                assert!(is_all, "{of:?} got {got:?} and lost {lost:?}");
                lost_in_all += lost.len();
            }
            for message in &host.messages {
                let number = message.sender.0 as usize - 1;
                let sent = payload(number, message.seqno.0 as usize - 1);
                assert_eq!(message.payload, sent, "{message:?} was never sent");
            }
        }
        lost_in_all
    }
}

impl Host<dyn Engine> {
    pub(crate) fn account(&self, sender: NodeId) -> (Vec<u32>, Vec<u32>) {
        let of_sender = self.lost.iter().filter(|lost| lost.sender == sender);
        let lost = of_sender.flat_map(|lost| lost.first.0..=lost.last.0).collect();
        (self.got(sender), lost)
    }
}

/// Returns message `round` of host `number`. Its length differs from those of adjacent messages.
pub(crate) fn payload(number: usize, round: usize) -> Vec<u8> {
    let length = 20 + (round * 37 + number) % 900;
    (0..length).map(|place| (place ^ (round * 31) ^ number) as u8).collect()
}
