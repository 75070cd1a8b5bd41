use carom_proto::node::Node;
use carom_proto::{Confirmed, GroupId, SeqNo, Time};

use super::given_up::Covered;
use super::groups::Groups;
use super::own_messages::OwnMessages;
use crate::shared::commands::ReplySender;
use crate::shared::error::ConfirmError;

#[derive(Debug, Default)]
pub(crate) struct Confirms(Vec<PendingConfirm>);

#[derive(Debug)]
pub(crate) struct PendingConfirm {
    group: GroupId,
    /// The messages to confirm. The engine is queried once the last of them has left the queue.
    covered: Covered,
    up_to: Option<SeqNo>,
    deadline: Time,
    reply: ReplySender<Result<Confirmed, ConfirmError>>,
}

impl Confirms {
    pub(crate) fn add(
        &mut self,
        group: GroupId,
        covered: Covered,
        deadline: Time,
        reply: ReplySender<Result<Confirmed, ConfirmError>>,
    ) {
        self.0.push(PendingConfirm { group, covered, up_to: None, deadline, reply });
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.0.iter().map(|confirm| confirm.deadline).min()
    }

    pub(crate) fn query(&mut self, now: Time, groups: &mut Groups, node: &mut Node) -> bool {
        let mut has_queried = false;
        let mut answered = Vec::new();
        for (place, confirm) in self.0.iter_mut().enumerate() {
            let Some(group) = groups.get_mut(confirm.group) else { continue };
            let own = &mut group.own;
            if confirm.up_to.is_some() || own.taken() < confirm.covered.last {
                continue;
            }
            match own.known(confirm.covered) {
                Some(answer) => answered.push((place, answer)),
                None => {
                    confirm.up_to = own.last();
                    node.confirm(now, confirm.group);
                    has_queried = true;
                }
            }
        }
        for (place, answer) in answered.into_iter().rev() {
            self.0.swap_remove(place).reply.send_if_wanted(answer);
        }
        has_queried
    }

    /// Answers the calls that `confirmed` covers.
    pub(crate) fn on_confirmed(&mut self, own: &mut OwnMessages, confirmed: &Confirmed) {
        let is_answered = |it: &mut PendingConfirm| {
            let covers = |up_to: SeqNo| !up_to.is_after(confirmed.up_to);
            it.group == confirmed.group && it.up_to.is_some_and(covers)
        };
        for answered in self.0.extract_if(.., is_answered) {
            if confirmed.is_unconfirmed() && confirmed.incomplete.is_empty() {
                answered.reply.send_if_wanted(Err(ConfirmError::Nobody));
                continue;
            }
            own.note_confirmed(answered.covered, confirmed);
            answered.reply.send_if_wanted(Ok(confirmed.clone()));
        }
    }

    pub(crate) fn fail_given_up(&mut self, group: GroupId, own: &mut OwnMessages) {
        let covers = |it: &mut PendingConfirm| it.group == group && own.has_given_up(it.covered);
        let failed: Vec<PendingConfirm> = self.0.extract_if(.., covers).collect();
        for confirm in failed {
            own.note_reported(confirm.covered);
            confirm.reply.send_if_wanted(Err(ConfirmError::GivenUp));
        }
    }

    pub(crate) fn close(&mut self, group: GroupId) {
        for confirm in self.0.extract_if(.., |it| it.group == group) {
            confirm.reply.send_if_wanted(Err(ConfirmError::Closed));
        }
    }

    pub(crate) fn fail_late(&mut self, now: Time, node: &Node) {
        for confirm in self.0.extract_if(.., |it| it.deadline <= now) {
            let waiting_for = node.unconfirmed(confirm.group);
            confirm.reply.send_if_wanted(Err(ConfirmError::Timeout { waiting_for }));
        }
    }
}
