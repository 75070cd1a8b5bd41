use alloc::collections::VecDeque;

use super::config::ServiceConfig;
use super::counters::Counters;
use crate::membership::MembershipEvent;
use crate::membership::service::connections::{ServiceConnections, TimeLimits};
use crate::membership::service::protocol::frame::{Hello, Member, Role};
use crate::{Endpoint, Time, Timers};

#[derive(Debug)]
pub(super) struct Context {
    pub(super) now: Time,
    pub(super) config: ServiceConfig,
    pub(super) connections: ServiceConnections,
    pub(super) timers: Timers<Timer>,
    pub(super) events: VecDeque<MembershipEvent>,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Again(Endpoint),
    Away,
}

impl Context {
    pub(super) fn new(config: ServiceConfig, member: Member, seed: u64) -> Self {
        let (cluster, rack) = (config.cluster.clone(), config.rack.clone());
        let hello = Hello { role: Role::Node, cluster, member, rack };
        let limits = TimeLimits {
            greeting_time: config.greeting_time,
            first_pause: config.first_pause,
            last_pause: config.last_pause,
        };
        Self {
            now: Time::ZERO,
            connections: ServiceConnections::new(limits, hello, seed),
            timers: Timers::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            config,
        }
    }

    pub(super) fn request_again_later(&mut self, address: Endpoint) {
        self.timers.set_no_later(Timer::Again(address), self.now + self.config.first_pause);
    }
}
