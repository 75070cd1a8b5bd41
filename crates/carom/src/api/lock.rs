use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use carom_proto::ring::LockName;

use super::group::Group;
use super::handle::GroupHandle;
use crate::shared::commands::{LockGrant, NodeCommand};
use crate::shared::error::LockError;
use crate::shared::sleep::before;

/// A lock of an ordered group, released when this handle is dropped.
///
/// The lock is lost earlier if this node leaves the group or is removed from its ring. Pass
/// [`Lock::fence`] with each write to a shared resource.
#[derive(Debug)]
pub struct Lock {
    pub(super) group: Arc<GroupHandle>,
    name: LockName,
    grant: LockGrant,
}

impl Lock {
    /// Returns the name of the lock.
    pub fn name(&self) -> LockName {
        self.name
    }

    /// Returns the fence: a number that increases with each grant of the lock.
    ///
    /// The resource that the lock protects must remember the largest fence it has seen, and reject
    /// smaller ones. Fences keep increasing across reformations of the ring. They restart with a
    /// new ring: after all members have left or failed at once, or after
    /// [`Removal::Merged`](crate::Removal::Merged). Separate rings number their grants
    /// independently.
    pub fn fence(&self) -> u64 {
        self.grant.fence.0
    }

    /// Returns `true` unless the lock is known to be lost.
    pub fn is_held(&self) -> bool {
        !self.grant.lost.is_closed()
    }

    /// Waits until the lock is lost: this node is no longer in the ring or is closed.
    pub async fn lost(&self) {
        let _ = self.grant.lost.recv().await;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        release(&self.group, self.name, &self.grant);
    }
}

struct PendingLock {
    group: Arc<GroupHandle>,
    name: LockName,
    answer: Receiver<Result<LockGrant, LockError>>,
    is_answered: bool,
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // From here on, the runtime finds the channel closed.
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(grant)) => release(&self.group, self.name, &grant),
            Ok(Err(_)) => {}
            Err(_) => {
                let (shared, name) = (self.group.shared(), self.name);
                self.group.node.driver.send(NodeCommand::WithdrawLock { shared, name });
            }
        }
    }
}

impl Group {
    /// Waits for a lock of an ordered group. The lock is granted to nodes in the order of their
    /// requests. The tasks of one node take turns, between which other nodes may hold the lock.
    ///
    /// The name of a lock is a string or a [`Handler`](crate::Handler). Dropping the future
    /// withdraws the request.
    ///
    /// # Errors
    /// Returns an error if the group is not ordered or is closed, this node was removed from the
    /// ring, it holds or has requested too many locks, or the group has too many.
    pub async fn lock(&self, name: impl Into<LockName>) -> Result<Lock, LockError> {
        self.request_lock(name.into(), true).await
    }

    /// Like [`Group::lock`], but waits for at most `timeout` by the node's clock.
    ///
    /// # Errors
    /// See [`Group::lock`]; also if the lock was not granted within `timeout`.
    pub async fn lock_timeout(
        &self,
        name: impl Into<LockName>,
        timeout: Duration,
    ) -> Result<Lock, LockError> {
        let lock = self.request_lock(name.into(), true);
        before(self.handle().node.sleep(timeout), lock)
            .await
            .unwrap_or(Err(LockError::Timeout(timeout)))
    }

    /// Like [`Group::lock`], but does not wait while another node or task holds the lock.
    ///
    /// # Errors
    /// See [`Group::lock`]; also if the lock is held, or this node has already requested it.
    pub async fn lock_if_free(&self, name: impl Into<LockName>) -> Result<Lock, LockError> {
        self.request_lock(name.into(), false).await
    }

    async fn request_lock(&self, name: LockName, waits: bool) -> Result<Lock, LockError> {
        let group = Arc::clone(self.handle());
        if !group.shared.profile.is_ordered() {
            return Err(LockError::NoLocks);
        }
        let shared = group.shared();
        let answer = group.node.call(|reply| NodeCommand::Lock { shared, name, waits, reply });
        let mut pending =
            PendingLock { group: Arc::clone(&group), name, answer, is_answered: false };
        let answer = pending.answer.recv().await;
        pending.is_answered = true;
        Ok(Lock { group, name, grant: answer.unwrap_or(Err(LockError::Closed))? })
    }
}

fn release(group: &GroupHandle, name: LockName, grant: &LockGrant) {
    let (shared, grant) = (group.shared(), grant.number);
    group.node.driver.send(NodeCommand::Unlock { shared, name, grant });
}
