//! Event loop of a registry process: passes events to the server, and carries out its commands.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::frame::MANAGER_PARTITION;
use carom_proto::membership::service::server::{Server, ServerConfig};
use carom_proto::{Endpoint, Time};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::sleep_until;
use crate::error::StoreError;
use crate::http::{LinkAnswer, StatusRequest};
use crate::links::{Arrival, Links};
use crate::status::{GroupStatus, Status, StatusContext};
use crate::store::{Store, StoreEvent};
use crate::tree_command::{CommandEnd, TreeCommands};

#[derive(Debug)]
pub(crate) struct Process<S: Store> {
    server: Server,
    config: ServerConfig,
    links: Links,
    /// Command that installs multicast trees, if any.
    trees: Option<TreeCommands>,
    store: S,
    address: SocketAddr,
    /// Current problem of the store, if any.
    trouble: watch::Sender<Option<String>>,
    begun: Instant,
}

/// Receivers of all events of a process. `R` is the report type of its store.
#[derive(Debug)]
pub(crate) struct Inputs<R> {
    pub(crate) accepted: mpsc::Receiver<(TcpStream, SocketAddr)>,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
    pub(crate) reports: mpsc::Receiver<R>,
    pub(crate) requests: mpsc::Receiver<StatusRequest>,
    pub(crate) commands: mpsc::Receiver<CommandEnd>,
    pub(crate) stop: oneshot::Receiver<()>,
}

enum Input<R> {
    Accepted(TcpStream, SocketAddr),
    Arrival(Arrival),
    Report(R),
    Request(StatusRequest),
    Command(CommandEnd),
    Time,
}

/// Maximum number of inputs of one kind handled before the server's commands are polled.
const BATCH: usize = 64;
/// Time limit for open requests, and then for queued data, when the process stops.
const STOP_WITHIN: Duration = Duration::from_millis(500);
/// Time limit for running commands that install trees, when the process stops.
const COMMANDS_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for the store to release its partitions. It is longer than the store's own limit.
const CLOSE_WITHIN: Duration = Duration::from_secs(4);

impl<S: Store> Process<S> {
    pub(crate) fn new(
        server: Server,
        config: ServerConfig,
        links: Links,
        trees: Option<TreeCommands>,
        store: S,
        address: SocketAddr,
        trouble: watch::Sender<Option<String>>,
    ) -> Self {
        Self { server, config, links, trees, store, address, trouble, begun: Instant::now() }
    }

    /// Serves until it is stopped, or until the store can no longer be used.
    pub(crate) async fn run(mut self, mut inputs: Inputs<S::Report>) -> Result<(), StoreError> {
        loop {
            self.run_commands();
            if let Some(error) = self.store.take_failure() {
                return Err(error);
            }
            let wakeup = self.server.poll_timeout().map(|wakeup| self.instant(wakeup.at));
            let due = wakeup.into_iter().chain(self.store.due()).min();
            let input = tokio::select! {
                Some(report) = inputs.reports.recv() => Input::Report(report),
                Some((stream, from)) = inputs.accepted.recv() => Input::Accepted(stream, from),
                Some(arrival) = inputs.arrivals.recv() => Input::Arrival(arrival),
                Some(request) = inputs.requests.recv() => Input::Request(request),
                Some(end) = inputs.commands.recv() => Input::Command(end),
                () = sleep_until(due) => Input::Time,
                _ = &mut inputs.stop => break,
            };
            // After a stall, lost partitions must be known before any request is answered.
            self.store.handle_time(Instant::now());
            self.forward_store_events();
            self.on_input(input, &mut inputs);
        }
        let _ = tokio::time::timeout(STOP_WITHIN, self.finish(&mut inputs)).await;
        // The last acknowledgments must be written before the runtime ends with its tasks.
        let _ = tokio::time::timeout(STOP_WITHIN, self.links.finish()).await;
        self.finish_trees(&mut inputs).await;
        if tokio::time::timeout(CLOSE_WITHIN, self.store.close()).await.is_err() {
            tracing::warn!("the store did not release the owned partitions in time");
        }
        self.store.take_failure().map_or(Ok(()), Err)
    }

    fn on_input(&mut self, input: Input<S::Report>, inputs: &mut Inputs<S::Report>) {
        match input {
            Input::Accepted(..) if !self.store.is_serving() => {}
            Input::Accepted(stream, from) => {
                let link = self.links.add(stream);
                self.server.handle_accepted(self.now(), link, Endpoint(from));
            }
            Input::Arrival(arrival) => {
                self.on_arrival(&arrival);
                for _ in 1..BATCH {
                    let Ok(arrival) = inputs.arrivals.try_recv() else { break };
                    self.on_arrival(&arrival);
                }
            }
            Input::Report(report) => {
                self.store.handle_report(Instant::now(), report);
                for _ in 1..BATCH {
                    let Ok(report) = inputs.reports.try_recv() else { break };
                    self.store.handle_report(Instant::now(), report);
                }
            }
            Input::Request(request) => self.answer(request),
            Input::Command(CommandEnd { group, result }) => {
                self.server.handle_tree_installed(self.now(), group, result);
            }
            Input::Time => self.server.handle_timeout(self.now()),
        }
    }

    async fn finish(&mut self, inputs: &mut Inputs<S::Report>) {
        while self.server.open_requests() > 0 {
            let Some(report) = inputs.reports.recv().await else { return };
            self.store.handle_time(Instant::now());
            self.store.handle_report(Instant::now(), report);
            self.run_commands();
        }
    }

    /// Waits for the commands that install trees: the next owner of the manager's partition must
    /// not meet them. The store keeps the partition meanwhile. If it is lost, they are killed.
    async fn finish_trees(&mut self, inputs: &mut Inputs<S::Report>) {
        if let Self { trees: Some(trees), store, .. } = self {
            let finished = trees.finish(COMMANDS_WITHIN);
            tokio::pin!(finished);
            while store.is_serving() {
                store.handle_time(Instant::now());
                while store.poll().is_some() {}
                tokio::select! {
                    () = &mut finished => return,
                    Some(report) = inputs.reports.recv() => {
                        store.handle_report(Instant::now(), report);
                    }
                    () = sleep_until(store.due()) => {}
                }
            }
        }
        self.trees = None;
    }

    fn forward_store_events(&mut self) {
        let trouble = self.store.trouble();
        self.trouble.send_if_modified(|known| {
            let is_new = known.as_deref() != trouble;
            if is_new {
                *known = trouble.map(str::to_owned);
            }
            is_new
        });
        while let Some(event) = self.store.poll() {
            let now = self.now();
            match event {
                StoreEvent::Committed(id, Ok(())) => self.server.handle_committed(now, id),
                StoreEvent::Committed(id, Err(why)) => {
                    self.server.handle_commit_failed(now, id, why);
                }
                StoreEvent::Loaded(partition, state) => self.server.load(partition, state),
                StoreEvent::Applied(partition, after, changes) => {
                    if !self.server.handle_applied(now, partition, after, &changes) {
                        self.store.reload(partition);
                    }
                }
                StoreEvent::Owned(partition) => match self.server.state(partition) {
                    Some(_) => self.server.own(now, partition),
                    None => self.store.reload(partition),
                },
                StoreEvent::Lost(partition) => {
                    self.server.disown(now, partition);
                    if partition == MANAGER_PARTITION
                        && let Some(trees) = &self.trees
                    {
                        trees.kill();
                    }
                }
                StoreEvent::Owners(owners) => self.server.set_owners(owners),
            }
        }
        if !self.store.is_serving() {
            for link in self.links.close_all() {
                self.closed(link, LinkEnd::Broken);
            }
        }
    }

    fn on_arrival(&mut self, arrival: &Arrival) {
        let now = self.now();
        if let Some((link, event)) = self.links.event_of(arrival) {
            self.server.handle_link(now, link, event);
        }
    }

    fn run_commands(&mut self) {
        loop {
            self.forward_store_events();
            while let Some(commit) = self.server.poll_commit() {
                let state = self.server.state(commit.partition);
                self.store.commit(commit, state.expect("a partition with a commit is loaded"));
            }
            let mut has_changed = false;
            while let Some(command) = self.server.poll_link() {
                has_changed |= self.run_command(command);
            }
            if !has_changed {
                break;
            }
        }
        self.install_trees();
    }

    fn install_trees(&mut self) {
        let now = self.now();
        let Some(trees) = &mut self.trees else { return };
        while let Some(change) = self.server.poll_tree(now) {
            let manager = self.server.manager().expect("its tree was polled");
            trees.start(manager.trees().topology(), &change);
        }
    }

    /// Executes a command. Returns `true` if this caused an event for the server.
    fn run_command(&mut self, command: LinkCommand) -> bool {
        match command {
            LinkCommand::Send { link, bytes } => {
                let Err(why) = self.links.send(link, bytes) else { return false };
                self.closed(link, why);
                true
            }
            LinkCommand::Close { link } => {
                self.links.close(link);
                false
            }
            LinkCommand::Open { link, .. } => {
                debug_assert!(false, "a registry process opens no connections");
                self.closed(link, LinkEnd::NoRoom);
                true
            }
        }
    }

    fn closed(&mut self, link: LinkId, why: LinkEnd) {
        let now = self.now();
        self.server.handle_link(now, link, LinkEvent::Closed { why });
    }

    fn answer(&mut self, request: StatusRequest) {
        match request {
            StatusRequest::Status(reply) => {
                let context = StatusContext {
                    cluster: &self.config.cluster,
                    store: self.store.status(),
                    address: self.address.to_string(),
                    partitions: self.config.partitions,
                    lease: self.config.detection_time,
                    links: self.links.len(),
                    now: self.now(),
                };
                // The requester may have disconnected.
                let _ = reply.send(Status::of(&self.server, &context));
            }
            StatusRequest::Group(group, reply) => {
                let _ = reply.send(GroupStatus::of(&self.server, group));
            }
            StatusRequest::Link { ends: [a, b], state, reply } => {
                let reported = self.server.report_link(self.now(), [&a, &b], state);
                let answer = match reported {
                    None => LinkAnswer::NoManager,
                    Some(Err(error)) => LinkAnswer::Refused(error),
                    Some(Ok(links)) => LinkAnswer::Done(links),
                };
                let _ = reply.send(answer);
            }
        }
    }

    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_nanos() as u64)
    }

    fn instant(&self, at: Time) -> Instant {
        self.begun + Duration::from_nanos(at.0)
    }
}
