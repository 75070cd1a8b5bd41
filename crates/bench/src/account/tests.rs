use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapWriter};

use super::*;
use crate::message::{HEADER_BYTES, Header, Magic};
use crate::record::{BACKGROUND_BYTES, BACKGROUND_NS, NodeReport, Record};

const MAGIC: Magic = Magic([9; 8]);
const FULL_SPEED: Workload = Workload { groups: 1, size: 32, rate: 0.0 };
/// Time at which the messages that are dropped were sent.
const SENT_NS: u64 = 1_000_000;

fn records(sender: u32, times: &[(u32, u64)]) -> Vec<Record> {
    times.iter().map(|(number, at_ns)| Record { sender, number: *number, at_ns: *at_ns }).collect()
}

/// Returns a processor time in a run of 1 ms.
fn cpu(used_us: u64) -> Option<u64> {
    Some(used_us * 1_000)
}

fn sender(times: &[(u32, u64)]) -> Node {
    let files = NodeFiles { sent: records(0, times), ..NodeFiles::default() };
    Node { files, cpu_ns: cpu(10), kernel_drops: Some(0), ..Node::default() }
}

fn receiver(times: &[(u32, u64)], dropped: &[(u32, u64)]) -> Node {
    let delivered = records(0, times);
    let files = NodeFiles { delivered, ..NodeFiles::default() };
    Node {
        files,
        receives: true,
        is_killed: false,
        drops: drops(dropped, SENT_NS),
        cpu_ns: cpu(5),
        packets: Some(6),
        kernel_drops: Some(0),
        link_drops: None,
        idle: None,
    }
}

/// Returns the drops of messages of sender 0 with these numbers and times in microseconds, which
/// were sent at `sent_ns`.
fn drops(dropped: &[(u32, u64)], sent_ns: u64) -> Drops {
    let mut writer = PcapWriter::new(Vec::new()).expect("a vector is writable");
    for (number, us) in dropped {
        let mut message = [0; HEADER_BYTES];
        Header { magic: MAGIC, sender: 0, number: *number, sent_ns }.write(&mut message);
        let packet = PcapPacket::new(Duration::from_micros(*us), 32, &message);
        writer.write_packet(&packet).expect("a vector is writable");
    }
    Drops::read(&*writer.into_writer(), MAGIC).expect("it was written")
}

fn is_near(ns: u64, expected: u64) -> bool {
    ns.abs_diff(expected) <= expected / 500
}

#[test]
fn every_copy_is_delivered_missing_or_a_duplicate() {
    let nodes = [
        sender(&[(0, 100), (1, 200), (2, 300)]),
        receiver(&[(0, 150), (1, 260), (2, 390), (1, 400)], &[]),
        receiver(&[(0, 170), (2, 340), (9, 500)], &[]),
    ];
    let account = Account::of(&nodes, &FULL_SPEED);
    assert_eq!((account.receivers, account.sent, account.expected), (2, 3, 6));
    assert_eq!((account.delivered, account.missing), (5, 1));
    assert_eq!((account.duplicates, account.unknown), (1, 1));
    assert!(!account.is_complete() && !account.orders_agree);
    assert_eq!((account.latency.count, account.latency.max), (5, 90));
    assert_eq!((account.spread.count, account.spread.max), (2, 50));
    assert_eq!(account.silence, Some(170));
    assert_eq!(account.cpu_us_per_copy, Some(4.0));
    assert_eq!(account.packets_per_copy, Some(2.0));
}

#[test]
fn losses_are_the_drops_before_the_delivery() {
    let sent: Vec<(u32, u64)> = (0..4).map(|number| (number, SENT_NS)).collect();
    // Number 0 was recovered, 1 never, and a repair of 2 was dropped after its delivery.
    let delivered = [(0, 9_000_000), (2, 1_100_000), (3, 1_200_000)];
    let nodes = [sender(&sent), receiver(&delivered, &[(0, 1_050), (1, 1_050), (2, 5_000)])];
    let account = Account::of(&nodes, &FULL_SPEED);
    assert_eq!((account.lost, account.datagrams_dropped, account.missing), (2, 3, 1));
    assert_eq!((account.latency_kept.count, account.latency_recovered.count), (2, 1));
    assert!(is_near(account.latency_recovered.max, 8_000_000), "{account:?}");
    assert!(is_near(account.latency_kept.max, 200_000), "{account:?}");
}

#[test]
fn own_messages_count_only_at_members_that_deliver_them() {
    let member = |index: u32, delivers_own: bool| {
        let own = records(index, &[(0, 100)]);
        let mut delivered = records(1 - index, &[(0, 300)]);
        if delivers_own {
            delivered.insert(0, Record { at_ns: 290, ..own[0] });
        }
        let files = NodeFiles { sent: own, delivered, ..NodeFiles::default() };
        Node { files, receives: true, ..Node::default() }
    };
    let without = Account::of(&[member(0, false), member(1, false)], &FULL_SPEED);
    assert_eq!((without.expected, without.delivered, without.latency.count), (2, 2, 2));
    let with = Account::of(&[member(0, true), member(1, true)], &FULL_SPEED);
    assert_eq!((with.expected, with.delivered, with.latency.count), (4, 4, 2));
    assert!(with.is_complete() && !with.orders_agree);
    assert_eq!(with.packets_per_copy, None);
}

#[test]
fn copies_at_a_full_buffer_are_not_called_not_lost() {
    let sent: Vec<(u32, u64)> = (0..3).map(|number| (number, SENT_NS)).collect();
    let delivered = [(0, 9_000_000), (1, 1_100_000), (2, 8_000_000)];
    let full = Node { kernel_drops: Some(2), ..receiver(&delivered, &[(0, 1_050)]) };
    let nodes = [sender(&sent), full, receiver(&delivered, &[])];
    let account = Account::of(&nodes, &FULL_SPEED);
    assert_eq!((account.kernel_drops, account.unclassified), (Some(2), 2));
    assert_eq!((account.latency_kept.count, account.latency_recovered.count), (3, 1));
    assert_eq!(account.latency.count, 6);
    let uncounted = Node { kernel_drops: None, ..nodes[2].clone() };
    assert_eq!(Account::of(&[nodes[0].clone(), uncounted], &FULL_SPEED).kernel_drops, None);
}

#[test]
fn copies_behind_a_full_link_are_not_called_not_lost() {
    let sent: Vec<(u32, u64)> = (0..2).map(|number| (number, SENT_NS)).collect();
    let delivered = [(0, 9_000_000), (1, 1_100_000)];
    let link = |node: Node, drops| Node { link_drops: Some(drops), ..node };
    let counts = |of_sender, of_receiver| {
        let lossy = receiver(&delivered, &[(0, 1_050)]);
        let nodes = [
            link(sender(&sent), of_sender),
            link(lossy, of_receiver),
            link(receiver(&delivered, &[]), 0),
        ];
        let account = Account::of(&nodes, &FULL_SPEED);
        assert_eq!((account.latency.count, account.latency_recovered.count), (4, 1));
        (account.link_drops, account.unclassified, account.latency_kept.count)
    };
    assert_eq!(counts(0, 0), (Some(0), 0, 3));
    assert_eq!(counts(0, 4), (Some(4), 1, 2), "those of one receiver");
    assert_eq!(counts(5, 0), (Some(5), 3, 0), "those of the sender hit all receivers");
    let account = Account::of(&[sender(&sent), receiver(&delivered, &[])], &FULL_SPEED);
    assert_eq!(account.link_drops, None, "they were not counted");
}

#[test]
fn latency_from_the_kernel_needs_its_times() {
    let delivered = [(0, 500), (1, 900)];
    let mut stamped = receiver(&delivered, &[]);
    stamped.files.received = vec![440, 890];
    let nodes = [sender(&[(0, 100), (1, 200)]), stamped, receiver(&delivered, &[])];
    let account = Account::of(&nodes, &FULL_SPEED);
    let from_kernel = account.latency_from_kernel;
    assert_eq!((from_kernel.count, from_kernel.p50, from_kernel.max), (2, 10, 60));
}

#[test]
fn spread_is_that_of_messages_that_all_others_have() {
    let sent = [(0, 100), (1, 200)];
    let got = |times: &[(u32, u64)]| receiver(times, &[]);
    let nodes = [sender(&sent), got(&[(0, 150), (1, 250)]), got(&[(0, 160)]), got(&[])];
    let account = Account::of(&nodes[..3], &FULL_SPEED);
    assert_eq!((account.spread.count, account.spread_left_out), (1, Some(0.5)));
    let account = Account::of(&nodes, &FULL_SPEED);
    assert_eq!((account.spread.count, account.spread_left_out), (0, Some(1.0)), "one got nothing");
    let account = Account::of(&nodes[..2], &FULL_SPEED);
    assert_eq!((account.spread.count, account.spread_left_out), (0, None), "one receiver");
}

#[test]
fn own_copy_of_the_sender_is_no_part_of_the_spread() {
    let files = NodeFiles {
        sent: records(0, &[(0, 100)]),
        delivered: records(0, &[(0, 9_000)]),
        ..NodeFiles::default()
    };
    let sender = Node { files, receives: true, ..Node::default() };
    let account =
        Account::of(&[sender, receiver(&[(0, 150)], &[]), receiver(&[(0, 170)], &[])], &FULL_SPEED);
    assert_eq!((account.spread.count, account.spread.max), (1, 20));
}

#[test]
fn goodput_is_that_of_the_steady_interval() {
    // 100 messages at one per microsecond, after a slow first one and before a slow last one.
    let mut times: Vec<(u32, u64)> =
        (0..100).map(|n| (n, 1_000_000 + u64::from(n) * 1_000)).collect();
    times[0].1 = 0;
    times[99].1 = 9_000_000;
    let slow: Vec<(u32, u64)> = times.iter().map(|(number, at)| (*number, at * 2)).collect();
    let sent: Vec<(u32, u64)> = (0..100).map(|number| (number, 0)).collect();
    let nodes = [sender(&sent), receiver(&times, &[]), receiver(&slow, &[])];
    let account = Account::of(&nodes, &Workload { size: 1_000, ..FULL_SPEED });
    assert_eq!(account.goodput_slowest, Some(0.5e9));
    assert_eq!(account.goodput_mean, Some(0.75e9));
    assert!(account.orders_agree);
}

#[test]
fn a_run_without_messages_has_no_ratios() {
    let account = Account::of(&[sender(&[]), receiver(&[], &[])], &FULL_SPEED);
    let none = (None, None, None);
    assert_eq!((account.expected, account.latency.count), (0, 0));
    assert_eq!((account.cpu_us_per_copy, account.packets_per_copy, account.goodput_mean), none);
}

#[test]
fn copies_out_of_source_order_are_counted_at_all_receivers() {
    let sent = [(0, 100), (1, 200), (2, 300)];
    let late = [(1, 250), (0, 260), (2, 350)];
    let nodes = [sender(&sent), receiver(&late, &[]), receiver(&late, &[])];
    let account = Account::of(&nodes, &FULL_SPEED);
    assert_eq!((account.out_of_order, account.orders_agree), (2, true));
    let two_groups = Account::of(&nodes, &Workload { groups: 2, ..FULL_SPEED });
    assert_eq!(two_groups.out_of_order, 0);
}

#[test]
fn send_calls_are_late_by_the_time_after_their_schedule() {
    let work = Workload { rate: 1_000.0, ..FULL_SPEED };
    let ms = 1_000_000;
    // The first one is late, too: the schedule began at 8 ms.
    let late = sender(&[(0, 9 * ms), (1, 9 * ms), (2, 13 * ms), (3, 13 * ms), (4, 12 * ms)]);
    let delay = Account::of(&[late.clone(), receiver(&[], &[])], &work).send_delay;
    assert_eq!(delay.count, 5);
    assert!(is_near(delay.p50, ms) && is_near(delay.max, 3 * ms), "{delay:?}");
    let account = Account::of(&[late, receiver(&[], &[])], &FULL_SPEED);
    assert_eq!((account.send_delay.count, account.is_paced), (0, false));
}

#[test]
fn processor_time_is_in_percent_of_the_run() {
    let sender = Node { cpu_ns: cpu(500), ..sender(&[(0, 100)]) };
    let receiver = |cpu_ns| Node { cpu_ns, ..receiver(&[(0, 1_000_100)], &[]) };
    let account =
        Account::of(&[sender.clone(), receiver(cpu(100)), receiver(cpu(300))], &FULL_SPEED);
    assert_eq!(account.cpu_percent_sender, Some(50.0));
    assert_eq!(account.cpu_percent_receivers, Some(20.0));
    assert_eq!(account.cpu_us_per_copy, Some(450.0));
    let account = Account::of(&[sender, receiver(cpu(100)), receiver(None)], &FULL_SPEED);
    assert_eq!(account.cpu_percent_sender, Some(50.0));
    assert_eq!((account.cpu_percent_receivers, account.cpu_us_per_copy), (None, None));
}

#[test]
fn killed_node_uses_processor_time_and_is_no_sender() {
    let killed = Node { cpu_ns: cpu(700), is_killed: true, ..Node::default() };
    let nodes = [sender(&[(0, 100)]), receiver(&[(0, 1_000_100)], &[]), killed];
    let account = Account::of(&nodes, &FULL_SPEED);
    assert_eq!((account.cpu_percent_sender, account.cpu_us_per_copy), (Some(1.0), Some(715.0)));
    assert_eq!(account.killed, 1);
}

#[test]
fn background_transfer_has_the_rate_of_the_slowest_receiver() {
    let receiver = |counters: &[(&str, u64)]| {
        let counters = counters.iter().map(|(name, count)| ((*name).to_owned(), *count));
        let report = NodeReport { counters: counters.collect(), ..NodeReport::default() };
        let files = NodeFiles { report, ..NodeFiles::default() };
        Node { files, receives: true, ..Node::default() }
    };
    let slowest = |receivers: [Node; 2]| {
        let nodes = [&[sender(&[(0, 100)])], &receivers[..]].concat();
        Account::of(&nodes, &FULL_SPEED).background_slowest
    };
    let rate = |bytes| receiver(&[(BACKGROUND_BYTES, bytes), (BACKGROUND_NS, 500_000_000)]);
    assert_eq!(slowest([rate(4_000), rate(1_000)]), Some(2_000.0));
    assert_eq!(slowest([rate(4_000), receiver(&[])]), None);
}

#[test]
fn idle_nodes_have_the_mean_of_their_load() {
    let idle = |cpu_ns, packets| {
        let idle = Idle { span_ns: 2_000_000_000, cpu_ns, packets };
        Node { idle: Some(idle), ..Node::default() }
    };
    let load = |nodes: &[Node]| {
        let account = Account::of(nodes, &FULL_SPEED);
        (account.idle_cpu_percent, account.idle_packets_per_second)
    };
    let (one, two) = (idle(Some(20_000_000), 10), idle(Some(60_000_000), 30));
    assert_eq!(load(&[one.clone(), two]), (Some(2.0), Some(10.0)));
    assert_eq!(load(&[one.clone(), idle(None, 30)]), (None, Some(10.0)));
    assert_eq!(load(&[one, Node::default()]), (None, None));
}
