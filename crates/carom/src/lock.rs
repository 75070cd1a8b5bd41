//! A lock of a group: the handle of whoever holds it, and the tasks of one node that wait for it.

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

/// A lock of an ordered group, held until this is dropped.
///
/// It can be lost before: when the ring goes on without this node another may be given the lock.
/// Whoever writes to something that others write to as well gives [`Lock::fence`] along, so that a
/// late write of a holder that has lost the lock is refused there.
pub struct Lock<'a> {
    group: &'a Group,
    name: LockName,
    grant: Grant,
}

/// What a task is given that waited for a lock.
#[derive(Debug)]
pub(crate) struct Grant {
    fence: Timestamp,
    /// Its number among all grants of the group's locks to tasks of this node.
    number: u64,
    /// Closes when the lock is lost.
    lost: Receiver<()>,
}

/// Where a task waits for a lock.
pub(crate) type Reply = Sender<Result<Grant, LockError>>;

/// The locks of one group that tasks of this node hold or wait for. The ring knows of one request
/// of the node for each of them; the tasks take turns.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    by_name: BTreeMap<LockName, Local>,
    /// How many locks were granted to tasks so far.
    grants: u64,
}

#[derive(Debug, Default)]
struct Local {
    holder: Option<Holder>,
    waiting: VecDeque<Reply>,
}

#[derive(Debug)]
struct Holder {
    /// The number of its grant.
    grant: u64,
    /// Dropped when the lock is lost.
    _lost: Sender<()>,
}

impl<'a> Lock<'a> {
    pub(crate) fn new(group: &'a Group, name: LockName, grant: Grant) -> Self {
        Self { group, name, grant }
    }

    /// The lock.
    pub fn name(&self) -> LockName {
        self.name
    }

    /// A number that is larger each time that the lock is granted to anybody in this ring, or in
    /// one that follows it by reformations, whoever has died or was removed meanwhile. What the
    /// lock protects remembers the largest that it has seen, and refuses smaller ones.
    ///
    /// It begins anew with a ring that is begun anew: after all members were gone at once, or when
    /// this node has given up a ring of its own for a larger one ([`Removal::Merged`]). Rings that
    /// were born apart, and parts that go on apart ([`Partition::AtLeast`]), number apart.
    ///
    /// [`Removal::Merged`]: crate::Removal::Merged
    /// [`Partition::AtLeast`]: crate::Partition::AtLeast
    pub fn fence(&self) -> u64 {
        self.grant.fence.0
    }

    /// Whether the lock is not known to be lost.
    pub fn is_held(&self) -> bool {
        !self.grant.lost.is_closed()
    }

    /// Waits until the lock is lost: this node is not in the group's ring any more, or is closed.
    pub async fn lost(&self) {
        // It closes without ever holding anything.
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

/// A lock that a task waits for. If the task gives up nobody would ever give back what it is given.
pub(crate) struct Asking<'a> {
    pub(crate) group: &'a Group,
    pub(crate) name: LockName,
    pub(crate) answer: Receiver<Result<Grant, LockError>>,
    /// Whether the answer was taken.
    is_answered: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // From here on the host finds that nobody waits.
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
    /// Waits for a lock of an ordered group, behind all who have asked before, on any async
    /// runtime. A lock is named by a text, or by a [`Handler`](crate::rmp::Handler). If the future
    /// is dropped before it ends, the lock is not waited for any more.
    ///
    /// # Errors
    /// The group is not ordered, the ring has gone on without this node, too many wait, or the
    /// group is closed.
    pub async fn lock(&self, name: impl Into<LockName>) -> Result<Lock<'_>, LockError> {
        self.ask_for_lock(name.into(), true).await
    }

    /// As [`Group::lock`], for no longer than `timeout` of the node's clock.
    ///
    /// # Errors
    /// As [`Group::lock`], or the time was over before.
    pub async fn lock_timeout_async(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock<'_>, LockError> {
        let lock = self.ask_for_lock(name.into(), true);
        before(self.sleep(timeout), lock).await.unwrap_or(Err(LockError::Timeout(timeout)))
    }

    /// As [`Group::lock`], blocking the thread for no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Group::lock`], or the time was over before.
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

    /// As [`Group::lock`], but does not wait while another holds the lock.
    ///
    /// # Errors
    /// As [`Group::lock`], or another holds it; the error says who.
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

/// Where a group's locks are: in the ring.
pub(crate) struct Ring<'a> {
    pub(crate) now: Time,
    pub(crate) group: GroupId,
    pub(crate) engine: &'a mut Rmp,
}

impl Locks {
    /// A task wants a lock, and waits for it or not.
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

    /// Tasks wait for a lock no more: where no other does, the ring is told so.
    pub(crate) fn give_up(&mut self, ring: &mut Ring<'_>, name: LockName) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        local.waiting.retain(|reply| !reply.is_closed());
        if local.waiting.is_empty() && local.holder.is_none() {
            self.pass_on(ring, name);
        }
    }

    /// A task gives a lock back, if it still has it.
    pub(crate) fn give_back(&mut self, ring: &mut Ring<'_>, name: LockName, grant: u64) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        if local.holder.as_ref().is_some_and(|holder| holder.grant == grant) {
            local.holder = None;
            self.pass_on(ring, name);
        }
    }

    /// The ring says something about a lock.
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
            // It was given back here, and is asked for anew where somebody waits.
            LockChange::Released => {}
        }
    }

    /// No task of this node has the lock any more: others have their turn first.
    fn pass_on(&mut self, ring: &mut Ring<'_>, name: LockName) {
        if let Err(error) = ring.engine.unlock(ring.now, ring.group, name) {
            tracing::debug!(?name, %error, "a lock was not given back: it is lost");
        }
        self.ask_again(ring, name);
    }

    /// Asks for the lock for those who still wait; forgets it if nobody does.
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
    // Who does not wait any more need not be told.
    if let Err(TrySendError::Full(_)) = reply.try_send(Err(error)) {
        tracing::warn!("a lock was answered twice");
    }
}

/// Tasks of one node that wait for one lock.
const MAX_WAITING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::rmp::{Config, Partition};
    use carom_proto::{Engine, GroupSettings, NodeId, Profile};

    const GROUP: GroupId = GroupId(1);
    const LOCK: LockName = LockName(9);

    /// A ring of one, which is asked for locks; what it grants is made up.
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
    fn a_lock_that_was_lost_is_not_given_back_for_one_that_was_granted_by_the_same_number() {
        let now = Time(1_000_000_000);
        let mut locks = Locks::default();
        let (mut engine, mut later) = (engine(now), engine(now));
        let mut ring = Ring { now, group: GROUP, engine: &mut engine };
        let first = granted(&mut locks, &mut ring);
        locks.hear(&mut ring, LockNews { name: LOCK, change: LockChange::Lost });
        assert!(first.lost.is_closed());
        // The ring was begun anew, and its numbers with it.
        let mut ring = Ring { now, group: GROUP, engine: &mut later };
        let second = granted(&mut locks, &mut ring);
        locks.give_back(&mut ring, LOCK, first.number);
        assert!(!second.lost.is_closed(), "another task has it");
        locks.give_back(&mut ring, LOCK, second.number);
        assert!(second.lost.is_closed());
    }
}
