//! Bugs of the engine that random scenarios have revealed.

use core::time::Duration;

use carom_conformance::rdcm::BulkSuite;
use carom_proto::SendError;
use carom_proto::rdcm::topology::Topology as Cluster;
use carom_sim::scenario::Suite as _;
use carom_sim::{Fault, HostIx};

use super::net::{Net, Setup};

#[test]
fn seeds_that_have_found_something_find_nothing_any_more() {
    let found = [
        (141, "a repair of an ended sender's stream was attributed to the next stream"),
        (238, "a repair was attributed to the wrong one of two simultaneous senders"),
        (112, "late packets of a dead sender kept all members from sending"),
        (161, "a member that joined in the middle of a message was not heard"),
        (241, "a receiver that was evicted before it had a place never got one"),
        (854, "two senders that were partitioned from each other never heard of each other"),
        (2570, "messages sent without receivers delayed those sent with receivers"),
        (
            836,
            "late packets of a sender that had left kept all members from sending after its return",
        ),
        (
            202,
            "a paused receiver considered its sender gone, and got the stream again from the start",
        ),
        (435, "a receiver waited for a sender that had yielded"),
        (605, "a receiver that considered its sender gone was admitted too late"),
        (863, "a receiver of a sender that had yielded was admitted after the last message"),
        (9813, "a receiver of a sender that had left was admitted after the last message"),
        (10_843, "a receiver of a sender that had yielded long before was admitted too late"),
        (4981, "a paused member considered its sender gone when it was about to send"),
        (6218, "receivers waited for a sender that had left and rejoined"),
        (9914, "receivers waited for a sender that had been paused in the meantime"),
        (8103, "losses of one sender were attributed to another"),
        (8926, "places were read while they changed"),
        (660_001_140, "losses of one stream were attributed to the previous one, by the checker"),
        (660_001_889, "a receiver of another sender got the first sender's stream from the start"),
        (
            661_005_148,
            "a receiver that kept packets for a child that had left was never readmitted",
        ),
        (661_008_363, "a node took the place of the former node at its address"),
        (661_017_054, "a partitioned receiver followed another sender"),
        (780_001_684, "a receiver that had slowed the others down was evicted for minutes"),
        (780_006_782, "a receiver that slowed the others a few times was evicted for minutes"),
        (376, "a restarted receiver kept a place that belonged to its former start"),
        (780_008_121, "a receiver that had ended the stream requested released packets"),
        (831_001_313, "a loss of one stream was attributed to a later one, by the checker"),
        (831_003_690, "a gap released while a successor was silent held up all later packets"),
        (833_000_139, "a place that was corrected after a forged report hid all later reports"),
        (833_000_256, "a forged report kept the true one from being answered"),
        (
            840_003_940,
            "a loss of a whole later stream was attributed to the previous one, by the checker",
        ),
        (840_034_593, "the same as 840_003_940"),
        (840_037_387, "a sender that had paused counted the pause in its round trip permanently"),
        (840_039_922, "a restarted receiver was owed its former start's messages, by the checker"),
        (840_054_663, "the same as 840_039_922"),
        (840_030_847, "the farewell was sent before the sender knew of a restarted receiver"),
        (840_034_760, "the same as 840_030_847"),
        (870_001_061, "receivers waited for the former start of a restarted sender"),
        (870_010_832, "a place of a later epoch, sent after a forged report, was never replaced"),
        (871_003_271, "a late joiner of a stream did not count as following it, by the checker"),
        (871_013_303, "a member that left during a confirmation was owed it, by the checker"),
        (1_100_083_012, "a receiver evicted before its first place was not notified of its losses"),
        (2_361_048_477, "an end was expected before it was repeated, by the checker"),
        (4947, "an evicted receiver that had caught up did not count as confirming"),
    ];
    for (seed, what) in found {
        let run = BulkSuite.run_seed(seed);
        let failure = run.failure.map(|failure| failure.violations);
        assert!(failure.is_none(), "seed {seed}, {what}: {failure:?}");
    }
}

#[test]
fn a_sender_without_receivers_has_its_messages_confirmed() {
    let mut net = Net::sending(50, Setup::rack(1, 1).at_mbit(8), &[0]);
    net.run(1);
    net.confirm(0);
    net.run(1500);
    let [safe] = &net.safe[..] else { panic!("{:?}", net.safe) };
    assert_eq!((safe.up_to.0, safe.members), (150, 0));
}

#[test]
fn joiner_in_mid_message_gets_the_next_one() {
    let mut setup = Setup::rack(3, 1).at_mbit(8);
    setup.message_bytes = 60_000;
    let mut net = Net::sending(30, setup, &[0, 1]);
    net.run(250);
    net.start(2);
    net.run_until_all_have(&[1, 2], 4000);
    net.assert_whole(&[1]);
    assert!(net.slow.is_empty(), "{:?}", net.slow);
}

#[test]
fn receiver_cut_off_at_the_start_is_admitted_later() {
    for is_known in [false, true] {
        let mut setup = Setup::rack(3, 1);
        setup.cluster = Cluster::racks(&[3]).expect("a rack");
        setup.is_known = is_known;
        let mut net = Net::new(setup, &[0, 1, 2]);
        net.world.apply(&Fault::Partition(vec![HostIx(2)]));
        net.to_send = 10;
        net.run(2000);
        net.world.apply(&Fault::Heal);
        net.run(1500);
        net.to_send = 20;
        net.run_until_all_have(&[1, 2], 1000);
        assert_eq!(net.log(2).got, (10..20).collect::<Vec<u64>>());
    }
}

#[test]
fn receiver_misled_about_its_sender_resumes_after_its_losses() {
    let mut setup = Setup::rack(3, 1).at_mbit(8);
    setup.config.linger = Duration::ZERO;
    let mut net = Net::sending(50, setup, &[0, 1, 2]);
    net.run(50);
    net.suspect(1, 0, true);
    net.run(10);
    assert!(net.engine(1).place(net.group).is_none(), "it should have lost its place");
    net.suspect(1, 0, false);
    net.run_until_all_have(&[1, 2], 1000);
    // A message consists of three packets, of which the first has number 1.
    let log = net.log(1);
    let is_lost = |index: &u64| {
        let numbers = 3 * *index as u32 + 1..3 * *index as u32 + 4;
        log.lost.iter().any(|it| numbers.start <= it.last.0 && it.first.0 < numbers.end)
    };
    assert_eq!(log.got, (0..50).filter(|index| !is_lost(index)).collect::<Vec<u64>>());
    assert!((1..50).contains(&log.lost.len()), "{:?}", log.lost);
    net.assert_whole(&[2]);
    assert_eq!(net.slow, []);
}

#[test]
fn last_receiver_resumes_after_a_message_that_is_kept_nowhere() {
    let mut setup = Setup::rack(2, 1).at_mbit(8);
    setup.config.linger = Duration::ZERO;
    setup.config.window_packets = 1 << 10;
    setup.config.message_bytes = 1 << 18;
    setup.message_bytes = 200_000;
    let message = 200_000_u64.div_ceil(setup.config.fragment_bytes() as u64);
    let mut net = Net::sending(5, setup, &[0, 1]);
    net.run(300);
    net.suspect(1, 0, true);
    net.run(5);
    assert!(net.engine(1).place(net.group).is_none(), "it should have lost its place");
    net.suspect(1, 0, false);
    net.run(2000);
    let log = net.log(1);
    let lost = log.lost.iter().map(|it| u64::from(it.first.0)..u64::from(it.last.0) + 1);
    let lost: Vec<u64> = lost.flatten().collect();
    assert_eq!(lost, (message + 1..=2 * message).collect::<Vec<u64>>(), "{:?}", log.lost);
    assert_eq!(log.got, [0, 2, 3, 4]);
    assert_eq!(net.slow, [], "the sender keeps everything that it still requests");
}

#[test]
fn new_sender_is_followed_at_once_after_the_former_rejoins() {
    let mut net = Net::sending(1, Setup::rack(4, 1), &[0, 1, 2]);
    net.run_until_all_have(&[1, 2], 1000);
    net.leave(0);
    net.run(5);
    net.join(0);
    net.start(3);
    net.run(5);
    net.try_send(3, 1).expect("no member sends");
    net.run(100);
    for host in [1, 2] {
        assert_eq!(net.log(host).got, [0, 1], "host {host}");
    }
}

#[test]
fn paused_receiver_does_not_consider_its_sender_gone() {
    let mut net = Net::sending(10, Setup::rack(3, 1), &[0, 1, 2]);
    net.run_until_all_have(&[1, 2], 1000);
    net.pause_for(2, 3000);
    for _ in 0..3 {
        let refused = net.try_send(2, 0);
        assert_eq!(refused, Err(SendError::HasSender { sender: Net::id(0) }));
        net.run(1);
    }
}
