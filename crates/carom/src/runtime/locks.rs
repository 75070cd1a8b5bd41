use std::collections::{BTreeMap, VecDeque};

use async_channel::Sender;

use carom_proto::ring::{LockChange, LockName, LockNews};
use carom_proto::rmp::Rmp;
use carom_proto::{GroupId, Time};

use crate::shared::commands::{LockGrant, ReplySender};
use crate::shared::error::LockError;

/// The locks of one group. The ring receives one request of this node per lock, and the node's
/// tasks take turns.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    by_name: BTreeMap<LockName, LocalLock>,
    grants: u64,
}

#[derive(Debug, Default)]
struct LocalLock {
    holder: Option<Holder>,
    waiting: VecDeque<ReplySender<Result<LockGrant, LockError>>>,
}

#[derive(Debug)]
struct Holder {
    grant: u64,
    _lost: Sender<()>,
}

pub(crate) struct Ring<'a> {
    pub(crate) now: Time,
    pub(crate) group: GroupId,
    pub(crate) engine: &'a mut Rmp,
}

impl LockTable {
    pub(crate) fn request(
        &mut self,
        ring: &mut Ring<'_>,
        name: LockName,
        waits: bool,
        reply: ReplySender<Result<LockGrant, LockError>>,
    ) {
        if let Some(local) = self.by_name.get_mut(&name) {
            match (waits, local.waiting.len() < MAX_WAITING) {
                (true, true) => local.waiting.push_back(reply),
                (true, false) => refuse(reply, LockError::TooMany { asked: MAX_WAITING }),
                (false, _) => refuse(reply, LockError::HeldHere),
            }
            return;
        }
        let requested = match waits {
            true => ring.engine.lock(ring.now, ring.group, name),
            false => ring.engine.try_lock(ring.now, ring.group, name),
        };
        match requested {
            Ok(()) => {
                let waiting = VecDeque::from([reply]);
                self.by_name.insert(name, LocalLock { holder: None, waiting });
            }
            Err(error) => refuse(reply, error.into()),
        }
    }

    pub(crate) fn withdraw(&mut self, ring: &mut Ring<'_>, name: LockName) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        local.waiting.retain(|reply| !reply.is_closed());
        if local.waiting.is_empty() && local.holder.is_none() {
            self.pass_on(ring, name);
        }
    }

    pub(crate) fn release(&mut self, ring: &mut Ring<'_>, name: LockName, grant: u64) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        if local.holder.as_ref().is_some_and(|holder| holder.grant == grant) {
            local.holder = None;
            self.pass_on(ring, name);
        }
    }

    pub(crate) fn on_change(&mut self, ring: &mut Ring<'_>, news: LockNews) {
        let name = news.name;
        let Some(local) = self.by_name.get_mut(&name) else { return };
        match news.change {
            LockChange::Granted { fence } => {
                while let Some(reply) = local.waiting.pop_front() {
                    let (sender, lost) = async_channel::bounded(1);
                    let grant = self.grants;
                    if reply.send(Ok(LockGrant { fence, number: grant, lost })).is_ok() {
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
                    refuse(reply, refused.clone());
                }
                self.request_again(ring, name);
            }
            LockChange::Lost => {
                if let Some(local) = self.by_name.remove(&name) {
                    local.waiting.into_iter().for_each(|reply| refuse(reply, LockError::Lost));
                }
            }
            // The lock was released here, and was requested again if tasks are waiting.
            LockChange::Released => {}
        }
    }

    /// Releases a lock that no local task holds. Waiting tasks have their turn after other nodes.
    fn pass_on(&mut self, ring: &mut Ring<'_>, name: LockName) {
        if let Err(error) = ring.engine.unlock(ring.now, ring.group, name) {
            tracing::debug!(?name, %error, "cannot release a lock that is already lost");
        }
        self.request_again(ring, name);
    }

    fn request_again(&mut self, ring: &mut Ring<'_>, name: LockName) {
        let Some(local) = self.by_name.get_mut(&name) else { return };
        local.waiting.retain(|reply| !reply.is_closed());
        if local.waiting.is_empty() {
            self.by_name.remove(&name);
            return;
        }
        if let Err(error) = ring.engine.lock(ring.now, ring.group, name)
            && let Some(local) = self.by_name.remove(&name)
        {
            local.waiting.into_iter().for_each(|reply| refuse(reply, error.into()));
        }
    }
}

fn refuse(reply: ReplySender<Result<LockGrant, LockError>>, error: LockError) {
    reply.send_if_wanted(Err(error));
}

const MAX_WAITING: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::rmp::{Config, Rmp};

    use carom_proto::ring::{Quorum, Timestamp};
    use carom_proto::{Engine, GroupSettings, NodeId, Profile};

    const GROUP: GroupId = GroupId(1);
    const LOCK: LockName = LockName(9);

    /// Creates a ring of one member. The tests make up its grants.
    fn engine(now: Time) -> Rmp {
        let mut engine = Rmp::new(NodeId(1), Config::default(), 1);
        let settings = GroupSettings::new("jobs", Profile::Ordered(Quorum::Majority));
        engine.join(now, GROUP, settings).expect("an ordered group");
        engine
    }

    fn granted(locks: &mut LockTable, ring: &mut Ring<'_>) -> LockGrant {
        let (reply, answer) = ReplySender::channel();
        locks.request(ring, LOCK, true, reply);
        let change = LockChange::Granted { fence: Timestamp(5) };
        locks.on_change(ring, LockNews { name: LOCK, change });
        answer.try_recv().expect("a reply").expect("it is granted")
    }

    #[test]
    fn lost_lock_does_not_release_a_later_grant() {
        let now = Time(1_000_000_000);
        let mut locks = LockTable::default();
        let (mut engine, mut later) = (engine(now), engine(now));
        let mut ring = Ring { now, group: GROUP, engine: &mut engine };
        let first = granted(&mut locks, &mut ring);
        locks.on_change(&mut ring, LockNews { name: LOCK, change: LockChange::Lost });
        assert!(first.lost.is_closed());
        // The ring was formed anew, so its fences start again.
        let mut ring = Ring { now, group: GROUP, engine: &mut later };
        let second = granted(&mut locks, &mut ring);
        locks.release(&mut ring, LOCK, first.number);
        assert!(!second.lost.is_closed(), "another task has it");
        locks.release(&mut ring, LOCK, second.number);
        assert!(second.lost.is_closed());
    }
}
