//! State that the parts of a registry process share.

use super::commit::Origin;
use super::config::ServerConfig;
use super::counters::Counters;
use crate::membership::link::LinkId;
use crate::membership::service::outbox::Outbox;
use crate::membership::service::protocol::frame::{Frame, JoinRefusal};
use crate::{GroupId, NodeId, Time, Timers};

/// Time, settings and outputs of a registry process. Each part gets it for the duration of a call.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) now: Time,
    pub(super) config: ServerConfig,
    pub(super) timers: Timers<Timer>,
    pub(super) outbox: Outbox,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Time limit for the hello on a connection.
    Greet(LinkId),
    Lease(NodeId),
    Detector(NodeId),
    Observer(LinkId),
    /// The next attempt of a commit.
    Retry(u16),
}

impl Context {
    pub(super) fn new(config: ServerConfig) -> Self {
        Self {
            now: Time::ZERO,
            config,
            timers: Timers::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the end of the time for members to be heard that were not heard here before.
    pub(super) fn adoption_end(&self) -> Time {
        self.now + self.config.adoption_time.max(self.config.detection_time)
    }

    pub(super) fn refuse_join(&mut self, origin: Origin, group: GroupId, why: JoinRefusal) {
        let Origin { link, request } = origin;
        tracing::debug!(%link, %group, ?why, "a join is refused");
        self.counters.joins_refused += 1;
        self.outbox.send(link, &Frame::JoinRefused { request, group, why });
    }

    pub(super) fn send_elsewhere(&mut self, Origin { link, request }: Origin, group: GroupId) {
        self.counters.requests_elsewhere += 1;
        self.outbox.send(link, &Frame::Elsewhere { request, group });
    }
}
