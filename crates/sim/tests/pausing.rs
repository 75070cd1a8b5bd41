//! Tests a paused host.

use std::time::Duration;

use carom_proto::{Destination, Endpoint, NodeId, Time, Transmit};
use carom_sim::{Fault, HostIx, Link, Machine, Place, Topology, World, WorldConfig};

#[derive(Default)]
struct Recorder {
    log: Vec<String>,
    outgoing: Vec<Destination>,
}

enum Order {
    Note(&'static str),
    Send(Destination),
}

impl Machine for Recorder {
    type Command = Order;
    type Event = ();

    fn handle_command(&mut self, _: Time, order: Order) {
        match order {
            Order::Note(text) => self.log.push(text.to_owned()),
            Order::Send(destination) => self.outgoing.push(destination),
        }
    }

    fn handle_datagram(&mut self, _: Time, _: Endpoint, datagram: &[u8]) {
        self.log.push(format!("{} bytes", datagram.len()));
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let destination = self.outgoing.pop()?;
        out.extend_from_slice(b"hello");
        Some(Transmit { destination, class: carom_proto::Class::Data })
    }
}

const HOST: HostIx = HostIx(0);
const MILLISECOND: Duration = Duration::from_millis(1);

fn world(topology: Topology) -> World<Recorder> {
    let mut world = World::new(WorldConfig::new(topology, 1));
    for host in world.topology().all_hosts() {
        world.spawn(host, NodeId(u64::from(host.0) + 1), Recorder::default());
    }
    world
}

fn log(world: &World<Recorder>, host: HostIx) -> &[String] {
    &world.machine(host).expect("it was spawned").log
}

#[test]
fn commands_to_a_paused_host_wait_and_keep_their_order() {
    let mut world = world(Topology::lan(1, Link::default()));
    world.apply(&Fault::Pause(HOST));
    let end = world.now() + MILLISECOND;
    world.command_at(end, HOST, Order::Note("third"));
    world.command(HOST, Order::Note("first"));
    world.command_at(world.now(), HOST, Order::Note("second"));
    world.run_until(Time(end.0 - 1), &mut |_| {});
    assert!(log(&world, HOST).is_empty(), "a stopped process does nothing");
    world.apply(&Fault::Resume(HOST));
    world.command(HOST, Order::Note("between"));
    world.run_for(MILLISECOND, &mut |_| {});
    assert_eq!(log(&world, HOST), ["first", "second", "between", "third"]);
}

#[test]
fn command_due_at_resume_does_not_overtake_a_waiting_one() {
    let mut world = world(Topology::lan(2, Link::default()));
    world.apply(&Fault::Pause(HOST));
    world.command_at(world.now(), HOST, Order::Note("first"));
    let end = world.now() + MILLISECOND;
    world.command_at(end, HostIx(1), Order::Note("the time has come"));
    world.command_at(end, HOST, Order::Note("second"));
    while log(&world, HostIx(1)).is_empty() {
        assert!(world.step());
    }
    world.apply(&Fault::Resume(HOST));
    world.run_until(end, &mut |_| {});
    assert_eq!(log(&world, HOST), ["first", "second"]);
}

#[test]
fn machine_spawned_on_an_empty_paused_host_runs() {
    let mut world = world(Topology::lan(1, Link::default()));
    world.kill(HOST);
    world.apply(&Fault::Pause(HOST));
    world.spawn(HOST, NodeId(9), Recorder::default());
    assert!(!world.is_paused(HOST));
}

#[test]
fn unreachable_destinations_are_counted() {
    let mut topology = Topology::graph(3, 0);
    topology.connect(Place::Host(0), Place::Host(1), Link::default());
    let mut world = world(topology);
    for node in 1..=3 {
        world.command(HOST, Order::Send(Destination::Node(NodeId(node))));
    }
    world.command(HOST, Order::Send(Destination::Lan));
    world.run_for(MILLISECOND, &mut |_| {});
    assert_eq!(log(&world, HostIx(1)), ["5 bytes", "5 bytes"]);
    assert_eq!(world.counters().unreachable, 3, "itself once, and host 2 twice");
}
