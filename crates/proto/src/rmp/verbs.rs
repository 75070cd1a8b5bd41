//! The verbs that this engine has beside those of [`Engine`](crate::Engine).

use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use super::around::{Around, Timer};
use super::calling::Calling;
use super::calls::{self, ReplyError, RequestError, RequestId, RequestOptions};
use super::group::Group;
use super::locks::{LockError, LockName};
use super::names::Process;
use super::qos::Qos;
use super::view::Partition;
use super::{JoinOptions, Rmp, Terms, packet};
use crate::{GroupId, GroupSettings, JoinError, Profile, Time};

impl Rmp {
    /// Joins groups with these options where [`Engine::join`](crate::engine::Engine::join) is used.
    #[must_use]
    pub fn joining_with(self, options: JoinOptions) -> Self {
        Self { joining: options, ..self }
    }

    /// The application does not keep up: the token waits so long at this member each time it comes
    /// by, and with it the whole ring. Zero when it keeps up again.
    pub fn slow_down(&mut self, group: GroupId, by: Duration) {
        if let Some(state) = self.groups.get_mut(&group) {
            state.slowness = by.min(self.config.largest_timeout);
        }
    }

    /// Bytes of the largest message that is sent [unreliably](Qos::Unreliable): one packet.
    pub fn unreliable_limit(&self) -> usize {
        self.config.piece_bytes()
    }

    /// Joins a group as [`Engine::join`](crate::Engine::join) does, with what only this node
    /// decides.
    ///
    /// # Errors
    /// The group is not an ordered one, or the node is in it already.
    pub fn join_with(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
        options: JoinOptions,
    ) -> Result<(), JoinError> {
        let Profile::Ordered(partition) = settings.profile else {
            return Err(JoinError::NoEngine { profile: settings.profile });
        };
        partition.validate()?;
        if self.is_in(group) {
            return Err(JoinError::AlreadyJoined);
        }
        self.lives += 1;
        let me = Process { node: self.id, life: self.lives };
        let JoinOptions { rejoin, is_multicast, via, is_voter } = options;
        let name_check = settings.name_check;
        let terms = Terms { partition, rejoin, is_multicast, via, is_voter, name_check };
        let guest = self.groups.remove(&group).filter(|state| state.is_of_guest());
        for timer in [Timer::Linger, Timer::Retransmit, Timer::Forget] {
            self.timers.cancel((group, timer));
        }
        let mut state = Group::new(me, terms, &self.config);
        if let Some(guest) = guest {
            // It was a caller before: from now on its requests are a member's.
            state.calling = guest.calling.of_member();
        }
        self.groups.insert(group, state);
        self.with(now, group, |state, around| {
            state.make_all_again(around);
            state.begin_joining(around);
        });
        Ok(())
    }

    /// Asks for a lock of a group. It is granted at once if nobody holds it; else this node waits,
    /// behind all who have asked before. [`RingNews::Lock`](super::RingNews::Lock) answers:
    /// granted, or refused where the ring has as many locks as it keeps. A node that is still
    /// joining may ask already.
    ///
    /// One node holds a lock once, whatever number of its threads want it. Locks are given back by
    /// [`Rmp::unlock`] and by leaving; who is removed from the ring is told that they are
    /// [lost](super::LockChange::Lost).
    ///
    /// # Errors
    /// The node is not in the group, holds the lock or has asked for it, or has asked for too many.
    pub fn lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.of_member(now, group, |state, around| state.lock(around, name, true))
    }

    /// Asks for a lock as [`Rmp::lock`] does, but does not wait: where another holds it the answer
    /// is [`LockChange::Refused`](super::LockChange::Refused), as in the paper.
    ///
    /// # Errors
    /// As with [`Rmp::lock`].
    pub fn try_lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.of_member(now, group, |state, around| state.lock(around, name, false))
    }

    /// Gives a lock back, or stops waiting for it; the answer is
    /// [`LockChange::Released`](super::LockChange::Released). It may be asked for again
    /// without waiting for the answer, which does not come then.
    ///
    /// # Errors
    /// The node is not in the group, or has not asked for the lock.
    pub fn unlock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.of_member(now, group, |state, around| state.unlock(around, name))
    }

    /// Makes a request to a group, as a member of it or as a node that is not in it. It takes its
    /// place among the messages of the group, and every member is told of it
    /// ([`RingNews::Request`](super::RingNews::Request)); what became of it is told too
    /// ([`RingNews::Answer`](super::RingNews::Answer)).
    ///
    /// With a [handler](RequestOptions::handler) the answer is the reply of whoever holds the
    /// handler's lock. If that member dies the next holder replies; if nobody holds the lock the
    /// request waits for somebody who does. Without a handler the answer is an acknowledgement:
    /// the request was delivered as its [level](RequestOptions::qos) says. There is one answer to
    /// each request; the [engine](super) says what may happen twice.
    ///
    /// # Errors
    /// The request is too large, its level is not one of the group's, or too many wait.
    pub fn request(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: RequestOptions,
    ) -> Result<RequestId, RequestError> {
        let qos = options.qos;
        if qos == Qos::Resilient(0) {
            return Err(RequestError::Qos { asked: qos });
        }
        let limit = match qos {
            Qos::Unreliable => self.config.piece_bytes(),
            _ => self.config.message_bytes,
        };
        let limit = limit - calls::ENVELOPE_BYTES - packet::NON_MEMBER_BYTES;
        if payload.len() > limit {
            return Err(RequestError::TooLarge { bytes: payload.len(), limit });
        }
        let number = self.requests.next(group);
        if let Some(state) = self.groups.get(&group) {
            let full = state.sending.full_with(payload.len(), self.config.queue_bytes);
            if state.is_leaving {
                return Err(RequestError::Leaving);
            } else if !state.is_of_guest() && !state.terms.allows(qos) {
                return Err(RequestError::Qos { asked: qos });
            } else if number.wrapping_sub(state.calling.oldest(number)) >= calls::MAX_WAITING {
                return Err(RequestError::TooMany { waiting: state.calling.len() });
            } else if let Some(waiting_bytes) = full {
                return Err(RequestError::QueueFull { waiting_bytes });
            }
        } else {
            self.lives += 1;
            let me = Process { node: self.id, life: self.lives };
            let terms = Terms {
                partition: Partition::AtLeast(1),
                rejoin: false,
                is_multicast: true,
                via: None,
                is_voter: false,
                name_check: 0,
            };
            let mut state = Group::new(me, terms, &self.config);
            state.calling = Calling::of_guest();
            self.groups.insert(group, state);
        }
        self.requests.advance(group, |group| self.groups.contains_key(&group));
        self.with(now, group, |state, around| state.request(around, number, payload, options));
        Ok(RequestId { caller: self.id, number })
    }

    /// Replies to a request that this member was told is [its to reply
    /// to](super::Request::is_ours), once.
    ///
    /// # Errors
    /// The node is not in the group, the request is not open, the reply is too large, or too much
    /// waits to be sent.
    pub fn reply(
        &mut self,
        now: Time,
        group: GroupId,
        request: RequestId,
        payload: Bytes,
    ) -> Result<(), ReplyError> {
        if !self.is_in(group) {
            return Err(ReplyError::NotJoined);
        }
        let replied = self.with(now, group, |state, cx| state.reply(cx, request, payload));
        replied.unwrap_or(Err(ReplyError::NotJoined))
    }

    /// Whether this node is a member of the group or joins it.
    pub(super) fn is_in(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|state| !state.is_leaving && !state.is_of_guest())
    }

    fn of_member(
        &mut self,
        now: Time,
        group: GroupId,
        call: impl FnOnce(&mut Group, &mut Around<'_>) -> Result<(), LockError>,
    ) -> Result<(), LockError> {
        if !self.is_in(group) {
            return Err(LockError::NotJoined);
        }
        self.with(now, group, call).unwrap_or(Err(LockError::NotJoined))
    }
}

impl fmt::Debug for Rmp {
    /// All that it will ever act on, so that engines of the same text are in the same state. Left
    /// out is what was [counted](Rmp::counters), which nothing follows from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            origin,
            config,
            rng,
            groups,
            timers,
            outbox,
            events,
            counters: _,
            lives,
            joining,
            requests,
            parts,
            looks,
            ended,
            most_mtu: _,
        } = self;
        f.debug_struct("Rmp")
            .field("id", id)
            .field("origin", origin)
            .field("config", config)
            .field("next_random", &rng.clone().next_u64())
            .field("groups", groups)
            .field("timers", timers)
            .field("outbox", outbox)
            .field("events", events)
            .field("lives", lives)
            .field("joining", joining)
            .field("requests", requests)
            .field("parts", parts)
            .field("looks", looks)
            .field("ended", ended)
            .finish()
    }
}
