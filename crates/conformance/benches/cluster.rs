//! The speed of simulating a data center as large as in RDCM's simulations: BCube(8,3) with 4096
//! servers and 2048 switches, one sender, 1000 random receivers, 1024 datagrams of 1 KB at the rate
//! of the links, and 1 % loss in bursts on each link.
//!
//! `cargo bench -p carom-conformance --bench cluster`

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::collections::BTreeSet;
use std::time::Duration;

use carom_conformance::rdcm::cluster;
use carom_proto::loss::Loss;
use carom_proto::rdcm::topology::{Topology as Cluster, Vertex};
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{Class, Destination, Endpoint, GroupId, NodeId, Rng, Time, Transmit};
use carom_sim::{HostIx, Link, Machine, World, WorldConfig};

const GROUP: GroupId = GroupId(9);
const RECEIVERS: usize = 1000;
const DATAGRAMS: u64 = 1024;
const DATAGRAM_BYTES: usize = 1024;
/// Time that a datagram occupies a link of 1 Gbit/s.
const INTERVAL: Duration = Duration::from_nanos(8 * (DATAGRAM_BYTES as u64 + 66));

/// A host that multicasts on command, and counts the datagrams that it receives. It forwards every
/// eighth datagram to the next host, like a repair.
struct Server {
    id: NodeId,
    to_send: Option<Destination>,
    received: u64,
}

impl Machine for Server {
    type Command = ();
    type Event = ();

    fn handle_command(&mut self, _now: Time, _command: ()) {
        self.to_send = Some(Destination::Group(GROUP));
    }

    fn handle_datagram(&mut self, _now: Time, _source: Endpoint, _datagram: &[u8]) {
        self.received += 1;
        if self.received.is_multiple_of(8) {
            self.to_send = Some(Destination::Node(NodeId(self.id.0 % 4096 + 1)));
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let destination = self.to_send.take()?;
        out.resize(DATAGRAM_BYTES, 0);
        Some(Transmit { destination, class: Class::Data })
    }
}

fn main() {
    let start = processor_time();
    let mut world = world();
    let made = processor_time();
    for _ in 0..DATAGRAMS {
        world.command(HostIx(0), ());
        world.run_for(INTERVAL, &mut |_| {});
    }
    world.run_for(Duration::from_millis(100), &mut |_| {});
    let (carried, end) = (world.footprint(), processor_time());
    println!(
        "made in {:.2} s; {} datagrams delivered, {} link crossings ({} lost on links) in \
         {:.2} s of one core",
        (made - start).as_secs_f64(),
        world.counters().delivered.all_datagrams(),
        carried.multicast.all_datagrams() + carried.unicast.all_datagrams(),
        world.counters().lost_on_link,
        (end - made).as_secs_f64()
    );
}

fn world() -> World<Server> {
    let cluster = Cluster::bcube(8, 3).expect("a valid cluster");
    let link = Link::of_delay(Duration::from_micros(1))
        .with_bandwidth(1_000_000_000, 1 << 20)
        .with_loss(Loss::Markov { rate: 0.01, mean_burst: 2.0 });
    let mut world = World::new(WorldConfig {
        hashes_history: false,
        checks: false,
        ..WorldConfig::new(cluster::topology(&cluster, |_| link), 1)
    });
    for host in world.topology().all_hosts() {
        let id = NodeId(u64::from(host.0) + 1);
        world.spawn(host, id, Server { id, to_send: None, received: 0 });
    }
    let mut hosts: Vec<u32> = (1..cluster.hosts()).collect();
    Rng::new(1).choose_to_front(&mut hosts, RECEIVERS);
    let receivers: BTreeSet<Vertex> = hosts[..RECEIVERS].iter().copied().map(Vertex).collect();
    for receiver in &receivers {
        world.subscribe(HostIx(receiver.0), GROUP);
    }
    let (tree, _) = MulticastTree::shortest(&cluster, &BTreeSet::new(), Vertex(0), &receivers);
    cluster::set_tree(&mut world, &cluster, GROUP, &tree);
    world
}

/// Returns the processor time of the process, which is independent of other programs.
fn processor_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID;
    Duration::from(nix::time::clock_gettime(clock).expect("every Linux has this clock"))
}
