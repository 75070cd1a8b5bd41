//! Reports of nodes about other nodes, and the rules for accepting them.
//!
//! A node's state changes only if the node itself reports the change from its own address, or if it
//! was queried there and did not answer. A report that another node is alive, has a new identity or
//! has stopped therefore only causes a query (a hello) to that node. The queries that one datagram
//! causes to addresses that have not answered are in total at most twice as large as the datagram.

use foca::{Header, Member, Message, State};

use super::Gossip;
use super::codec;
use super::context::Timer;
use super::identity::Identity;
use super::packet::Packet;
use super::peers::Source;
use crate::codec::Field;
use crate::wire::DecodeError;
use crate::{Endpoint, NodeId, ViewChangeKind};

impl Gossip {
    pub(super) fn is_from_sender(&mut self, source: Endpoint, sender: NodeId) -> bool {
        let now = self.cx.now;
        match self.peers.classify_source(&self.cx.config, now, source, sender) {
            Source::Own => true,
            Source::Moved(identity) => {
                self.on_moved(identity);
                true
            }
            Source::Foreign => false,
            Source::Contested(known) => {
                if self.paths.query(&mut self.cx, self.swim.identity(), known) {
                    self.peers.note_query(now, sender);
                }
                false
            }
        }
    }

    pub(super) fn on_swim(&mut self, source: Endpoint, sender: NodeId, mut payload: Vec<u8>) {
        let from = Identity::take(&mut &payload[..]).map(|from| from.filled_in(source));
        let Ok(from) = from.and_then(|from| {
            Identity::fill_in_front(&mut payload, source)?;
            Ok(from)
        }) else {
            self.cx.counters.datagrams_malformed += 1;
            return;
        };
        if from.node != sender || from.endpoint != source {
            self.cx.counters.datagrams_elsewhere += 1;
            return;
        }
        if self.is_full() && !self.peers.contains(sender) {
            self.cx.counters.nodes_refused += 1;
            return;
        }
        let now = self.cx.now;
        if !self.peers.may_bump(&self.cx.config, now, from) {
            self.cx.counters.hearsay_dropped += 1;
            return;
        }
        let Ok(payload) = self.verified(&payload) else {
            self.cx.counters.datagrams_malformed += 1;
            return;
        };
        let Some(payload) = payload else { return };
        let mut suspected = codec::suspected(&payload);
        suspected.retain(|(suspect, incarnation)| !self.swim.is_suspected(*suspect, *incarnation));
        self.swim.handle_payload(now, &payload);
        for suspicion in suspected {
            self.challenges.defend(&mut self.cx, &self.peers, &self.swim, suspicion);
        }
    }

    /// Removes the updates that are not accepted, or returns `None` if the message is dropped.
    fn verified(&mut self, payload: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        let mut rest = payload;
        let header = Header::<Identity>::take(&mut rest)?;
        let is_known = third_of(&header.message).is_none_or(|third| {
            third.node == self.cx.origin.node || self.peers.is_live(third.node)
        });
        // A declaration of death to a former identity of this node no longer applies.
        let is_obeyed = header.message != Message::TurnUndead
            || header.dst == self.swim.identity() && self.may_renew();
        if !is_obeyed {
            let at = self.cx.now + self.cx.config.probe_period();
            self.cx.timers.set_no_later(Timer::Rejoin, at);
        }
        if !is_known || !is_obeyed {
            self.cx.counters.hearsay_dropped += 1;
            return Ok(None);
        }
        let mut kept = payload[..payload.len() - rest.len()].to_vec();
        let updates = codec::updates(&mut rest)?;
        let Some(updates) = updates else { return Ok(Some(kept)) };
        let count = updates.len();
        let accepted: Vec<_> =
            updates.into_iter().filter_map(|member| self.accepted(&member)).collect();
        self.cx.counters.hearsay_dropped += (count - accepted.len()) as u64;
        accepted.put(&mut kept);
        Ok(Some(kept))
    }

    fn accepted(&mut self, update: &Member<Identity>) -> Option<Member<Identity>> {
        let identity = *update.id();
        let node = identity.node;
        if node == self.cx.origin.node {
            let is_own = identity.bump <= self.swim.identity().bump;
            let is_dead = update.state() == State::Down && identity == self.swim.identity();
            return (is_own && (!is_dead || self.may_renew())).then(|| update.clone());
        }
        if update.state() != State::Down {
            self.on_news(identity);
        }
        let known = self.peers.live_identity(node)?;
        if known.bump != identity.bump {
            return None;
        }
        let lately = self.cx.now.before(self.cx.config.challenge_period());
        let was_queried = self.swim.suspects(node) && !self.swim.has_heard(node, lately);
        if update.state() == State::Down && !was_queried {
            self.reports.add(&mut self.cx, known, ViewChangeKind::Failed);
            return None;
        }
        Some(Member::new(known, update.incarnation(), update.state()))
    }

    pub(super) fn hear_of_itself(&mut self, source: Endpoint, identity: Identity) {
        let node = identity.node;
        let known = self.peers.identity(node);
        let is_live = self.peers.is_live(node);
        let is_news = !is_live || known.is_none_or(|known| known.bump < identity.bump);
        if !is_news {
            return;
        }
        if identity.endpoint != source {
            self.cx.counters.datagrams_elsewhere += 1;
        } else if known.is_none() && self.is_full() {
            self.cx.counters.nodes_refused += 1;
        } else {
            self.swim.hear_of(self.cx.now, identity);
        }
    }

    pub(super) fn hear_of_other(&mut self, sender: NodeId, identity: Identity) {
        if identity.node == self.cx.origin.node {
            return;
        }
        if !self.departed.contains(identity.node) {
            self.on_news(identity);
        } else if let Some(to) = self.peers.identity(sender) {
            self.cx.send(to.endpoint, &Packet::Goodbye(identity.node));
        }
    }

    /// Queries a node of which another node has reported a new identity or a return.
    ///
    /// A node keeps its identity until it learns that it was declared dead. The known identity of a
    /// dead node can therefore be reported as alive again.
    fn on_news(&mut self, identity: Identity) {
        let known = self.peers.identity(identity.node);
        let is_live = self.peers.is_live(identity.node);
        let is_old = known.is_some_and(|known| {
            known.bump > identity.bump || is_live && known.bump == identity.bump
        });
        if is_old || self.departed.contains(identity.node) {
            return;
        }
        let at = match known {
            Some(known) if is_live => known,
            None if self.is_full() => {
                self.cx.counters.nodes_refused += 1;
                return;
            }
            _ => identity,
        };
        if at.is_reachable() {
            self.paths.query(&mut self.cx, self.swim.identity(), at.endpoint);
        } else {
            self.cx.counters.datagrams_malformed += 1;
        }
    }

    /// Announces this node to a random member. A member that considers this node dead replies so.
    pub(super) fn announce_again(&mut self) {
        let live = self.peers.live();
        let node = live.get(self.cx.rng.below(live.len().max(1)));
        if let Some(peer) = node.and_then(|node| self.peers.identity(*node)) {
            self.swim.announce(self.cx.now, peer);
        }
    }

    fn may_renew(&mut self) -> bool {
        self.renewals.take_own(self.cx.now, self.cx.config.probe_period())
    }
}

fn third_of(message: &Message<Identity>) -> Option<Identity> {
    match message {
        Message::PingReq { target, .. } | Message::IndirectAck { target, .. } => Some(*target),
        Message::IndirectPing { origin, .. } | Message::ForwardedAck { origin, .. } => {
            Some(*origin)
        }
        _ => None,
    }
}
