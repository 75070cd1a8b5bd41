//! The loop of a control process: whatever happens is handed to the server, and what the server
//! wants is done.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::Owners;
use carom_proto::membership::service::server::{Server, ServerConfig};
use carom_proto::{Endpoint, Time};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::http::Ask;
use crate::links::{Arrival, Links};
use crate::status::{GroupStatus, Status, Surroundings};
use crate::store::{Done, StoreThread};

/// A control process.
#[derive(Debug)]
pub(crate) struct Process {
    server: Server,
    config: ServerConfig,
    links: Links,
    store: StoreThread,
    address: SocketAddr,
    begun: Instant,
}

/// What comes to a process from its tasks and threads.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) accepted: mpsc::Receiver<(TcpStream, SocketAddr)>,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
    pub(crate) done: mpsc::UnboundedReceiver<Done>,
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) stop: oneshot::Receiver<()>,
}

/// Arrivals that are handled before the server's wishes are looked at.
const ARRIVALS_TOGETHER: usize = 64;
/// How long a process that is told to stop waits for what is on its way to the store.
const STOP_WITHIN: Duration = Duration::from_millis(500);

impl Process {
    pub(crate) fn new(
        server: Server,
        config: ServerConfig,
        links: Links,
        store: StoreThread,
        address: SocketAddr,
    ) -> Self {
        Self { server, config, links, store, address, begun: Instant::now() }
    }

    /// Owns all partitions: the embedded store has one process only.
    pub(crate) fn own_all(&mut self) {
        let now = self.now();
        let all = 0..self.config.partitions;
        let owned = all.clone().map(|partition| (partition, Endpoint(self.address))).collect();
        all.for_each(|partition| self.server.own(now, partition));
        self.server.set_owners(Owners { partitions: self.config.partitions, owned });
    }

    /// Serves until it is told to stop.
    pub(crate) async fn run(mut self, mut inputs: Inputs) {
        loop {
            self.act();
            let due = self.server.poll_timeout().map(|wakeup| self.instant(wakeup.at));
            tokio::select! {
                Some(done) = inputs.done.recv() => self.on_done(done),
                Some((stream, from)) = inputs.accepted.recv() => {
                    let link = self.links.add(stream);
                    self.server.handle_accepted(self.now(), link, Endpoint(from));
                }
                Some(arrival) = inputs.arrivals.recv() => {
                    self.on_arrival(arrival);
                    for _ in 1..ARRIVALS_TOGETHER {
                        let Ok(arrival) = inputs.arrivals.try_recv() else { break };
                        self.on_arrival(arrival);
                    }
                }
                Some(ask) = inputs.asks.recv() => self.answer(ask),
                () = sleep_until(due) => self.server.handle_timeout(self.now()),
                _ = &mut inputs.stop => break,
            }
        }
        let _ = tokio::time::timeout(STOP_WITHIN, self.finish(&mut inputs)).await;
    }

    /// Acknowledges what was asked for before the end.
    async fn finish(&mut self, inputs: &mut Inputs) {
        while self.server.open_requests() > 0 {
            let Some(done) = inputs.done.recv().await else { return };
            self.on_done(done);
            self.act();
        }
    }

    fn on_done(&mut self, (id, result): Done) {
        let now = self.now();
        match result {
            Ok(()) => self.server.handle_committed(now, id),
            Err(why) => self.server.handle_commit_failed(now, id, why),
        }
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        let now = self.now();
        match arrival {
            Arrival::Bytes(link, bytes) => {
                // What was on its way when the server closed the link is of no concern.
                if self.links.contains(link) {
                    self.server.handle_link(now, link, LinkEvent::Received(&bytes));
                }
            }
            Arrival::End(link, why) => {
                if self.links.close(link) {
                    self.server.handle_link(now, link, LinkEvent::Closed { why });
                }
            }
        }
    }

    /// Does what the server wants done, until it wants nothing more.
    fn act(&mut self) {
        loop {
            while let Some(commit) = self.server.poll_commit() {
                self.store.commit(commit);
            }
            let mut has_changed = false;
            while let Some(command) = self.server.poll_link() {
                has_changed |= self.carry(command);
            }
            if !has_changed {
                return;
            }
        }
    }

    /// Says whether the server was told anything.
    fn carry(&mut self, command: LinkCommand) -> bool {
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
                debug_assert!(false, "a control process waits to be called");
                self.closed(link, LinkEnd::NoRoom);
                true
            }
        }
    }

    fn closed(&mut self, link: LinkId, why: LinkEnd) {
        let now = self.now();
        self.server.handle_link(now, link, LinkEvent::Closed { why });
    }

    fn answer(&self, ask: Ask) {
        match ask {
            Ask::Status(reply) => {
                let around = Surroundings {
                    cluster: &self.config.cluster,
                    address: self.address.to_string(),
                    partitions: self.config.partitions,
                    lease: self.config.detection_time,
                    links: self.links.len(),
                    now: self.now(),
                };
                // Who asked may have gone.
                let _ = reply.send(Status::of(&self.server, &around));
            }
            Ask::Group(group, reply) => {
                let _ = reply.send(GroupStatus::of(&self.server, group));
            }
        }
    }

    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_nanos() as u64)
    }

    fn instant(&self, at: Time) -> tokio::time::Instant {
        (self.begun + Duration::from_nanos(at.0)).into()
    }
}

async fn sleep_until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
