//! Observers: clients such as operators that receive the members of groups and are in none.
//!
//! An observer requests one group or all groups once. The owner of each group sends it the current
//! members and all changes. Observers are in no view and have no effect on nodes.

use super::super::frame::Frame;
use super::sessions::{Observer, Standing};
use super::{Server, Timer};
use crate::membership::link::LinkId;
use crate::{GroupId, Time};

impl Server {
    pub(super) fn open_observer(&mut self, now: Time, link: LinkId) {
        self.counters.observers_opened += 1;
        if let Some(peer) = self.sessions.links.get_mut(&link) {
            peer.standing = Standing::Observer;
        }
        self.sessions.observers.insert(link, Observer { wants: None, heard: now });
        self.timers.set(Timer::Observer(link), now + self.config.detection_time);
    }

    /// Subscribes the observer to this group or to all groups, instead of its previous request.
    pub(super) fn on_observe(&mut self, link: LinkId, group: GroupId) {
        let Some(observer) = self.sessions.observers.get_mut(&link) else { return };
        observer.wants = Some(group);
        if let Some(peer) = self.sessions.links.get_mut(&link) {
            for told in core::mem::take(&mut peer.groups) {
                self.audience.remove(link, told);
            }
        }
        for partition in 0..self.config.partitions {
            self.tell_observer(link, group, partition);
        }
    }

    /// Sends a partition to the observers when it becomes owned here.
    pub(super) fn tell_observers(&mut self, partition: u16) {
        let observers = self.sessions.observers.iter();
        let observers: Vec<(LinkId, GroupId)> =
            observers.filter_map(|(link, observer)| Some((*link, observer.wants?))).collect();
        for (link, wants) in observers {
            self.tell_observer(link, wants, partition);
        }
    }

    /// Sends a group that has members to observers that request it and are not subscribed yet.
    pub(super) fn show_to_observers(&mut self, group: GroupId) {
        let partition = self.partition(group);
        let Some(state) = self.ledgers[usize::from(partition)].state.group(group) else { return };
        for (link, observer) in &self.sessions.observers {
            let is_wanted = observer.wants.is_some_and(|wants| is_among(group, wants));
            if !is_wanted || self.audience.is_told(*link, group) {
                continue;
            }
            self.audience.show_to_observer(&mut self.outbox, *link, group, state);
            if let Some(peer) = self.sessions.links.get_mut(link) {
                peer.groups.insert(group);
            }
        }
    }

    /// Ends the subscriptions to a group without members, after its last change was sent. It is new
    /// if it comes back.
    pub(super) fn forget_group(&mut self, group: GroupId) {
        for link in self.audience.remove_group(group) {
            if let Some(peer) = self.sessions.links.get_mut(&link) {
                peer.groups.remove(&group);
            }
        }
    }

    pub(super) fn on_observer_lease(&mut self, now: Time, link: LinkId) {
        let Some(observer) = self.sessions.observers.get(&link) else { return };
        let end = observer.heard + self.config.detection_time;
        if end > now {
            self.timers.set(Timer::Observer(link), end);
        } else {
            self.counters.observers_silent += 1;
            self.end_link(link);
        }
    }

    /// Sends the requested groups of the partition and the end mark, if it is owned here.
    fn tell_observer(&mut self, link: LinkId, wants: GroupId, partition: u16) {
        let is_concerned = wants == GroupId::NONE || self.partition(wants) == partition;
        let ledger = &self.ledgers[usize::from(partition)];
        if !is_concerned || !ledger.is_owned {
            return;
        }
        let groups = ledger.state.groups().iter();
        for (group, state) in groups.filter(|(group, _)| is_among(**group, wants)) {
            self.audience.show_to_observer(&mut self.outbox, link, *group, state);
            if let Some(peer) = self.sessions.links.get_mut(&link) {
                peer.groups.insert(*group);
            }
        }
        self.outbox.send(link, &Frame::Observed { partition });
    }
}

fn is_among(group: GroupId, wants: GroupId) -> bool {
    wants == GroupId::NONE || wants == group
}
