//! Instruction counts, measured with valgrind.
//!
//! The counts are the same in every run with the same compiler. A limit on them is therefore a
//! test: the run fails if one is exceeded. A limit is a fifth above the count at the time when it
//! was set. This leaves room for another compiler, but not for another algorithm.

#![allow(missing_docs, unreachable_pub, unused_qualifications, reason = "gungraun's macros")]

mod crowd;
mod ring;
mod shortage;
mod workload;

use std::hint::black_box;

use carom_proto::lateral::Config;
use carom_proto::membership::static_list::StaticMembership;
use carom_proto::node::Node;
use carom_proto::ring::Qos;
use carom_proto::wire::{self, Header, Protocol};
use carom_proto::{Endpoint, GroupId, Incarnation, NodeId, Profile, RateOfFire, Time};
use crowd::{Crowd, RACK};
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};
use ring::Ring;
use shortage::Shortage;
use workload::Workload;

const HEADER: Header = Header {
    protocol: Protocol::Lateral,
    kind: 1,
    flags: 0,
    group: GroupId(7),
    sender: NodeId(1),
    incarnation: Incarnation(2),
    view: 1,
};

fn datagram(bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(wire::HEADER_BYTES + bytes);
    let start = HEADER.begin(&mut out);
    out.resize(wire::HEADER_BYTES + bytes, 0x5A);
    wire::seal(&mut out, start);
    out
}

fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

#[library_benchmark(config = limit(830))]
#[bench::of_1_kib(datagram(1024))]
fn decode_header(datagram: Vec<u8>) -> Vec<u8> {
    assert!(black_box(Header::decode(black_box(&datagram))).is_ok());
    datagram
}

#[library_benchmark(config = limit(780))]
#[bench::of_1_kib(datagram(1024))]
fn seal_header(mut datagram: Vec<u8>) -> Vec<u8> {
    wire::seal(black_box(&mut datagram), 0);
    datagram
}

const PACKETS: usize = 1000;
const WARM_UP: usize = 60_000;

fn workload(groups_per_node: usize) -> Workload {
    Workload::new(groups_per_node, WARM_UP, PACKETS)
}

// Receives data packets. Each is accounted for, delivered, and put into all bins.
#[library_benchmark]
#[bench::in_2_groups(args = (workload(2)), config = limit(4_100_000))]
#[bench::in_64_groups(args = (workload(64)), config = limit(8_600_000))]
#[bench::in_1024_groups(args = (workload(1024)), config = limit(11_300_000))]
fn receive_1000_packets(mut workload: Workload) -> Workload {
    assert_eq!(black_box(workload.run()), PACKETS);
    workload
}

const CHANGES: usize = 1000;

fn changes(groups_per_node: usize) -> Workload {
    let mut workload = Workload::new(groups_per_node, WARM_UP, CHANGES);
    // The first changes allocate memory for regions and bins that come and go.
    workload.plan_changes();
    workload.run_changes();
    workload.plan_changes();
    workload
}

// A node joins or leaves a group. Then a packet is received, for which the bins must be up to date.
#[library_benchmark]
#[bench::in_16_groups(args = (changes(16)), config = limit(27_300_000))]
#[bench::in_1024_groups(args = (changes(1024)), config = limit(41_600_000))]
fn take_up_1000_changes(mut workload: Workload) -> Workload {
    assert_eq!(black_box(workload.run_changes()), CHANGES);
    workload
}

// One repair solves all pending repairs, and 16 of the recovered packets are delivered at once.
#[library_benchmark]
#[bench::of_8_packets(args = (Shortage::with_avalanche(8)), config = limit(590_000))]
#[bench::of_32_packets(args = (Shortage::with_avalanche(32)), config = limit(590_000))]
fn solve_all_by_one_repair(mut shortage: Shortage) -> Shortage {
    assert_eq!(black_box(shortage.run()), 16);
    shortage
}

const REPAIRS: usize = 1000;

// Receives repairs of 1000 missing packets, while the maximum number of repairs is pending.
#[library_benchmark]
#[bench::of_8_packets(args = (Shortage::at_random(8, REPAIRS)), config = limit(73_000_000))]
#[bench::of_32_packets(args = (Shortage::at_random(32, REPAIRS)), config = limit(89_000_000))]
fn take_in_1000_repairs(mut shortage: Shortage) -> Shortage {
    black_box(shortage.run());
    shortage
}

#[library_benchmark]
#[bench::of_50_groups_of_100(args = (Crowd::new(50, 100, 1)), config = limit(1_250_000))]
#[bench::of_50_groups_of_1000(args = (Crowd::new(50, 1000, 1)), config = limit(1_450_000))]
#[bench::of_1000_groups_of_1000(args = (Crowd::new(1000, 1000, 1)), config = limit(29_000_000))]
fn fail_rack(mut crowd: Crowd) -> Crowd {
    assert_eq!(RACK, 16);
    crowd.fail_rack();
    crowd
}

#[library_benchmark]
#[bench::of_10_000_nodes(args = (Crowd::new(1, 0, 0), 10_000), config = limit(31_000_000))]
#[bench::of_100_000_nodes(args = (Crowd::new(1, 0, 0), 100_000), config = limit(351_000_000))]
fn join_one_group(mut crowd: Crowd, members: u64) -> Crowd {
    crowd.admit(members);
    crowd
}

// A node leaves all its groups, one after the other. It has ten streams in each group.
#[library_benchmark]
#[bench::of_1000(args = (Crowd::apart(1_000, 10)), config = limit(48_500_000))]
#[bench::of_10_000(args = (Crowd::apart(10_000, 10)), config = limit(473_000_000))]
#[bench::of_1000_with_the_same_members(
    args = (Crowd::new(1_000, 10, 10)),
    config = limit(41_700_000)
)]
fn leave_groups(mut crowd: Crowd) -> Crowd {
    crowd.leave_all();
    crowd
}

fn names(groups: usize) -> (Node, Vec<String>) {
    let list = [(NodeId(1), Endpoint(([127, 0, 0, 1], 1).into()))];
    let membership = Box::new(StaticMembership::new(NodeId(1), list));
    let node = Node::new(NodeId(1), Config::default(), membership, 1);
    (node, (0..groups).map(|number| format!("group {number}")).collect())
}

#[library_benchmark]
#[bench::of_1000(args = (names(1_000)), config = limit(3_400_000))]
#[bench::of_10_000(args = (names(10_000)), config = limit(34_500_000))]
fn join_groups((mut node, names): (Node, Vec<String>)) -> Node {
    for name in &names {
        let profile = Profile::TimeCritical(RateOfFire::default());
        node.join(Time(0), name, profile).expect("the settings are right");
    }
    node
}

const MESSAGES: usize = 4000;

fn ring_of_four(window_bytes: usize) -> Ring {
    Ring::new(4, window_bytes, 20_000)
}

// Four members send, order and deliver messages. The count is the sum over all four.
#[library_benchmark]
#[bench::with_64_kib_under_way(args = (ring_of_four(64 << 10)), config = limit(118_000_000))]
#[bench::with_1_mib_under_way(args = (ring_of_four(1 << 20)), config = limit(112_000_000))]
fn order_4000_messages(mut ring: Ring) -> Ring {
    assert_eq!(black_box(ring.run(MESSAGES, Qos::TotallyOrdered)), 4 * MESSAGES);
    ring
}

library_benchmark_group!(name = order, benchmarks = [order_4000_messages]);
library_benchmark_group!(
    name = views,
    benchmarks = [take_up_1000_changes, fail_rack, join_one_group, leave_groups, join_groups]
);
library_benchmark_group!(
    name = repairs,
    benchmarks = [solve_all_by_one_repair, take_in_1000_repairs]
);
library_benchmark_group!(name = receive, benchmarks = [receive_1000_packets]);
library_benchmark_group!(name = header, benchmarks = [decode_header, seal_header]);
main!(library_benchmark_groups = [header, receive, views, repairs, order]);
