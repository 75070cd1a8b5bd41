//! Those who are told who is in which group, and are in none: operators.
//!
//! An observer asks once, for one group or for all; it is told of them by whichever process owns
//! them, at the moment and whenever that changes. It has no part in views, and whether it is there
//! changes nothing for nodes.

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

    /// The observer wants to know of this group, or of all; what it wanted before is forgotten.
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

    /// The partition is owned here from now on.
    pub(super) fn tell_observers(&mut self, partition: u16) {
        let observers = self.sessions.observers.iter();
        let observers: Vec<(LinkId, GroupId)> =
            observers.filter_map(|(link, observer)| Some((*link, observer.wants?))).collect();
        for (link, wants) in observers {
            self.tell_observer(link, wants, partition);
        }
    }

    /// The group has members: who wants to know of it and was never told is told now.
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

    /// The group has no members any more, as everybody was told: it would be new if it came back.
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

    /// Tells what the observer wants to know of the partition, if it is owned here, and that this
    /// was all.
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
