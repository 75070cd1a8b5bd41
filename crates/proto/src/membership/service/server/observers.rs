//! Observers: clients such as operators that receive the members of groups and are in none.
//!
//! An observer requests one group or all groups once. The owner of each group sends it the current
//! members and all changes. Observers are in no view and have no effect on nodes.

use alloc::collections::BTreeMap;

use super::connections::{Connections, Peer};
use super::context::{Context, Timer};
use super::partitions::Partitions;
use super::subscribers::Subscribers;
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::Frame;
use crate::{GroupId, Time};

#[derive(Debug, Default)]
pub(super) struct Observers(BTreeMap<LinkId, Observer>);

#[derive(Clone, Copy, Debug)]
struct Observer {
    /// The group, or [`GroupId::NONE`] for all. `None` until it was requested.
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

    /// Subscribes the observer to this group or to all groups, instead of its previous request.
    pub(super) fn on_observe(
        &mut self,
        cx: &mut Context,
        subscribers: &mut Subscribers,
        partitions: &Partitions,
        (link, group): (LinkId, GroupId),
    ) {
        let Some(observer) = self.0.get_mut(&link) else { return };
        observer.wants = Some(group);
        subscribers.remove_link(link);
        for partition in 0..cx.config.partitions {
            show_partition(cx, subscribers, partitions, (link, group), partition);
        }
    }

    pub(super) fn show_partition(
        &self,
        cx: &mut Context,
        subscribers: &mut Subscribers,
        partitions: &Partitions,
        partition: u16,
    ) {
        for (link, observer) in &self.0 {
            if let Some(wants) = observer.wants {
                show_partition(cx, subscribers, partitions, (*link, wants), partition);
            }
        }
    }

    /// Sends a group that has members to observers that request it and are not subscribed yet.
    pub(super) fn show_group(
        &self,
        cx: &mut Context,
        subscribers: &mut Subscribers,
        partitions: &Partitions,
        group: GroupId,
    ) {
        let Some(state) = partitions.group(group) else { return };
        for (link, observer) in &self.0 {
            let is_wanted = observer.wants.is_some_and(|wants| is_among(group, wants));
            if is_wanted && !subscribers.is_subscribed(*link, group) {
                subscribers.show(&mut cx.outbox, *link, None, (group, state));
            }
        }
    }

    /// Returns `true` if the observer was silent for a lease.
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
        assert!(links.map(|(link, _)| link).eq(self.links()), "a connection is half an observer");
    }
}

/// Sends the requested groups of the partition and the end mark, if it is owned here.
fn show_partition(
    cx: &mut Context,
    subscribers: &mut Subscribers,
    partitions: &Partitions,
    (link, wants): (LinkId, GroupId),
    partition: u16,
) {
    let is_concerned = wants == GroupId::NONE || partitions.partition_of(wants) == partition;
    if !is_concerned || !partitions.is_owned(partition) {
        return;
    }
    let groups = partitions.state(partition).into_iter().flat_map(|state| state.groups());
    for (group, state) in groups.filter(|(group, _)| is_among(**group, wants)) {
        subscribers.show(&mut cx.outbox, link, None, (*group, state));
    }
    cx.outbox.send(link, &Frame::Observed { partition });
}

fn is_among(group: GroupId, wants: GroupId) -> bool {
    wants == GroupId::NONE || wants == group
}
