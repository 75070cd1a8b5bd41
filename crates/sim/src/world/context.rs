use carom_proto::{Class, Time};

use super::config::Lossy;
use crate::connections::{ConnectionIx, Side};
use crate::counters::Counters;
use crate::event_queue::EventQueue;
use crate::faults::Cuts;
use crate::history_hash::HistoryHash;
use crate::ids::{CableIx, HostIx, PacketIx};

pub(super) struct Context {
    pub(super) now: Time,
    pub(super) queue: EventQueue<Due>,
    pub(super) counters: Counters,
    pub(super) cuts: Cuts,
    pub(super) history: Option<HistoryHash>,
    lossy: Lossy,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    Arrival(HostIx, PacketIx),
    Link(PacketIx, u32),
    Cable(CableIx),
    Service(HostIx, u32),
    Wake(HostIx),
    Stream(ConnectionIx, Side),
    Read(ConnectionIx, Side),
    Command(HostIx, u32, u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Spawned = 1,
    Killed,
    Sent,
    Delivered,
    Woken,
    Linked,
}

impl Context {
    pub(super) fn new(lossy: Lossy, hashes_history: bool) -> Self {
        Self {
            now: BEGINNING,
            queue: EventQueue::default(),
            counters: Counters::default(),
            cuts: Cuts::default(),
            history: hashes_history.then(HistoryHash::new),
            lossy,
        }
    }

    pub(super) fn note(&mut self, kind: Kind, host: HostIx, bytes: &[u8]) {
        if let Some(history) = &mut self.history {
            history.add(self.now, kind as u8, host, bytes);
        }
    }

    pub(super) fn schedule(&mut self, at: Time, due: Due) {
        self.queue.add(at, due);
    }

    pub(super) fn may_lose(&self, class: Class) -> bool {
        match self.lossy {
            Lossy::Everything => true,
            Lossy::Only(only) => only == class,
        }
    }
}

/// Start of virtual time, late enough that engines can subtract durations from the current time.
pub(super) const BEGINNING: Time = Time(1_000_000_000);
