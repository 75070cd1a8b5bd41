use alloc::collections::BTreeMap;

use super::config::Config;
use super::context::{Context, Timer};
use super::identity::Identity;
use super::packet::Packet;
use super::peers::Peers;
use super::swim::Swim;
use crate::NodeId;

#[derive(Default)]
pub(super) struct Challenges(BTreeMap<NodeId, Challenge>);

struct Challenge {
    identity: Identity,
    incarnation: u16,
    own: bool,
    requests_left: u32,
}

/// Mean number of nodes that defend a member.
const ADVOCATES: usize = 3;

impl Challenges {
    pub(super) fn begin_own(
        &mut self,
        cx: &mut Context,
        swim: &Swim,
        identity: Identity,
        incarnation: u16,
    ) {
        let requests_left = swim.requests_to_suspect();
        self.begin(cx, Challenge { identity, incarnation, own: true, requests_left });
    }

    /// Challenges a suspected member that this node has heard recently.
    pub(super) fn defend(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        swim: &Swim,
        (identity, incarnation): (Identity, u16),
    ) {
        let lately = cx.now.before(cx.config.freshness());
        if peers.is_live(identity.node)
            && swim.is_suspected(identity, incarnation)
            && swim.has_heard(identity.node, lately)
            && cx.rng.below(peers.live().len()) < ADVOCATES
        {
            cx.counters.hearsay_challenged += 1;
            let requests_left = Config::CHALLENGES;
            self.begin(cx, Challenge { identity, incarnation, own: false, requests_left });
        }
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Context, swim: &mut Swim, node: NodeId) {
        let Some(challenge) = self.0.get_mut(&node) else { return };
        let Challenge { identity: suspect, incarnation, own, requests_left } = *challenge;
        challenge.requests_left = requests_left.saturating_sub(1);
        let is_suspected = swim.is_suspected(suspect, incarnation);
        if !is_suspected && own {
            cx.counters.suspicions_refuted += 1;
            swim.was_wrong();
        }
        if !is_suspected || requests_left == 0 {
            self.0.remove(&node);
            return;
        }
        let by = swim.identity();
        cx.send(suspect.endpoint, &Packet::Suspicion { by, suspect, incarnation });
        cx.timers.set(Timer::Challenge(node), cx.now + cx.config.challenge_period());
    }

    pub(super) fn cancel(&mut self, cx: &mut Context, node: NodeId) {
        self.0.remove(&node);
        cx.timers.cancel(Timer::Challenge(node));
    }

    fn begin(&mut self, cx: &mut Context, challenge: Challenge) {
        let node = challenge.identity.node;
        self.0.insert(node, challenge);
        cx.timers.set(Timer::Challenge(node), cx.now);
    }
}
