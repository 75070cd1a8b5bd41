use carom_baselines::ack::packet::Packet;
use carom_baselines::ack::{AckTimeout, Config};
use carom_baselines::guest::GuestPacket as _;
use carom_baselines::{StreamConfig, Timeouts};
use carom_proto::loss::Loss;
use carom_proto::{Class, How, NodeId, SendError, SeqNo};

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};

fn world(hosts: usize, config: Config, loss: Loss, seed: u64) -> World {
    let config = Config { streams: StreamConfig::from_first(), ..config };
    World::new(hosts, loss, seed, move |id, seed| {
        Box::new(AckTimeout::new(id, config.clone(), seed))
    })
}

#[test]
fn everything_is_sent_again_until_it_is_acknowledged() {
    let mut world = world(6, Config::default(), Loss::Uniform(0.2), 1);
    world.everybody_sends(100, 10 * MILLISECOND);
    world.run_for(SECOND * 30);
    assert_eq!(world.assert_all_settled(100), 0);
    assert!(world.total("retransmissions_sent") > 600);
    assert_eq!(world.total("slow"), 0);
    (0..6).for_each(|number| world.confirm(number));
    for host in &world.hosts {
        host.engine.check();
        let [safe] = &host.safe[..] else { panic!("{:?}", host.safe) };
        assert_eq!((safe.up_to, safe.members, &safe.incomplete[..]), (SeqNo(100), 5, &[][..]));
    }
}

#[test]
fn without_loss_every_receiver_acknowledges_each_message_once() {
    let mut world = world(4, Config::default(), Loss::None, 2);
    world.everybody_sends(50, 10 * MILLISECOND);
    world.run_for(SECOND);
    assert_eq!(world.total("acks_sent"), 4 * 50 * 3);
    assert_eq!(world.total("retransmissions_sent"), 0);
    assert_eq!(world.sent.get(&Class::Retransmission), None);
}

#[test]
fn a_full_window_holds_the_sender_back() {
    let config = Config { window: 4, ..Config::default() };
    let mut world = world(3, config, Loss::None, 3);
    world.filter = Box::new(|_, to, _, _| to != NodeId(3));
    world.sends(0, 0..4);
    world.run_for(SECOND);
    let held_back = world.try_send(0, GROUP, b"more");
    assert_eq!(held_back, Err(SendError::HeldBack { by: NodeId(3), behind: 4 }));
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 3);
    assert_eq!(world.send(0, &payload(0, 4)), SeqNo(5));
}

#[test]
fn silent_member_stops_no_sender_and_learns_its_losses() {
    let mut world = world(3, Config::default(), Loss::None, 4);
    world.sends(0, 0..1);
    world.run_for(SECOND);
    world.filter = Box::new(|from, to, _, _| from != NodeId(3) && to != NodeId(3));
    world.sends(0, 1..4);
    world.confirm(0);
    world.run_for(SECOND * 30);
    let [slow] = &world.hosts[0].slow[..] else { panic!("{:?}", world.hosts[0].slow) };
    assert_eq!((slow.node, slow.behind), (NodeId(3), 3));
    let [safe] = &world.hosts[0].safe[..] else { panic!("{:?}", world.hosts[0].safe) };
    assert_eq!(safe.incomplete, [(NodeId(3), 3)]);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 5);
    assert_eq!(world.hosts[2].account(NodeId(1)), (vec![1], vec![2, 3, 4]));
    world.filter = Box::new(|_, to, class, _| class != Class::Data || to != NodeId(3));
    world.sends(0, 4..5);
    world.run_for(SECOND * 5);
    assert_eq!(world.hosts[2].account(NodeId(1)).0, [1, 5]);
    world.check();
}

#[test]
fn a_member_that_comes_back_under_load_is_waited_for_again() {
    let config = Config { max_retransmissions: 3, ..Config::default() };
    let mut world = world(3, config, Loss::None, 5);
    world.everybody_sends(5, 10 * MILLISECOND);
    world.filter = Box::new(|from, to, _, _| from != NodeId(3) && to != NodeId(3));
    world.everybody_sends(100, 10 * MILLISECOND);
    world.filter = Box::new(|_, _, _, _| true);
    world.everybody_sends(400, 10 * MILLISECOND);
    world.run_for(SECOND * 40);
    let (_, lost) = world.hosts[2].account(NodeId(1));
    assert!(lost.len() >= 50, "{lost:?}");
    world.filter = Box::new(|_, to, class, _| class != Class::Data || to != NodeId(3));
    world.send(0, b"the last one");
    world.run_for(SECOND * 5);
    let last = world.hosts[2].messages.last().map(|message| &message.payload[..]);
    assert_eq!(last, Some(&b"the last one"[..]));
    world.check();
}

#[test]
fn expired_message_is_not_resent_and_is_reported_lost() {
    let mut world = world(2, Config::default(), Loss::None, 6);
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.send_within(0, &payload(0, 0), 10 * MILLISECOND);
    world.run_for(SECOND * 2);
    assert_eq!(world.hosts[1].account(NodeId(1)), (vec![], vec![1]));
    assert_eq!((world.total("retransmissions_sent"), world.total("expired_sent")), (0, 1));
    world.confirm(0);
    assert_eq!(world.hosts[0].safe[0].incomplete, [(NodeId(2), 1)]);
}

#[test]
fn a_first_message_that_was_sent_again_is_delivered_as_such() {
    let mut world = world(2, Config::default(), Loss::None, 7);
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.sends(0, 0..1);
    world.run_for(SECOND);
    let [message] = &world.hosts[1].messages[..] else { panic!("{:?}", world.hosts[1].messages) };
    assert_eq!(message.how, How::Retransmitted(NodeId(1)));
    assert_eq!(world.total("retransmitted"), 1);
}

#[test]
fn timeout_below_the_round_trip_grows_until_one_is_measured() {
    let timeouts = Timeouts { initial: 10 * MILLISECOND, ..Config::default().timeouts };
    let config = Config { timeouts, ..Config::default() };
    let mut world = world(2, config, Loss::None, 8);
    world.set_mean_delay(30 * MILLISECOND);
    for round in 0..100 {
        world.send(0, &payload(0, round));
        world.run_for(SECOND);
    }
    // Otherwise, no round trip is measured, and each message is retransmitted at least twice.
    let again = world.total("retransmissions_sent");
    assert!((1..100).contains(&again), "sent again {again} times");
}

#[test]
fn claim_of_total_loss_does_no_harm() {
    let config = Config { max_retransmissions: 0, ..Config::default() };
    let mut world = world(3, config, Loss::None, 9);
    world.filter = Box::new(|from, to, _, _| from != NodeId(3) && to != NodeId(3));
    world.sends(0, 0..3);
    world.run_for(SECOND);
    let (seqno, settled_to) = (SeqNo(0), SeqNo(0));
    let mut datagram = Vec::new();
    let ack = Packet::Ack { seqno, settled_to, lost: u32::MAX };
    ack.encode(NodeId(3), GROUP, 1, &mut datagram);
    world.inject(0, &datagram);
    world.confirm(0);
    let [safe] = &world.hosts[0].safe[..] else { panic!("{:?}", world.hosts[0].safe) };
    assert_eq!(safe.incomplete, [(NodeId(3), u32::MAX)]);
}
