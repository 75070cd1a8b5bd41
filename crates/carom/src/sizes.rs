//! How large packets may be, and datagrams that are sent in parts because they are larger.

use std::net::Ipv4Addr;
use std::time::Duration;

use carom_proto::wire::{Header, Protocol};
use carom_proto::{Origin, Time};

use crate::fragments::{Fragments, split};
use crate::interfaces::mtu_at;
use crate::paths::{COMMON_MTU, PART_OVERHEAD};
use crate::routes::Route;
use crate::send::{Multicast, Run, Sender};
use crate::sockets::Socket;
use crate::status::Stats;

/// How large packets may be.
#[derive(Debug)]
pub(crate) struct Sizes {
    origin: Origin,
    /// The largest packet that the settings ask for; the interface may carry less.
    wanted: u16,
    /// When the interface is looked at next.
    look_at: Time,
    pub(crate) fragments: Fragments,
    /// Datagrams that were sent in parts.
    divided: u64,
    /// Notices about sizes so far.
    notices: usize,
}

impl Sizes {
    pub(crate) fn new(origin: Origin, wanted: u16) -> Self {
        let fragments = Fragments::default();
        Self { origin, wanted, look_at: Time::ZERO, fragments, divided: 0, notices: 0 }
    }

    /// Bytes of the largest packet that an interface at `address` lets this node send.
    pub(crate) fn ceiling(wanted: u16, address: Ipv4Addr) -> u16 {
        mtu_at(address).unwrap_or(COMMON_MTU).min(wanted)
    }

    /// Returns `true` if the interface is to be looked at.
    pub(crate) fn is_look_due(&self, now: Time) -> bool {
        self.look_at <= now
    }

    /// Looks at the interface at `address`. Returns the bytes of the largest packet that this node
    /// sends there; `None` if the interface is of no use to any engine.
    pub(crate) fn look(&mut self, now: Time, address: Ipv4Addr) -> Option<u16> {
        self.look_at = now + INTERFACE_LOOK;
        Some(Self::ceiling(self.wanted, address)).filter(|ceiling| *ceiling >= LEAST_MTU)
    }

    /// Returns `true` if another notice about sizes is of use.
    pub(crate) fn may_tell(&mut self) -> bool {
        self.notices += 1;
        self.notices <= MOST_NOTICES
    }

    /// Enters what was counted.
    pub(crate) fn count(&self, stats: &mut Stats) {
        stats.datagrams_divided = self.divided;
        stats.datagrams_joined = self.fragments.counters.joined;
        stats.datagrams_unjoined = self.fragments.counters.given_up;
    }

    /// Sends one datagram of a run that is too large for the path, in parts if it is one of those
    /// that are.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        sender: &mut Sender,
        (run, most): (Run, usize),
        datagram: &[u8],
        route: &Route,
    ) -> Multicast {
        // A probe for the path MTU goes as it is.
        let is_of_path = Header::peek(datagram).is_some_and(|peek| peek.protocol == Protocol::Path);
        if datagram.len() <= most || is_of_path {
            let run = Run::of(run.destination, datagram.len(), datagram.len());
            return sender.send_bytes(socket, run, datagram, route);
        }
        self.divided += 1;
        let mut parts = Vec::with_capacity(datagram.len() + 2 * PART_OVERHEAD);
        let segment = split(self.origin, self.divided as u32, datagram, most, &mut parts);
        let run = Run::of(run.destination, segment, parts.len());
        sender.send_bytes(socket, run, &parts, route)
    }
}

/// How often the interface is looked at.
const INTERFACE_LOOK: Duration = Duration::from_secs(5);
/// An interface that carries less is of no use to any engine.
const LEAST_MTU: u16 = 576;
/// Notices about sizes: who has read so many knows.
const MOST_NOTICES: usize = 64;
