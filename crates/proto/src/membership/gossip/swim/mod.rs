mod evidence;
mod health;

use alloc::collections::{BTreeMap, VecDeque};
use core::convert::Infallible;

use foca::{
    AccumulatingRuntime, Foca, Header, Member, Message, NoCustomBroadcast, OwnedNotification,
    State, Timer,
};
use rand_core::TryRng;

use self::evidence::Evidence;
use self::health::postpone;
use super::codec::SwimCodec;
use super::config::Config;
use super::identity::Identity;
use crate::codec::Field;
use crate::{Endpoint, NodeId, Rng, Time};

/// The SWIM state machine. The caller must take all events and datagrams after every call.
pub(super) struct Swim {
    foca: Foca<Identity, SwimCodec, SwimRng, NoCustomBroadcast>,
    runtime: AccumulatingRuntime<Identity>,
    timers: BTreeMap<(Time, u64), Scheduled>,
    timers_made: u64,
    evidence: Evidence,
    events: VecDeque<SwimEvent>,
    datagrams: VecDeque<(Identity, Vec<u8>)>,
    malformed: u64,
}

struct Scheduled {
    set_at: Time,
    timer: Timer<Identity>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwimEvent {
    Up(Identity),
    /// `found_here` is `true` if a suspicion held by this node has expired.
    Down {
        identity: Identity,
        found_here: bool,
    },
    Renamed(Identity),
    Suspected {
        identity: Identity,
        incarnation: u16,
    },
    /// Other nodes declared this node dead, and it has taken a new identity.
    Rejoined,
    Forgotten(Identity),
}

impl Swim {
    pub(super) fn new(identity: Identity, config: &Config, mut rng: Rng) -> Self {
        let evidence = Evidence::new(config, rng.next_u64());
        Self {
            foca: Foca::new(identity, config.swim(), SwimRng(rng), SwimCodec),
            runtime: AccumulatingRuntime::new(),
            timers: BTreeMap::new(),
            timers_made: 0,
            evidence,
            events: VecDeque::new(),
            datagrams: VecDeque::new(),
            malformed: 0,
        }
    }

    pub(super) fn identity(&self) -> Identity {
        *self.foca.identity()
    }

    pub(super) fn known(&self) -> usize {
        self.foca.iter_membership_state().len()
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = NodeId> {
        self.foca.iter_members().map(|member| member.id().node)
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.evidence.stats().chain([("swim_malformed", self.malformed)])
    }

    pub(super) fn listened_to(&self) -> usize {
        self.evidence.signs.len()
    }

    pub(super) fn requests_to_suspect(&self) -> u32 {
        self.evidence.requests_to_suspect()
    }

    pub(super) fn was_wrong(&mut self) {
        self.evidence.was_wrong();
    }

    pub(super) fn hear(&mut self, now: Time, node: NodeId) {
        self.evidence.signs.hear(now, node);
    }

    pub(super) fn has_heard(&self, node: NodeId, time: Time) -> bool {
        self.evidence.signs.any_after(node, time)
    }

    /// Postpones all timers if this call is late. Must be called before all other methods at `now`.
    pub(super) fn compensate_stall(&mut self, now: Time) {
        if let Some(due) = self.next_due()
            && let Some(span) = self.evidence.on_call(now, due)
        {
            postpone(&mut self.timers, span);
        }
    }

    pub(super) fn handle_payload(&mut self, now: Time, payload: &[u8]) {
        if let Ok(header) = Header::take(&mut &payload[..]) {
            self.evidence.on_received(&header);
        }
        let identity = self.identity();
        let result = self.foca.handle_data(payload, &mut self.runtime);
        self.malformed += u64::from(result.is_err());
        self.collect(now, false);
        if self.identity() != identity {
            self.probe_again(now);
        }
    }

    /// Resumes probing, because `foca` would wait until it hears a member, but all may be dead.
    fn probe_again(&mut self, now: Time) {
        // Applies no updates, but makes `foca` check its members.
        let result = self.foca.apply_many(core::iter::empty(), false, &mut self.runtime);
        self.malformed += u64::from(result.is_err());
        self.collect(now, false);
    }

    pub(super) fn set_endpoint(&mut self, now: Time, endpoint: Endpoint) -> bool {
        let Some(renewed) = foca::Identity::renew(&self.identity()) else { return false };
        let moved = Identity { endpoint, ..renewed };
        let result = self.foca.change_identity(moved, &mut self.runtime);
        self.collect(now, false);
        self.probe_again(now);
        result.is_ok()
    }

    pub(super) fn announce(&mut self, now: Time, to: Identity) {
        let result = self.foca.announce(to, &mut self.runtime);
        self.malformed += u64::from(result.is_err());
        self.collect(now, false);
    }

    pub(super) fn hear_of(&mut self, now: Time, identity: Identity) {
        self.apply(now, Member::alive(identity), false);
    }

    pub(super) fn bury(&mut self, now: Time, identity: Identity) {
        self.apply(now, Member::down(identity), false);
    }

    pub(super) fn refute(&mut self, now: Time, incarnation: u16) {
        let member = Member::new(self.identity(), incarnation, State::Suspect);
        self.apply(now, member, true);
    }

    pub(super) fn is_suspected(&self, identity: Identity, incarnation: u16) -> bool {
        let mut members = self.foca.iter_members();
        members.any(|member| {
            *member.id() == identity
                && member.incarnation() == incarnation
                && member.state() == State::Suspect
        })
    }

    pub(super) fn suspects(&self, node: NodeId) -> bool {
        let mut members = self.foca.iter_members();
        members.any(|member| member.id().node == node && member.state() == State::Suspect)
    }

    pub(super) fn obituary(&self, to: Identity, dead: Identity) -> Vec<u8> {
        let mut payload = payload_of(self.identity(), to, Message::Gossip);
        vec![Member::down(dead)].put(&mut payload);
        payload
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let Scheduled { set_at, timer } = entry.remove();
            let mut found_here = false;
            match &timer {
                Timer::RemoveDown(identity) => {
                    self.events.push_back(SwimEvent::Forgotten(*identity));
                }
                Timer::SendIndirectProbe { .. } => self.answer_probe(now),
                Timer::ProbeRandomMember(_) => {
                    self.answer_probe(now);
                    self.evidence.end_probe();
                }
                Timer::ChangeSuspectToDown { member_id, incarnation, .. } => {
                    // Foca 2.0 would keep a member that has refuted the suspicion, but would still
                    // notify the member of its death, upon which it would take a new identity.
                    if !self.is_suspected(*member_id, *incarnation) {
                        continue;
                    }
                    if self.evidence.withdraws(member_id.node, set_at) {
                        continue;
                    }
                    found_here = true;
                }
                _ => {}
            }
            // An error means that a stall interrupted the probe, which needs no handling.
            let _ = self.foca.handle_timer(timer, &mut self.runtime);
            self.collect(now, found_here);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<SwimEvent> {
        self.events.pop_front()
    }

    pub(super) fn poll_datagram(&mut self) -> Option<(Identity, Vec<u8>)> {
        self.datagrams.pop_front()
    }

    /// Passes a synthetic answer to `foca` if the probed member was heard in another way.
    fn answer_probe(&mut self, now: Time) {
        let Some((src, number)) = self.evidence.probe_to_answer() else { return };
        if !self.foca.iter_members().any(|member| *member.id() == src) {
            return;
        }
        let payload = payload_of(src, self.identity(), Message::Ack(number));
        let result = self.foca.handle_data(&payload, &mut self.runtime);
        self.malformed += u64::from(result.is_err());
        self.collect(now, false);
    }

    fn apply(&mut self, now: Time, member: Member<Identity>, reports: bool) {
        let members = core::iter::once(member);
        let result = self.foca.apply_many(members, reports, &mut self.runtime);
        self.malformed += u64::from(result.is_err());
        self.collect(now, false);
    }

    fn collect(&mut self, now: Time, found_here: bool) {
        while let Some((after, timer)) = self.runtime.to_schedule() {
            if let Timer::ChangeSuspectToDown { member_id, incarnation, .. } = &timer {
                let (identity, incarnation) = (*member_id, *incarnation);
                self.events.push_back(SwimEvent::Suspected { identity, incarnation });
            }
            let after = self.evidence.patience(&timer, after);
            let scheduled = Scheduled { set_at: now, timer };
            self.timers.insert((now + after, self.timers_made), scheduled);
            self.timers_made += 1;
        }
        while let Some(notification) = self.runtime.to_notify() {
            let event = match notification {
                OwnedNotification::MemberUp(identity) => {
                    self.evidence.signs.expect(identity.node);
                    SwimEvent::Up(identity)
                }
                OwnedNotification::MemberDown(identity) => {
                    self.evidence.signs.forget(identity.node);
                    SwimEvent::Down { identity, found_here }
                }
                OwnedNotification::Rename(_, new) => SwimEvent::Renamed(new),
                OwnedNotification::Rejoin(_) => SwimEvent::Rejoined,
                OwnedNotification::Active
                | OwnedNotification::Idle
                | OwnedNotification::Defunct => continue,
            };
            self.events.push_back(event);
        }
        while let Some((to, payload)) = self.runtime.to_send() {
            let payload = payload.to_vec();
            if let Ok(header) = Header::take(&mut &payload[..]) {
                self.evidence.on_sent(now, &header);
            }
            self.datagrams.push_back((to, payload));
        }
    }
}

/// Encodes a message with incarnation 0, which revokes nothing that is known about `src`.
fn payload_of(src: Identity, dst: Identity, message: Message<Identity>) -> Vec<u8> {
    Header { src, src_incarnation: 0, dst, message }.to_bytes()
}

struct SwimRng(Rng);

impl TryRng for SwimRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.next_u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.next_u64().to_be_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}
