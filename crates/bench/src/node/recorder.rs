use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::assignment::Assignment;
use super::harness;
use crate::message::{Header, Magic};
use crate::record::{NodeFiles, Record};

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
        });
        Self { magic: work.magic, size: work.size, receives: work.role.receives(), state }
    }

    /// Records the delivery of a message of this run, unless it is damaged. Reports `complete`
    /// after the last one. `received_ns` is the time of its receipt by the kernel, if it is known.
    pub(super) fn record(&self, message: &[u8], at_ns: u64, received_ns: Option<u64>) {
        let header = Header::read(message).filter(|header| header.magic == self.magic);
        let Some(header) = header.filter(|_| self.receives) else { return };
        let Header { sender, number, .. } = header;
        let mut state = self.locked();
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

    /// Moves the deliveries and the kernel's times to `files`. Returns the number of messages that
    /// were damaged.
    pub(super) fn take(&self, files: &mut NodeFiles) -> u64 {
        let mut state = self.locked();
        files.delivered = std::mem::take(&mut state.delivered);
        files.received = std::mem::take(&mut state.received);
        if files.received.len() != files.delivered.len() {
            files.received.clear();
        }
        state.corrupted
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of records for which memory is reserved in advance.
const MAX_ROOM: usize = 16 << 20;
