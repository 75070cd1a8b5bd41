//! A world whose datagrams are carried by a medium in place of the simulated network.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::{Class, Destination, Endpoint, GroupId, NodeId, Time, Transmit, Wakeup};
use carom_sim::{
    Arrival, Disturbance, Fault, Goal, Happening, HostIx, Link, Machine, Media, Medium, Topology,
    World, WorldConfig,
};

const GROUP: GroupId = GroupId(9);
const DELAY: Duration = Duration::from_millis(3);
const CALL: Duration = Duration::from_micros(1);
const MOST_LAG: Duration = Duration::from_micros(100);

/// Carries each datagram to all its receivers at once. Each call takes some time, so that every
/// event is late.
#[derive(Debug, Default)]
struct Instant {
    hosts: u32,
    lag: Duration,
    elapsed: Duration,
    subscribers: BTreeSet<HostIx>,
    queue: VecDeque<(HostIx, HostIx, bool, Vec<u8>)>,
    last: Vec<u8>,
}

impl Medium for Instant {
    fn elapsed(&self) -> Duration {
        self.elapsed
    }

    fn subscribe(&mut self, host: HostIx, _group: GroupId) {
        self.subscribers.insert(host);
    }

    fn unsubscribe(&mut self, host: HostIx, _group: GroupId) {
        self.subscribers.remove(&host);
    }

    fn send(&mut self, from: HostIx, to: Goal, _class: Class, datagram: &[u8]) {
        let receivers: Vec<HostIx> = match to {
            Goal::Host(host) => vec![host],
            Goal::Group(_) => self.subscribers.iter().copied().collect(),
            Goal::Everyone => (0..self.hosts).map(HostIx).collect(),
        };
        self.elapsed += CALL;
        let is_multicast = !matches!(to, Goal::Host(_));
        for host in receivers.into_iter().filter(|host| *host != from) {
            self.queue.push_back((host, from, is_multicast, datagram.to_vec()));
        }
    }

    fn receive(&mut self, most: Duration) -> Option<Arrival<'_>> {
        self.elapsed += CALL;
        let Some((host, source, is_multicast, datagram)) = self.queue.pop_front() else {
            self.elapsed += most;
            return None;
        };
        self.last = datagram;
        let class = Class::Data;
        Some(Arrival { host, source, class, is_multicast, datagram: &self.last })
    }

    fn note_lag(&mut self, lag: Duration) {
        self.lag = self.lag.max(lag);
        assert!(self.lag <= MOST_LAG, "an event is {lag:?} late");
    }
}

#[derive(Debug)]
struct Instants;

impl Media for Instants {
    fn create(&self, topology: &Topology) -> Box<dyn Medium> {
        Box::new(Instant { hosts: topology.hosts(), ..Instant::default() })
    }
}

/// Multicasts its first datagram after a delay, and answers each multicast to its sender.
#[derive(Default)]
struct Pinger {
    at: Option<Time>,
    out: VecDeque<(Destination, Vec<u8>)>,
    received: VecDeque<Vec<u8>>,
}

impl Machine for Pinger {
    type Command = ();
    type Event = Vec<u8>;

    fn handle_command(&mut self, now: Time, (): ()) {
        self.at = Some(now + DELAY);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.at.is_some_and(|at| at <= now) {
            self.at = None;
            self.out.push_back((Destination::Group(GROUP), b"ping".to_vec()));
        }
    }

    fn handle_datagram(&mut self, _now: Time, source: Endpoint, datagram: &[u8]) {
        if datagram == b"ping" {
            self.out.push_back((Destination::Endpoint(source), b"pong".to_vec()));
        }
        self.received.push_back(datagram.to_vec());
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (destination, datagram) = self.out.pop_front()?;
        out.extend(datagram);
        Some(Transmit { destination, class: Class::Data })
    }

    fn poll_event(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.at.map(|at| Wakeup { at, reason: "ping" })
    }
}

fn world(hosts: u32) -> World<Pinger> {
    // These links would lose everything.
    let topology = Topology::lan(hosts, Link::default().with_loss(Loss::Uniform(1.0)));
    let config = WorldConfig { media: Some(Arc::new(Instants)), ..WorldConfig::new(topology, 1) };
    let mut world = World::new(config);
    for host in 0..hosts {
        world.spawn(HostIx(host), NodeId(u64::from(host) + 1), Pinger::default());
        world.subscribe(HostIx(host), GROUP);
    }
    world
}

/// Lets the first host multicast, and returns what the hosts receive, and when.
fn ping(world: &mut World<Pinger>) -> Vec<(Duration, u32, Vec<u8>)> {
    let start = world.now();
    world.command(HostIx(0), ());
    let mut got = Vec::new();
    world.run_for(2 * DELAY, &mut |Happening { at, host, event }| {
        got.push((at.since(start), host.0, event));
    });
    let passed = world.now().since(start);
    assert!((2 * DELAY..2 * DELAY + MOST_LAG).contains(&passed), "{passed:?}");
    got
}

#[test]
fn timers_and_datagrams_follow_the_time_of_the_medium() {
    let mut world = world(3);
    let got = ping(&mut world);
    let ping = b"ping".to_vec();
    let pong = b"pong".to_vec();
    assert!(got.iter().all(|(at, ..)| (DELAY..DELAY + MOST_LAG).contains(at)), "{got:?}");
    let got: Vec<(u32, Vec<u8>)> = got.into_iter().map(|(_, host, what)| (host, what)).collect();
    assert_eq!(got, [(1, ping.clone()), (2, ping), (0, pong.clone()), (0, pong)]);
    assert_eq!(world.counters().delivered.all_datagrams(), 4);
    assert_eq!(world.counters().lost_on_link, 0, "the links carry nothing");
}

#[test]
fn faults_of_hosts_take_place_on_arrival_from_the_medium() {
    let heard = |fault: &Fault| -> Vec<u32> {
        let mut world = world(3);
        world.apply(fault);
        ping(&mut world).into_iter().map(|(_, host, _)| host).collect()
    };
    assert_eq!(heard(&Fault::Partition(vec![HostIx(1)])), [2, 0]);
    assert_eq!(heard(&Fault::OneWay(vec![HostIx(1)], vec![HostIx(0)])), [1, 2, 0]);
    assert_eq!(heard(&Fault::Loss(HostIx(2), Loss::Uniform(1.0))), [1, 0]);
    assert_eq!(heard(&Fault::Pause(HostIx(1))), [2, 0]);
    let twice = Disturbance { duplicate: 1.0, ..Disturbance::default() };
    assert_eq!(heard(&Fault::Disturb(twice)).len(), 2 * 2 + 2 * 4, "each datagram twice");
}

#[test]
fn deaf_or_unsubscribed_host_gets_no_multicast_from_the_medium() {
    let mut world = world(4);
    world.unsubscribe(HostIx(1), GROUP);
    world.network().set_deaf(HostIx(2), true);
    let heard: Vec<u32> = ping(&mut world).into_iter().map(|(_, host, _)| host).collect();
    // The sender of a simulated driver sends a copy to each deaf host.
    assert_eq!(heard, [3, 2, 0, 0]);
}

#[test]
fn step_over_a_medium_returns_after_a_short_time_without_events() {
    let mut world = world(2);
    let start = world.now();
    assert!(world.step() && world.next_at() == Some(world.now()));
    let passed = world.now().since(start);
    assert!(!passed.is_zero() && passed <= Duration::from_millis(1) + MOST_LAG, "{passed:?}");
}

#[test]
fn late_call_processes_what_is_due_and_receives() {
    let mut world = world(2);
    world.command(HostIx(0), ());
    world.run_for(DELAY, &mut |_| {});
    // The medium's time has passed the end of each of these calls.
    let mut got = 0;
    for _ in 0..4 {
        let end = world.now();
        world.run_until(end, &mut |_| got += 1);
    }
    assert_eq!(got, 2, "the ping and its answer");
}
