//! Events of the node, and the callers that wait for them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use carom_proto::node::NodeEvent;
use carom_proto::rmp::{Removal, RingEvent, RingNews};
use carom_proto::{Event, GroupId, JoinError, LossCause, Lost, NodeId, Safe, Time};

use super::{Host, State};
use crate::call;
use crate::error::{JoinGroupError, NotSafe};
use crate::lock::Ring;
use crate::network::Network;
use crate::pending_joins::PendingJoin;
use crate::status::{Notice, RingStatus};
use crate::waiting::PendingConfirm;

impl<N: Network> Host<N> {
    /// Passes all events of the node to their receivers.
    pub(super) fn take_events(&mut self, now: Time) {
        self.sort_events(now);
        while let Some(group) = self.state.fresh.pop_first() {
            if let Some(hosted) = self.state.groups.get_mut(&group) {
                hosted.hand_over();
            }
        }
        self.tell_looked();
    }

    fn sort_events(&mut self, now: Time) {
        while let Some(event) = self.node.poll_event() {
            match event {
                NodeEvent::Group(event) => self.on_group_event(now, event),
                NodeEvent::Met(node, endpoint) => {
                    if !std::mem::replace(&mut self.state.has_met_anyone, true) {
                        self.state.joins.note_change_of_all();
                    }
                    if !self.network.meet(now, node, endpoint) {
                        let text = format!(
                            "{node} reports the endpoint {endpoint}, which is not a known host"
                        );
                        self.notices.add(Notice::plain(text));
                    }
                }
                NodeEvent::Parted(node) => self.network.part(node),
                NodeEvent::Settled => self.state.joins.note_change_of_all(),
                NodeEvent::Admitted(group) => self.state.joins.admit(now, group),
                NodeEvent::Away => {
                    self.away.store(true, Ordering::SeqCst);
                    let text =
                        "the membership service is unreachable: keeping the last known members";
                    self.notices.add(Notice::plain(text));
                }
                NodeEvent::Returned => {
                    self.away.store(false, Ordering::SeqCst);
                    let text =
                        "the membership service is reachable again: the members are up to date";
                    self.notices.add(Notice::plain(text));
                }
                NodeEvent::ManagerLost(_) => {
                    let text = "the membership service does not place the receivers: continuing \
                                with a local multicast manager";
                    self.notices.add(Notice::plain(text));
                }
                NodeEvent::Refused(group, error) => self.on_refused(group, error),
                NodeEvent::Neighbours(_) => self.network.forget_views(),
                NodeEvent::Out(group) => self.on_out(group),
            }
        }
    }

    /// Sends the results of ring queries to their callers.
    pub(super) fn tell_looked(&mut self) {
        while let Some(looked) = self.node.ordered_mut().poll_looked() {
            let rings = looked.rings.into_iter().map(RingStatus::from).collect();
            // A caller that no longer waits has closed its channel.
            if let Some(looker) = self.state.looks.remove(&looked.id) {
                let _ = looker.try_send(Ok(rings));
            }
        }
    }

    /// Answers all waiting callers whose condition holds, or whose time is over.
    pub(super) fn answer_those_who_wait(&mut self, now: Time) {
        self.answer_joins(now);
        if self.ask_to_confirm(now) {
            // If all members have confirmed already, the engine reports it at once.
            self.take_events(now);
        }
        self.give_up_late_confirms(now);
        // This check is expensive with a membership service, which examines all groups.
        let is_settled = || self.node.membership().is_settled() && self.network.are_paths_known();
        if self.settling.is_some() && is_settled() {
            self.settled.store(true, Ordering::SeqCst);
            self.settling = None;
        }
    }

    fn on_group_event(&mut self, now: Time, event: Event) {
        let group = event.group();
        let is_of_messages = matches!(event, Event::Message(_) | Event::Lost(_));
        if !is_of_messages && let Some(hosted) = self.state.groups.get_mut(&group) {
            // An application that learns of this event in another way finds all earlier events in
            // the queue.
            hosted.hand_over();
        }
        if let Event::Ring(RingEvent { news: RingNews::Answer(answer), .. }) = event {
            // A caller that no longer waits has closed its channel.
            if let Some(caller) = self.state.calls.remove(&(group, answer.id.number)) {
                let _ = caller.try_send(call::told(answer.outcome));
            }
            return;
        }
        if let Event::Safe(safe) = &event {
            self.on_safe(safe);
        }
        if let Event::View(_) = &event {
            self.network.forget_views();
        }
        if let Event::Lost(Lost { sender, cause: LossCause::AnotherSender, .. }) = event
            && sender == self.node.id()
        {
            self.on_given_way(group);
        }
        if let Event::Ring(event) = &event {
            self.state.joins.note_change(group);
            self.on_ring_news(now, group, &event.news);
        }
        let Some(hosted) = self.state.groups.get_mut(&group) else { return };
        match &event {
            Event::View(change) => hosted.shared.change_members(change),
            Event::Message(message) if message.sender == self.node.id() => {
                hosted.on_delivered(message.seqno);
            }
            _ => {}
        }
        hosted.delivery.deliver(event);
        self.state.fresh.insert(group);
        if let Some(backlog) = hosted.changed_backlog() {
            self.on_backlog(now, group, backlog);
        }
    }

    fn on_ring_news(&mut self, now: Time, group: GroupId, news: &RingNews) {
        let Some(hosted) = self.state.groups.get_mut(&group) else { return };
        match news {
            RingNews::View(_) => hosted.shared.set_members(self.node.members(group)),
            RingNews::Removed { why, .. } => {
                hosted.shared.set_members(self.node.members(group));
                hosted.on_removed(*why);
                self.report_given_up(group);
            }
            RingNews::Lock(news) => {
                let mut ring = Ring { now, group, engine: self.node.ordered_mut() };
                hosted.locks.hear(&mut ring, *news);
            }
            _ => {}
        }
    }

    /// Gives up this node's unconfirmed messages, because another member sends in the bulk group.
    fn on_given_way(&mut self, group: GroupId) {
        if let Some(hosted) = self.state.groups.get_mut(&group) {
            hosted.on_given_way();
        }
        self.report_given_up(group);
    }

    /// Fails the confirmations that cover messages which were given up.
    fn report_given_up(&mut self, group: GroupId) {
        let Some(hosted) = self.state.groups.get_mut(&group) else { return };
        let covers = |it: &PendingConfirm| it.group == group && hosted.has_given_up(it.covered);
        let failed: Vec<_> = self.state.confirms.extract_if(.., |it| covers(it)).collect();
        for confirm in failed {
            hosted.note_reported(confirm.covered);
            confirm.fail(NotSafe::GivenUp);
        }
    }

    /// Applies the backpressure of an application that lags in taking events: it stops the sender
    /// of a bulk group, and slows a ring down. A member that lags by a whole queue leaves the ring:
    /// the others must not wait forever, and memory must stay bounded.
    pub(super) fn on_backlog(&mut self, now: Time, group: GroupId, backlog: f64) {
        let Some(hosted) = self.state.groups.get_mut(&group) else { return };
        if hosted.shared.profile.is_bulk() {
            // Messages wait in the engine. When it is full, the sender waits.
            return self.node.hold(now, group, backlog > 0.0);
        }
        if backlog <= 1.0 {
            return self.node.slow_down(group, SLOWEST.mul_f64(backlog));
        }
        let why = Removal::TooSlow;
        let news = RingNews::Removed { why, unsent: None, rejoins: false };
        hosted.on_removed(why);
        hosted.delivery.deliver(Event::Ring(RingEvent { group, news }));
        let name = &hosted.shared.name;
        self.notices.add(Notice {
            text: format!(
                "group {name:?} is closed: the application did not receive its messages in time"
            ),
            fix: Some("receive events faster, or give the node a longer event queue".into()),
            is_routine: false,
        });
        self.leave_group(now, group);
    }

    /// Handles the end of the membership in a group, which the application or the ring has ended.
    fn on_out(&mut self, group: GroupId) {
        self.forget_group(group);
        if let Some(address) = self.state.leaving.remove(&group) {
            self.network.stop_listening(group, address);
        }
    }

    fn on_refused(&mut self, group: GroupId, error: JoinError) {
        let refused = JoinGroupError::Refused(error);
        match self.state.joins.remove(group) {
            Some(join) => join.refuse(refused),
            // The application has already left the group.
            None if self.state.leaving.contains_key(&group) => {}
            None => {
                let hosted = self.state.groups.get(&group);
                let name = hosted.map_or_else(|| group.to_string(), |it| it.shared.name.clone());
                self.notices.add(Notice {
                    text: format!("group {name:?} is closed: {refused}"),
                    fix: Some(refused.fix()),
                    is_routine: false,
                });
            }
        }
        self.forget_group(group);
    }

    fn on_safe(&mut self, safe: &Safe) {
        let Some(hosted) = self.state.groups.get_mut(&safe.group) else { return };
        // A bulk sender that has yielded has sent nothing in its new stream. Confirmations that
        // cover lost messages have already failed, so all members have the rest.
        let has_yielded = hosted.shared.profile.is_bulk()
            && safe.up_to == self.node.bulk().before_first()
            && self.node.unconfirmed(safe.group).is_empty();
        let is_answered = |it: &PendingConfirm| match has_yielded {
            true => it.group == safe.group && it.up_to.is_some(),
            false => it.is_answered_by(safe),
        };
        let confirms = &mut self.state.confirms;
        for answered in confirms.extract_if(.., |it| is_answered(it)) {
            if safe.is_unconfirmed() && safe.incomplete.is_empty() {
                answered.fail(NotSafe::Nobody);
                continue;
            }
            hosted.note_confirmed(answered.covered, safe);
            answered.succeed(safe.clone());
        }
    }

    fn answer_joins(&mut self, now: Time) {
        while let Some(join) = self.state.joins.pop_late(now) {
            match self.unanswered(join.group) {
                Some(error) => {
                    self.leave_group(now, join.group);
                    join.refuse(error);
                }
                None => self.hand_joined(now, join),
            }
        }
        while let Some(group) = self.state.joins.pop_changed() {
            let has_joined = !self.is_alone() && self.node.has_joined(group);
            if has_joined && let Some(join) = self.state.joins.remove(group) {
                self.hand_joined(now, join);
            }
        }
    }

    /// Passes the group to the caller, or leaves it if the caller is gone.
    fn hand_joined(&mut self, now: Time, join: PendingJoin) {
        if let Err(unwanted) = join.succeed() {
            self.leave(now, &unwanted.shared);
        }
    }

    /// Returns `true` if seeds were given and none has answered.
    fn is_alone(&self) -> bool {
        !self.seeds.is_empty() && !self.state.has_met_anyone
    }

    /// Returns the error of a join that has run out of time if a required membership service or
    /// seed has not answered. A ring that has not formed is no error: it may wait for its quorum.
    fn unanswered(&self, group: GroupId) -> Option<JoinGroupError> {
        if !self.controls.is_empty() && !self.node.is_admitted(group) {
            let why = self.node.membership().trouble();
            return Some(JoinGroupError::ServiceAway { addresses: self.controls.clone(), why });
        }
        self.is_alone().then(|| JoinGroupError::NoSeedAnswered { seeds: self.seeds.clone() })
    }

    /// Queries the engine for confirmations whose messages are all sent, and answers those that
    /// need no query. Returns `true` if it has queried the engine.
    fn ask_to_confirm(&mut self, now: Time) -> bool {
        if self.state.confirms.is_empty() {
            return false;
        }
        let State { groups, confirms, .. } = &mut self.state;
        let node = &mut self.node;
        let mut is_asked = false;
        let mut answered = Vec::new();
        for (place, confirm) in confirms.iter_mut().enumerate() {
            let Some(hosted) = groups.get_mut(&confirm.group) else { continue };
            if confirm.up_to.is_some() || hosted.taken() < confirm.covered.last {
                continue;
            }
            match hosted.known(confirm.covered) {
                Some(answer) => answered.push((place, answer)),
                None => {
                    confirm.up_to = hosted.last();
                    node.confirm(now, confirm.group);
                    is_asked = true;
                }
            }
        }
        for (place, answer) in answered.into_iter().rev() {
            let confirm = self.state.confirms.swap_remove(place);
            match answer {
                Ok(safe) => confirm.succeed(safe),
                Err(why) => confirm.fail(why),
            }
        }
        is_asked
    }

    /// Fails the confirmations whose time is over.
    fn give_up_late_confirms(&mut self, now: Time) {
        let confirms = &mut self.state.confirms;
        let late: Vec<PendingConfirm> =
            confirms.extract_if(.., |confirm| confirm.deadline <= now).collect();
        for confirm in late {
            let waiting_for = self.unconfirmed(confirm.group);
            confirm.fail(NotSafe::Timeout { waiting_for });
        }
    }

    fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        self.node.unconfirmed(group)
    }
}

/// Pause of the token at a member whose application lags by a whole queue.
const SLOWEST: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
