//! What connects the handles of simulated nodes with their world.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carom_proto::{NodeId, Time};
use carom_sim::HostIx;

use super::machine::{Order, SimMachine};
use crate::alarms::Alarms;
use crate::command::NodeCommand;

/// Where the handles leave what they want of the world, which takes it when no task runs. Each
/// node, and each task, has a bounded number of things to ask at a time, and the world takes them
/// before the next task runs.
pub(crate) struct Switchboard {
    now: AtomicU64,
    pub(super) alarms: Alarms,
    /// The world's seed, from which each node gets an id and a seed of its own.
    pub(super) seed: u64,
    state: Mutex<State>,
}

struct State {
    /// `None` once the world is gone: who asks then gets no answer.
    calls: Option<VecDeque<Call>>,
    /// The node that each host has, or is about to have.
    tenants: BTreeMap<HostIx, u64>,
    /// How many nodes each host has had.
    starts: BTreeMap<HostIx, u64>,
    next_serial: u64,
}

/// What a handle wants.
pub(super) enum Call {
    /// This node is to run on this host.
    Attach(HostIx, Lease, NodeId, Box<SimMachine>),
    /// Something for this node.
    Order(HostIx, Lease, Order),
    /// Another task for this host.
    Spawn(HostIx, SendTask),
}

/// A future that came from another task.
pub(super) type SendTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The number of a node among all that ran in its world: who has it can tell whether the host
/// still has the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(pub(super) u64);

/// What the handles of a simulated node reach it through.
pub(crate) struct Line {
    switchboard: Arc<Switchboard>,
    host: HostIx,
    lease: Lease,
}

impl Switchboard {
    pub(super) fn new(now: Time, seed: u64) -> Self {
        let state = State {
            calls: Some(VecDeque::new()),
            tenants: BTreeMap::new(),
            starts: BTreeMap::new(),
            next_serial: 0,
        };
        let now = AtomicU64::new(now.0);
        Self { now, alarms: Alarms::default(), seed, state: Mutex::new(state) }
    }

    pub(super) fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    pub(super) fn set_now(&self, now: Time) {
        self.now.store(now.0, Ordering::SeqCst);
    }

    /// Reserves the host for a new node; `None` if it has one.
    pub(super) fn reserve(&self, host: HostIx) -> Option<Lease> {
        let state = &mut *self.lock();
        if state.tenants.contains_key(&host) {
            return None;
        }
        state.next_serial += 1;
        state.tenants.insert(host, state.next_serial);
        *state.starts.entry(host).or_default() += 1;
        Some(Lease(state.next_serial))
    }

    /// How many nodes the host has had.
    pub(super) fn starts(&self, host: HostIx) -> u64 {
        self.lock().starts.get(&host).copied().unwrap_or(0)
    }

    /// The node of this lease is gone, or about to go.
    pub(super) fn release(&self, host: HostIx, lease: Lease) {
        let tenants = &mut self.lock().tenants;
        if tenants.get(&host) == Some(&lease.0) {
            tenants.remove(&host);
        }
    }

    /// Whatever the host has is gone.
    pub(super) fn evict(&self, host: HostIx) {
        self.lock().tenants.remove(&host);
    }

    /// The line to a node.
    pub(super) fn line(self: &Arc<Self>, host: HostIx, lease: Lease) -> Line {
        Line { switchboard: Arc::clone(self), host, lease }
    }

    pub(super) fn call(&self, call: Call) {
        let refused = match &mut self.lock().calls {
            Some(calls) => {
                calls.push_back(call);
                None
            }
            None => Some(call),
        };
        // What it holds may wake somebody, who must find the lock free.
        drop(refused);
    }

    pub(super) fn take_call(&self) -> Option<Call> {
        self.lock().calls.as_mut()?.pop_front()
    }

    /// The world is gone: nobody gets an answer, and nobody sleeps, any more.
    pub(super) fn close(&self) {
        let calls = self.lock().calls.take();
        drop(calls);
        self.alarms.close();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    pub(crate) fn tell(&self, command: NodeCommand) {
        if matches!(command, NodeCommand::Close { .. }) {
            // The next node of this host may be started before this one has closed.
            self.switchboard.release(self.host, self.lease);
        }
        self.switchboard.call(Call::Order(self.host, self.lease, Order::Command(command)));
    }

    pub(crate) fn wake(&self) {
        self.switchboard.call(Call::Order(self.host, self.lease, Order::Serve));
    }

    pub(crate) fn now(&self) -> Time {
        self.switchboard.now()
    }

    pub(crate) fn alarms(&self) -> &Alarms {
        &self.switchboard.alarms
    }
}
