//! The applications of a scenario, which publish as fast as their engines accept messages.

use std::collections::VecDeque;

use bytes::Bytes;
use carom_proto::{Engine as _, SendError, SendOptions};

use super::player::Player;
use crate::HostIx;

/// The application on one host.
#[derive(Debug, Default)]
pub(super) struct Application {
    /// Messages that the engine has not accepted, each with its number in the run.
    waiting: VecDeque<(u64, Bytes)>,
    /// `true` if it has paused receipt.
    pub(super) holds: bool,
}

impl Application {
    /// Returns the bytes of the messages that the engine has not accepted.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.iter().map(|(_, payload)| payload.len()).sum()
    }

    /// Returns `true` if the engine has accepted all messages.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Player<'_> {
    /// Adds a message for the application on a host to publish.
    pub(super) fn say(&mut self, host: HostIx, bytes: usize) {
        let bytes = bytes.min(self.settings.config.message_bytes);
        let (number, payload) = self.story.message(bytes);
        if let Some(application) = self.applications.get_mut(&host) {
            application.waiting.push_back((number, payload));
        }
        self.feed_host(host);
        self.take_events();
    }

    /// Publishes waiting messages of all applications.
    pub(super) fn feed(&mut self) {
        let is_busy = |it: &(&HostIx, &Application)| !it.1.is_done();
        let busy = self.applications.iter().filter(is_busy).map(|(host, _)| *host);
        busy.collect::<Vec<_>>().into_iter().for_each(|host| self.feed_host(host));
        self.take_events();
    }

    fn feed_host(&mut self, host: HostIx) {
        let Some(node) = self.id(host).filter(|_| self.can_use(host)) else { return };
        let Some(application) = self.applications.get_mut(&host) else { return };
        let group = self.group;
        while let Some((number, payload)) = application.waiting.front().cloned() {
            let text = payload.clone();
            let sent = self
                .world
                .with(host, |member, now| member.send(now, group, text, SendOptions::default()));
            match sent.expect("it is alive") {
                Ok(seqno) => {
                    let packets = payload.len().div_ceil(self.settings.config.fragment_bytes());
                    let packets = packets.max(1) as u64;
                    let now = self.world.now();
                    let is_first = self.story.sent(now, node, number, seqno, packets, payload);
                    if is_first {
                        let engine = self.world.machine(host).expect("it is alive").engine();
                        let receivers = engine.receivers(group).into_iter().map(|it| it.0);
                        self.story.begun(node, receivers.collect());
                    }
                }
                Err(SendError::QueueFull { .. } | SendError::HeldBack { .. }) => return,
                // Another member is the sender. The application discards its messages.
                Err(SendError::HasSender { .. }) => return application.waiting.clear(),
                Err(error) => {
                    self.story.refused(node, &error);
                    return application.waiting.clear();
                }
            }
            application.waiting.pop_front();
        }
    }

    /// Requests confirmation of what the application on a host has sent.
    pub(super) fn confirm(&mut self, host: HostIx) {
        let Some(node) = self.id(host).filter(|_| self.can_use(host)) else { return };
        self.take_events();
        self.story.asked_to_confirm(node);
        let group = self.group;
        self.world.with(host, |member, now| member.engine_mut().confirm(now, group));
        self.take_events();
    }
}
