use core::time::Duration;

use super::Service;
use super::requests::{Answer, Updated};
use crate::membership::MembershipEvent;
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::{
    ChangeKind, Frame, FrameError, JoinRefusal, Member, Owners, UnknownSettings, Unserved, Update,
    Welcome,
};
use crate::{Endpoint, NodeId};

impl Service {
    pub(super) fn on_bytes(&mut self, address: Endpoint, link: LinkId, bytes: &[u8]) {
        self.cx.connections.push(self.cx.now, address, bytes);
        loop {
            match self.cx.connections.next_frame(address, link) {
                Ok(Some(frame)) => self.on_frame(address, frame),
                Ok(None) => break,
                Err(FrameError::Settings(unknown)) => self.on_unknown(address, unknown),
                Err(error) => self.on_nonsense(address, error),
            }
        }
        self.check_return();
    }

    fn on_frame(&mut self, from: Endpoint, frame: Frame) {
        self.cx.counters.frames_received += 1;
        let Self { cx, requests, .. } = self;
        match frame {
            Frame::Welcome(welcome) => self.on_welcome(from, welcome),
            Frame::Refused(why) => {
                cx.connections.on_refused(from, why);
                self.drop_connection(from);
            }
            Frame::Joined { request, group, .. } => {
                requests.on_joined(cx, Answer { from, request, group });
            }
            Frame::JoinRefused { request, group, why } => {
                self.on_join_refused(Answer { from, request, group }, why);
            }
            Frame::Left { request, group } => {
                requests.on_left(cx, Answer { from, request, group });
            }
            Frame::Unchanged { group, version } => {
                requests.on_unchanged(cx, from, group, version);
            }
            Frame::Snapshot(snapshot) => {
                let group = snapshot.group;
                if let Some(members) = requests.on_snapshot(cx, from, snapshot) {
                    self.views.replace(cx, group, &members);
                }
            }
            Frame::Update(update) => self.on_update(from, &update),
            Frame::Alive => {}
            Frame::Owners(owners) => self.on_owners(from, owners),
            Frame::Expired { incarnation } => self.on_expired(incarnation),
            Frame::Elsewhere { request, group } => {
                cx.counters.sent_elsewhere += 1;
                if requests.on_elsewhere(cx, Answer { from, request, group }) {
                    self.watch_absence();
                }
            }
            Frame::Successor { next, within_ms } => self.on_successor(next, within_ms),
            Frame::Managed(answer) => self.manager.on_answer(from, answer),
            _ => self.on_nonsense(from, FrameError::Kind),
        }
    }

    fn on_unknown(&mut self, from: Endpoint, unknown: UnknownSettings) {
        let node = self.cx.connections.member().node;
        tracing::warn!(%node, address = %from, ?unknown, "unknown group settings");
        self.cx.counters.frames_received += 1;
        self.cx.counters.settings_unknown += 1;
        match unknown {
            UnknownSettings::JoinRefused { request, group } => {
                let why = JoinRefusal::Unserved(Unserved::Settings);
                self.on_join_refused(Answer { from, request, group }, why);
            }
            UnknownSettings::Snapshot { .. } => {}
            UnknownSettings::Join { .. } => self.on_nonsense(from, FrameError::Kind),
        }
    }

    fn on_nonsense(&mut self, address: Endpoint, error: FrameError) {
        self.cx.connections.on_nonsense(address, error);
        self.drop_connection(address);
    }

    fn on_welcome(&mut self, address: Endpoint, welcome: Welcome) {
        if !self.cx.connections.on_welcome(self.cx.now, address, &welcome) {
            return self.on_nonsense(address, FrameError::Value);
        }
        self.is_welcomed = true;
        self.requests.open_window(address);
        self.on_owners(address, welcome.owners);
        self.requests.queue_all(&mut self.cx, &self.owners, address);
    }

    fn on_owners(&mut self, from: Endpoint, owners: Owners) {
        let is_connected = self.cx.connections.ready_link(from).is_some();
        self.owners.add(from, owners.reached_from(from), is_connected);
        self.follow_owners();
    }

    fn on_join_refused(&mut self, answer: Answer, why: JoinRefusal) {
        let Self { cx, requests, views, .. } = self;
        if let Some(error) = requests.on_join_refused(cx, answer, why) {
            // Nodes that were only in this group must be reported as parted after the refusal.
            cx.events.push_back(MembershipEvent::Refused(answer.group, error));
            views.leave(cx, answer.group);
        }
    }

    fn on_update(&mut self, address: Endpoint, update: &Update) {
        let Self { cx, requests, views, .. } = self;
        let group = update.group;
        match requests.on_update(&mut cx.counters, address, update) {
            Updated::Ignored => {}
            Updated::Gap => {
                self.request(group);
                self.watch_absence();
            }
            Updated::Next => {
                for change in &update.changes {
                    match change.kind {
                        ChangeKind::Joined => views.admit(cx, group, change.member),
                        kind => {
                            views.dismiss(cx, group, change.member.node, kind.view_change());
                        }
                    }
                }
            }
        }
    }

    fn on_expired(&mut self, incarnation: u32) {
        let member = self.cx.connections.member();
        if incarnation < member.incarnation {
            self.cx.counters.answers_late += 1;
            return;
        }
        self.cx.counters.expiries += 1;
        tracing::info!(node = %member.node, incarnation, "rejoins after it was declared dead");
        // The registry has already removed the node from the groups that it was leaving.
        self.requests.forget_leaves();
        self.come_back(Member { incarnation: incarnation.saturating_add(1), ..member });
    }

    fn on_successor(&mut self, next: Option<Member>, within_ms: u32) {
        self.pinger.set_detection_time(Duration::from_millis(within_ms.into()));
        let others: Vec<NodeId> = self.pinger.targets().collect();
        for node in others.into_iter().filter(|node| next.is_none_or(|next| next.node != *node)) {
            self.pinger.unwatch(node);
        }
        if let Some(next) = next.filter(|next| !self.pinger.watches(*next)) {
            self.pinger.watch(self.cx.now, next);
        }
    }
}
