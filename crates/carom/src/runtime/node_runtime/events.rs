use carom_proto::node::NodeEvent;
use carom_proto::ring::{RingEvent, RingNews};
use carom_proto::{Confirmed, Event, GroupId, JoinError, LossCause, Lost, Time};

use super::NodeRuntime;
use crate::net::network::Network;
use crate::runtime::locks::Ring;
use crate::runtime::pending_joins::PendingJoin;
use crate::shared::error::JoinGroupError;
use crate::shared::notices::Notice;

impl<N: Network> NodeRuntime<N> {
    pub(super) fn dispatch_events(&mut self, now: Time) {
        while let Some(event) = self.node.poll_event() {
            self.on_event(now, event);
        }
        self.groups.hand_over();
        self.calls.report_queries(self.node.ordered_groups_mut());
    }

    fn on_event(&mut self, now: Time, event: NodeEvent) {
        match event {
            NodeEvent::Group(event) => self.on_group_event(now, event),
            NodeEvent::Met(node, endpoint) => {
                self.joins.on_met();
                if !self.network.meet(now, node, endpoint) {
                    self.note(format!(
                        "{node} reports endpoint {endpoint}, which is not the address of a host"
                    ));
                }
            }
            NodeEvent::Parted(node) => self.network.part(node),
            NodeEvent::Settled => self.joins.note_change_of_all(),
            NodeEvent::Admitted(group) => self.joins.admit(now, group),
            NodeEvent::Away => {
                self.state.set_away(true);
                self.note("the registry is unreachable: keeping the last known members");
            }
            NodeEvent::Returned => {
                self.state.set_away(false);
                self.note("the registry is reachable again: the members are up to date");
            }
            NodeEvent::ManagerLost(_) => self.note(
                "the registry does not answer as multicast manager: \
                 continuing with a local one",
            ),
            NodeEvent::Refused(group, error) => self.on_refused(group, error),
            NodeEvent::Neighbours(_) => self.network.forget_views(),
            NodeEvent::Out(group) => self.on_out(group),
        }
    }

    fn note(&self, text: impl Into<String>) {
        self.state.notices.add(Notice::plain(text));
    }

    pub(super) fn answer_callers(&mut self, now: Time) {
        self.answer_joins(now);
        if self.confirms.query(now, &mut self.groups, &mut self.node) {
            // If all members have already confirmed, the engine reports this at once.
            self.dispatch_events(now);
        }
        self.confirms.fail_late(now, &self.node);
        // This check is expensive with a registry, which examines all groups.
        let is_settled = || self.node.membership().is_settled() && self.network.are_paths_known();
        if self.settling.is_some() && is_settled() {
            self.state.set_settled();
            self.settling = None;
        }
    }

    fn on_group_event(&mut self, now: Time, event: Event) {
        let (id, own) = (event.group(), self.node.id());
        let is_of_messages = matches!(event, Event::Message(_) | Event::Lost(_));
        if !is_of_messages && let Some(group) = self.groups.get_mut(id) {
            // An application that learns of this event in another way must find all earlier events
            // in the queue.
            group.hand_over();
        }
        match event {
            Event::Ring(RingEvent { news: RingNews::Answer(answer), .. }) => {
                return self.calls.on_answer(id, answer);
            }
            Event::Ring(RingEvent { ref news, .. }) => {
                self.joins.note_change(id);
                self.on_ring_news(now, id, news);
            }
            Event::Confirmed(ref confirmed) => self.on_confirmed(confirmed),
            Event::View(_) => self.network.forget_views(),
            Event::Lost(Lost { sender, cause: LossCause::AnotherSender, .. }) if sender == own => {
                if let Some(group) = self.groups.get_mut(id) {
                    group.own.give_up_unconfirmed();
                    self.confirms.fail_given_up(id, &mut group.own);
                }
            }
            _ => {}
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        let backlog = group.deliver(own, event);
        self.groups.mark_fresh(id);
        if let Some(backlog) = backlog {
            self.on_backlog(now, id, backlog);
        }
    }

    fn on_ring_news(&mut self, now: Time, id: GroupId, news: &RingNews) {
        let Some(group) = self.groups.get_mut(id) else { return };
        match news {
            RingNews::View(_) => group.shared.set_members(self.node.members(id)),
            RingNews::Removed { why, .. } => {
                group.shared.set_members(self.node.members(id));
                group.own.on_removed(*why);
                self.confirms.fail_given_up(id, &mut group.own);
            }
            RingNews::Lock(news) => {
                let mut ring = Ring { now, group: id, engine: self.node.ordered_groups_mut() };
                group.locks.on_change(&mut ring, *news);
            }
            _ => {}
        }
    }

    /// Applies the backpressure of a slow application. A member that lags by a whole queue leaves
    /// the ring, because the other members must not wait forever and memory must stay bounded.
    pub(super) fn on_backlog(&mut self, now: Time, id: GroupId, backlog: f64) {
        let Some(group) = self.groups.get_mut(id) else { return };
        // Messages of a bulk group wait in the engine. When it is full, the sender waits.
        if group.shared.profile.is_bulk() || backlog <= 1.0 {
            return self.node.set_backpressure(now, id, backlog);
        }
        group.on_too_slow();
        let name = &group.shared.name;
        let text = format!(
            "group {name:?} is closed: the application did not receive its messages in time"
        );
        let fix = "receive events faster, or give the node a longer event queue";
        self.state.notices.add(Notice::with_fix(text, fix));
        self.leave_group(now, id);
    }

    fn on_out(&mut self, group: GroupId) {
        self.close_group(group);
        if let Some(address) = self.groups.take_leaving(group) {
            self.network.stop_listening(group, address);
        }
    }

    fn on_refused(&mut self, group: GroupId, error: JoinError) {
        let refused = JoinGroupError::Refused(error);
        match self.joins.remove(group) {
            Some(join) => join.refuse(refused),
            None if self.groups.is_leaving(group) => {}
            None => {
                let joined = self.groups.get(group);
                let name = joined.map_or_else(|| group.to_string(), |it| it.shared.name.clone());
                let text = format!("group {name:?} is closed: {refused}");
                self.state.notices.add(Notice::with_fix(text, refused.fix()));
            }
        }
        self.close_group(group);
    }

    fn on_confirmed(&mut self, confirmed: &Confirmed) {
        if let Some(group) = self.groups.get_mut(confirmed.group) {
            self.confirms.on_confirmed(&mut group.own, confirmed);
        }
    }

    fn answer_joins(&mut self, now: Time) {
        while let Some(join) = self.joins.pop_late(now) {
            match self.joins.unanswered(&self.node, join.group) {
                Some(error) => {
                    self.leave_group(now, join.group);
                    join.refuse(error);
                }
                None => self.complete_join(now, join),
            }
        }
        while let Some(join) = self.joins.pop_completed(&self.node) {
            self.complete_join(now, join);
        }
    }

    fn complete_join(&mut self, now: Time, join: PendingJoin) {
        if let Err(unwanted) = join.succeed() {
            self.leave(now, &unwanted.shared);
        }
    }
}
