//! Tests the baselines in the simulator, with delays, losses, duplicates and reordering. Their
//! invariants are checked after every step.

mod engines;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carom_baselines::domain::{DomainConfig, Hierarchy, Plan};
use carom_proto::loss::Loss;
use carom_proto::rdcm::topology::Vertex;
use carom_proto::rdcm::tree::MulticastTree;
use carom_proto::{Engine, Event, GroupId, GroupSettings, NodeId, Profile, SendOptions, rdcm};
use carom_sim::{Command, Disturbance, Fault, Happening, HostIx, Jitter, Link, Roster};
use carom_sim::{Topology, World, WorldConfig};
use engines::{Protocol, domains, make};

const GROUP: GroupId = GroupId(9);
const HOSTS: u32 = 6;
const ROUNDS: u32 = 60;

const PROTOCOLS: [Protocol; 9] = [
    Protocol::Srm,
    Protocol::SrmFixed,
    Protocol::SrmAdaptive,
    Protocol::Bimodal,
    Protocol::Fec,
    Protocol::Ack,
    Protocol::Rmtp,
    Protocol::Lbrm,
    Protocol::Tmtp,
];

type Account = BTreeMap<(u32, NodeId, u32), (u32, u32)>;

fn run(protocol: Protocol, seed: u64) -> (Account, u64) {
    let jitter = Jitter::Exponential(Duration::from_micros(30));
    let link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
    let config = WorldConfig {
        loss: Loss::Uniform(0.05),
        ..WorldConfig::new(Topology::lan(HOSTS, link), seed)
    };
    let mut world: World<Box<dyn Engine>> = World::new(config);
    let mut roster = Roster::new(Duration::ZERO, seed);
    let settings = GroupSettings::new("prices", Profile::Guest);
    for host in world.topology().all_hosts() {
        let id = NodeId(u64::from(host.0) + 1);
        world.spawn(host, id, make(protocol, domains(2), id, seed ^ id.0));
        roster.join(&mut world, host, GROUP, settings).expect("a group of a guest");
    }
    world.apply(&Fault::Disturb(Disturbance {
        reorder: 0.05,
        duplicate: 0.05,
        corrupt: 0.01,
        spread: Duration::from_millis(20),
    }));
    let mut account = Account::new();
    let mut on_event = |happening: Happening<Event>| match happening.event {
        Event::Message(message) => {
            let key = (happening.host.0, message.sender, message.seqno.0);
            account.entry(key).or_default().0 += 1;
        }
        Event::Lost(lost) => {
            for number in lost.first.0..=lost.last.0 {
                account.entry((happening.host.0, lost.sender, number)).or_default().1 += 1;
            }
        }
        _ => {}
    };
    for _ in 0..ROUNDS {
        for host in world.topology().all_hosts() {
            let payload = vec![host.0 as u8; 100].into();
            world.command(host, Command::Send(GROUP, payload, SendOptions::default()));
        }
        world.run_for(Duration::from_millis(10), &mut on_event);
    }
    world.run_for(Duration::from_secs(150), &mut on_event);
    (account, world.history())
}

#[test]
fn every_message_is_delivered_or_reported_lost_once() {
    for protocol in PROTOCOLS {
        let (account, history) = run(protocol, 11);
        let expected = HOSTS * (HOSTS - 1) * ROUNDS;
        assert_eq!(account.len(), expected as usize, "{protocol:?}");
        assert!(account.values().all(|(got, lost)| got + lost == 1), "{protocol:?}");
        let lost: u32 = account.values().map(|(_, lost)| lost).sum();
        assert!(lost < expected / 100, "{protocol:?}: {lost} lost");
        assert_eq!(run(protocol, 11).1, history, "the same seed gives the same history");
        assert_ne!(run(protocol, 12).1, history, "another seed gives another history");
    }
}

fn racks() -> Hierarchy {
    let topology = rdcm::topology::Topology::racks(&[8; 6]).expect("a valid topology");
    let receivers = (1..topology.hosts()).map(Vertex).collect();
    let (tree, _) = MulticastTree::shortest(&topology, &BTreeSet::new(), Vertex(0), &receivers);
    let plan = Plan { least: 5, tiers: Some(2), first_scope: GroupId(1000) };
    Hierarchy::from_tree(&tree, plan, |vertex| NodeId(u64::from(vertex.0) + 1))
        .expect("a valid hierarchy")
}

#[test]
fn the_heads_of_racks_keep_requests_from_the_sender() {
    for protocol in [Protocol::Rmtp, Protocol::Lbrm, Protocol::Tmtp] {
        let hierarchy = racks();
        let link = Link::of_delay(Duration::from_micros(100));
        let config = WorldConfig {
            loss: Loss::Uniform(0.02),
            ..WorldConfig::new(Topology::lan(48, link), 3)
        };
        let mut world: World<Box<dyn Engine>> = World::new(config);
        let mut roster = Roster::new(Duration::ZERO, 3);
        for host in world.topology().all_hosts() {
            let id = NodeId(u64::from(host.0) + 1);
            let domains = DomainConfig { hierarchy: hierarchy.clone(), ..domains(2) };
            world.spawn(host, id, make(protocol, domains, id, id.0));
            let settings = GroupSettings::new("files", Profile::Guest);
            roster.join(&mut world, host, GROUP, settings).expect("a group of a guest");
            hierarchy.scopes(id).into_iter().for_each(|scope| world.subscribe(host, scope));
        }
        let mut delivered = 0;
        let mut on_event = |happening: Happening<Event>| match happening.event {
            Event::Message(_) => delivered += 1,
            other => panic!("{protocol:?}: {other:?}"),
        };
        for _ in 0..200 {
            let payload = vec![7; 1000].into();
            world.command(HostIx(0), Command::Send(GROUP, payload, SendOptions::default()));
            world.run_for(Duration::from_millis(1), &mut on_event);
        }
        world.run_for(Duration::from_secs(5), &mut on_event);
        assert_eq!(delivered, 47 * 200, "{protocol:?}");
        let of = |host: HostIx, name: &str| {
            let stats = world.machine(host).expect("it is alive").stats();
            stats.into_iter().find(|(counter, _)| *counter == name).expect("the counter exists").1
        };
        let all = |name| world.topology().all_hosts().map(|host| of(host, name)).sum::<u64>();
        let (requests, of_sender) = (all("requests_received"), of(HostIx(0), "requests_received"));
        assert!(of_sender * 4 < requests, "{protocol:?}: {of_sender} of {requests}");
        assert!(all("retransmitted") > 100);
    }
}
