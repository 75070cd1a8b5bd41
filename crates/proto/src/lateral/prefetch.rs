//! Prefetching of memory for waiting datagrams.
//!
//! A node in a thousand groups has tens of thousands of streams, which exceed the processor's
//! cache, and consecutive data packets belong to different ones. If they are handled one after the
//! other, the processor waits for the memory of each. This module reads that memory for many
//! packets at once, in a loop without branches that depend on what it reads, so that the processor
//! fetches all of it in parallel. It changes no state.

use core::hint::black_box;

use super::groups::Groups;
use super::index::StreamIx;
use super::repair::Bins;
use super::streams::Streams;
use crate::LOOK_AHEAD;
use crate::wire::{Datagram, Header, Protocol};

/// Number of streams below which the cache holds everything.
pub(super) const STREAMS_THAT_FIT: usize = 1024;

/// Reads the streams and bins that the `waiting` datagrams will need.
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
    // Packets that arrive evict as many of the oldest ones.
    let evicted = streams.next_evicted(LOOK_AHEAD);
    let read = |ix: StreamIx| streams.prefetch(ix);
    seen ^= needed.into_iter().flatten().chain(evicted).map(read).fold(0, |a, b| a ^ b);
    // Prevents the compiler from removing the reads, whose result is not needed.
    black_box(seen);
}
