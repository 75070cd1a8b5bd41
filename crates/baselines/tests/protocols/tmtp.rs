use carom_baselines::StreamConfig;
use carom_baselines::domain::{DomainConfig, Hierarchy};
use carom_baselines::tmtp::{Config, Tmtp};
use carom_proto::loss::Loss;
use carom_proto::{Class, NodeId, SendError, Slow};

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};

fn world(hosts: usize, config: Config) -> World {
    World::new(hosts, Loss::None, 1, move |id, seed| Box::new(Tmtp::new(id, config.clone(), seed)))
}

fn config() -> Config {
    let domains = DomainConfig { streams: StreamConfig::from_first(), ..DomainConfig::default() };
    Config { domains, ..Config::default() }
}

#[test]
fn few_members_request_and_one_repair_serves_all() {
    let mut world = world(30, Config { nack_spread: 10 * MILLISECOND, ..config() });
    world.filter = Box::new(|_, to, class, _| class != Class::Data || to < NodeId(11));
    world.sends(0, 0..1);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(MILLISECOND);
    world.sends(0, 1..2);
    world.run_for(SECOND);
    assert!(world.hosts[1..].iter().all(|host| host.messages.len() == 2));
    // Without suppression, there would be twenty.
    let nacks = world.total("nacks_sent");
    assert!((1..=4).contains(&nacks), "{nacks} requests");
    assert!(world.total("nacks_suppressed") >= 16);
    assert_eq!(world.sent[&Class::Retransmission], 1);
    assert_eq!(world.total("repairs_useless"), 9, "it is multicast to the whole domain");
}

#[test]
fn a_last_message_is_sent_again_where_no_acknowledgement_comes() {
    let mut world = world(3, config());
    world.filter = Box::new(|_, to, class, _| (to, class) != (NodeId(2), Class::Data));
    world.sends(0, 0..1);
    world.run_for(SECOND);
    let [message] = &world.hosts[1].messages[..] else { panic!("the message is lost") };
    let age = message.age.expect("one clock");
    assert!((200 * MILLISECOND..=201 * MILLISECOND).contains(&age), "{age:?}");
    assert_eq!(world.hosts[0].counter("timeouts"), 1);
    assert_eq!(world.total("nacks_sent"), 0);
}

#[test]
fn a_manager_sees_to_its_own_children_and_the_sender_does_not() {
    // All members are below host 0, the manager of the only domain. Host 1 sends.
    let hierarchy = Hierarchy::by_id(1).expect("at least one domain");
    let domains = DomainConfig { hierarchy, ..config().domains };
    let mut world = world(4, Config { domains, ..config() });
    world.filter = Box::new(|_, to, class, _| (to, class) != (NodeId(4), Class::Data));
    world.sends(1, 0..1);
    world.run_for(SECOND);
    assert_eq!(world.hosts[3].messages.len(), 1);
    assert_eq!(world.hosts[0].counter("timeouts"), 1);
    assert_eq!(world.hosts[1].counter("timeouts"), 0);
    let acks = [0, 1].map(|number: usize| world.hosts[number].counter("acks_received"));
    assert_eq!(acks, [2, 1], "of its children, and of the manager alone");
}

#[test]
fn slowest_child_holds_a_sender_briefly_and_later_catches_up() {
    let mut world = world(3, Config { window: 4, ..config() });
    world.filter = Box::new(|from, to, _, _| from != NodeId(3) && to != NodeId(3));
    world.sends(0, 0..4);
    world.run_for(SECOND);
    let held = world.try_send(0, GROUP, &payload(0, 4)).expect_err("a child does not acknowledge");
    assert_eq!(held, SendError::HeldBack { by: NodeId(3), behind: 4 });
    world.run_for(SECOND * 5);
    assert_eq!(world.hosts[0].slow, [Slow { group: GROUP, node: NodeId(3), behind: 4 }]);
    for rounds in [4..8, 8..10] {
        world.sends(0, rounds);
        world.run_for(SECOND);
    }
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 6);
    assert_eq!(world.hosts[2].account(NodeId(1)), ((1..=10).collect(), vec![]));
    world.check();
}
