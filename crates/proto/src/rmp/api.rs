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
use crate::OrderedGroups;
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

impl OrderedGroups for Rmp {
    fn has(&self, group: GroupId) -> bool {
        self.member(group).is_some()
    }

    fn poll_ended(&mut self) -> Option<GroupId> {
        self.ended.pop_first()
    }

    fn view(&self, group: GroupId) -> Option<&RingView> {
        self.member(group)?.ring().map(Ring::view)
    }

    fn token(&self, group: GroupId) -> Option<Process> {
        self.member(group)?.ring().map(Ring::token)
    }

    fn is_working(&self, group: GroupId) -> bool {
        self.member(group).and_then(|it| it.session.as_ref()).is_some_and(Session::is_working)
    }

    fn unreliable_limit(&self) -> usize {
        self.config.fragment_bytes()
    }

    fn join_with(
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

    fn lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.act(now, group, LockError::NotJoined, |it, _, _| it.lock(name, true))
    }

    fn try_lock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.act(now, group, LockError::NotJoined, |it, _, _| it.lock(name, false))
    }

    fn unlock(&mut self, now: Time, group: GroupId, name: LockName) -> Result<(), LockError> {
        self.act(now, group, LockError::NotJoined, |it, _, _| it.unlock(name))
    }

    fn request(
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

    fn reply(
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

    fn force_quorum(&mut self, now: Time, group: GroupId, epoch: Epoch, lost: Vec<NodeId>) {
        let (node, origin) = (self.id, self.origin);
        let packet = Packet::ForceQuorum { epoch, lost };
        let destination = Destination::Group(group);
        let transmit = Transmit { destination, class: Class::Control };
        self.outbox.push(transmit, |out| packet.encode(out, group, origin, epoch.version));
        self.with(now, group, |state, cx| state.on_packet(cx, node, packet));
    }

    fn query(
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

    fn poll_query(&mut self) -> Option<QueryResult> {
        self.queries.over.pop_front()
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
