use std::time::Duration;

use carom_baselines::StreamConfig;
use carom_baselines::domain::{Domain, DomainConfig, Hierarchy, Place, RepairBy, Scope};
use carom_baselines::lbrm::{self, Lbrm};
use carom_baselines::rmtp::{self, Rmtp};
use carom_baselines::tmtp::{self, Tmtp};
use carom_proto::loss::Loss;
use carom_proto::wire::HEADER_BYTES;
use carom_proto::{Class, Engine, GroupId, How, NodeId, Origin, SeqNo};

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Rmtp,
    Lbrm,
    Tmtp,
}

const ALL: [Protocol; 3] = [Protocol::Rmtp, Protocol::Lbrm, Protocol::Tmtp];

fn engine(
    protocol: Protocol,
    domains: DomainConfig,
    repair_by: RepairBy,
) -> impl Fn(Origin, u64) -> Box<dyn Engine> {
    move |id, seed| match protocol {
        Protocol::Rmtp => {
            let beacon_interval = 200 * MILLISECOND;
            let domains = domains.clone();
            let config =
                rmtp::Config { domains, repair_by, beacon_interval, ..rmtp::Config::default() };
            Box::new(Rmtp::new(id, config, seed))
        }
        Protocol::Tmtp => {
            let domains = domains.clone();
            let nack_spread = MILLISECOND / 2;
            let config = tmtp::Config { domains, nack_spread, ..tmtp::Config::default() };
            Box::new(Tmtp::new(id, config, seed))
        }
        Protocol::Lbrm => {
            let domains = domains.clone();
            let config = lbrm::Config { domains, repair_by, ..lbrm::Config::default() };
            Box::new(Lbrm::new(id, config, seed))
        }
    }
}

fn three_domains() -> Hierarchy {
    let domain = |head: u64, members: &[u64]| {
        let place = |node: &u64| Place { node: NodeId(*node), links: 2 };
        let links = members.len() as u32 + 1;
        let scope = Some(Scope { group: GroupId(1000 + head as u32), links });
        Domain { head: NodeId(head), scope, members: members.iter().map(place).collect() }
    };
    let domains = vec![domain(1, &[2, 5]), domain(2, &[3, 4]), domain(5, &[6, 7, 8])];
    Hierarchy::from_domains(domains).expect("valid domains")
}

fn domains(hierarchy: Hierarchy) -> DomainConfig {
    DomainConfig { hierarchy, streams: StreamConfig::from_first(), ..DomainConfig::default() }
}

fn world(protocol: Protocol, domains: DomainConfig, loss: f64, seed: u64) -> World {
    world_by(protocol, domains, RepairBy::FewerLinks, loss, seed)
}

fn world_by(
    protocol: Protocol,
    domains: DomainConfig,
    repair_by: RepairBy,
    loss: f64,
    seed: u64,
) -> World {
    let loss = if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None };
    let hierarchy = domains.hierarchy.clone();
    let mut world = World::new(8, loss, seed, engine(protocol, domains, repair_by));
    for number in 0..8 {
        for scope in hierarchy.scopes(NodeId(number as u64 + 1)) {
            world.listen(number, scope);
        }
    }
    world
}

#[test]
fn every_message_arrives_once_whatever_the_domains() {
    let by_id = Hierarchy::by_id(3).expect("at least one domain");
    for protocol in ALL {
        for hierarchy in [Hierarchy::flat(), by_id.clone(), three_domains()] {
            for loss in [0.01, 0.2] {
                let mut world = world(protocol, domains(hierarchy.clone()), loss, 5);
                world.everybody_sends(40, 16 * MILLISECOND);
                world.run_for(SECOND * 60);
                let what = format!("{protocol:?} in {hierarchy:?} at {loss}");
                assert_eq!(world.assert_all_settled(40), 0, "{what}");
                assert!(world.total("retransmitted") > 0, "{what}");
                world.check();
            }
        }
    }
}

#[test]
fn head_repairs_losses_of_its_domain_without_the_sender() {
    for protocol in ALL {
        let mut world = world(protocol, domains(three_domains()), 0.0, 3);
        world.filter = Box::new(|_, to, class, _| class != Class::Data || to < NodeId(6));
        world.sends(0, 0..1);
        world.run_for(MILLISECOND);
        world.filter = Box::new(|_, _, _, _| true);
        world.run_for(SECOND);
        for host in &world.hosts[5..] {
            let [message] = &host.messages[..] else { panic!("{:?}", host.messages) };
            assert_eq!(message.how, How::Retransmitted(NodeId(5)), "{protocol:?}");
        }
        assert_eq!(world.total("retransmitted"), 3);
        assert_eq!(world.hosts[0].counter("requests_received"), 0, "{protocol:?}");
        let by_multicast = world.total("multicast_repairs_sent");
        assert_eq!((by_multicast, world.total("repairs_useless")), (1, 0), "{protocol:?}");
        assert_eq!(world.hosts[4].counter("most_copies_of_one"), 1);
    }
}

#[test]
fn loss_of_a_whole_domain_is_repaired_through_its_head() {
    for protocol in ALL {
        let mut world = world(protocol, domains(three_domains()), 0.0, 4);
        world.filter = Box::new(|_, to, class, _| class != Class::Data || to < NodeId(5));
        world.sends(0, 0..1);
        world.run_for(MILLISECOND);
        world.filter = Box::new(|_, _, _, _| true);
        world.run_for(SECOND * 2);
        assert!(world.hosts[1..].iter().all(|host| host.messages.len() == 1), "{protocol:?}");
        let how = |number: usize| world.hosts[number].messages[0].how;
        assert_eq!(how(4), How::Retransmitted(NodeId(1)), "{protocol:?}");
        for number in 5..8 {
            assert_eq!(how(number), How::Retransmitted(NodeId(5)), "{protocol:?}");
        }
    }
}

#[test]
fn member_without_its_head_uses_the_one_above() {
    for protocol in ALL {
        let mut world = world(protocol, domains(three_domains()), 0.0, 7);
        // The head is unreachable, and at first still in the views of the others.
        world.filter = Box::new(|from, to, class, datagram| {
            let is_second = datagram.get(HEADER_BYTES..HEADER_BYTES + 4) == Some(&[0, 0, 0, 2][..]);
            from != NodeId(5)
                && to != NodeId(5)
                && (class != Class::Data || to != NodeId(7) || is_second)
        });
        world.sends(0, 0..2);
        world.run_for(SECOND * 2);
        world.fail(4);
        world.sends(0, 2..3);
        world.run_for(SECOND * 2);
        let mut messages = world.hosts[6].messages.clone();
        messages.sort_by_key(|message| message.seqno.0);
        let how: Vec<How> = messages.iter().map(|message| message.how).collect();
        let repaired = How::Retransmitted(NodeId(1));
        assert_eq!(how, [repaired, How::Direct, repaired], "{protocol:?}");
    }
}

#[test]
fn loss_is_requested_at_once_or_after_the_set_delay() {
    for protocol in ALL {
        for detect_after in [Duration::ZERO, 2 * MILLISECOND, 4 * MILLISECOND] {
            let domains = DomainConfig { detect_after, ..domains(three_domains()) };
            let mut world = world(protocol, domains, 0.0, 8);
            world.filter = Box::new(|_, to, class, datagram| {
                let is_second =
                    datagram.get(HEADER_BYTES..HEADER_BYTES + 4) == Some(&[0, 0, 0, 2][..]);
                (to, class, is_second) != (NodeId(3), Class::Data, true)
            });
            world.sends(0, 0..3);
            world.run_for(SECOND);
            let repaired = world.hosts[2].messages.iter().find(|it| it.seqno == SeqNo(2));
            let waited = repaired.expect("it was repaired").missing_for;
            // A round trip, and a millisecond in which requests are gathered.
            let expected = detect_after + MILLISECOND..=detect_after + 2 * MILLISECOND;
            assert!(expected.contains(&waited), "{protocol:?}: {waited:?} after {detect_after:?}");
        }
    }
}

#[test]
fn packet_held_by_no_member_is_reported_lost() {
    for protocol in ALL {
        let domains = DomainConfig { give_up_after: SECOND, ..domains(three_domains()) };
        let mut world = world(protocol, domains, 0.0, 9);
        world.filter = Box::new(|_, _, class, _| class == Class::Control);
        world.sends(0, 0..1);
        world.run_for(SECOND / 2);
        world.fail(0);
        world.run_for(SECOND * 5);
        for host in &world.hosts[1..] {
            assert_eq!(host.account(NodeId(1)), (vec![], vec![1]), "{protocol:?}");
        }
        world.check();
    }
}

#[test]
fn repair_is_unicast_or_multicast_by_link_count_or_threshold() {
    let copies = |protocol, repair_by, lacking: usize| {
        let mut world = world_by(protocol, domains(three_domains()), repair_by, 0.0, 10);
        world.filter =
            Box::new(move |_, to, class, _| class != Class::Data || to.0 <= (8 - lacking) as u64);
        world.sends(0, 0..1);
        world.run_for(MILLISECOND);
        world.filter = Box::new(|_, _, _, _| true);
        world.run_for(SECOND);
        assert_eq!(world.total("retransmitted"), lacking as u64);
        let useless = world.total("repairs_useless");
        (world.total("unicast_repairs_sent"), world.total("multicast_repairs_sent"), useless)
    };
    for protocol in [Protocol::Rmtp, Protocol::Lbrm] {
        // A multicast in that domain crosses four links, and a packet to one of its members two.
        let of_links = |lacking| copies(protocol, RepairBy::FewerLinks, lacking);
        assert_eq!([of_links(1), of_links(2), of_links(3)], [(1, 0, 0), (2, 0, 0), (0, 1, 0)]);
        let by = |most, lacking| copies(protocol, RepairBy::Threshold(most), lacking);
        assert_eq!([by(0, 1), by(1, 1), by(1, 2)], [(0, 1, 2), (1, 0, 0), (0, 1, 1)]);
    }
}

#[test]
fn joiner_is_not_owed_earlier_messages() {
    for protocol in ALL {
        let config = DomainConfig { streams: StreamConfig::default(), ..domains(three_domains()) };
        let mut world = world(protocol, config, 0.0, 9);
        world.leave(2, GROUP);
        for round in 0..5 {
            world.send(0, &payload(0, round));
            world.run_for(MILLISECOND);
        }
        world.run_for(SECOND);
        world.join(2, GROUP);
        world.sends(0, 5..6);
        world.run_for(SECOND * 3);
        assert_eq!(world.hosts[2].account(NodeId(1)), (vec![6], vec![]), "{protocol:?}");
        assert_eq!(world.hosts[1].account(NodeId(1)), ((1..=6).collect(), vec![]));
    }
}
