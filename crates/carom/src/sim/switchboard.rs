use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carom_proto::{NodeId, Time};
use carom_sim::HostIx;

use super::machine::{Order, SimMachine};
use crate::shared::commands::NodeCommand;
use crate::shared::driver_handle::DriverHandle;
use crate::shared::timers::TimerQueue;

/// The calls of tasks. The world collects them while no task runs, before the next task.
pub(crate) struct Switchboard {
    now: AtomicU64,
    pub(super) timers: TimerQueue,
    pub(super) seed: u64,
    state: Mutex<State>,
}

struct State {
    /// Calls not yet collected. `None` once the world is gone: calls are then dropped without a
    /// reply.
    calls: Option<VecDeque<Call>>,
    tenants: BTreeMap<HostIx, u64>,
    starts: BTreeMap<HostIx, u64>,
    next_serial: u64,
}

pub(super) enum Call {
    Attach(HostIx, Lease, NodeId, Box<SimMachine>),
    Order(HostIx, Lease, Order),
    Spawn(HostIx, SendTask),
}

pub(super) type SendTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The number of a node among all nodes of its world. It identifies calls from a node that its host
/// no longer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(pub(super) u64);

pub(crate) struct WorldHandle {
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
        Self { now, timers: TimerQueue::default(), seed, state: Mutex::new(state) }
    }

    pub(super) fn now(&self) -> Time {
        Time(self.now.load(Ordering::SeqCst))
    }

    pub(super) fn set_now(&self, now: Time) {
        self.now.store(now.0, Ordering::SeqCst);
    }

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

    pub(super) fn starts(&self, host: HostIx) -> u64 {
        self.lock().starts.get(&host).copied().unwrap_or(0)
    }

    pub(super) fn release(&self, host: HostIx, lease: Lease) {
        let tenants = &mut self.lock().tenants;
        if tenants.get(&host) == Some(&lease.0) {
            tenants.remove(&host);
        }
    }

    pub(super) fn evict(&self, host: HostIx) {
        self.lock().tenants.remove(&host);
    }

    pub(super) fn handle(self: &Arc<Self>, host: HostIx, lease: Lease) -> WorldHandle {
        WorldHandle { switchboard: Arc::clone(self), host, lease }
    }

    pub(super) fn call(&self, call: Call) {
        let refused = match &mut self.lock().calls {
            Some(calls) => {
                calls.push_back(call);
                None
            }
            None => Some(call),
        };
        // Dropping the call may wake a task, which must find the lock free.
        drop(refused);
    }

    pub(super) fn take_call(&self) -> Option<Call> {
        self.lock().calls.as_mut()?.pop_front()
    }

    pub(super) fn close(&self) {
        let calls = self.lock().calls.take();
        drop(calls);
        self.timers.close();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DriverHandle for WorldHandle {
    fn send(&self, command: NodeCommand) {
        if matches!(command, NodeCommand::Close { .. }) {
            // The next node of this host may start before this one has closed.
            self.switchboard.release(self.host, self.lease);
        }
        self.switchboard.call(Call::Order(self.host, self.lease, Order::Command(command)));
    }

    fn wake(&self) {
        self.switchboard.call(Call::Order(self.host, self.lease, Order::Serve));
    }

    /// Does nothing, because the world checks the timers before it advances the time.
    fn timers_changed(&self) {}

    fn now(&self) -> Time {
        self.switchboard.now()
    }

    fn timers(&self) -> &TimerQueue {
        &self.switchboard.timers
    }

    fn runs_without_caller(&self) -> bool {
        false
    }

    fn may_block(&self) -> bool {
        false
    }
}
