//! One node, its groups' queues and those who wait for its answers, over whatever network.

mod commands;
mod events;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_channel::Sender as Latch;
use carom_proto::membership::Membership;
use carom_proto::node::Node;
use carom_proto::rmp::LookId;
use carom_proto::{Endpoint, Engine, GroupId, NodeId, Origin, Time, Wakeup, lateral, rdcm, rmp};
use mio::Registry;

use crate::call::Caller;
use crate::clock::Clock;
use crate::hosted_group::{HostedGroup, Progress};
use crate::look::Looker;
use crate::network::Network;
use crate::node::{CurrentEndpoint, NodeParts, Notices};
use crate::outgoing::ReadyList;
use crate::pending_joins::PendingJoins;
use crate::receive::Landing;
use crate::status::{Notice, Stats, Status};
use crate::udp::UdpNetwork;
use crate::waiting::PendingConfirm;

/// All that one node needs, in the hands of whoever drives it. Over sockets a turn drains these
/// before anything else; then the timers, the publishers and the engines have their turn, and what
/// they have to send is sent.
pub(crate) struct Host<N> {
    pub(crate) node: Node,
    pub(crate) network: N,
    seeds: Vec<String>,
    controls: Vec<String>,
    ready: Arc<ReadyList>,
    notices: Arc<Notices>,
    settled: Arc<AtomicBool>,
    endpoint: Arc<CurrentEndpoint>,
    away: Arc<AtomicBool>,
    settling: Option<Latch<()>>,
    first_status: Status,
    queue_events: usize,
    state: State,
}

/// What a host begins with.
pub(crate) struct Founding {
    pub(crate) lateral: lateral::Config,
    pub(crate) ordered: rmp::Config,
    pub(crate) bulk: rdcm::Config,
    /// The caller's own engine, if there is one.
    pub(crate) guest: Option<Box<dyn Engine>>,
    pub(crate) membership: Box<dyn Membership>,
    /// The node, and which start of it.
    pub(crate) origin: Origin,
    /// Of the node's random choices.
    pub(crate) seed: u64,
    /// Seeds that were given, one of which must answer.
    pub(crate) seeds: Vec<String>,
    /// Membership services that were given, one of which must answer.
    pub(crate) controls: Vec<String>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) first_status: Status,
    pub(crate) queue_events: usize,
}

/// What changes while a host runs.
#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<GroupId, HostedGroup>,
    /// Groups whose queues have something, to be served in turn.
    active: VecDeque<GroupId>,
    /// Groups whose first message the engine did not take.
    held: Vec<GroupId>,
    /// Groups with events that are not handed over yet.
    fresh: BTreeSet<GroupId>,
    joins: PendingJoins,
    confirms: Vec<PendingConfirm>,
    /// Callers that wait for answers, by the group and the number of the request.
    calls: BTreeMap<(GroupId, u32), Caller>,
    /// Those who wait for what is to be seen of a group.
    looks: BTreeMap<LookId, Looker>,
    /// Groups that the application has left and the node has not, each with its multicast address:
    /// what is sent there still has to be heard.
    leaving: BTreeMap<GroupId, Option<Ipv4Addr>>,
    /// The end of the node, while it leaves its groups.
    closing: Option<Closing>,
    /// Counters of groups that were left.
    left: Stats,
    has_met_anyone: bool,
    /// Bytes of the largest packet that the engines make.
    path_mtu: u16,
    /// A command or a writable socket asks for a turn.
    is_called: bool,
}

/// A node that is about to be gone.
#[derive(Debug)]
struct Closing {
    /// When it goes, whatever it has not left by then.
    deadline: Time,
    reply: Latch<()>,
}

impl<N: Network> Host<N> {
    /// The host, and what the handles of its node know.
    pub(crate) fn new(founding: Founding, network: N) -> (Self, NodeParts) {
        let Founding { first_status, notices, .. } = founding;
        let (latch, settling) = async_channel::bounded(1);
        let (ready, settled) = (Arc::new(ReadyList::default()), Arc::new(AtomicBool::new(false)));
        let away = Arc::new(AtomicBool::new(false));
        let endpoint = Arc::new(CurrentEndpoint::new(first_status.endpoint));
        let node = Node::new(founding.origin, founding.lateral, founding.membership, founding.seed)
            .with_ordered(founding.ordered, founding.seed)
            .with_bulk(founding.bulk, founding.seed);
        let node = match founding.guest {
            Some(guest) => node.with_guest(guest),
            None => node,
        };
        let host = Self {
            node,
            network,
            seeds: founding.seeds,
            controls: founding.controls,
            ready: Arc::clone(&ready),
            notices: Arc::clone(&notices),
            settled: Arc::clone(&settled),
            endpoint: Arc::clone(&endpoint),
            away: Arc::clone(&away),
            settling: Some(latch),
            first_status: first_status.clone(),
            queue_events: founding.queue_events,
            state: State { is_called: true, ..State::default() },
        };
        (host, NodeParts { ready, notices, settled, endpoint, away, settling, first_status })
    }

    /// Takes what the membership knows from the start: it comes out with the first call.
    pub(crate) fn begin(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.take_events(now);
    }

    /// When the next turn is due; `now` if there is something to do already.
    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        let state = &self.state;
        if !state.active.is_empty() {
            return Some(now);
        }
        let joins = state.joins.next_deadline().into_iter();
        let confirms = state.confirms.iter().map(|it| it.deadline);
        let closing = state.closing.iter().map(|it| it.deadline);
        let waiting = joins.chain(confirms).chain(closing).min();
        let engines = Wakeup::earlier(self.node.poll_timeout(), self.network.poll_timeout());
        waiting.into_iter().chain(engines.map(|it| it.at)).min()
    }

    /// Lets the timers, the publishers, the engines and those who wait have their turn.
    pub(crate) fn serve(&mut self, now: Time) {
        self.handle_timeouts(now);
        // Who was removed from a ring hears what became of earlier messages before later ones,
        // which begin with the same numbers, are sent.
        self.take_events(now);
        self.publish(now);
        // The application has a message before its sender is told so: confirmed means there.
        self.take_events(now);
        self.transmit(now);
        self.answer_those_who_wait(now);
        self.transmit(now);
    }

    fn handle_timeouts(&mut self, now: Time) {
        if self.node.poll_timeout().is_some_and(|due| due.at <= now) {
            self.node.handle_timeout(now);
        }
        self.network.handle_timeout(now);
        if let Some(endpoint) = self.network.take_move() {
            self.on_move(now, endpoint);
        }
    }

    /// The node is reached at `endpoint` from now on.
    fn on_move(&mut self, now: Time, endpoint: SocketAddr) {
        self.first_status.endpoint = endpoint;
        self.endpoint.set(endpoint);
        if !self.node.set_endpoint(now, Endpoint(endpoint)) {
            let text = format!("the others are not told that this node is at {endpoint} now");
            let fix = Some("start it again".to_owned());
            self.notices.add(Notice { text, fix, is_routine: false });
        }
    }

    /// Serves the groups in turn, a share each, up to a limit after which the sockets come first
    /// again.
    fn publish(&mut self, now: Time) {
        let state = &mut self.state;
        self.ready.take(&mut state.active);
        state.active.extend(state.held.drain(..));
        let mut budget = MESSAGES_PER_TURN;
        while budget > 0 {
            let Some(group) = state.active.pop_front() else { break };
            let Some(hosted) = state.groups.get_mut(&group) else { continue };
            let (taken, progress) = hosted.publish(&mut self.node, now, SHARE.min(budget));
            budget -= taken;
            match progress {
                Progress::Empty => {}
                Progress::More => state.active.push_back(group),
                Progress::Held => state.held.push(group),
            }
        }
    }

    fn transmit(&mut self, now: Time) {
        self.follow_path_mtu();
        self.network.transmit(now, &mut self.node);
    }

    /// What is cut from now on fits the paths as they are known now.
    fn follow_path_mtu(&mut self) {
        let bytes = self.network.path_mtu();
        if std::mem::replace(&mut self.state.path_mtu, bytes) == bytes {
            return;
        }
        self.node.set_path_mtu(bytes);
        let unreliable = self.node.ordered().unreliable_limit();
        self.state.groups.values().for_each(|it| it.shared.set_unreliable_limit(unreliable));
    }

    fn members_of(&self, group: GroupId) -> Vec<NodeId> {
        self.node.members(group)
    }
}

impl Host<UdpNetwork> {
    /// Registers the sockets; `token` is the first of those of this host.
    pub(crate) fn attach(
        &mut self,
        now: Time,
        registry: &Registry,
        token: usize,
    ) -> io::Result<()> {
        self.network.attach(registry, token)?;
        self.begin(now);
        Ok(())
    }

    /// One of the sockets can be read or written.
    pub(crate) fn on_socket(&mut self, which: usize, is_writable: bool) {
        self.state.is_called = true;
        self.network.on_socket(which, is_writable);
    }

    /// When the driver must come back at the latest; `now` if there is something to do already.
    pub(crate) fn wakeup(&self, now: Time) -> Option<Time> {
        if self.network.is_readable() { Some(now) } else { self.due(now) }
    }

    /// Whether there is something to do at `now`.
    pub(crate) fn has_work(&self, now: Time) -> bool {
        let is_due = self.wakeup(now).is_some_and(|due| due <= now);
        is_due || self.state.is_called || !self.ready.is_empty()
    }

    /// Does what the membership wants done with its links. A link that cannot be had is told at
    /// once, which may change what there is to do.
    pub(crate) fn carry_links(&mut self, now: Time, registry: &Registry) {
        self.network.links.carry(now, registry, &mut self.node);
        self.take_events(now);
    }

    /// Does whatever there is to do.
    pub(crate) fn turn(&mut self, clock: &Clock, landing: &mut Landing, registry: &Registry) {
        self.state.is_called = false;
        self.network.receive(landing);
        let now = clock.now();
        self.network.handle_datagrams(now, &mut self.node);
        self.network.links.receive(now, registry, &mut self.node);
        self.serve(now);
        self.carry_links(now, registry);
        self.network.await_room_to_send(registry);
    }
}

/// Messages that a group may publish before it is another group's turn: enough to leave together.
const SHARE: usize = 32;
/// Messages that are published before the sockets are drained again.
const MESSAGES_PER_TURN: usize = 256;
