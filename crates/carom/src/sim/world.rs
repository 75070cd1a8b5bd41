//! The simulated world: its hosts, its tasks, its time.

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
use super::machine::{Order, SimMachine, Told};
use super::oracle::{Membership, News, Oracle};
use super::switchboard::{Call, Lease, Switchboard};

/// Hosts in a simulated network, with the nodes and the tasks on them, in virtual time. See the
/// [module](super) for what it is good for.
///
/// Time stands still between calls; [`World::run_for`] and [`World::block_on`] let it pass. A task
/// that panics does so out of these. Dropping the world ends everything in it.
pub struct World {
    network: carom_sim::World<SimMachine>,
    executor: Executor,
    switchboard: Arc<Switchboard>,
    programs: BTreeMap<HostIx, Program>,
    /// The node that runs on each host.
    leases: BTreeMap<HostIx, Lease>,
    oracle: Option<Oracle>,
    usual_loss: Loss,
    /// The source of troubles.
    rng: Rng,
    /// Polls of tasks since time last passed.
    polls: u32,
}

/// What a host runs, now and after each restart.
type Program = Box<dyn FnMut(Host) -> Pin<Box<dyn Future<Output = ()>>>>;

/// A future that is run from outside: says whether it is done.
type Guest<'a> = (TaskId, &'a mut dyn FnMut() -> bool);

impl World {
    /// A world in which nodes find each other by [gossip](Membership::Gossip).
    ///
    /// # Panics
    /// If the receive buffer has no room at all.
    pub fn new(config: WorldConfig) -> Self {
        Self::with_membership(config, Membership::Gossip)
    }

    /// A world in which nodes find each other like this.
    ///
    /// # Panics
    /// As [`World::new`].
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
            executor: Executor::new(),
            programs: BTreeMap::new(),
            leases: BTreeMap::new(),
            oracle,
            usual_loss,
            rng,
            polls: 0,
        }
    }

    /// The host with this number.
    ///
    /// # Panics
    /// If the topology has no such host.
    pub fn host(&self, number: u32) -> Host {
        assert!(number < self.network.topology().hosts(), "there is no host {number}");
        let has_oracle = self.oracle.is_some();
        Host::new(Arc::clone(&self.switchboard), HostIx(number), has_oracle)
    }

    /// All hosts, in order.
    pub fn hosts(&self) -> Vec<Host> {
        (0..self.network.topology().hosts()).map(|number| self.host(number)).collect()
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.network.now()
    }

    /// What crossed the network so far, and what became of it.
    pub fn counters(&self) -> &Counters {
        self.network.counters()
    }

    /// A hash of every datagram and of every turn of a task, with their times. Without that of the
    /// datagrams if the world was made to keep none.
    pub fn history(&self) -> u64 {
        Rng::new(self.network.history()).fork(self.executor.history()).next_u64()
    }

    /// Captures every packet from now on, as pcapng: Wireshark opens it.
    pub fn trace_to(&mut self, out: Box<dyn Write + Send>) {
        self.network.trace_to(out);
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// Not all of it could be written.
    pub fn end_trace(&mut self) -> io::Result<()> {
        self.network.end_trace()
    }

    /// Runs `task` on `host`, until it ends or the host crashes. It begins when time next may pass.
    pub fn spawn(&mut self, host: &Host, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(host.ix(), Box::pin(task));
    }

    /// Makes `program` what `host` runs: now, and afresh after each [restart](World::restart).
    pub fn install<F: Future<Output = ()> + 'static>(
        &mut self,
        host: &Host,
        mut program: impl FnMut(Host) -> F + 'static,
    ) {
        let mut program: Program = Box::new(move |host| Box::pin(program(host)));
        self.executor.spawn(host.ix(), program(host.clone()));
        self.programs.insert(host.ix(), program);
    }

    /// How many tasks run on `host`.
    pub fn tasks_of(&self, host: &Host) -> usize {
        self.executor.tasks_of(host.ix())
    }

    /// Ends all that runs on `host` at once, as the loss of power would: its tasks are dropped
    /// where they wait, its node says good-bye to nobody. What it had sent is still under way.
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

    /// Crashes `host`, if anything still runs there, and runs its program from the beginning: its
    /// node will be another one, with another id.
    pub fn restart(&mut self, host: &Host) {
        self.crash(host);
        if let Some(program) = self.programs.get_mut(&host.ix()) {
            self.executor.spawn(host.ix(), program(host.clone()));
        }
    }

    /// Whether the host runs something when it restarts.
    pub(super) fn has_program(&self, host: HostIx) -> bool {
        self.programs.contains_key(&host)
    }

    /// What every host loses when nothing is wrong.
    pub(super) fn usual_loss(&self) -> Loss {
        self.usual_loss
    }

    /// A source of randomness of its own for whatever comes next.
    pub(super) fn fork_rng(&mut self) -> Rng {
        self.rng.fork(0)
    }

    /// Something goes wrong, or right again. The tasks of a paused host stand still with it. A
    /// stepped clock is the engines': [`Node::now`](crate::Node::now) and sleeping go by the
    /// world's time.
    pub fn apply(&mut self, fault: &Fault) {
        self.settle(None);
        self.network.apply(fault);
        if let Fault::Resume(host) = fault {
            self.executor.resume(*host);
        }
    }

    /// Lets `span` pass.
    pub fn run_for(&mut self, span: Duration) {
        let end = self.now() + span;
        while !self.advance(end, None) {}
    }

    /// Lets time pass until `future` is done, for no longer than `limit`; returns its output, or
    /// `None` if it did not come to an end. The future runs beside the world, on no host: no crash
    /// and no pause touches it.
    pub fn block_on<F: Future>(&mut self, limit: Duration, future: F) -> Option<F::Output> {
        let end = self.now() + limit;
        let bell = self.executor.bell();
        let (task, waker) = (bell.task(), Waker::from(Arc::clone(&bell)));
        let (mut future, mut output) = (pin!(future), None);
        let mut poll = || {
            bell.answer();
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

    /// Lets the next thing happen that is due by `end`; says whether there is nothing more to do:
    /// the end has come, or the guest is done.
    fn advance(&mut self, end: Time, guest: Option<Guest<'_>>) -> bool {
        if self.settle(guest) {
            return true;
        }
        let alarm = self.switchboard.alarms.next();
        let next = self.network.next_at();
        let is_alarm = alarm.is_some_and(|alarm| next.is_none_or(|next| alarm < next));
        let due = if is_alarm { alarm } else { next };
        match due {
            Some(due) if due <= end => {
                if is_alarm {
                    self.pass_to(due);
                    self.switchboard.alarms.ring(due);
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

    /// It is `now`. There is nothing on the network's agenda before.
    fn pass_to(&mut self, now: Time) {
        if now > self.switchboard.now() {
            self.polls = 0;
            self.switchboard.set_now(now);
        }
        if now > self.network.now() {
            let happened = self.network.next_at().is_some_and(|next| next < now);
            assert!(!happened, "the network's agenda comes first");
            self.network.run_until(now, &mut |happening| {
                unreachable!("{} told {:?} in between", happening.host, happening.event)
            });
        }
    }

    /// Lets everybody do what there is to do without time passing; says whether the guest is done.
    fn settle(&mut self, mut guest: Option<Guest<'_>>) -> bool {
        loop {
            while let Some(happening) = self.network.poll_event() {
                self.on_told(happening);
            }
            if let Some(call) = self.switchboard.take_call() {
                self.on_call(call);
                continue;
            }
            let Some(task) = self.executor.next_ready() else { return false };
            self.polls += 1;
            assert!(self.polls < MAX_POLLS, "the tasks run for ever, and no time passes");
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

    /// A node takes its place. One that is there still was closed while its host was paused, and
    /// cannot say good-bye any more.
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

    /// Gives a node an order: now, or if its host is paused, when it goes on.
    fn give(&mut self, host: HostIx, order: Order) {
        if self.network.is_paused(host) {
            self.network.command_at(self.network.now(), host, order);
        } else {
            self.network.command(host, order);
        }
    }

    fn on_told(&mut self, happening: Happening<Told>) {
        let Happening { host, event: told, .. } = happening;
        let mut news = Vec::new();
        match (told, self.network.node_id(host), &mut self.oracle) {
            (Told::ListensTo(group), _, _) => self.network.subscribe(host, group),
            (Told::StopsListening(group), _, _) => self.network.unsubscribe(host, group),
            (Told::Joined(group, settings, stay), Some(node), Some(oracle)) => {
                oracle.join((host, node), group, settings, stay, &mut news);
            }
            (Told::Left(group), Some(node), Some(oracle)) => oracle.leave(node, group, &mut news),
            (Told::Joined(..) | Told::Left(_), _, _) => {}
            (Told::Closed, _, _) => {
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
            self.network.command_at(at, host, Order::Hear(news));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.switchboard.close();
    }
}

/// Keeps the ids of nodes apart from what the network draws from the same seed.
const NODE_STREAM: u64 = 0x1d5;
/// Likewise the troubles.
const TROUBLE_STREAM: u64 = 0x7b0;
/// Tasks that are polled so often at one moment wait for nothing.
const MAX_POLLS: u32 = 10_000_000;
