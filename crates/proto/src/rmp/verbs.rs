//! Methods of this engine in addition to those of [`Engine`](crate::Engine).

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
    /// Sets the options that [`Engine::join`](crate::engine::Engine::join) uses.
    #[must_use]
    pub fn joining_with(self, options: JoinOptions) -> Self {
        Self { joining: options, ..self }
    }

    /// Delays the token at this member each time it arrives, and thereby the whole ring, because
    /// the application does not keep up. The delay is limited to
    /// [`Config::largest_timeout`](super::Config::largest_timeout). Zero ends it.
    pub fn slow_down(&mut self, group: GroupId, by: Duration) {
        if let Some(state) = self.groups.get_mut(&group) {
            state.slowness = by.min(self.config.largest_timeout);
        }
    }

    /// Returns the maximum size in bytes of a message that is sent [unreliably](Qos::Unreliable):
    /// one packet.
    pub fn unreliable_limit(&self) -> usize {
        self.config.piece_bytes()
    }

    /// Joins a group like [`Engine::join`](crate::Engine::join), but with the options of this node.
    ///
    /// # Errors
    /// The group is not an ordered one, its settings are out of bounds, or the node is already in
    /// it.
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
            // The node called the group before. Its requests are a member's from now on.
            state.calling = guest.calling.of_member();
        }
        self.groups.insert(group, state);
        self.with(now, group, |state, around| {
            state.make_all_again(around);
            state.begin_joining(around);
        });
        Ok(())
    }

    /// Requests a lock of a group.
    ///
    /// The lock is granted at once if it is free. Otherwise this node waits behind all earlier
    /// requests. The outcome is a [`RingNews::Lock`](super::RingNews::Lock): granted, or refused if
    /// the ring has its maximum number of locks. A node that is still joining may already request
    /// locks.
    ///
    /// One node holds a lock once, regardless of the number of its threads that want it. A lock is
    /// released by [`Rmp::unlock`] and by leaving. A node that is removed from the ring receives a
    /// report that its locks are [lost](super::LockChange::Lost).
    ///
    /// # Errors
    /// The node is not in the group, holds the lock or has requested it, or has requested too many.
    pub fn lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.of_member(now, group, |state, around| state.lock(around, name, true))
    }

    /// Requests a lock like [`Rmp::lock`], but does not wait. If another member holds it, the
    /// outcome is [`LockChange::Refused`](super::LockChange::Refused), as in the paper.
    ///
    /// # Errors
    /// The same as for [`Rmp::lock`].
    pub fn try_lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.of_member(now, group, |state, around| state.lock(around, name, false))
    }

    /// Releases a lock, or stops waiting for it. The outcome is
    /// [`LockChange::Released`](super::LockChange::Released). The lock may be requested again at
    /// once. The outcome of the release is then not reported.
    ///
    /// # Errors
    /// The node is not in the group, or has not requested the lock.
    pub fn unlock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.of_member(now, group, |state, around| state.unlock(around, name))
    }

    /// Sends a request to a group, as a member of it or as a node that is not in it.
    ///
    /// The request takes its place among the messages of the group. Every member receives it as
    /// [`RingNews::Request`](super::RingNews::Request), and this node receives the answer as
    /// [`RingNews::Answer`](super::RingNews::Answer).
    ///
    /// With a [handler](RequestOptions::handler), the answer is the reply of the member that holds
    /// the handler's lock. If that member fails, the next holder replies. If the lock is free, the
    /// request waits for a holder. Without a handler, the answer is an acknowledgment: the request
    /// was delivered with its [guarantee](RequestOptions::qos). There is one answer to each
    /// request, but it may be executed twice
    /// ([`Request::may_be_done`](super::Request::may_be_done)).
    ///
    /// # Errors
    /// The request is too large, its guarantee is not available in the group, or too many requests
    /// or bytes wait. A node that is leaving the group sends no requests.
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

    /// Replies once to a request that this member [has to answer](super::Request::is_ours).
    ///
    /// # Errors
    /// The node is not in the group, the request is not open, the reply is too large, or too many
    /// bytes wait to be sent.
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

    /// Returns `true` if this node is a member of the group or joins it.
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
    /// Formats everything that affects the engine's behavior, so that engines with equal output are
    /// in the same state. The [counters](Rmp::counters) are left out, because nothing depends on
    /// them.
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
