//! Mutually exclusive locks of a group (3.3, 4.3): who holds them, and who waits.
//!
//! They are a part of the view, so all members know them alike, and a view that removes a member
//! hands its locks on. Beyond the paper, whose request for a lock that is held is refused: who
//! wants to wait is written down behind the holder, in the order in which they asked.

use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;

use super::names::{Process, Timestamp};

/// The locks of a ring: of each the holder, and behind it who waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    queues: BTreeMap<LockName, VecDeque<Process>>,
    entries: usize,
}

/// The name of a lock: 0 to 5 are the handler locks, all others are hashes of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(pub u64);

/// One of the six handlers of a group (3.3): who holds its lock replies to the messages that ask
/// for this handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handler(u8);

/// What became of a lock that this node has asked for, at its place among the messages.
///
/// It is always about the last that was asked: who gives a lock back and asks for it again is told
/// what becomes of the second request, not that the first one was granted, refused or ended. That
/// is so for a caller that takes all events before it asks for anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockNews {
    /// The lock.
    pub name: LockName,
    /// What became of it.
    pub change: LockChange,
}

/// What can become of a lock that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// This node holds it. A majority of the ring knows that already, and all messages that a
    /// holder before sent under the lock were delivered before.
    Granted {
        /// Larger each time that the lock is granted in this ring or one that follows it by
        /// reformations: a resource that refuses smaller numbers than it has seen is safe from a
        /// holder that does not know yet that it was removed. A ring that is begun anew, because
        /// all members of the one before are gone, begins with small numbers again; and rings that
        /// were born apart, or parted ([`Partition::AtLeast`](super::Partition)), number apart.
        fence: Timestamp,
    },
    /// It was not granted.
    Refused {
        /// Who holds it; `None` if nobody does, and the ring has as many locks as it can keep.
        holder: Option<Process>,
    },
    /// It was given back, or is not waited for any more.
    Released,
    /// This node is not in the ring any more: it does not hold the lock, or wait for it.
    Lost,
}

/// Why a lock was not asked for, or not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// This node is not in the group.
    #[error("this node is not in the group")]
    NotJoined,
    /// This node holds the lock, or has asked for it.
    #[error("this node holds the lock or has asked for it already")]
    AlreadyAsked,
    /// This node has not asked for the lock.
    #[error("this node has not asked for the lock")]
    NotAsked,
    /// So many locks of this node are held, waited for or about to be given back.
    #[error("this node has asked for {asked} locks already")]
    TooMany {
        /// How many.
        asked: usize,
    },
}

/// What this node has asked for, until it was told the end of it.
#[derive(Debug, Default)]
pub(super) struct OwnLocks {
    asked: BTreeMap<LockName, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Whether the last thing asked was to have it, and not to give it back.
    is_wanted: bool,
    /// The number of that request.
    request: u32,
    /// A view that was delivered has that request.
    is_shown: bool,
}

impl Handler {
    /// How many there are.
    pub const COUNT: u8 = 6;

    /// The handler of this number; `None` from [`Handler::COUNT`] on.
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The lock whose holder replies.
    pub const fn lock(self) -> LockName {
        LockName(self.0 as u64)
    }
}

impl LockName {
    /// The lock called `name`: a hash of the name that is no handler's.
    pub fn of_name(name: &str) -> Self {
        Self(crate::ids::name_hash(name) | 1 << 63)
    }

    /// The handler whose lock this is, if it is one.
    pub fn handler(self) -> Option<Handler> {
        u8::try_from(self.0).ok().and_then(Handler::new)
    }
}

impl From<&str> for LockName {
    fn from(name: &str) -> Self {
        Self::of_name(name)
    }
}

impl From<Handler> for LockName {
    fn from(handler: Handler) -> Self {
        handler.lock()
    }
}

impl Locks {
    /// No more than so many holders and waiting members are kept in all.
    pub const MAX_ENTRIES: usize = 4096;

    /// Who holds a lock.
    pub fn holder(&self, name: LockName) -> Option<Process> {
        self.queues.get(&name)?.front().copied()
    }

    /// Who waits for a lock, the next holder first.
    pub fn waiting(&self, name: LockName) -> impl Iterator<Item = Process> {
        self.queues.get(&name).into_iter().flat_map(|queue| queue.iter().skip(1).copied())
    }

    /// All locks that are held, with their holders.
    pub fn held(&self) -> impl Iterator<Item = (LockName, Process)> {
        self.queues.iter().filter_map(|(name, queue)| Some((*name, *queue.front()?)))
    }

    /// How many locks are held.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether no lock is held.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether so many more can be kept.
    pub(super) fn has_room_for(&self, count: usize) -> bool {
        self.entries + count <= Self::MAX_ENTRIES
    }

    /// Whether `process` would get the lock, or may wait for it.
    pub(super) fn admits(&self, name: LockName, process: Process, waits: bool) -> bool {
        let Some(queue) = self.queues.get(&name) else { return self.has_room_for(1) };
        queue.contains(&process) || (waits && self.has_room_for(1))
    }

    /// `process` gets the lock, or waits for it behind all others.
    pub fn ask(&mut self, name: LockName, process: Process) {
        let queue = self.queues.entry(name).or_default();
        if !queue.contains(&process) {
            queue.push_back(process);
            self.entries += 1;
        }
    }

    /// `process` gives the lock back, or waits for it no more.
    pub(super) fn give_back(&mut self, name: LockName, process: Process) {
        let Some(queue) = self.queues.get_mut(&name) else { return };
        let before = queue.len();
        queue.retain(|it| *it != process);
        self.entries -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(&name);
        }
    }

    /// `process` is gone.
    pub(super) fn remove(&mut self, process: Process) {
        for queue in self.queues.values_mut() {
            queue.retain(|it| *it != process);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        self.entries = self.queues.values().map(VecDeque::len).sum();
    }

    /// Of each lock those who hold it and wait for it, in order.
    pub(super) fn queues(&self) -> impl Iterator<Item = (LockName, &VecDeque<Process>)> {
        self.queues.iter().map(|(name, queue)| (*name, queue))
    }
}

impl OwnLocks {
    /// Whether a lock may be asked for now.
    ///
    /// # Errors
    /// It was asked for already, or too many others were.
    pub(super) fn may_ask(&self, name: LockName) -> Result<(), LockError> {
        match self.asked.get(&name) {
            Some(asked) if asked.is_wanted => Err(LockError::AlreadyAsked),
            None if self.asked.len() >= MAX_OWN => {
                Err(LockError::TooMany { asked: self.asked.len() })
            }
            _ => Ok(()),
        }
    }

    /// Whether a lock may be given back now.
    ///
    /// # Errors
    /// It was not asked for.
    pub(super) fn may_give_back(&self, name: LockName) -> Result<(), LockError> {
        let is_wanted = self.asked.get(&name).is_some_and(|asked| asked.is_wanted);
        if is_wanted { Ok(()) } else { Err(LockError::NotAsked) }
    }

    /// Request number `request` is about this lock.
    pub(super) fn on_asked(&mut self, name: LockName, is_wanted: bool, request: u32) {
        self.asked.insert(name, Asked { is_wanted, request, is_shown: false });
    }

    /// A view is delivered in which this request has its place.
    pub(super) fn on_shown(&mut self, name: LockName, request: u32) {
        if let Some(asked) = self.asked.get_mut(&name).filter(|asked| asked.request == request) {
            asked.is_shown = true;
        }
    }

    /// Whether a lock that this member holds in the view was asked for by its last request, and
    /// not by one that it has taken back since: then it is about to lose the lock, however much it
    /// wants it again.
    pub(super) fn is_wanted_as_shown(&self, name: LockName) -> bool {
        self.asked.get(&name).is_some_and(|asked| asked.is_wanted && asked.is_shown)
    }

    /// That request ended with the lock neither held nor waited for. Says whether it was the last.
    pub(super) fn on_ended(&mut self, name: LockName, request: u32) -> bool {
        let is_last = self.asked.get(&name).is_some_and(|asked| asked.request == request);
        if is_last {
            self.asked.remove(&name);
        }
        is_last
    }

    /// All that were asked for and are lost now.
    pub(super) fn lose(&mut self) -> impl Iterator<Item = LockName> + use<> {
        core::mem::take(&mut self.asked).into_keys()
    }

    pub(super) fn check(&self) {
        assert!(self.asked.len() <= MAX_OWN, "{} locks were asked for", self.asked.len());
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handler() {
            Some(handler) => write!(f, "handler {}", handler.0),
            None => write!(f, "lock {:016x}", self.0),
        }
    }
}

/// Locks that one node asks for at a time.
pub(super) const MAX_OWN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    const LOCK: LockName = LockName(9);

    fn process(node: u64) -> Process {
        Process { node: NodeId(node), life: 1 }
    }

    #[test]
    fn who_asked_first_holds_the_lock_and_the_others_follow_in_order() {
        let mut locks = Locks::default();
        [3, 1, 2, 1].into_iter().for_each(|node| locks.ask(LOCK, process(node)));
        assert_eq!(locks.holder(LOCK), Some(process(3)));
        assert_eq!(locks.waiting(LOCK).collect::<Vec<_>>(), [process(1), process(2)]);
        locks.give_back(LOCK, process(3));
        assert_eq!(locks.holder(LOCK), Some(process(1)));
        locks.remove(process(1));
        assert_eq!(locks.holder(LOCK), Some(process(2)));
        locks.give_back(LOCK, process(2));
        assert_eq!((locks.len(), locks.entries), (0, 0));
    }

    #[test]
    fn who_does_not_wait_is_not_admitted_to_a_lock_that_is_held() {
        let mut locks = Locks::default();
        assert!(locks.admits(LOCK, process(1), false));
        locks.ask(LOCK, process(1));
        assert!(!locks.admits(LOCK, process(2), false));
        assert!(locks.admits(LOCK, process(2), true));
        assert!(locks.admits(LOCK, process(1), false), "it holds it");
    }

    #[test]
    fn there_is_a_bound_for_all_who_hold_and_wait() {
        let mut locks = Locks::default();
        for name in 0..Locks::MAX_ENTRIES as u64 {
            assert!(locks.admits(LockName(name), process(1), true));
            locks.ask(LockName(name), process(1));
        }
        assert!(!locks.admits(LockName(u64::MAX), process(1), true));
        assert!(!locks.admits(LockName(7), process(2), true));
    }

    #[test]
    fn names_are_not_handlers_and_handlers_have_the_first_six() {
        assert_eq!(LockName::of_name("leader").handler(), None);
        assert_ne!(LockName::of_name("leader"), LockName::of_name("backup"));
        assert_eq!(LockName(5).handler(), Handler::new(5));
        assert_eq!((LockName(6).handler(), Handler::new(6)), (None, None));
    }
}
