//! One node with its groups' queues and the callers that wait for its replies, over any network.

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

/// Runtime of one node, run by a driver. Over sockets, a turn first drains the sockets. Then the
/// timers, the publishers and the engines run, and their packets are sent.
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

/// Initial parts of a host.
pub(crate) struct Founding {
    pub(crate) lateral: lateral::Config,
    pub(crate) ordered: rmp::Config,
    pub(crate) bulk: rdcm::Config,
    pub(crate) guest: Option<Box<dyn Engine>>,
    pub(crate) membership: Box<dyn Membership>,
    pub(crate) origin: Origin,
    pub(crate) seed: u64,
    /// Seeds given by the caller, one of which must answer.
    pub(crate) seeds: Vec<String>,
    /// Membership services given by the caller, one of which must answer.
    pub(crate) controls: Vec<String>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) first_status: Status,
    pub(crate) queue_events: usize,
}

/// State that changes while a host runs.
#[derive(Debug, Default)]
struct State {
    groups: BTreeMap<GroupId, HostedGroup>,
    /// Groups with queued messages, served in turn.
    active: VecDeque<GroupId>,
    /// Groups whose first message the engine did not accept.
    held: Vec<GroupId>,
    /// Groups with events that are not handed over yet.
    fresh: BTreeSet<GroupId>,
    joins: PendingJoins,
    confirms: Vec<PendingConfirm>,
    /// Callers that wait for answers, by group and number of the request.
    calls: BTreeMap<(GroupId, u32), Caller>,
    /// Callers of ring queries.
    looks: BTreeMap<LookId, Looker>,
    /// Groups that the application has left and the node has not, each with its multicast address,
    /// which is still received.
    leaving: BTreeMap<GroupId, Option<Ipv4Addr>>,
    /// Shutdown in progress, while the node leaves its groups.
    closing: Option<Closing>,
    /// Counters of groups that were left.
    left: Stats,
    has_met_anyone: bool,
    /// Size in bytes of the largest packet that the engines make.
    path_mtu: u16,
    /// `true` if a command or a writable socket requires a turn.
    is_called: bool,
}

/// A node that is about to be gone.
#[derive(Debug)]
struct Closing {
    /// Time at which it goes, even if it has not left all groups.
    deadline: Time,
    reply: Latch<()>,
}

impl<N: Network> Host<N> {
    /// Returns the host, and the parts for the handles of its node.
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

    /// Handles what the membership knows from the start, which it reports with the first call.
    pub(crate) fn begin(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.take_events(now);
    }

    /// Returns the time of the next turn; `now` if there is work already.
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

    /// Runs the timers, the publishers and the engines, and answers waiting callers.
    pub(crate) fn serve(&mut self, now: Time) {
        self.handle_timeouts(now);
        // After a removal from a ring, later messages begin with the same numbers as earlier ones.
        // The outcome of the earlier ones must be reported before the later ones are sent.
        self.take_events(now);
        self.publish(now);
        // The application receives a message before its sender receives the confirmation: confirmed
        // means delivered.
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

    /// Adopts `endpoint` as the node's new endpoint.
    fn on_move(&mut self, now: Time, endpoint: SocketAddr) {
        self.first_status.endpoint = endpoint;
        self.endpoint.set(endpoint);
        if !self.node.set_endpoint(now, Endpoint(endpoint)) {
            let text =
                format!("the other nodes are not notified of this node's new endpoint {endpoint}");
            let fix = Some("restart this node".to_owned());
            self.notices.add(Notice { text, fix, is_routine: false });
        }
    }

    /// Serves the groups in turn, each with a share of messages, up to a limit after which the
    /// sockets are drained again.
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

    /// Sets the limits of new packets to the current path MTU.
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
    /// Registers the sockets. `token` is the first token of this host.
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

    /// Handles a socket that has become readable or writable.
    pub(crate) fn on_socket(&mut self, which: usize, is_writable: bool) {
        self.state.is_called = true;
        self.network.on_socket(which, is_writable);
    }

    /// Returns the latest time of the driver's next turn; `now` if there is work already.
    pub(crate) fn wakeup(&self, now: Time) -> Option<Time> {
        if self.network.is_readable() { Some(now) } else { self.due(now) }
    }

    pub(crate) fn has_work(&self, now: Time) -> bool {
        let is_due = self.wakeup(now).is_some_and(|due| due <= now);
        is_due || self.state.is_called || !self.ready.is_empty()
    }

    /// Executes the membership's link commands. A link that cannot be opened is reported at once,
    /// which may cause more work.
    pub(crate) fn carry_links(&mut self, now: Time, registry: &Registry) {
        self.network.links.carry(now, registry, &mut self.node);
        self.take_events(now);
    }

    /// Does all pending work of the node.
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

/// Maximum number of messages that a group publishes before another group's turn: enough to send
/// them together.
const SHARE: usize = 32;
/// Maximum number of messages that are published before the sockets are drained again.
const MESSAGES_PER_TURN: usize = 256;
