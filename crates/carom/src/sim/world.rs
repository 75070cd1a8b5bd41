use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{NodeId, Rng, Time};
use carom_sim::{Counters, Fault, Happening, HostIx, WorldConfig};

use super::executor::{Executor, TaskId};
use super::host::Host;
use super::machine::{Order, SimMachine};
use super::oracle::{Membership, News, Oracle};
use super::report::Report;
use super::switchboard::{Call, Lease, Switchboard};

/// A simulated world of hosts in a simulated network, with virtual time. See the [module](super).
///
/// Time passes only during calls that advance it. A panic in a task propagates to the caller.
/// Dropping the world ends everything in it.
pub struct World {
    network: carom_sim::World<SimMachine>,
    executor: Executor,
    switchboard: Arc<Switchboard>,
    programs: BTreeMap<HostIx, Program>,
    leases: BTreeMap<HostIx, Lease>,
    oracle: Option<Oracle>,
    usual_loss: Loss,
    rng: Rng,
    polls: u32,
}

type Program = Box<dyn FnMut(Host) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A future that runs outside all hosts. The function returns `true` once it is done.
type Guest<'a> = (TaskId, &'a mut dyn FnMut() -> bool);

impl World {
    /// Creates a world in which nodes find each other by [gossip](Membership::Gossip).
    ///
    /// # Panics
    /// Panics if the capacity of the receive buffer is 0.
    pub fn new(config: WorldConfig) -> Self {
        Self::with_membership(config, Membership::Gossip)
    }

    /// Creates a world with the given kind of membership.
    ///
    /// # Panics
    /// See [`World::new`].
    pub fn with_membership(config: WorldConfig, membership: Membership) -> Self {
        let seed = Rng::new(config.seed).fork(NODE_STREAM).next_u64();
        let rng = Rng::new(config.seed).fork(TROUBLE_STREAM);
        let usual_loss = config.loss;
        let network = carom_sim::World::new(config);
        let oracle = match membership {
            Membership::Gossip => None,
            Membership::Oracle { delay } => Some(Oracle::new(delay)),
        };
        Self {
            switchboard: Arc::new(Switchboard::new(network.now(), seed)),
            network,
            executor: Executor::default(),
            programs: BTreeMap::new(),
            leases: BTreeMap::new(),
            oracle,
            usual_loss,
            rng,
            polls: 0,
        }
    }

    /// Returns the host with this number, counted from 0.
    ///
    /// # Panics
    /// Panics if the topology has no such host.
    pub fn host(&self, number: u32) -> Host {
        assert!(number < self.network.topology().hosts(), "host {number} does not exist");
        let has_oracle = self.oracle.is_some();
        Host::new(Arc::clone(&self.switchboard), HostIx(number), has_oracle)
    }

    /// Returns all hosts, in order of their numbers.
    pub fn hosts(&self) -> Vec<Host> {
        (0..self.network.topology().hosts()).map(|number| self.host(number)).collect()
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// Returns the counters of the simulated network.
    pub fn counters(&self) -> &Counters {
        self.network.counters()
    }

    /// Returns a hash of all datagrams and all polls of tasks, with their times.
    ///
    /// Datagrams are not included if the world was configured without a history.
    pub fn history(&self) -> u64 {
        Rng::new(self.network.history()).fork(self.executor.history()).next_u64()
    }

    /// Captures all packets from now on in the pcapng format, which Wireshark can open.
    pub fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.network.trace_to(out);
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// Returns an error if the capture could not be written completely.
    pub fn end_trace(&mut self) -> io::Result<()> {
        self.network.end_trace()
    }

    /// Runs `task` on `host` until it completes or the host crashes.
    pub fn spawn(&mut self, host: &Host, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(host.ix(), Box::pin(task));
    }

    /// Installs `program` on `host`. The program starts now, and again after each
    /// [restart](World::restart).
    pub fn install<F: Future<Output = ()> + 'static>(
        &mut self,
        host: &Host,
        mut program: impl FnMut(Host) -> F + 'static,
    ) {
        let mut program: Program = Box::new(move |host| Box::pin(program(host)));
        self.executor.spawn(host.ix(), program(host.clone()));
        self.programs.insert(host.ix(), program);
    }

    /// Returns the number of tasks that run on `host`.
    pub fn tasks_of(&self, host: &Host) -> usize {
        self.executor.tasks_of(host.ix())
    }

    /// Stops everything that runs on `host` at once, like a power failure.
    ///
    /// Its node does not notify the other nodes. Sent datagrams remain in flight.
    pub fn crash(&mut self, host: &Host) {
        self.settle(None);
        let (ix, id) = (host.ix(), self.network.node_id(host.ix()));
        self.switchboard.evict(ix);
        self.leases.remove(&ix);
        drop(self.network.kill(ix));
        self.network.apply(&Fault::Resume(ix));
        self.executor.kill(ix);
        self.executor.resume(ix);
        if let Some(id) = id {
            self.tell_of_crash(id);
        }
    }

    /// Crashes `host`, if anything still runs on it, and starts its program from the beginning.
    ///
    /// The program starts a new node, which has another id unless the program sets it.
    pub fn restart(&mut self, host: &Host) {
        self.crash(host);
        if let Some(program) = self.programs.get_mut(&host.ix()) {
            self.executor.spawn(host.ix(), program(host.clone()));
        }
    }

    pub(super) fn has_program(&self, host: HostIx) -> bool {
        self.programs.contains_key(&host)
    }

    pub(super) fn usual_loss(&self) -> Loss {
        self.usual_loss
    }

    pub(super) fn fork_rng(&mut self) -> Rng {
        self.rng.fork(0)
    }

    /// Applies or ends a fault.
    ///
    /// The tasks of a paused host are paused as well. A clock step affects only the engines:
    /// [`Node::now`](crate::Node::now) and sleeping use the world's time.
    pub fn apply(&mut self, fault: &Fault) {
        self.settle(None);
        self.network.apply(fault);
        if let Fault::Resume(host) = fault {
            self.executor.resume(*host);
        }
    }

    /// Advances the time by `span`.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while !self.advance(end, None) {}
    }

    /// Advances the time until `future` is done, and returns its output, or `None` if it takes
    /// longer than `limit`.
    ///
    /// The future runs outside all hosts, so crashes and pauses do not affect it.
    pub fn block_on<F: Future>(&mut self, limit: Duration, future: F) -> Option<F::Output> {
        let end = self.now() + limit;
        let task_waker = self.executor.new_task();
        let (task, waker) = (task_waker.task(), Waker::from(Arc::clone(&task_waker)));
        let (mut future, mut output) = (pin!(future), None);
        let mut poll = || {
            task_waker.reset();
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            match polled {
                Poll::Ready(done) => output = Some(done),
                Poll::Pending => {}
            }
            output.is_some()
        };
        while !self.advance(end, Some((task, &mut poll))) {}
        output
    }

    /// Takes one step, at most to `end`. Returns `true` if `end` is reached or the guest is done.
    fn advance(&mut self, end: Time, guest: Option<Guest<'_>>) -> bool {
        if self.settle(guest) {
            return true;
        }
        let timer = self.switchboard.timers.next();
        let next = self.network.next_at();
        let is_timer = timer.is_some_and(|timer| next.is_none_or(|next| timer < next));
        let due = if is_timer { timer } else { next };
        match due {
            Some(due) if due <= end => {
                if is_timer {
                    self.pass_to(due);
                    self.switchboard.timers.wake_due(due);
                } else {
                    self.network.step();
                    self.pass_to(self.network.now());
                }
                false
            }
            _ => {
                self.pass_to(end);
                true
            }
        }
    }

    /// Advances the time to `now`. No network event may be due before.
    fn pass_to(&mut self, now: Time) {
        if now > self.switchboard.now() {
            self.polls = 0;
            self.switchboard.set_now(now);
        }
        if now > self.network.now() {
            let happened = self.network.next_at().is_some_and(|next| next < now);
            assert!(!happened, "a network event was due earlier");
            self.network.run_until(now, &mut |happening| {
                unreachable!("{} has reported {:?} in between", happening.host, happening.event)
            });
        }
    }

    /// Runs everything that is ready at the current time. Returns `true` if the guest is done.
    fn settle(&mut self, mut guest: Option<Guest<'_>>) -> bool {
        loop {
            while let Some(happening) = self.network.poll_event() {
                self.on_report(happening);
            }
            if let Some(call) = self.switchboard.take_call() {
                self.on_call(call);
                continue;
            }
            let Some(task) = self.executor.next_ready() else { return false };
            self.polls += 1;
            assert!(self.polls < MAX_POLLS, "the tasks run forever, and no time passes");
            match &mut guest {
                Some((own, poll)) if *own == task => {
                    if poll() {
                        return true;
                    }
                }
                _ => self.run(task),
            }
        }
    }

    fn run(&mut self, task: TaskId) {
        let Some(host) = self.executor.host_of(task) else { return };
        if self.network.is_paused(host) {
            self.executor.hold(task);
        } else {
            self.executor.poll(self.network.now(), task);
        }
    }

    fn on_call(&mut self, call: Call) {
        match call {
            Call::Attach(host, lease, id, machine) => self.attach(host, lease, id, *machine),
            Call::Order(host, lease, order) => {
                if self.leases.get(&host) == Some(&lease) {
                    self.give(host, order);
                }
            }
            Call::Spawn(host, task) => self.executor.spawn(host, task),
        }
    }

    /// Attaches a node. A previous node that was closed while its host was paused cannot notify the
    /// others, so its crash is reported.
    fn attach(&mut self, host: HostIx, lease: Lease, id: NodeId, machine: SimMachine) {
        let is_paused = self.network.is_paused(host);
        if let Some(before) = self.network.node_id(host) {
            self.tell_of_crash(before);
        }
        self.leases.insert(host, lease);
        self.network.spawn(host, id, machine);
        if is_paused {
            self.network.apply(&Fault::Pause(host));
        }
    }

    fn tell_of_crash(&mut self, node: NodeId) {
        let mut news = Vec::new();
        if let Some(oracle) = &mut self.oracle {
            oracle.crash(node, &mut news);
        }
        self.spread(news);
    }

    fn give(&mut self, host: HostIx, order: Order) {
        if self.network.is_paused(host) {
            self.network.command_at(self.network.now(), host, order);
        } else {
            self.network.command(host, order);
        }
    }

    fn on_report(&mut self, happening: Happening<Report>) {
        let Happening { host, event: report, .. } = happening;
        let mut news = Vec::new();
        match (report, self.network.node_id(host), &mut self.oracle) {
            (Report::ListensTo(group), _, _) => self.network.subscribe(host, group),
            (Report::StopsListening(group), _, _) => self.network.unsubscribe(host, group),
            (Report::Joined(group, settings, stay), Some(node), Some(oracle)) => {
                oracle.join((host, node), group, settings, stay, &mut news);
            }
            (Report::Left(group), Some(node), Some(oracle)) => oracle.leave(node, group, &mut news),
            (Report::Joined(..) | Report::Left(_), _, _) => {}
            (Report::Closed, _, _) => {
                self.leases.remove(&host);
                drop(self.network.kill(host));
            }
        }
        self.spread(news);
    }

    fn spread(&mut self, news: Vec<(HostIx, News)>) {
        let Some(oracle) = &self.oracle else { return };
        let at = self.network.now() + oracle.delay;
        for (host, news) in news {
            self.network.command_at(at, host, Order::News(news));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.switchboard.close();
    }
}

/// Separates the random draws of node ids from those of the network.
const NODE_STREAM: u64 = 0x1d5;
const TROUBLE_STREAM: u64 = 0x7b0;
/// Maximum number of polls at one virtual time. Tasks that reach it never wait.
const MAX_POLLS: u32 = 10_000_000;
