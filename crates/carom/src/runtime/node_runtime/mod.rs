mod command;
mod events;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use async_channel::Sender as Latch;
use carom_proto::membership::Membership;
use carom_proto::node::Node;
use carom_proto::{Endpoint, Engine, NetworkChange, Origin, Time, Wakeup, lateral, rdcm, rmp};
use mio::Registry;

use super::calls::Calls;
use super::clock::Clock;
use super::confirms::Confirms;
use super::groups::Groups;
use super::pending_joins::PendingJoins;
use super::send_schedule::SendSchedule;
use crate::net::network::Network;
use crate::net::receive::RecvBuffer;
use crate::net::udp::UdpNetwork;
use crate::shared::commands::ReplySender;
use crate::shared::node::NodeState;
use crate::shared::notices::{Notice, NoticeLog};
use crate::shared::status::Status;

pub(crate) struct NodeRuntime<N> {
    node: Node,
    network: N,
    state: Arc<NodeState>,
    settling: Option<Latch<()>>,
    queue_events: usize,
    groups: Groups,
    schedule: SendSchedule,
    joins: PendingJoins,
    confirms: Confirms,
    calls: Calls,
    closing: Option<Closing>,
    path_mtu: u16,
    /// `true` if a command or a socket requires a turn.
    is_called: bool,
}

pub(crate) struct NodeSpec {
    pub(crate) lateral: lateral::Config,
    pub(crate) ordered: rmp::Config,
    pub(crate) bulk: rdcm::Config,
    pub(crate) guest: Option<Box<dyn Engine>>,
    pub(crate) membership: Box<dyn Membership>,
    pub(crate) origin: Origin,
    pub(crate) seed: u64,
    pub(crate) seeds: Vec<String>,
    pub(crate) registries: Vec<String>,
    pub(crate) notices: Arc<NoticeLog>,
    pub(crate) first_status: Status,
    pub(crate) queue_events: usize,
}

#[derive(Debug)]
struct Closing {
    deadline: Time,
    reply: ReplySender<()>,
}

impl<N: Network> NodeRuntime<N> {
    pub(crate) fn new(spec: NodeSpec, network: N) -> (Self, Arc<NodeState>) {
        let (state, latch) = NodeState::new(spec.first_status, spec.notices);
        let state = Arc::new(state);
        let node = Node::new(spec.origin, spec.lateral, spec.membership, spec.seed)
            .with_ordered(spec.ordered, spec.seed)
            .with_bulk(spec.bulk, spec.seed);
        let node = match spec.guest {
            Some(guest) => node.with_guest(guest),
            None => node,
        };
        let runtime = Self {
            node,
            network,
            state: Arc::clone(&state),
            settling: Some(latch),
            queue_events: spec.queue_events,
            groups: Groups::default(),
            schedule: SendSchedule::default(),
            joins: PendingJoins::new(spec.seeds, spec.registries),
            confirms: Confirms::default(),
            calls: Calls::default(),
            closing: None,
            path_mtu: 0,
            is_called: true,
        };
        (runtime, state)
    }

    #[cfg(feature = "sim")]
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    #[cfg(feature = "sim")]
    pub(crate) fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    #[cfg(feature = "sim")]
    pub(crate) fn network_mut(&mut self) -> &mut N {
        &mut self.network
    }

    /// Handles the first timeout, with which the membership reports its initial knowledge.
    pub(crate) fn begin(&mut self, now: Time) {
        self.node.handle_timeout(now);
        self.dispatch_events(now);
    }

    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        if self.schedule.is_busy() {
            return Some(now);
        }
        let engines = Wakeup::earlier(self.node.poll_timeout(), self.network.poll_timeout());
        let waits = [
            self.joins.next_deadline(),
            self.confirms.next_deadline(),
            self.closing.as_ref().map(|it| it.deadline),
            engines.map(|it| it.at),
        ];
        waits.into_iter().flatten().min()
    }

    pub(crate) fn serve(&mut self, now: Time) {
        self.handle_timeouts(now);
        // After a removal from a ring, later messages begin with the same numbers as earlier ones.
        // Therefore, the outcome of the earlier messages is reported before later ones are sent.
        self.dispatch_events(now);
        self.schedule.publish(now, &self.state.ready, &mut self.groups, &mut self.node);
        // The application receives a message before its sender receives the confirmation, so that
        // confirmed means delivered.
        self.dispatch_events(now);
        self.transmit(now);
        self.answer_callers(now);
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

    fn on_move(&mut self, now: Time, endpoint: SocketAddr) {
        self.state.set_endpoint(endpoint);
        if !self.node.set_endpoint(now, Endpoint(endpoint)) {
            let text = format!(
                "the other nodes are not notified of the new endpoint {endpoint} of this node"
            );
            self.state.notices.add(Notice::with_fix(text, "restart this node"));
        }
    }

    fn transmit(&mut self, now: Time) {
        let bytes = self.network.path_mtu();
        if std::mem::replace(&mut self.path_mtu, bytes) != bytes {
            self.node.handle_network(now, &NetworkChange::PathMtu(bytes));
            let unreliable = self.node.engines().ordered.unreliable_limit();
            for group in self.groups.iter() {
                group.shared.unreliable_limit.store(unreliable, Relaxed);
            }
        }
        self.network.transmit(now, &mut self.node);
    }
}

impl NodeRuntime<UdpNetwork> {
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

    pub(crate) fn on_socket(&mut self, which: usize, is_writable: bool) {
        self.is_called = true;
        self.network.on_socket(which, is_writable);
    }

    pub(crate) fn wakeup(&self, now: Time) -> Option<Time> {
        if self.network.is_readable() { Some(now) } else { self.due(now) }
    }

    pub(crate) fn has_work(&self, now: Time) -> bool {
        let is_due = self.wakeup(now).is_some_and(|due| due <= now);
        is_due || self.is_called || !self.state.ready.is_empty()
    }

    /// Executes the link commands. A link that cannot be opened may cause more work at once.
    pub(crate) fn carry_links(&mut self, now: Time, registry: &Registry) {
        self.network.carry_links(now, registry, &mut self.node);
        self.dispatch_events(now);
    }

    pub(crate) fn flush(&mut self) {
        self.network.flush();
    }

    pub(crate) fn turn(&mut self, clock: &Clock, buffer: &mut RecvBuffer, registry: &Registry) {
        self.is_called = false;
        self.network.receive(buffer);
        let now = clock.now();
        self.network.handle_datagrams(now, &mut self.node);
        self.network.receive_links(now, registry, &mut self.node);
        self.serve(now);
        self.carry_links(now, registry);
        self.network.await_room_to_send(registry);
    }
}

#[cfg(test)]
mod tests;
