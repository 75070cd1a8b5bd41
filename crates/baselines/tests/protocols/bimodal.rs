use carom_baselines::StreamConfig;
use carom_baselines::bimodal::packet::{Packet, Range};
use carom_baselines::bimodal::{Bimodal, Config};
use carom_baselines::guest::GuestPacket as _;
use carom_proto::loss::Loss;
use carom_proto::{Class, How, NodeId, SeqNo};

use crate::rig::{GROUP, MILLISECOND, SECOND, World};

fn world(hosts: usize, config: Config, loss: Loss, seed: u64) -> World {
    let config = Config { streams: StreamConfig::from_first(), ..config };
    World::new(hosts, loss, seed, move |id, seed| Box::new(Bimodal::new(id, config.clone(), seed)))
}

#[test]
fn gossip_repairs_losses_in_a_few_rounds() {
    let mut world = world(8, Config::default(), Loss::Uniform(0.1), 1);
    world.everybody_sends(100, 20 * MILLISECOND);
    world.run_for(SECOND * 10);
    assert_eq!(world.assert_all_settled(100), 0);
    let all = world.hosts.iter().flat_map(|host| &host.messages);
    let repaired: Vec<_> = all.filter(|it| matches!(it.how, How::Retransmitted(_))).collect();
    assert!(repaired.len() > 400, "{} repaired", repaired.len());
    let age = |it: &&carom_proto::Message| it.age.expect("one clock").as_secs_f64();
    let mean = repaired.iter().map(age).sum::<f64>() / repaired.len() as f64;
    // On average, one digest arrives per round of 100 ms, from a member that may lack the packet
    // too.
    assert!((0.05..=0.3).contains(&mean), "{mean} s");
    world.check();
}

#[test]
fn gossip_reaches_all_when_multicast_reaches_no_member() {
    let mut world = world(8, Config::default(), Loss::None, 2);
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.sends(3, 0..1);
    world.run_for(SECOND * 3);
    let got = world.hosts.iter().filter(|host| host.messages.len() == 1).count();
    assert_eq!(got, 7);
    assert_eq!(world.total("retransmissions_sent"), 7);
}

#[test]
fn round_retransmits_up_to_its_limit_most_recent_first() {
    let config = Config { retransmissions_per_round: 3, give_up_rounds: 200, ..Config::default() };
    let config = Config { history_rounds: 200, ..config };
    let mut world = world(2, config, Loss::None, 3);
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.sends(0, 0..10);
    world.run_for(120 * MILLISECOND);
    let first = world.hosts[1].messages[..3].iter().map(|message| message.seqno.0);
    let mut first = Vec::from_iter(first);
    first.sort_unstable();
    assert_eq!(first, [8, 9, 10]);
    assert!(world.total("retransmissions_limited") >= 7);
    world.run_for(SECOND * 2);
    assert_eq!(world.hosts[1].messages.len(), 10);
}

#[test]
fn packets_not_repaired_by_gossip_are_reported_lost() {
    let mut world = world(3, Config::default(), Loss::None, 4);
    world.filter = Box::new(|_, to, class, _| class == Class::Control || to == NodeId(3));
    world.sends(0, 0..1);
    world.run_for(SECOND * 5);
    assert_eq!(world.hosts[1].account(NodeId(1)), (vec![], vec![1]));
    assert_eq!(world.hosts[2].account(NodeId(1)), (vec![1], vec![]));
}

#[test]
fn packet_named_twice_in_a_digest_is_solicited_once() {
    let mut world = world(2, Config::default(), Loss::None, 9);
    let range = Range::new(NodeId(7), SeqNo(1), SeqNo(3));
    let mut digest = Vec::new();
    Packet::Digest { round: 1, ranges: &[range; 40] }.encode(NodeId(2), GROUP, 1, &mut digest);
    world.inject(0, &digest);
    assert_eq!((world.total("missing_now"), world.total("messages_solicited")), (3, 3));
}
