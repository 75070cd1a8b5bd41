use super::commit::Origin;
use super::config::ServerConfig;
use super::connections::Peer;
use super::counters::Counters;
use crate::membership::link::LinkId;
use crate::membership::service::outbox::Outbox;
use crate::membership::service::protocol::frame::{Frame, JoinRefusal};
use crate::{GroupId, Time, Timers};

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
    Greet(LinkId),
    /// The peer is a node or detector.
    Lease(Peer),
    Observer(LinkId),
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
