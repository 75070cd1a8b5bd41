//! Locks of a group: the handle of a held lock, and the tasks of one node that wait for locks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, TrySendError};
use carom_proto::rmp::{LockChange, LockName, LockNews, Rmp, Timestamp};
use carom_proto::{GroupId, Time};

use crate::alarms::before;
use crate::blocking::within;
use crate::command::NodeCommand;
use crate::error::LockError;
use crate::group::Group;

/// A lock of an ordered group, held until this handle is dropped.
///
/// It can be lost earlier: when this node is removed from the ring, the lock may be granted to
/// another node. Pass [`Lock::fence`] with each write to a shared resource, so that the resource
/// can reject late writes of a holder that has lost the lock.
pub struct Lock<'a> {
    group: &'a Group,
    name: LockName,
    grant: Grant,
}

/// A grant of a lock to a waiting task.
#[derive(Debug)]
pub(crate) struct Grant {
    fence: Timestamp,
    /// Number among all grants of the group's locks to tasks of this node.
    number: u64,
    /// Closes when the lock is lost.
    lost: Receiver<()>,
}

/// Reply channel of a task that waits for a lock.
pub(crate) type Reply = Sender<Result<Grant, LockError>>;

/// Locks of one group that tasks of this node hold or wait for. The ring sees one request of this
/// node per lock; the tasks take turns.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    by_name: BTreeMap<LockName, Local>,
    /// Number of locks granted to tasks so far.
    grants: u64,
}

#[derive(Debug, Default)]
struct Local {
    holder: Option<Holder>,
    waiting: VecDeque<Reply>,
}

#[derive(Debug)]
struct Holder {
    grant: u64,
    /// Dropped when the lock is lost.
    _lost: Sender<()>,
}

impl<'a> Lock<'a> {
    pub(crate) fn new(group: &'a Group, name: LockName, grant: Grant) -> Self {
        Self { group, name, grant }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> LockName {
        self.name
    }

    /// Returns the fence: a number that increases with each grant of the lock.
    ///
    /// It increases for grants to any node of this ring and of the rings that follow it by
    /// reformations, whichever members fail or are removed meanwhile. The resource that the lock
    /// protects remembers the largest fence it has seen, and rejects smaller ones.
    ///
    /// The numbers start again with a new ring: after all members were gone at once, or when this
    /// node has given up its own ring for a larger one ([`Removal::Merged`]). Rings that were
    /// formed separately, and parts that continue separately ([`Partition::AtLeast`]), number their
    /// grants independently.
    ///
    /// [`Removal::Merged`]: crate::Removal::Merged
    /// [`Partition::AtLeast`]: crate::Partition::AtLeast
    pub fn fence(&self) -> u64 {
        self.grant.fence.0
    }

    /// Returns `true` if the lock is not known to be lost.
    pub fn is_held(&self) -> bool {
        !self.grant.lost.is_closed()
    }

    /// Waits until the lock is lost: this node is no longer in the group's ring, or is closed.
    pub async fn lost(&self) {
        // The channel never carries a value. It only closes.
        let _ = self.grant.lost.recv().await;
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.group.give_back(self.name, &self.grant);
    }
}

impl fmt::Debug for Lock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A pending lock request of a task. Without it, the grant to a task that gives up would never be
/// released.
pub(crate) struct Asking<'a> {
    pub(crate) group: &'a Group,
    pub(crate) name: LockName,
    pub(crate) answer: Receiver<Result<Grant, LockError>>,
    /// `true` if the answer was taken.
    is_answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // From here on the host finds the channel closed.
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(grant)) => self.group.give_back(self.name, &grant),
            Ok(Err(_)) => {}
            Err(_) => {
                let (shared, name) = (Arc::clone(self.group.shared()), self.name);
                self.group.tell(NodeCommand::GiveUpLock { shared, name });
            }
        }
    }
}

impl Group {
    /// Waits for a lock of an ordered group, behind all earlier requests, on any async runtime.
    ///
    /// A lock is named by a text, or by a [`Handler`](crate::rmp::Handler). Dropping the future
    /// before it completes withdraws the request.
    ///
    /// # Errors
    /// The group is not ordered, this node was removed from the ring, too many requests wait, or
    /// the group is closed.
    pub async fn lock(&self, name: impl Into<LockName>) -> Result<Lock<'_>, LockError> {
        self.ask_for_lock(name.into(), true).await
    }

    /// Like [`Group::lock`], but for at most `timeout` of the node's clock.
    ///
    /// # Errors
    /// See [`Group::lock`]; also if `timeout` has passed.
    pub async fn lock_timeout_async(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock<'_>, LockError> {
        let lock = self.ask_for_lock(name.into(), true);
        before(self.sleep(timeout), lock).await.unwrap_or(Err(LockError::Timeout(timeout)))
    }

    /// Like [`Group::lock`], but blocks the thread, for at most `timeout`.
    ///
    /// # Errors
    /// See [`Group::lock`]; also if `timeout` has passed.
    ///
    /// # Panics
    /// On a simulated node: see [`Group::lock_timeout_async`].
    #[track_caller]
    pub fn lock_timeout(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock<'_>, LockError> {
        self.must_not_block("Group::lock_timeout", "lock_timeout_async");
        let lock = self.ask_for_lock(name.into(), true);
        within(timeout, lock).unwrap_or(Err(LockError::Timeout(timeout)))
    }

    /// Like [`Group::lock`], but does not wait while another node or task holds the lock.
    ///
    /// # Errors
    /// See [`Group::lock`]; also if the lock is held. The error names the holder.
    pub async fn try_lock(&self, name: impl Into<LockName>) -> Result<Lock<'_>, LockError> {
        self.ask_for_lock(name.into(), false).await
    }

    async fn ask_for_lock(&self, name: LockName, waits: bool) -> Result<Lock<'_>, LockError> {
        if !self.shared().profile.is_ordered() {
            return Err(LockError::NoLocks);
        }
        let shared = Arc::clone(self.shared());
        let answer = self.ask(|reply| NodeCommand::Lock { shared, name, waits, reply });
        let mut asking = Asking { group: self, name, answer, is_answered: false };
        let answer = asking.answer.recv().await;
        asking.is_answered = true;
        Ok(Lock::new(self, name, answer.unwrap_or(Err(LockError::Closed))?))
    }

    fn give_back(&self, name: LockName, grant: &Grant) {
        let (shared, grant) = (Arc::clone(self.shared()), grant.number);
        self.tell(NodeCommand::Unlock { shared, name, grant });
    }
}

/// The ring in which a group's locks are kept.
pub(crate) struct Ring<'a> {
    pub(crate) now: Time,
    pub(crate) group: GroupId,
    pub(crate) engine: &'a mut Rmp,
}

impl Locks {
    /// Requests a lock for a task, which waits for it if `waits` is `true`.
    pub(crate) fn ask(&mut self, ring: &mut Ring<'_>, name: LockName, waits: bool, reply: Reply) {
        if let Some(local) = self.by_name.get_mut(&name) {
            match (waits, local.waiting.len() < MAX_WAITING) {
                (true, true) => local.waiting.push_back(reply),
                (true, false) => refuse(&reply, LockError::TooMany { asked: MAX_WAITING }),
                (false, _) => refuse(&reply, LockError::HeldHere),
            }
            return;
        }
        let asked = match waits {
            true => ring.engine.lock(ring.now, ring.group, name),
            false => ring.engine.try_lock(ring.now, ring.group, name),
        };
        match asked {
            Ok(()) => {
                let waiting = VecDeque::from([reply]);
                self.by_name.insert(name, Local { holder: None, waiting });
            }
            Err(error) => refuse(&reply, error.into()),
        }
    }

    /// Drops the tasks that no longer wait for a lock. If no other task does, the request is
    /// withdrawn.
    pub(crate) fn give_up(&mut self, ring: &mut Ring<'_>, name: LockName) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        local.waiting.retain(|reply| !reply.is_closed());
        if local.waiting.is_empty() && local.holder.is_none() {
            self.pass_on(ring, name);
        }
    }

    /// Releases a lock, if this grant still holds it.
    pub(crate) fn give_back(&mut self, ring: &mut Ring<'_>, name: LockName, grant: u64) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        if local.holder.as_ref().is_some_and(|holder| holder.grant == grant) {
            local.holder = None;
            self.pass_on(ring, name);
        }
    }

    /// Handles a change of a lock in the ring.
    pub(crate) fn hear(&mut self, ring: &mut Ring<'_>, news: LockNews) {
        let name = news.name;
        let Some(local) = self.by_name.get_mut(&name) else { return };
        match news.change {
            LockChange::Granted { fence } => {
                while let Some(reply) = local.waiting.pop_front() {
                    let (sender, lost) = async_channel::bounded(1);
                    let grant = self.grants;
                    if reply.try_send(Ok(Grant { fence, number: grant, lost })).is_ok() {
                        self.grants += 1;
                        local.holder = Some(Holder { grant, _lost: sender });
                        return;
                    }
                }
                self.pass_on(ring, name);
            }
            LockChange::Refused { holder } => {
                let holder = holder.map(|process| process.node);
                let refused = LockError::Refused { holder };
                if let Some(reply) = local.waiting.pop_front() {
                    refuse(&reply, refused.clone());
                }
                self.ask_again(ring, name);
            }
            LockChange::Lost => {
                if let Some(local) = self.by_name.remove(&name) {
                    local.waiting.iter().for_each(|reply| refuse(reply, LockError::Lost));
                }
            }
            // The lock was released here, and was requested again if tasks wait.
            LockChange::Released => {}
        }
    }

    /// Releases a lock that no task of this node holds. Other nodes have their turn first.
    fn pass_on(&mut self, ring: &mut Ring<'_>, name: LockName) {
        if let Err(error) = ring.engine.unlock(ring.now, ring.group, name) {
            tracing::debug!(?name, %error, "a lock was not released: it is lost");
        }
        self.ask_again(ring, name);
    }

    /// Requests the lock for the tasks that still wait, or forgets it if there are none.
    fn ask_again(&mut self, ring: &mut Ring<'_>, name: LockName) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        local.waiting.retain(|reply| !reply.is_closed());
        if local.waiting.is_empty() {
            self.by_name.remove(&name);
            return;
        }
        if let Err(error) = ring.engine.lock(ring.now, ring.group, name)
            && let Some(local) = self.by_name.remove(&name)
        {
            local.waiting.iter().for_each(|reply| refuse(reply, error.into()));
        }
    }
}

fn refuse(reply: &Reply, error: LockError) {
    // A task that no longer waits has closed its channel.
    if let Err(TrySendError::Full(_)) = reply.try_send(Err(error)) {
        tracing::warn!("a lock was answered twice");
    }
}

/// Maximum number of tasks of one node that wait for one lock.
const MAX_WAITING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::rmp::{Config, Partition};
    use carom_proto::{Engine, GroupSettings, NodeId, Profile};

    const GROUP: GroupId = GroupId(1);
    const LOCK: LockName = LockName(9);

    /// Returns the engine of a ring of one, to which locks are requested. Its grants are made up.
    fn engine(now: Time) -> Rmp {
        let mut engine = Rmp::new(NodeId(1), Config::default(), 1);
        let settings = GroupSettings::new("jobs", Profile::Ordered(Partition::Majority));
        engine.join(now, GROUP, settings).expect("an ordered group");
        engine
    }

    fn granted(locks: &mut Locks, ring: &mut Ring<'_>) -> Grant {
        let (reply, answer) = async_channel::bounded(1);
        locks.ask(ring, LOCK, true, reply);
        let change = LockChange::Granted { fence: Timestamp(5) };
        locks.hear(ring, LockNews { name: LOCK, change });
        answer.try_recv().expect("it is told").expect("it is granted")
    }

    #[test]
    fn lost_lock_does_not_release_its_successor_of_equal_number() {
        let now = Time(1_000_000_000);
        let mut locks = Locks::default();
        let (mut engine, mut later) = (engine(now), engine(now));
        let mut ring = Ring { now, group: GROUP, engine: &mut engine };
        let first = granted(&mut locks, &mut ring);
        locks.hear(&mut ring, LockNews { name: LOCK, change: LockChange::Lost });
        assert!(first.lost.is_closed());
        // The ring was formed anew, and its numbers start again.
        let mut ring = Ring { now, group: GROUP, engine: &mut later };
        let second = granted(&mut locks, &mut ring);
        locks.give_back(&mut ring, LOCK, first.number);
        assert!(!second.lost.is_closed(), "another task has it");
        locks.give_back(&mut ring, LOCK, second.number);
        assert!(second.lost.is_closed());
    }
}
