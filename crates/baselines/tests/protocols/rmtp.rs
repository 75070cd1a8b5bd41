use carom_baselines::domain::{DomainConfig, Hierarchy};
use carom_baselines::rmtp::{Config, Rmtp};
use carom_baselines::{StreamConfig, rmtp};
use carom_proto::loss::Loss;
use carom_proto::wire::HEADER_BYTES;
use carom_proto::{Class, NodeId, SendError, Slow};

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};

fn world(hosts: usize, config: Config) -> World {
    World::new(hosts, Loss::None, 1, move |id, seed| Box::new(Rmtp::new(id, config.clone(), seed)))
}

fn config() -> Config {
    let domains = DomainConfig { streams: StreamConfig::from_first(), ..DomainConfig::default() };
    Config { domains, window: 4, ..Config::default() }
}

#[test]
fn the_slowest_of_its_children_holds_a_sender_and_no_other() {
    // All members are below host 0, the head of the only domain.
    let hierarchy = Hierarchy::by_id(1).expect("at least one domain");
    let domains = DomainConfig { hierarchy, ..config().domains };
    let mut world = world(4, Config { domains, ..config() });
    world.filter = Box::new(|from, _, _, _| from != NodeId(3));
    world.sends(0, 0..4);
    world.run_for(SECOND);
    let held =
        world.try_send(0, GROUP, &payload(0, 4)).expect_err("its child does not acknowledge");
    assert_eq!(held, SendError::HeldBack { by: NodeId(3), behind: 4 });
    // The only child of another sender is its head, which acknowledges.
    world.sends(1, 0..4);
    world.run_for(SECOND);
    world.sends(1, 4..8);
    world.run_for(SECOND * 4);
    assert_eq!(world.hosts[0].slow, [Slow { group: GROUP, node: NodeId(3), behind: 4 }]);
    world.sends(0, 4..6);
    assert!(world.hosts[1].slow.is_empty());
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 3);
    world.sends(0, 6..10);
    assert!(world.try_send(0, GROUP, &payload(0, 10)).is_err(), "all are waited for again");
    world.run_for(SECOND * 3);
    assert_eq!(world.hosts[2].account(NodeId(1)), ((1..=10).collect(), vec![]));
}

#[test]
fn acknowledgments_are_few_and_cover_many_packets() {
    let mut world = world(3, Config { window: 1024, ..config() });
    for round in 0..1000 {
        world.send(0, &payload(0, round));
        world.run_for(MILLISECOND / 10);
    }
    world.run_for(SECOND / 2);
    // One acknowledgment per 20 ms for 100 ms, and a final one.
    let acks = world.hosts[1].counter("acks_sent");
    assert!((5..=7).contains(&acks), "{acks} acknowledgements of 1000 packets in 100 ms");
    assert!(!world.sent.contains_key(&Class::Retransmission));
}

#[test]
fn acknowledgment_of_unsent_packets_is_counted_and_ignored() {
    let mut world = world(2, config());
    world.sends(0, 0..1);
    let mut forged = Vec::new();
    let (source, settled_to) = (NodeId(1), carom_proto::SeqNo(9));
    let ack = rmtp::packet::Packet::Ack { source, settled_to, next: settled_to, bitmap: &[0] };
    carom_baselines::guest::GuestPacket::encode(&ack, NodeId(2), GROUP, 1, &mut forged);
    assert!(forged.len() > HEADER_BYTES);
    world.inject(0, &forged);
    assert_eq!(world.hosts[0].counter("malformed"), 1);
    assert_eq!(world.hosts[0].counter("acks_received"), 0);
}
