use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::assignment::Assignment;
use super::harness;
use crate::message::{Header, Magic};
use crate::record::{BACKGROUND_BYTES, BACKGROUND_NS, NodeFiles, Record};

/// The deliveries of a node, from all its receiving threads.
pub(super) struct Recorder {
    magic: Magic,
    size: usize,
    receives: bool,
    state: Mutex<State>,
}

struct State {
    delivered: Vec<Record>,
    /// The kernel's times of receipt, as long as each delivery has one.
    received: Vec<u64>,
    seen: HashSet<u64>,
    /// Copies that are still missing.
    left: u64,
    corrupted: u64,
    background: Background,
}

/// The deliveries of a background transfer.
#[derive(Clone, Copy, Default)]
struct Background {
    bytes: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Recorder {
    pub(super) fn new(work: &Assignment, delivers_own: bool) -> Self {
        let expected = u64::from(work.messages) * u64::from(work.senders(delivers_own));
        let room = usize::try_from(expected + expected / 8).unwrap_or_default().min(MAX_ROOM);
        let (delivered, seen) = (Vec::with_capacity(room), HashSet::with_capacity(room));
        let state = Mutex::new(State {
            delivered,
            received: Vec::new(),
            seen,
            left: expected,
            corrupted: 0,
            background: Background::default(),
        });
        Self { magic: work.magic, size: work.size, receives: work.role.receives(), state }
    }

    /// Records the delivery of a message of this run, unless it is damaged. Reports `complete`
    /// after the last one. `received_ns` is the time of its receipt by the kernel, if it is known.
    pub(super) fn record(&self, message: &[u8], at_ns: u64, received_ns: Option<u64>) {
        let Some(header) = Header::read(message).filter(|_| self.receives) else { return };
        let Header { magic, sender, number, .. } = header;
        let mut state = self.locked();
        if magic == self.magic.of_background() {
            state.background.add(message.len(), at_ns);
        }
        if magic != self.magic {
            return;
        }
        if message.len() != self.size || !header.is_intact(message) {
            state.corrupted += 1;
            return;
        }
        state.delivered.push(Record { sender, number, at_ns });
        state.received.extend(received_ns);
        if state.seen.insert(u64::from(sender) << 32 | u64::from(number)) {
            state.left = state.left.saturating_sub(1);
            if state.left == 0 {
                // A closed pipe is noticed where the node waits for `stop`.
                let _ = harness::report("complete");
            }
        }
    }

    /// Moves the deliveries and the kernel's times to `files`. Returns the counters of what is not
    /// among them.
    pub(super) fn take(&self, files: &mut NodeFiles) -> Vec<(&'static str, u64)> {
        let mut state = self.locked();
        files.delivered = std::mem::take(&mut state.delivered);
        files.received = std::mem::take(&mut state.received);
        if files.received.len() != files.delivered.len() {
            files.received.clear();
        }
        let mut counters = vec![("messages_corrupted", state.corrupted)];
        let Background { bytes, first_ns, last_ns } = state.background;
        if bytes > 0 {
            counters.push((BACKGROUND_BYTES, bytes));
            counters.push((BACKGROUND_NS, last_ns - first_ns));
        }
        counters
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background {
    fn add(&mut self, bytes: usize, at_ns: u64) {
        if self.bytes == 0 {
            self.first_ns = at_ns;
        }
        self.bytes += bytes as u64;
        self.last_ns = self.last_ns.max(at_ns).max(self.first_ns);
    }
}

/// Maximum number of records for which memory is reserved in advance.
const MAX_ROOM: usize = 16 << 20;
