//! Tests hosts on one shared cable.

mod talker;

use std::time::Duration;

use carom_proto::{Destination, GroupId, NodeId};
use carom_sim::{Ethernet, Happening, HostIx, Topology, World, WorldConfig};
use talker::Talker;

const GROUP: GroupId = GroupId(9);

fn world(ethernet: Ethernet) -> World<Talker> {
    let mut world = World::new(WorldConfig::new(Topology::ethernet(4, ethernet), 1));
    for host in world.topology().all_hosts() {
        world.spawn(host, NodeId(u64::from(host.0) + 1), Talker::default());
        world.subscribe(host, GROUP);
    }
    world
}

fn arrivals(world: &mut World<Talker>) -> Vec<(u64, u32, u32)> {
    let (start, mut found) = (world.now(), Vec::new());
    world.run_for(Duration::from_secs(1), &mut |Happening { at, host, event }| {
        let from = (0..4).find(|from| HostIx(*from).endpoint() == event);
        found.push((at.0 - start.0, host.0, from.expect("the source is a host")));
    });
    found
}

/// Size, in bytes, of a datagram that occupies the cable for one millisecond: 1250 bytes with the
/// gap.
const A_MILLISECOND: usize = 1250 - 66;

#[test]
fn a_multicast_takes_the_cable_once_and_all_others_hear_it() {
    let mut world = world(Ethernet::default());
    for _ in 0..2 {
        world.command(HostIx(1), (Destination::Group(GROUP), A_MILLISECOND));
    }
    // Arrival of the last bit, without the gap of 9.6 us, after 5 us along the cable.
    let (first, second) = (1_000_000 - 9_600 + 5_000, 2_000_000 - 9_600 + 5_000);
    let expected = [first, second].map(|at| [(at, 0, 1), (at, 2, 1), (at, 3, 1)]);
    assert_eq!(arrivals(&mut world), expected.concat());
}

#[test]
fn senders_share_the_cable_frame_by_frame() {
    let mut world = world(Ethernet { propagation: Duration::ZERO, ..Ethernet::default() });
    let to_the_last = Destination::Node(NodeId(4));
    for _ in 0..20 {
        world.command(HostIx(0), (to_the_last.clone(), A_MILLISECOND));
    }
    for _ in 0..5 {
        world.command(HostIx(1), (to_the_last.clone(), A_MILLISECOND));
        world.command(HostIx(2), (to_the_last.clone(), A_MILLISECOND));
    }
    let from: Vec<u32> = arrivals(&mut world).into_iter().map(|(_, _, from)| from).collect();
    assert_eq!(from.len(), 30);
    assert_eq!(from[..7], [0, 1, 2, 0, 1, 2, 0], "the first frame waited before the others");
    assert!(from[15..].iter().all(|from| *from == 0), "host 0 sends the rest: {from:?}");
}

#[test]
fn what_finds_the_interface_full_is_dropped_and_counted() {
    let mut world = world(Ethernet { queue_bytes: 12_500, ..Ethernet::default() });
    for _ in 0..20 {
        world.command(HostIx(0), (Destination::Node(NodeId(2)), A_MILLISECOND));
    }
    assert_eq!(arrivals(&mut world).len(), 11, "one on the cable, ten behind it");
    assert_eq!((world.counters().queue_full, world.in_flight()), (9, 0));
}
