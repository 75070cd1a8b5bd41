//! Observers: clients that receive the members of groups without joining them.
//!
//! An observer requests one group or all groups once per connection. The owner of each group sends
//! the observer the current members and all changes.

use alloc::collections::BTreeMap;

use super::connections::{Connections, Peer};
use super::context::{Context, Timer};
use crate::membership::link::LinkId;
use crate::{GroupId, Time};

#[derive(Debug, Default)]
pub(super) struct Observers(BTreeMap<LinkId, Observer>);

#[derive(Clone, Copy, Debug)]
struct Observer {
    wants: Option<GroupId>,
    heard: Time,
}

impl Observers {
    pub(super) fn open(&mut self, cx: &mut Context, link: LinkId) {
        cx.counters.observers_opened += 1;
        self.0.insert(link, Observer { wants: None, heard: cx.now });
        cx.timers.set(Timer::Observer(link), cx.now + cx.config.detection_time);
    }

    pub(super) fn close(&mut self, link: LinkId) {
        self.0.remove(&link);
    }

    pub(super) fn hear(&mut self, now: Time, link: LinkId) {
        if let Some(observer) = self.0.get_mut(&link) {
            observer.heard = now;
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.0.keys().copied()
    }

    pub(super) fn want(&mut self, link: LinkId, group: GroupId) {
        if let Some(observer) = self.0.get_mut(&link) {
            observer.wants = Some(group);
        }
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = (LinkId, GroupId)> {
        self.0.iter().filter_map(|(link, observer)| Some((*link, observer.wants?)))
    }

    pub(super) fn is_silent(&self, cx: &mut Context, link: LinkId) -> bool {
        let Some(observer) = self.0.get(&link) else { return false };
        let end = observer.heard + cx.config.detection_time;
        let is_silent = end <= cx.now;
        if is_silent {
            cx.counters.observers_silent += 1;
        } else {
            cx.timers.set(Timer::Observer(link), end);
        }
        is_silent
    }

    pub(super) fn check(&self, connections: &Connections) {
        let links = connections.iter().filter(|(_, peer)| *peer == Peer::Observer);
        assert!(links.map(|(link, _)| link).eq(self.links()), "an observer has no connection");
    }
}

pub(super) fn is_among(group: GroupId, wants: GroupId) -> bool {
    wants == GroupId::NONE || wants == group
}
