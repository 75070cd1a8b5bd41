use carom_baselines::fec::packet::{Packet, Set};
use carom_baselines::fec::{Config, SenderFec};
use carom_baselines::guest::GuestPacket as _;
use carom_baselines::{Owed, StreamConfig};
use carom_proto::loss::Loss;
use carom_proto::{Class, How, NodeId, SeqNo};

use crate::rig::{GROUP, MILLISECOND, SECOND, World};

fn world(hosts: usize, config: Config, loss: Loss, seed: u64) -> World {
    let streams = StreamConfig { owed: Owed::First, ..config.streams };
    let config = Config { streams, ..config };
    World::new(hosts, loss, seed, move |id, seed| {
        Box::new(SenderFec::new(id, config.clone(), seed))
    })
}

#[test]
fn parity_repairs_most_losses_and_the_rest_is_reported() {
    let mut world = world(6, Config::default(), Loss::Uniform(0.1), 1);
    world.everybody_sends(200, 10 * MILLISECOND);
    world.run_for(SECOND * 60);
    let lost = world.assert_all_settled(200);
    let missing = world.total("missing");
    assert!(missing > 500, "{missing} were missing");
    // One set in 1100 loses more than 5 of its 13 packets, and then about half of its data.
    assert!(lost < 20, "{lost} lost of {missing} missing");
    assert_eq!(world.total("parity_sent"), 6 * 200 / 8 * 5);
    assert_eq!(world.sent[&Class::Repair], world.total("parity_sent"));
    assert_eq!(world.total("parity_contradictory"), 0);
    world.check();
}

#[test]
fn five_of_thirteen_may_be_lost_and_not_six() {
    for (count, lost) in [(5_usize, 0), (6, 6)] {
        let mut world = world(2, Config::default(), Loss::None, 2);
        let mut left = count;
        world.filter = Box::new(move |_, _, class, _| {
            let drops = class == Class::Data && left > 0;
            left -= usize::from(drops);
            !drops
        });
        world.sends(0, 0..8);
        world.run_for(MILLISECOND);
        let recovered = world.hosts[1].messages.iter();
        let recovered = recovered.filter(|it| it.how == How::Recovered(it.sender)).count();
        assert_eq!(recovered, if lost == 0 { 5 } else { 0 });
        world.run_for(SECOND * 20);
        assert_eq!(world.hosts[1].messages.len(), 8 - lost);
        assert_eq!(world.hosts[1].account(NodeId(1)).1.len(), lost);
    }
}

#[test]
fn a_set_that_does_not_fill_is_protected_in_proportion() {
    let mut world = world(2, Config::default(), Loss::None, 3);
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.sends(0, 0..3);
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.run_for(50 * MILLISECOND);
    assert_eq!(world.hosts[1].messages.len(), 0);
    world.run_for(SECOND * 20);
    // ceil(3 * 5 / 8) = 2 parity packets for 3 data packets: one packet too many is missing.
    assert_eq!(world.total("parity_sent"), 2);
    assert_eq!(world.hosts[1].account(NodeId(1)), (vec![], vec![1, 2, 3]));
}

#[test]
fn a_last_message_that_is_lost_is_noticed_by_a_heartbeat() {
    let config = Config { flush_after: None, ..Config::default() };
    let mut world = world(2, config, Loss::None, 4);
    world.filter = Box::new(|_, _, class, _| class == Class::Control);
    world.sends(0, 0..1);
    world.run_for(SECOND * 20);
    assert_eq!(world.hosts[1].account(NodeId(1)), (vec![], vec![1]));
    world.leave(0, GROUP);
    world.run_for(SECOND);
    assert_eq!(world.hosts[0].engine.poll_timeout(), None);
}

/// Models a link that loses in bursts. A burst lasts for a number of datagrams, and between the
/// last heartbeats there are no other datagrams to end it.
#[test]
fn lost_last_message_is_reported_after_the_next_heartbeat() {
    let config = Config { c: 0, ..Config::default() };
    let give_up_after = config.give_up_after;
    let mut world = world(2, config, Loss::None, 5);
    world.sends(0, 0..1);
    world.run_for(MILLISECOND);
    world.filter = Box::new(|_, _, _, _| false);
    world.sends(0, 1..2);
    // Heartbeats are sent after 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s, and the next after 12.7 s.
    world.run_for(SECOND * 7);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 5 + give_up_after);
    assert_eq!(world.hosts[1].account(NodeId(1)), (vec![1], vec![]));
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].account(NodeId(1)), (vec![1], vec![2]));
}

#[test]
fn each_set_dropped_for_another_sender_is_counted() {
    let streams = StreamConfig { max_streams: 1, ..StreamConfig::default() };
    let config = Config { streams, give_up_after: SECOND, ..Config::default() };
    let mut world = world(1, config, Loss::None, 9);
    let parity = |world: &mut World, sender: u64, first: u32| {
        let set = Set { first: SeqNo(first), data: 4, parity: 1 };
        let mut datagram = Vec::new();
        let packet = Packet::Parity { set, index: 0, shard: &[0; 20] };
        packet.encode(NodeId(sender), GROUP, 1, &mut datagram);
        world.inject(0, &datagram);
    };
    (0..3).for_each(|set| parity(&mut world, 5, 1 + set * 4));
    world.run_for(SECOND * 2);
    assert_eq!((world.total("lost"), world.total("missing_now")), (12, 0));
    parity(&mut world, 6, 1);
    assert_eq!(world.total("sets_dropped"), 3);
    world.hosts[0].engine.check();
}
