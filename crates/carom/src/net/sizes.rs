//! Limits the packet size, and sends larger datagrams in parts.

use std::net::Ipv4Addr;
use std::time::Duration;

use carom_proto::wire::{Datagram, Protocol};
use carom_proto::{Origin, Time};

use super::fragments::{Fragments, split};
use super::interfaces::mtu_at;
use super::paths::{COMMON_MTU, PART_OVERHEAD};
use super::routes::Route;
use super::send::{Multicast, Run, Sender};
use super::sockets::Socket;
use crate::shared::status::NetCounters;

#[derive(Debug)]
pub(crate) struct Sizes {
    origin: Origin,
    /// Maximum packet size, in bytes, according to the settings. The interface may carry less.
    wanted: u16,
    next_check: Time,
    pub(crate) fragments: Fragments,
    pub(crate) counters: NetCounters,
    notices: usize,
}

impl Sizes {
    pub(crate) fn new(origin: Origin, wanted: u16) -> Self {
        let (fragments, counters) = (Fragments::default(), NetCounters::default());
        Self { origin, wanted, next_check: Time::ZERO, fragments, counters, notices: 0 }
    }

    pub(crate) fn ceiling(wanted: u16, address: Ipv4Addr) -> u16 {
        mtu_at(address).unwrap_or(COMMON_MTU).min(wanted)
    }

    pub(crate) fn is_check_due(&self, now: Time) -> bool {
        self.next_check <= now
    }

    pub(crate) fn check(&mut self, now: Time, address: Ipv4Addr) -> Option<u16> {
        self.next_check = now + CHECK_INTERVAL;
        Some(Self::ceiling(self.wanted, address)).filter(|ceiling| *ceiling >= MIN_MTU)
    }

    pub(crate) fn may_report(&mut self) -> bool {
        self.notices += 1;
        self.notices <= MAX_NOTICES
    }

    /// Sends one datagram of a run, in parts if the datagram exceeds the path MTU.
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        sender: &mut Sender,
        (run, most): (&Run, usize),
        datagram: &[u8],
        route: &Route,
    ) -> Multicast {
        // A path MTU probe is never divided.
        let parsed = Datagram::parse(datagram);
        let is_of_path = parsed.is_ok_and(|it| it.header().protocol == Protocol::Path);
        if datagram.len() <= most || is_of_path {
            let run = Run::of(run.destination.clone(), datagram.len(), datagram.len());
            return sender.send_bytes(socket, &run, datagram, route);
        }
        self.counters.datagrams_divided += 1;
        let mut parts = Vec::with_capacity(datagram.len() + 2 * PART_OVERHEAD);
        let segment =
            split(self.origin, self.counters.datagrams_divided as u32, datagram, most, &mut parts);
        let run = Run::of(run.destination.clone(), segment, parts.len());
        sender.send_bytes(socket, &run, &parts, route)
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum MTU, in bytes. No engine works with less.
const MIN_MTU: u16 = 576;
/// Maximum number of notices about packet sizes. More would add no information.
const MAX_NOTICES: usize = 64;
