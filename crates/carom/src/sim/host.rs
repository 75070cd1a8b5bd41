//! A host of the simulated world: the handle.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_proto::{NodeId, Rng, Time};
use carom_sim::HostIx;

use super::machine::SimMachine;
use super::oracle::Ear;
use super::switchboard::{Call, Lease, Line, Switchboard};
use crate::alarms::Sleep;
use crate::home::Home;

/// A host of a [`World`](super::World): a place for one node and any number of tasks.
#[derive(Clone)]
pub struct Host {
    switchboard: Arc<Switchboard>,
    ix: HostIx,
    has_oracle: bool,
}

/// A host that a node is about to start on.
pub(crate) struct Founder {
    host: Host,
    lease: Lease,
    /// What a node draws its id and its seed from.
    pub(crate) rng: Rng,
    /// What the node's membership is to listen to, if the world has an oracle.
    pub(crate) ear: Option<Arc<Mutex<Ear>>>,
}

impl Host {
    pub(super) fn new(switchboard: Arc<Switchboard>, ix: HostIx, has_oracle: bool) -> Self {
        Self { switchboard, ix, has_oracle }
    }

    /// The host's number, as [`Fault`](super::Fault) has it.
    pub fn ix(&self) -> HostIx {
        self.ix
    }

    /// Where the host's node is reached: 10.x.y.z, port 7400.
    pub fn endpoint(&self) -> SocketAddr {
        self.ix.endpoint().0
    }

    /// The world's time.
    pub fn now(&self) -> Time {
        self.switchboard.now()
    }

    /// Waits for `span` of the world's time. Also for tasks that have no node; others have
    /// [`Node::sleep`](crate::Node::sleep), which is the same here.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        // A line that leads to no node still tells the time.
        let home = Home::Simulated(self.switchboard.line(self.ix, Lease(0)));
        Sleep::new(Arc::new(home), self.now() + span)
    }

    /// Runs another task on this host, as [`World::spawn`](super::World::spawn); for tasks that
    /// start tasks. It runs after all that are ready now.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.switchboard.call(Call::Spawn(self.ix, Box::pin(task)));
    }

    /// Reserves the host for a new node; `None` if it has one.
    pub(crate) fn found(&self) -> Option<Founder> {
        let lease = self.switchboard.reserve(self.ix)?;
        let starts = self.switchboard.starts(self.ix);
        let stream = u64::from(self.ix.0) << 32 | starts;
        let rng = Rng::new(self.switchboard.seed).fork(stream);
        let ear = self.has_oracle.then(|| Arc::new(Mutex::new(Ear::default())));
        Some(Founder { host: self.clone(), lease, rng, ear })
    }
}

impl Founder {
    /// Has the node run.
    pub(crate) fn attach(self, id: NodeId, machine: SimMachine) -> Line {
        let Host { switchboard, ix, .. } = self.host;
        switchboard.call(Call::Attach(ix, self.lease, id, Box::new(machine)));
        switchboard.line(ix, self.lease)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.ix.0).finish()
    }
}
