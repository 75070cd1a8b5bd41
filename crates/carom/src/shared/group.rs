use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use carom_proto::ring::{Qos, Quorum};
use carom_proto::{GroupId, NodeId, Profile as Engine, View, ViewChange};
use event_listener::Event as Signal;

use super::error::{GroupClosed, PublishError};
use super::event_queue::EventReceiver;
use super::profile::Profile;
use super::send_queue::SendQueue;

#[derive(Debug)]
pub(crate) struct GroupShared {
    pub(crate) name: String,
    pub(crate) id: GroupId,
    pub(crate) profile: Profile,
    pub(crate) limits: PayloadLimits,
    pub(crate) unreliable_limit: AtomicUsize,
    pub(crate) queue: Arc<SendQueue>,
    held_back: Mutex<Option<(NodeId, u32)>>,
    members: Mutex<View>,
    pub(crate) changed: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadLimits {
    pub(crate) message: usize,
    /// Initial limit for unreliable messages in an ordered group, in bytes. The limit follows the
    /// path MTU.
    pub(crate) unreliable: usize,
}

#[derive(Debug)]
pub(crate) struct GroupParts {
    pub(crate) shared: Arc<GroupShared>,
    pub(crate) events: EventReceiver,
}

impl GroupShared {
    pub(crate) fn new(name: &str, id: GroupId, profile: Profile, limits: PayloadLimits) -> Self {
        Self {
            name: name.into(),
            id,
            profile,
            limits,
            unreliable_limit: AtomicUsize::new(limits.unreliable),
            queue: Arc::default(),
            held_back: Mutex::new(None),
            members: Mutex::default(),
            changed: Signal::new(),
        }
    }

    pub(crate) fn limit(&self, qos: Option<Qos>) -> Result<usize, PublishError> {
        let quorum = match self.profile.settings() {
            Engine::Ordered(quorum) => Some(quorum),
            _ => None,
        };
        match (qos, quorum) {
            (Some(Qos::Unreliable), Some(_)) => Ok(self.unreliable_limit.load(Relaxed)),
            (Some(asked @ Qos::Resilient(0)), Some(_))
            | (Some(asked @ Qos::MajorityResilient), Some(Quorum::AtLeast(_)))
            | (Some(asked), None) => Err(PublishError::Qos { asked }),
            _ => Ok(self.limits.message),
        }
    }

    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).members().to_vec()
    }

    pub(crate) fn set_members(&self, members: Vec<NodeId>) {
        let members = View::from_iter(members);
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
        self.changed.notify(usize::MAX);
    }

    /// Applies a view change. The list is not copied, because the failure of a rack can change it
    /// thousands of times.
    pub(crate) fn change_members(&self, change: &ViewChange) {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).apply(change);
        self.changed.notify(usize::MAX);
    }

    pub(crate) async fn wait_for_members(&self, count: usize) -> Result<(), GroupClosed> {
        loop {
            // A change before the listener exists does not notify it, so the listener comes first.
            let change = self.changed.listen();
            if self.queue.is_closed() {
                return Err(GroupClosed);
            }
            if self.members().len() >= count {
                return Ok(());
            }
            change.await;
        }
    }

    pub(crate) fn set_held_back(&self, by: Option<(NodeId, u32)>) {
        *self.held_back.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    pub(crate) fn held_back(&self) -> Option<(NodeId, u32)> {
        *self.held_back.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
