//! The phase after the faults, in which the group must recover.

use core::time::Duration;

use carom_proto::Engine as _;
use carom_proto::loss::Loss;
use carom_sim::HostIx;
use carom_sim::scenario::Runner as _;

use super::checkers::position;
use super::history::{FinalState, Position};
use super::runner::BulkRunner;
use crate::recovery::{LEAST_PAUSE, USUAL_LOSS};

impl BulkRunner {
    pub(super) fn heal(&mut self) {
        self.end_faults();
        self.lose(Loss::None);
        self.harness.take_events();
        let unsent = self.applications.waiting_bytes() + self.settings.config.send_bytes;
        let patience = self.settings.patience(unsent);
        self.run_for(LEAST_PAUSE);
        self.wait(patience, |runner| runner.senders().len() <= 1 && runner.applications.are_done());
        let Some(sender) = self.find_sender(patience) else {
            let members = self.members();
            if !members.is_empty() {
                let who: Vec<_> = members.iter().map(|host| self.describe(*host)).collect();
                self.harness.record.outcome = Some(Err(who.join(", ")));
            }
            return;
        };
        // A member that still has another sender changes to this one after a while, and is
        // admitted.
        self.wait(patience, |runner| runner.is_settled(sender));
        self.send_last(sender, patience);
        self.wait(patience, |runner| runner.is_whole(sender));
        self.confirm(sender);
        self.wait(patience, |runner| runner.is_confirmed(sender));
        // A sender that yielded while partitioned repeats its farewell at least every 3.2 s.
        self.wait(patience, |runner| runner.have_all_heard_ends());
        // Places can change at any time, because dead links are probed again.
        self.wait(patience, |runner| runner.is_settled(sender));
        self.note_final_state(sender);
    }

    /// Returns the sender. If there is none, lets members begin to send.
    fn find_sender(&mut self, patience: Duration) -> Option<HostIx> {
        let end = self.harness.world.now() + patience;
        while self.harness.world.now() < end {
            if let Some(sender) = self.sender() {
                return Some(sender);
            }
            for host in self.members() {
                if self.senders().is_empty() {
                    self.publish(host, 100);
                }
            }
            self.run_for(LEAST_PAUSE);
        }
        self.sender()
    }

    fn send_last(&mut self, sender: HostIx, patience: Duration) {
        self.lose(USUAL_LOSS);
        for _ in 0..LAST_ROUNDS {
            (0..5).for_each(|_| self.publish(sender, 3000));
            self.run_for(Duration::from_millis(20));
        }
        self.wait(patience, |runner| runner.applications.are_done());
        self.run_for(LEAST_PAUSE);
        self.lose(Loss::None);
    }

    /// Returns `true` if the receivers of this sender are exactly the other members, all have
    /// places and none is evicted, and the sender's engine is settled.
    fn is_settled(&self, sender: HostIx) -> bool {
        let Some(engine) = self.engine(sender) else { return true };
        let receivers = engine.receivers(self.group);
        let others = self.members().into_iter().filter(|host| *host != sender);
        let has_place = |host| {
            let receiver = self.engine(host).expect("members are alive");
            receiver.place(self.group).is_some()
                && receiver.stream(self.group) == engine.stream(self.group)
        };
        let placed: Vec<bool> = others.map(has_place).collect();
        placed.iter().all(|it| *it)
            && receivers.len() == placed.len()
            && receivers.iter().all(|(_, state)| state.evicted_at.is_none())
            && engine.is_settled(self.group)
    }

    fn is_whole(&self, sender: HostIx) -> bool {
        let Some(end) = self.id(sender).and_then(|node| self.harness.record.end_of(node)) else {
            return true;
        };
        let has = |host: HostIx| {
            let node = self.id(host).expect("members are alive");
            host == sender || position(&self.harness.record, node) == Position::At(end)
        };
        self.members().into_iter().all(has) && self.unconfirmed(sender) == 0
    }

    fn unconfirmed(&self, sender: HostIx) -> usize {
        self.engine(sender).map_or(0, |engine| engine.unconfirmed(self.group).len())
    }

    fn is_confirmed(&self, sender: HostIx) -> bool {
        self.is_whole(sender)
            && self.id(sender).is_none_or(|node| self.harness.record.is_confirmed(node))
    }

    fn have_all_heard_ends(&self) -> bool {
        let engines = self.members().into_iter().filter_map(|host| self.engine(host));
        engines.map(|engine| engine.pending_farewells(self.group)).all(|pending| pending == 0)
    }

    fn note_final_state(&mut self, sender: HostIx) {
        let Some(engine) = self.engine(sender) else { return };
        let unconfirmed = engine.unconfirmed(self.group);
        let others: Vec<HostIx> =
            self.members().into_iter().filter(|host| *host != sender).collect();
        let place = |host: &HostIx| {
            let engine = self.engine(*host)?;
            Some((self.id(*host)?, engine.place(self.group)?.clone()))
        };
        let state = FinalState {
            sender: self.id(sender).expect("it is alive"),
            senders: self.senders().iter().filter_map(|host| self.id(*host)).collect(),
            receivers: others.iter().filter_map(|host| self.id(*host)).collect(),
            unconfirmed,
            waiting: self.applications.waiting_bytes(),
            places: others.iter().filter_map(place).collect(),
        };
        self.harness.record.outcome = Some(Ok(state));
    }

    fn describe(&self, host: HostIx) -> String {
        let node = self.id(host).expect("members are alive");
        let sender = self.engine(host).and_then(|engine| engine.sender(self.group));
        format!("{host} is node {node} and considers {sender:?} the sender")
    }
}

const LAST_ROUNDS: u32 = 6;
