use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use super::context::{Context, Timer};
use super::counters::Counters;
use super::engine::{Rmp, Slot};
use super::group::Group;
use super::member::{Application, LocalMember, Session};
use super::packet::{FORWARD, NON_MEMBER_BYTES, Packet};
use super::query::Query;
use super::ring::Ring;
use super::rpc::{Client, ENVELOPE_BYTES, Guest};
use super::seen::MAX_WAITING;
use super::sender::Sender;
use super::terms::Terms;
use crate::ring::{
    Epoch, JoinOptions, ListChange, ListChangeKind, LockError, LockName, Place, Process, Qos,
    QueryError, QueryId, QueryOptions, QueryResult, ReplyError, RequestError, RequestId,
    RequestOptions, RingView,
};
use crate::{
    Class, Destination, GroupId, GroupSettings, JoinError, NodeId, Profile, Time, Transmit,
};

impl Rmp {
    /// Returns the counters, summed over all groups.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the place up to which this node has all packets, or `None` if it is not in a ring.
    pub fn reached(&self, group: GroupId) -> Option<Place> {
        self.member(group)?.ring().map(Ring::reached)
    }

    /// Sets the options that [`Engine::join`](crate::engine::Engine::join) uses.
    #[must_use]
    pub fn joining_with(self, options: JoinOptions) -> Self {
        Self { join_options: options, ..self }
    }

    /// Delays the token by `by` each time this node holds it, because the application is slow. The
    /// delay is capped at [`Config::largest_timeout`](super::Config::largest_timeout). Zero ends
    /// it.
    pub fn slow_down(&mut self, group: GroupId, by: Duration) {
        let member = self.groups.get_mut(&group).and_then(|slot| slot.group.member_mut());
        if let Some(member) = member {
            member.token_delay.by = by.min(self.config.largest_timeout);
        }
    }

    /// Returns `true` if this node is in the group or joining it, or has left but still answers.
    pub fn has(&self, group: GroupId) -> bool {
        self.member(group).is_some()
    }

    /// Returns the next group that this node no longer has because it left or was removed.
    pub fn poll_ended(&mut self) -> Option<GroupId> {
        self.ended.pop_first()
    }

    /// Returns this node's view of the ring of a group, or `None` if this node is not in a ring.
    pub fn view(&self, group: GroupId) -> Option<&RingView> {
        self.member(group)?.ring().map(Ring::view)
    }

    /// Returns the token holder of a group, or `None` if this node is not in a ring.
    pub fn token(&self, group: GroupId) -> Option<Process> {
        self.member(group)?.ring().map(Ring::token)
    }

    /// Returns `true` if this node's ring works: it is not being reformed and has its quorum.
    pub fn is_working(&self, group: GroupId) -> bool {
        self.member(group).and_then(|it| it.session.as_ref()).is_some_and(Session::is_working)
    }

    /// Returns the maximum size of an [unreliable](crate::ring::Qos::Unreliable) message, in bytes.
    /// Such a message must fit in one packet.
    pub fn unreliable_limit(&self) -> usize {
        self.config.fragment_bytes()
    }

    /// Joins a group like [`Engine::join`](crate::Engine::join), with options that apply only to
    /// this node.
    ///
    /// # Errors
    /// Returns an error if the group is not ordered, its settings are out of bounds, or the node is
    /// already in it.
    pub fn join_with(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
        options: JoinOptions,
    ) -> Result<(), JoinError> {
        let Profile::Ordered(quorum) = settings.profile else {
            return Err(JoinError::NoEngine { profile: settings.profile });
        };
        settings.profile.validate()?;
        if self.is_in(group) {
            return Err(JoinError::AlreadyJoined);
        }
        self.lives += 1;
        let me = Process { node: self.id, life: self.lives };
        let terms = Terms { quorum, name_check: settings.name_check, options };
        let client = match self.groups.remove(&group) {
            // The node has called the group as a guest. Its open requests become those of a member.
            Some(Slot { group: Group::Guest(guest), .. }) => guest.client,
            _ => Client::default(),
        };
        for timer in [Timer::Linger, Timer::Retransmit, Timer::Forget] {
            self.timers.cancel((group, timer));
        }
        let member = LocalMember::new(me, terms, &self.config, client);
        self.groups.insert(group, Group::Member(Box::new(member)).into());
        self.with(now, group, |state, cx| state.member_mut().map(|member| member.join(cx)));
        Ok(())
    }

    /// Requests a lock of a group.
    ///
    /// The lock is granted if it is free. Otherwise, this node waits behind all earlier requests.
    /// If [`Locks::MAX_ENTRIES`](crate::ring::Locks::MAX_ENTRIES) is reached, the request is
    /// refused. The outcome is reported by a [`RingNews::Lock`](crate::ring::RingNews::Lock). A
    /// joining node can already request locks.
    ///
    /// A node holds a lock only once, until it calls [`Self::unlock`] or leaves. If it is removed
    /// from the ring, its locks are reported as [lost](crate::ring::LockChange::Lost).
    ///
    /// # Errors
    /// Returns an error if the node is not in the group, has already requested the lock, or has too
    /// many requests.
    pub fn lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.act(now, group, LockError::NotJoined, |it, _, _| it.lock(name, true))
    }

    /// Requests a lock like [`Self::lock`], but does not wait. If another member holds the lock,
    /// the outcome is [`LockChange::Refused`](crate::ring::LockChange::Refused).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::lock`].
    pub fn try_lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.act(now, group, LockError::NotJoined, |it, _, _| it.lock(name, false))
    }

    /// Releases a lock, or stops waiting for it. The outcome is
    /// [`LockChange::Released`](crate::ring::LockChange::Released), unless the lock is requested
    /// again first.
    ///
    /// # Errors
    /// Returns an error if the node is not in the group, or has not requested the lock.
    pub fn unlock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.act(now, group, LockError::NotJoined, |it, _, _| it.unlock(name))
    }

    /// Sends a request to a group, as a member of it or as a node that is not in it.
    ///
    /// Every member receives the request as [`RingNews::Request`](crate::ring::RingNews::Request),
    /// and this node receives one [`RingNews::Answer`](crate::ring::RingNews::Answer). Without
    /// another answer in time, it is [`Unanswered`](crate::ring::Outcome::Unanswered).
    ///
    /// With a [handler](RequestOptions::handler), the answer is the reply of the holder of the
    /// handler's lock, or of the next holder if it fails. If the lock is free, the request waits
    /// for a holder. Without a handler, the answer acknowledges the delivery with the request's
    /// [guarantee](RequestOptions::qos). A request may be executed more than once
    /// ([`Request::may_be_done`](crate::ring::Request::may_be_done)).
    ///
    /// # Errors
    /// Returns an error if the request is too large, its guarantee is not available in the group,
    /// too many requests or bytes wait, or the node is leaving the group.
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
            Qos::Unreliable => self.config.fragment_bytes(),
            _ => self.config.message_bytes,
        };
        let limit = limit - ENVELOPE_BYTES - NON_MEMBER_BYTES;
        if payload.len() > limit {
            return Err(RequestError::TooLarge { bytes: payload.len(), limit });
        }
        let number = self.requests.next(group);
        if let Some(Slot { group: state, .. }) = self.groups.get(&group) {
            let waiting = state.sender().full_with(payload.len(), self.config.queue_bytes);
            let member = state.member();
            if member.is_some_and(|member| member.departure.is_leaving) {
                return Err(RequestError::Leaving);
            } else if member.is_some_and(|member| !member.terms.allows(qos)) {
                return Err(RequestError::Qos { asked: qos });
            } else if number.wrapping_sub(state.client().oldest(number)) >= MAX_WAITING {
                return Err(RequestError::TooMany { waiting: state.client().len() });
            } else if let Some(waiting_bytes) = waiting {
                return Err(RequestError::QueueFull { waiting_bytes });
            }
        } else {
            self.lives += 1;
            let me = Process { node: self.id, life: self.lives };
            let guest = Guest::new(me, Sender::new(&self.config));
            self.groups.insert(group, Group::Guest(Box::new(guest)).into());
        }
        self.requests.advance(group, |group| self.groups.contains_key(&group));
        self.with(now, group, |state, cx| match state {
            Group::Member(member) => {
                _ = member.act(cx, |it, cx, _| {
                    it.client.request(cx, &mut it.sender, number, payload, options);
                    it.client.set_timer(cx);
                    Ok::<_, RequestError>(())
                })
            }
            Group::Guest(guest) => guest.request(cx, number, payload, options),
        });
        Ok(RequestId { caller: self.id, number })
    }

    /// Replies once to a request that this member [has to answer](crate::ring::Request::is_ours).
    ///
    /// # Errors
    /// Returns an error if the node is not in the group, the request is not open, the reply is too
    /// large, or the send queue is full.
    pub fn reply(
        &mut self,
        now: Time,
        group: GroupId,
        request: RequestId,
        payload: Bytes,
    ) -> Result<(), ReplyError> {
        self.act(now, group, ReplyError::NotJoined, |it, cx, ring| {
            it.server.reply(cx, ring, &mut it.sender, request, payload)
        })
    }

    /// Requests that the members of a ring continue without a majority of its electorate. Only an
    /// operator who has verified that the other voters will not return should use this method: if
    /// they still work elsewhere, two rings order messages and grant locks from then on.
    ///
    /// `epoch` names the ring, as shown by a [query](Self::query). `lost` lists each of its voters
    /// that no longer answers. The ring is not forced if a voter that is not listed is silent, if a
    /// listed voter answers, or if the ring works. The view that follows has
    /// [`RingView::is_forced`] set.
    pub fn force_quorum(&mut self, now: Time, group: GroupId, epoch: Epoch, lost: Vec<NodeId>) {
        let (node, origin) = (self.id, self.origin);
        let packet = Packet::ForceQuorum { epoch, lost };
        let destination = Destination::Group(group);
        let transmit = Transmit { destination, class: Class::Control };
        self.outbox.push(transmit, |out| packet.encode(out, group, origin, epoch.version));
        self.with(now, group, |state, cx| state.on_packet(cx, node, packet));
    }

    /// Queries the rings of a group without becoming a member. A node that is in a ring of the
    /// group reports that ring and sends no query.
    ///
    /// [`Self::poll_query`] returns the result once no other ring has answered for some time, and
    /// at the latest after [`QueryOptions::patience`].
    ///
    /// # Errors
    /// Returns an error if too many of this node's queries are in progress or were not fetched.
    pub fn query(
        &mut self,
        now: Time,
        group: GroupId,
        options: QueryOptions,
    ) -> Result<QueryId, QueryError> {
        let id = self.queries.next_id()?;
        self.counters.looks_made += 1;
        let member = self.member(group).filter(|_| self.is_in(group));
        match member.and_then(|it| it.session.as_ref()).map(Session::snapshot) {
            Some(own) => self.queries.complete(id, group, &own),
            None => {
                let mut query = Query::new(now, id, group, options);
                self.send_query(now, &mut query);
                self.queries.open.push(query);
            }
        }
        Ok(id)
    }

    /// Returns the result of the next completed query, or `None` if there is none.
    pub fn poll_query(&mut self) -> Option<QueryResult> {
        self.queries.over.pop_front()
    }

    pub(super) fn repeat_queries(&mut self, now: Time) {
        for mut query in self.queries.take_due(now) {
            self.send_query(now, &mut query);
            self.queries.open.push(query);
        }
    }

    fn send_query(&mut self, now: Time, query: &mut Query) {
        let (group, node, origin) = (query.group, self.id, self.origin);
        let request = query.next_try(now, self.config.join_retry);
        let process = Process { node, life: self.lives };
        let change = ListChange { process, request, kind: ListChangeKind::Leave };
        let packet = Packet::ListChangeRequest { epoch: None, change };
        let via = query.options.via.filter(|via| *via != node).map(Destination::Node);
        for destination in [Some(Destination::Group(group)), via].into_iter().flatten() {
            let flags = if matches!(destination, Destination::Node(_)) { FORWARD } else { 0 };
            let transmit = Transmit { destination, class: Class::Control };
            self.outbox.push(transmit, |out| packet.encode_with(flags, out, group, origin, 0));
        }
    }

    pub(super) fn act<T, E>(
        &mut self,
        now: Time,
        group: GroupId,
        not_joined: E,
        request: impl FnOnce(&mut Application, &mut Context<'_>, Option<&Ring>) -> Result<T, E>,
    ) -> Result<T, E> {
        if !self.is_in(group) {
            return Err(not_joined);
        }
        let act = |state: &mut Group, cx: &mut Context<'_>| {
            state.member_mut().map(|member| member.act(cx, request))
        };
        self.with(now, group, act).flatten().unwrap_or(Err(not_joined))
    }
}

impl fmt::Debug for Rmp {
    /// Formats the state that affects the engine's behavior, without the [counters](Rmp::counters).
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
            join_options,
            requests,
            parts,
            queries,
            ended,
            max_mtu: _,
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
            .field("join_options", join_options)
            .field("requests", requests)
            .field("parts", parts)
            .field("queries", queries)
            .field("ended", ended)
            .finish()
    }
}
