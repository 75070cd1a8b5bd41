//! Tests nodes that do not hear each other, and paused applications. Neither must stop the others.

use std::time::Duration;

use carom_proto::rdcm::topology::Topology as Cluster;
use carom_sim::{Fault, HostIx};

use crate::net::{MBIT, Net, Setup};

fn racks(hosts: &[u32], seed: u64) -> Setup {
    let cluster = Cluster::racks(hosts).expect("racks");
    Setup { cluster, ..Setup::bcube(4, 1, seed) }
}

#[test]
fn receivers_deaf_to_each_other_delay_no_other() {
    let in_two_racks = [0, 1, 2, 3, 4, 5];
    for (from, to) in [(4, 3), (3, 4), (2, 1), (5, 3)] {
        let mut setup = racks(&[3, 3], 7);
        setup.config.slow_after = None;
        let mut net = Net::new(setup, &in_two_racks);
        net.world.apply(&Fault::OneWay(vec![HostIx(from)], vec![HostIx(to)]));
        net.to_send = 20_000;
        net.run_until_whole(&in_two_racks[1..], 20_000);
    }
}

#[test]
fn the_last_receiver_is_waited_for_however_long_it_stands_still() {
    let mut net = Net::sending(20_000, Setup::rack(2, 1).at_mbit(200), &[0, 1]);
    net.run(100);
    net.world.apply(&Fault::Pause(HostIx(1)));
    net.run(3000);
    let sent = net.engine(0).counters().data_sent;
    assert!(sent < 10_000, "{sent} packets were sent without a receiver");
    net.world.apply(&Fault::Resume(HostIx(1)));
    net.run_until_whole(&[1], 8000);
}

#[test]
fn an_application_that_takes_nothing_holds_the_others_up_once() {
    let mut setup = Setup::rack(3, 1).at_mbit(200);
    setup.config.slow_after = Some(Duration::from_millis(500));
    setup.config.window_packets = 1 << 10;
    let mut net = Net::sending(u64::MAX, setup, &[0, 1, 2]);
    net.run(100);
    net.set_backpressure(1, 1.0);
    net.run(1000);
    let before = net.log(2).got.len();
    net.run(10_000);
    let messages = 10 * 200 * MBIT / 8 / 4100;
    let got = (net.log(2).got.len() - before) as u64;
    assert!(got > messages * 8 / 10, "{got} of some {messages}");
    assert_eq!(net.slow.len(), 1, "{:?}", net.slow);
    net.set_backpressure(1, 0.0);
    net.run(2000);
    let (behind, ahead) = (net.log(1).got.last(), net.log(2).got.last());
    assert!(behind.max(ahead) < behind.map(|it| it + 1000).as_ref(), "it continues: {behind:?}");
}

#[test]
fn paused_hosts_cause_no_evictions() {
    // Host 0 sends. A busy machine delays one host, or several.
    for (stopped, ms) in [(&[0][..], 900), (&[0, 2], 1500), (&[2], 300), (&[1, 2, 3], 350)] {
        let mut net = Net::sending(10_000, Setup::rack(5, 5).at_mbit(100), &[0, 1, 2, 3, 4]);
        for _ in 0..3 {
            net.run(1000);
            stopped.iter().for_each(|host| net.world.apply(&Fault::Pause(HostIx(*host))));
            net.run(ms);
            stopped.iter().for_each(|host| net.world.apply(&Fault::Resume(HostIx(*host))));
        }
        net.run_until_all_have(&[1, 2, 3, 4], 10_000);
        assert_eq!(net.slow, [], "{stopped:?} for {ms} ms");
        net.assert_whole(&[1, 2, 3, 4]);
    }
}

#[test]
fn sender_is_as_fast_after_a_stop_as_before() {
    let mut setup = Setup::bcube(4, 1, 11);
    setup.config.rate = None;
    let mut net = Net::new(setup, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let receivers = [1, 2, 3, 4, 5, 6, 7];
    net.to_send = 500;
    let before = net.run_until_all_have(&receivers, 5000);
    // Packets in flight when the sender stops are acknowledged when it resumes.
    net.to_send = 1000;
    net.run(1);
    net.pause_for(0, 3000);
    net.run(200);
    net.to_send = 1500;
    let after = net.run_until_all_have(&receivers, 20_000);
    assert!(after <= 2 * before + 20, "{after} ms, {before} ms before");
    net.assert_whole(&receivers);
}
