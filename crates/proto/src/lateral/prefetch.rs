//! Prefetching of memory for waiting datagrams.
//!
//! A node in a thousand groups has tens of thousands of streams, which exceed the processor's
//! cache. Consecutive data packets belong to different streams. If packets are handled one after
//! the other, the processor waits for memory each time. This module reads the memory for many
//! packets at once. Its loop has no branches that depend on what it reads, so the processor fetches
//! everything in parallel. No state is changed.

use core::hint::black_box;

use super::groups::Groups;
use super::index::StreamIx;
use super::repair::Bins;
use super::streams::Streams;
use crate::LOOK_AHEAD;
use crate::wire::{Datagram, Header, Protocol};

pub(super) const STREAMS_THAT_FIT: usize = 1024;

pub(super) fn prefetch(groups: &Groups, streams: &Streams, bins: &Bins, waiting: &[Datagram<'_>]) {
    if streams.len() < STREAMS_THAT_FIT {
        return;
    }
    let mut seen = 0;
    let mut needed = [None; LOOK_AHEAD];
    for (stream, datagram) in needed.iter_mut().zip(waiting) {
        let Header { protocol: Protocol::Lateral, group, sender, .. } = datagram.header() else {
            continue;
        };
        let Some(group) = groups.ix(*group) else { continue };
        *stream = streams.find(group, *sender);
        seen ^= bins.prefetch(group);
    }
    // Arriving packets evict an equal number of the oldest packets.
    let evicted = streams.next_evicted(LOOK_AHEAD);
    let read = |ix: StreamIx| streams.prefetch(ix);
    seen ^= needed.into_iter().flatten().chain(evicted).map(read).fold(0, |a, b| a ^ b);
    // Prevents the compiler from removing the reads, whose result is otherwise unused.
    black_box(seen);
}
