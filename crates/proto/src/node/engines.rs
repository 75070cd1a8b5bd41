use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::lateral::{self, Lateral};
use crate::membership::Membership;
use crate::rdcm::{self, Rdcm};
use crate::rmp::{self, Rmp};
use crate::wire::Protocol;
use crate::{Engine, Origin, Transmit};

/// The engines of a node.
pub struct Engines {
    /// Engine of the time-critical groups.
    pub lateral: Lateral,
    /// Engine of the ordered groups.
    pub ordered: Rmp,
    /// Engine that the caller added, if any.
    pub guest: Option<Box<dyn Engine>>,
    /// Engine of the bulk groups.
    pub bulk: Rdcm,
}

impl Engines {
    /// Creates the engines. All but the lateral engine have their default settings.
    pub(super) fn new(origin: Origin, config: lateral::Config, seed: u64) -> Self {
        Self {
            lateral: Lateral::new(origin, config, seed),
            ordered: Rmp::new(origin, rmp::Config::default(), seed),
            guest: None,
            bulk: Rdcm::new(origin, rdcm::Config::default(), seed),
        }
    }

    pub(super) fn of(&self, protocol: Protocol) -> Option<&dyn Engine> {
        match protocol {
            Protocol::Lateral => Some(&self.lateral),
            Protocol::Ordered => Some(&self.ordered),
            Protocol::Guest => self.guest.as_deref(),
            Protocol::Bulk => Some(&self.bulk),
            Protocol::Membership | Protocol::Path => None,
        }
    }

    pub(super) fn of_mut(&mut self, protocol: Protocol) -> Option<&mut dyn Engine> {
        match protocol {
            Protocol::Lateral => Some(&mut self.lateral),
            Protocol::Ordered => Some(&mut self.ordered),
            Protocol::Guest => self.guest.as_mut().map(|guest| &mut **guest as &mut dyn Engine),
            Protocol::Bulk => Some(&mut self.bulk),
            Protocol::Membership | Protocol::Path => None,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &dyn Engine> {
        ORDER.into_iter().filter_map(|protocol| self.of(protocol))
    }

    pub(super) fn find_map<T>(
        &mut self,
        call: impl FnMut(&mut dyn Engine) -> Option<T>,
    ) -> Option<T> {
        self.find_map_in(&ORDER, call)
    }

    fn find_map_in<T>(
        &mut self,
        order: &[Protocol],
        mut call: impl FnMut(&mut dyn Engine) -> Option<T>,
    ) -> Option<T> {
        order.iter().find_map(|protocol| call(self.of_mut(*protocol)?))
    }

    /// Appends the next datagram of the engines or of the membership. The bulk engine comes last,
    /// because bulk data is always available and would starve the membership.
    pub(super) fn poll_transmit(
        &mut self,
        membership: &mut dyn Membership,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let [urgent @ .., bulk] = ORDER;
        self.find_map_in(&urgent, |engine| engine.poll_transmit(out))
            .or_else(|| membership.poll_transmit(out))
            .or_else(|| self.find_map_in(&[bulk], |engine| engine.poll_transmit(out)))
    }

    pub(super) fn for_each(&mut self, mut call: impl FnMut(&mut dyn Engine)) {
        for protocol in ORDER {
            if let Some(engine) = self.of_mut(protocol) {
                call(engine);
            }
        }
    }
}

/// Order in which the engines are called, most urgent first.
const ORDER: [Protocol; 4] =
    [Protocol::Lateral, Protocol::Ordered, Protocol::Guest, Protocol::Bulk];
