//! The registry processes of a world, and their communication with their store.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use carom_proto::membership::service::frame::Owners;
use carom_proto::membership::service::{
    Commit, CommitFailure, CommitId, Detector, DetectorConfig, Server, ServerConfig,
};
use carom_proto::{Endpoint, GroupId, NodeId, Rng, Time};
use carom_sim::{EventQueue, Happening, HostIx, Machine, World};

use super::process::{Process, ProcessEvent, StoreReport};
use super::resident::{Resident, ResidentCommand};
use super::store::Store;

/// The configuration of a registry.
#[derive(Clone, Debug)]
pub struct ServicesConfig {
    /// Settings of every registry process.
    pub server: ServerConfig,
    /// Hosts of the registry processes, at least one.
    pub hosts: Vec<HostIx>,
    /// Place of the store in the network, from which processes can be partitioned. `None` if a
    /// single process has the store on its own host.
    pub store_at: Option<HostIx>,
    /// One-way delay between processes and the store.
    pub store_delay: Duration,
    /// Time for which one of several processes keeps its partitions without contact to the store.
    pub lease: Duration,
}

/// The registry processes and their store. They are driven together with their [`World`].
pub struct Services {
    config: ServicesConfig,
    store: Store,
    places: Vec<Place>,
    leases: BTreeMap<u64, Lease>,
    queue: EventQueue<Op>,
    lives: u64,
    unstored: Vec<(GroupId, NodeId)>,
    rng: Rng,
}

#[derive(Debug, Default)]
struct Place {
    life: Option<u64>,
    reports: VecDeque<(Time, StoreReport)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    place: usize,
    until: Time,
}

#[derive(Clone, Debug)]
enum Op {
    Commit { place: usize, life: u64, term: u64, commit: Commit },
    Answer { place: usize, life: u64, id: CommitId, result: Result<(), CommitFailure> },
    Reports(usize),
    Renew,
}

impl Services {
    /// Creates a registry without running processes.
    ///
    /// # Panics
    /// Panics if there is no host, or if there are several hosts without a shared store.
    pub fn new(config: ServicesConfig, seed: u64) -> Self {
        let is_one = config.hosts.len() == 1;
        assert!(
            is_one || config.store_at.is_some() && !config.hosts.is_empty(),
            "store_at is required if there is more than one host"
        );
        let mut queue = EventQueue::default();
        if config.store_at.is_some() {
            queue.add(Time::ZERO, Op::Renew);
        }
        Self {
            store: Store::new(config.server.partitions),
            places: config.hosts.iter().map(|_| Place::default()).collect(),
            leases: BTreeMap::new(),
            queue,
            lives: 0,
            unstored: Vec::new(),
            rng: Rng::new(seed),
            config,
        }
    }

    /// Returns the number of processes, running or not.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Returns the addresses of the processes.
    pub fn addresses(&self) -> Vec<Endpoint> {
        self.config.hosts.iter().map(|host| host.endpoint()).collect()
    }

    /// Returns the store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the store, for example, to inject failures.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Removes and returns a join that was acknowledged but is not in the store.
    pub fn next_unstored(&mut self) -> Option<(GroupId, NodeId)> {
        self.unstored.pop()
    }

    /// Returns `true` if process `which` is running.
    pub fn runs(&self, which: usize) -> bool {
        self.places[which].life.is_some()
    }

    /// Returns the process that owns the partition in the store, if it is running.
    pub fn owner(&self, partition: u16) -> Option<usize> {
        let owner = self.store.owner(partition)?;
        self.places.iter().position(|place| place.life == Some(owner))
    }

    /// Returns the server of process `which`, if it is running.
    pub fn server<'w, M: Machine>(
        &self,
        world: &'w World<Resident<M>>,
        which: usize,
    ) -> Option<&'w Server> {
        world.machine(self.config.hosts[which])?.process().map(Process::server)
    }

    /// Moves a partition to process `which`, if it is running.
    pub fn hand_over<M: Machine>(
        &mut self,
        world: &World<Resident<M>>,
        partition: u16,
        which: usize,
    ) {
        let Some(life) = self.places[which].life else { return };
        self.take_back(world.now(), partition);
        self.give(world, partition, which, life);
        self.publish_owners(world);
    }

    /// Starts process `which`, unless it is running.
    pub fn start<M: Machine>(&mut self, world: &mut World<Resident<M>>, which: usize) {
        if self.runs(which) {
            return;
        }
        self.lives += 1;
        let (life, host) = (self.lives, self.config.hosts[which]);
        let process = Process::new(self.config.server.clone(), self.rng.next_u64());
        world.spawn(host, NodeId(FIRST_ID + life), Resident::Process(Box::new(process)));
        self.places[which].life = Some(life);
        if self.config.store_at.is_none() {
            // Only one process can have the store open.
            for partition in 0..self.store.partitions() {
                self.give(world, partition, which, life);
            }
        }
        let until = world.now() + self.config.lease;
        self.leases.insert(life, Lease { place: which, until });
        self.publish_owners(world);
    }

    /// Kills process `which` at once.
    pub fn kill<M: Machine>(&mut self, world: &mut World<Resident<M>>, which: usize) {
        self.places[which].life = None;
        self.places[which].reports.clear();
        world.kill(self.config.hosts[which]);
    }

    /// Starts a rack's failure detector on `host`.
    pub fn start_detector<M: Machine>(
        &mut self,
        world: &mut World<Resident<M>>,
        host: HostIx,
        config: DetectorConfig,
    ) {
        self.lives += 1;
        let id = NodeId(FIRST_ID + self.lives);
        let seed = self.rng.next_u64();
        let detector = Detector::new(id, host.endpoint(), config, seed);
        world.spawn(host, id, Resident::Detector(Box::new(detector)));
    }

    /// Handles an event of a registry process.
    pub fn handle_event(&mut self, at: Time, host: HostIx, event: ProcessEvent) {
        let place = self.config.hosts.iter().position(|it| *it == host);
        let place = place.expect("registry processes run where they were started");
        let Some(life) = self.places[place].life else { return };
        match event {
            ProcessEvent::Commit { commit, term } => {
                let arrives = at + self.config.store_delay;
                self.queue.add(arrives, Op::Commit { place, life, term, commit });
            }
            ProcessEvent::Acknowledged { group, node } => {
                // A process that was deposed during a pause acknowledges earlier stored joins. The
                // member may have left since.
                let is_stored = match self.store.owns(life, group) {
                    true => self.store.is_member(group, node),
                    false => self.store.was_member(group, node),
                };
                if !is_stored {
                    self.unstored.push((group, node));
                }
            }
        }
    }

    /// Returns the time of the next operation.
    pub fn next_at(&self) -> Option<Time> {
        self.queue.next_at()
    }

    /// Executes the due operations.
    pub fn run<M: Machine>(&mut self, world: &mut World<Resident<M>>) {
        while self.queue.next_at().is_some_and(|at| at <= world.now()) {
            let Some((_, op)) = self.queue.pop() else { return };
            match op {
                Op::Commit { place, life, term, commit } => {
                    self.on_commit(world, (place, life), term, &commit);
                }
                Op::Answer { place, life, id, result } => {
                    self.on_answer(world, (place, life), id, result);
                }
                Op::Reports(place) => self.on_reports(world, place),
                Op::Renew => self.on_renew(world),
            }
        }
    }

    /// Executes the next operation, or the world's next event, that is due by `end`. Before an
    /// operation, passes the machines' pending events to `on_event`. Returns `false` if none is
    /// due.
    pub fn step<M: Machine>(
        &mut self,
        world: &mut World<Resident<M>>,
        end: Time,
        on_event: &mut impl FnMut(Happening<<Resident<M> as Machine>::Event>),
    ) -> bool {
        let (own, others) = (self.next_at(), world.next_at());
        let Some(next) = own.into_iter().chain(others).min().filter(|next| *next <= end) else {
            return false;
        };
        if others.is_some_and(|at| at <= next) {
            world.step();
        } else {
            world.run_until(next, on_event);
            self.run(world);
        }
        true
    }

    fn on_commit<M: Machine>(
        &mut self,
        world: &World<Resident<M>>,
        (place, life): (usize, u64),
        term: u64,
        commit: &Commit,
    ) {
        let id = commit.id;
        let (delay, result) = if self.is_cut_off(world, place) {
            (STORE_TIMEOUT, Err(CommitFailure::Unknown))
        } else {
            let result = self.store.commit(life, term, commit, &mut self.rng);
            (self.config.store_delay, result)
        };
        self.queue.add(world.now() + delay, Op::Answer { place, life, id, result });
    }

    fn on_answer<M: Machine>(
        &mut self,
        world: &mut World<Resident<M>>,
        (place, life): (usize, u64),
        id: CommitId,
        result: Result<(), CommitFailure>,
    ) {
        if self.places[place].life != Some(life) {
            return;
        }
        let is_from_store = result != Err(CommitFailure::Unknown);
        if is_from_store && self.is_cut_off(world, place) {
            let result = Err(CommitFailure::Unknown);
            let at = world.now() + STORE_TIMEOUT;
            return self.queue.add(at, Op::Answer { place, life, id, result });
        }
        world.command(
            self.config.hosts[place],
            ResidentCommand::Process(StoreReport::Answer(id, result)),
        );
    }

    fn on_reports<M: Machine>(&mut self, world: &mut World<Resident<M>>, place: usize) {
        while let Some((at, _)) = self.places[place].reports.front() {
            let again = world.now() + REPORT_RETRY;
            if *at > world.now() || self.is_cut_off(world, place) {
                return self.queue.add((*at).max(again), Op::Reports(place));
            }
            if let Some((_, report)) = self.places[place].reports.pop_front() {
                world.command(self.config.hosts[place], ResidentCommand::Process(report));
            }
        }
    }

    /// Renews leases of processes in contact with the store, ends expired ones, moves partitions.
    fn on_renew<M: Machine>(&mut self, world: &mut World<Resident<M>>) {
        let now = world.now();
        self.queue.add(now + self.config.lease / 10, Op::Renew);
        for place in 0..self.places.len() {
            let Some(life) = self.places[place].life else { continue };
            if !world.is_paused(self.config.hosts[place]) && !self.is_cut_off(world, place) {
                self.leases.insert(life, Lease { place, until: now + self.config.lease });
            }
        }
        let ended = self.leases.iter().filter(|(_, lease)| lease.until < now);
        let ended: Vec<(u64, usize)> = ended.map(|(life, lease)| (*life, lease.place)).collect();
        let mut has_changed = false;
        for (life, place) in ended {
            self.leases.remove(&life);
            for partition in self.store.release(life) {
                has_changed = true;
                if self.places[place].life == Some(life) {
                    self.report(now, place, StoreReport::Disown(partition));
                }
            }
        }
        has_changed |= self.share(world);
        if has_changed {
            self.publish_owners(world);
        }
    }

    /// Assigns partitions without an owner, or whose owner has not noticed the assignment.
    /// Sometimes moves one to the process with the fewest partitions from one with two more.
    fn share<M: Machine>(&mut self, world: &World<Resident<M>>) -> bool {
        let mut has_changed = false;
        for partition in 0..self.store.partitions() {
            let (to, life) = match self.store.owner(partition) {
                None => match self.leases.iter().min_by_key(|(life, _)| self.load(**life)) {
                    Some((life, lease)) => (lease.place, *life),
                    None => return has_changed,
                },
                Some(owner) if self.is_unaware(world, partition, owner) => {
                    (self.leases[&owner].place, owner)
                }
                Some(owner) => {
                    let fewest = self.leases.iter().min_by_key(|(life, _)| self.load(**life));
                    let Some((life, lease)) = fewest else { continue };
                    let (life, to) = (*life, lease.place);
                    let is_uneven = self.load(owner) >= self.load(life) + 2;
                    if !is_uneven || !self.rng.chance(MOVES) {
                        continue;
                    }
                    self.take_back(world.now(), partition);
                    (to, life)
                }
            };
            self.give(world, partition, to, life);
            has_changed = true;
        }
        has_changed
    }

    fn load(&self, life: u64) -> usize {
        self.store.owned().filter(|(_, owner)| *owner == life).count()
    }

    /// Returns `true` if the process has missed the report that it owns the partition.
    fn is_unaware<M: Machine>(
        &self,
        world: &World<Resident<M>>,
        partition: u16,
        owner: u64,
    ) -> bool {
        let Some(lease) = self.leases.get(&owner) else { return false };
        let place = &self.places[lease.place];
        let is_paused = world.is_paused(self.config.hosts[lease.place]);
        let is_quiet = place.reports.is_empty() && !is_paused;
        let server = self.server(world, lease.place);
        let is_owned = server.is_none_or(|server| server.is_owned(partition));
        place.life == Some(owner) && is_quiet && !is_owned
    }

    fn take_back(&mut self, now: Time, partition: u16) {
        if let Some(owner) = self.owner(partition) {
            self.report(now, owner, StoreReport::Disown(partition));
        }
    }

    fn give<M: Machine>(
        &mut self,
        world: &World<Resident<M>>,
        partition: u16,
        place: usize,
        life: u64,
    ) {
        let term = self.store.give(partition, life);
        let state = self.store.state(partition).clone();
        if self.places[place].life == Some(life) {
            self.report(world.now(), place, StoreReport::Own { partition, term, state });
        }
    }

    fn publish_owners<M: Machine>(&mut self, world: &World<Resident<M>>) {
        let address = |life: &u64| {
            let place = self.places.iter().position(|place| place.life == Some(*life));
            let place = place.or_else(|| self.leases.get(life).map(|lease| lease.place))?;
            Some(self.config.hosts[place].endpoint())
        };
        let owned = self.store.owned();
        let owned = owned.filter_map(|(partition, life)| Some((partition, address(&life)?)));
        let owners = Owners { partitions: self.store.partitions(), owned: owned.collect() };
        for place in 0..self.places.len() {
            if self.places[place].life.is_some() {
                self.report(world.now(), place, StoreReport::Owners(owners.clone()));
            }
        }
    }

    fn report(&mut self, now: Time, place: usize, report: StoreReport) {
        let at = now + self.config.store_delay;
        if self.places[place].reports.is_empty() {
            self.queue.add(at, Op::Reports(place));
        }
        self.places[place].reports.push_back((at, report));
    }

    fn is_cut_off<M: Machine>(&self, world: &World<Resident<M>>, place: usize) -> bool {
        let host = self.config.hosts[place];
        let is_cut = |store| world.is_cut_off(host, store) || world.is_cut_off(store, host);
        self.config.store_at.is_some_and(is_cut)
    }
}

/// First id of processes and detectors, above all ids of nodes.
const FIRST_ID: u64 = 1 << 48;
/// Time without an answer from the store after which a process reports the outcome as unknown.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
const REPORT_RETRY: Duration = Duration::from_millis(100);
/// Probability of moving a partition when leases are renewed and processes have unequal shares.
const MOVES: f64 = 0.05;
