use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carom_proto::{NodeId, Rng, Time};
use carom_sim::HostIx;

use super::machine::SimMachine;
use super::oracle::OracleLink;
use super::switchboard::{Call, Lease, Switchboard, WorldHandle};
use crate::shared::sleep::Sleep;

/// A host of a [`World`](super::World), for one node and any number of tasks.
#[derive(Clone)]
pub struct Host {
    switchboard: Arc<Switchboard>,
    ix: HostIx,
    has_oracle: bool,
}

pub(crate) struct Reservation {
    host: Host,
    lease: Lease,
    pub(crate) rng: Rng,
    pub(crate) oracle: Option<Arc<Mutex<OracleLink>>>,
}

impl Host {
    pub(super) fn new(switchboard: Arc<Switchboard>, ix: HostIx, has_oracle: bool) -> Self {
        Self { switchboard, ix, has_oracle }
    }

    /// Returns the host's number, as used by [`Fault`](super::Fault).
    pub fn ix(&self) -> HostIx {
        self.ix
    }

    /// Returns the address of the host's node: 10.x.y.z, port 7400.
    pub fn endpoint(&self) -> SocketAddr {
        self.ix.endpoint().0
    }

    /// Returns the world's time.
    pub fn now(&self) -> Time {
        self.switchboard.now()
    }

    /// Waits for the duration `span` in the world's time, like [`Node::sleep`](crate::Node::sleep).
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        // A handle without a node still has the world's clock.
        let handle = self.switchboard.handle(self.ix, Lease(0));
        Sleep::new(Arc::new(handle), self.now() + span)
    }

    /// Like [`World::spawn`](super::World::spawn), but for tasks that start other tasks. The new
    /// task runs after all tasks that are ready now.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.switchboard.call(Call::Spawn(self.ix, Box::pin(task)));
    }

    pub(crate) fn reserve(&self) -> Option<Reservation> {
        let lease = self.switchboard.reserve(self.ix)?;
        let starts = self.switchboard.starts(self.ix);
        let stream = u64::from(self.ix.0) << 32 | starts;
        let rng = Rng::new(self.switchboard.seed).fork(stream);
        let oracle = self.has_oracle.then(|| Arc::new(Mutex::new(OracleLink::default())));
        Some(Reservation { host: self.clone(), lease, rng, oracle })
    }
}

impl Reservation {
    pub(crate) fn attach(self, id: NodeId, machine: SimMachine) -> WorldHandle {
        let Host { switchboard, ix, .. } = self.host;
        switchboard.call(Call::Attach(ix, self.lease, id, Box::new(machine)));
        switchboard.handle(ix, self.lease)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.ix.0).finish()
    }
}
