use carom_baselines::StreamConfig;
use carom_baselines::domain::{Domain, DomainConfig, Hierarchy, Place};
use carom_baselines::lbrm::{Config, Lbrm};
use carom_proto::loss::Loss;
use carom_proto::{Class, How, NodeId};

use crate::rig::{MILLISECOND, SECOND, World};

fn world(hosts: usize, config: Config) -> World {
    World::new(hosts, Loss::None, 1, move |id, seed| Box::new(Lbrm::new(id, config.clone(), seed)))
}

fn config(hierarchy: Hierarchy) -> Config {
    let domains =
        DomainConfig { streams: StreamConfig::from_first(), hierarchy, ..DomainConfig::default() };
    Config { domains, ..Config::default() }
}

#[test]
fn heartbeats_after_a_message_come_at_growing_intervals() {
    let mut world = world(2, config(Hierarchy::flat()));
    world.sends(0, 0..1);
    // The first heartbeat follows after 250 ms, and the next after 500 ms, 1, 2, 4, 8, 16 and 32 s.
    let counts = [249, 2, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 32_000, 32_000];
    let mut sent = Vec::new();
    for milliseconds in counts {
        world.run_for(MILLISECOND * milliseconds);
        sent.push(world.hosts[0].counter("heartbeats_sent"));
    }
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    world.sends(0, 1..2);
    world.run_for(MILLISECOND * 300);
    assert_eq!(
        world.hosts[0].counter("heartbeats_sent"),
        11,
        "the next message resets the interval"
    );
}

#[test]
fn loss_of_a_last_message_shows_at_the_first_heartbeat() {
    let mut world = world(3, config(Hierarchy::flat()));
    world.filter = Box::new(|_, to, class, _| (to, class) != (NodeId(2), Class::Data));
    world.sends(0, 0..1);
    world.run_for(SECOND);
    let [message] = &world.hosts[1].messages[..] else { panic!("the message is lost") };
    let age = message.age.expect("one clock");
    assert!((250 * MILLISECOND..=255 * MILLISECOND).contains(&age), "{age:?}");
}

#[test]
fn primary_logger_serves_secondaries_and_asks_the_source() {
    // Node 2 is the primary logger, and node 3 a secondary one. Node 1 sends, and is in no domain.
    let place = |node| Place { node: NodeId(node), links: 2 };
    let domain = |head, members: &[u64]| {
        let members = members.iter().copied().map(place).collect();
        Domain { head: NodeId(head), scope: None, members }
    };
    let declared = vec![domain(2, &[3]), domain(3, &[4, 5])];
    let hierarchy = Hierarchy::from_domains(declared).expect("valid domains");
    let mut world = world(5, config(hierarchy));
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.sends(0, 0..1);
    world.run_for(MILLISECOND);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND);
    let how = |number: usize| world.hosts[number].messages[0].how;
    assert_eq!(how(1), How::Retransmitted(NodeId(1)));
    assert_eq!(how(2), How::Retransmitted(NodeId(2)));
    assert_eq!([how(3), how(4)], [How::Retransmitted(NodeId(3)); 2]);
    assert_eq!(world.hosts[0].counter("requests_received"), 1, "one node requests from the source");
}

#[test]
fn packets_lost_together_are_requested_together() {
    let mut world = world(2, config(Hierarchy::flat()));
    world.filter = Box::new(|_, _, class, _| class != Class::Data);
    world.sends(0, 0..500);
    world.filter = Box::new(|_, _, _, _| true);
    world.sends(0, 500..501);
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].counter("nacks_sent"), 2, "500 numbers, 359 to a datagram");
    assert_eq!(world.hosts[1].messages.len(), 501);
}
