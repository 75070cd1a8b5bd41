//! Tests a receiver that is slower than the others: its detection, and the policies for it.

use std::time::Duration;

use carom_proto::rdcm::Slowest;
use carom_sim::{Fault, HostIx};

use crate::net::{Net, Setup};

/// Returns the number of messages that host 2 of a sender and four receivers gets in ten seconds,
/// while host 4 runs for `running_ms` of every 100 ms.
fn got_beside(policy: Slowest, running_ms: u64) -> (u64, Net) {
    let mut setup = Setup::rack(5, 3).at_mbit(100);
    setup.config.slowest = policy;
    setup.config.send_bytes = 4 << 20;
    // At this rate, 128 packets take 15 ms.
    setup.config.message_bytes = 16 << 10;
    setup.config.window_packets = 128;
    let mut net = Net::sending(u64::MAX, setup, &[0, 1, 2, 3, 4]);
    net.run(500);
    let before = net.log(2).got.len();
    for _ in 0..100 {
        if running_ms < 100 {
            net.world.apply(&Fault::Pause(HostIx(4)));
        }
        net.run(100 - running_ms);
        net.world.apply(&Fault::Resume(HostIx(4)));
        net.run(running_ms);
    }
    ((net.log(2).got.len() - before) as u64, net)
}

#[test]
fn others_keep_90_percent_beside_a_receiver_at_quarter_time() {
    let (alone, undisturbed) = got_beside(Slowest::default(), 100);
    assert_eq!((&undisturbed.limiting[..], &undisturbed.slow[..]), (&[][..], &[][..]));
    let (got, net) = got_beside(Slowest::default(), 25);
    assert!(got * 10 >= alone * 9, "{got} of {alone}, {:?}", net.limiting);
    let last = net.limiting.last().expect("it is named");
    assert!(last.is_left_behind && last.percent_of_others() <= 50, "{last:?}");
    assert!(net.limiting.iter().all(|it| it.node == Net::id(4)), "{:?}", net.limiting);
}

#[test]
fn others_keep_90_percent_beside_a_receiver_with_pauses() {
    let (alone, undisturbed) = got_beside(Slowest::LeaveBehind, 100);
    assert_eq!((&undisturbed.limiting[..], &undisturbed.slow[..]), (&[][..], &[][..]));
    for running_ms in [25, 50, 70] {
        let (got, net) = got_beside(Slowest::LeaveBehind, running_ms);
        assert!(got * 10 >= alone * 9, "{running_ms}: {got} of {alone}, {:?}", net.limiting);
        let last = net.limiting.iter().rfind(|it| it.is_left_behind).expect("it is named");
        assert!(last.percent_of_others() <= 80, "{last:?}");
        assert!(net.limiting.iter().all(|it| it.node == Net::id(4)), "{:?}", net.limiting);
    }
}

#[test]
fn a_receiver_that_was_often_slow_is_back_within_seconds() {
    let mut setup = Setup::rack(5, 3).at_mbit(20);
    setup.config.slowest = Slowest::LeaveBehind;
    setup.config.slow_after = None;
    setup.config.send_bytes = 1 << 20;
    setup.config.message_bytes = 16 << 10;
    setup.config.window_packets = 32;
    let mut net = Net::sending(u64::MAX, setup, &[0, 1, 2, 3, 4]);
    for _ in 0..300 {
        net.pause_for(4, 50);
        net.run(50);
    }
    let times = net.slow.iter().filter(|it| it.node == Net::id(4)).count();
    assert!(times >= 4, "{times} times: it returns and is slow again");
    net.run(11_000);
    let receivers = net.engine(0).receivers(net.group);
    assert!(receivers.iter().all(|(_, it)| it.evicted_at.is_none()), "{receivers:?}");
}

#[test]
fn a_receiver_that_is_waited_for_is_named_and_gets_everything() {
    let (alone, _) = got_beside(Slowest::Wait, 100);
    let (got, net) = got_beside(Slowest::Wait, 25);
    assert!(got * 10 < alone * 7, "{got} of {alone}: it slows the others down");
    assert_eq!(net.slow, []);
    assert_eq!(net.log(4).lost, []);
    let [first, ..] = net.limiting[..] else { panic!("no receiver is reported") };
    assert!(first.node == Net::id(4) && !first.is_left_behind, "{first:?}");
    assert!(net.limiting.len() <= 3, "once in five seconds: {:?}", net.limiting);
    assert!(first.since <= Duration::from_secs(1), "{first:?}");
}

#[test]
fn receiver_above_the_set_share_of_the_median_is_awaited() {
    let (_, net) = got_beside(Slowest::Share(0.3), 50);
    assert_eq!((&net.slow[..], &net.log(4).lost[..]), (&[][..], &[][..]));
    let (_, net) = got_beside(Slowest::LeaveBehind, 50);
    assert!(net.limiting.iter().any(|it| it.is_left_behind), "{:?}", net.limiting);
}
