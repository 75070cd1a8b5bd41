use std::time::Duration;

use carom_baselines::StreamConfig;
use carom_baselines::srm::{Config, Distance, Srm, Timing};
use carom_proto::loss::Loss;
use carom_proto::wire::HEADER_BYTES;
use carom_proto::{Class, How, NodeId, SeqNo};

use crate::rig::{GROUP, MILLISECOND, SECOND, World, payload};

fn world(hosts: usize, config: Config, loss: f64, seed: u64) -> World {
    let loss = if loss > 0.0 { Loss::Uniform(loss) } else { Loss::None };
    World::new(hosts, loss, seed, move |id, seed| Box::new(Srm::new(id, config.clone(), seed)))
}

fn from_first(config: Config) -> Config {
    Config { streams: StreamConfig::from_first(), ..config }
}

#[test]
fn every_message_arrives_once_whatever_the_timers() {
    let (fixed, adaptive) = (Config::ns2_fixed(), Config::ns2_adaptive());
    for config in [fixed, adaptive, Config::wide_area(), Config::datacenter()] {
        for loss in [0.01, 0.2] {
            let mut world = world(8, from_first(config.clone()), loss, 5);
            world.everybody_sends(40, 64 * MILLISECOND);
            world.run_for(SECOND * 300);
            assert_eq!(world.assert_all_settled(40), 0, "{config:?} at {loss}");
            assert!(world.total("retransmitted") > 0);
            world.check();
        }
    }
}

#[test]
fn loss_is_found_by_the_next_packet_and_recovered_by_timers() {
    // Session messages are rare, so they hardly ever reveal a loss.
    let (session_interval, max_session_interval) = (SECOND * 20, SECOND * 20);
    let config =
        Config { session_interval, max_session_interval, ..from_first(Config::wide_area()) };
    let mut world = world(10, config, 0.01, 3);
    world.everybody_sends(200, 64 * MILLISECOND);
    world.run_for(SECOND * 200);
    assert_eq!(world.assert_all_settled(200), 0);
    let all = world.hosts.iter().flat_map(|host| &host.messages);
    let repaired: Vec<_> = all.filter(|it| matches!(it.how, How::Retransmitted(_))).collect();
    assert!(repaired.len() > 100, "{} repaired", repaired.len());
    let mean = |of: &dyn Fn(&carom_proto::Message) -> Duration| {
        let sum: f64 = repaired.iter().map(|message| of(message).as_secs_f64()).sum();
        sum / repaired.len() as f64
    };
    // C1 + C2/2 = 3 distances for the request, D1 + D2/11 = 1.1 for the first of ten repairs.
    let recovery = mean(&|message| message.missing_for);
    assert!((3.7..=4.7).contains(&recovery), "{recovery} s from discovery to recovery");
    // The median is used because a sender's last message is not followed by another.
    let discovery = |it: &&carom_proto::Message| it.age.expect("one clock") - it.missing_for;
    let mut discoveries: Vec<Duration> = repaired.iter().map(discovery).collect();
    discoveries.sort_unstable();
    let median = discoveries[discoveries.len() / 2];
    assert!((60 * MILLISECOND..=68 * MILLISECOND).contains(&median), "{median:?} to discovery");
}

#[test]
fn distances_are_measured_and_recovery_takes_a_few_of_them() {
    let mut world = world(8, from_first(Config::ns2_fixed()), 0.0, 4);
    world.set_mean_delay(10 * MILLISECOND);
    world.run_for(SECOND * 5);
    assert!(world.total("distances_measured") > 8 * 7 * 2);
    world.filter =
        Box::new(|from, to, class, _| (from, to, class) != (NodeId(1), NodeId(2), Class::Data));
    world.sends(0, 0..1);
    world.run_for(2 * MILLISECOND);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 3);
    let [message] = &world.hosts[1].messages[..] else { panic!("it was not repaired") };
    // The request takes 2 to 4 distances, the repair at most 1.8, and a one-way delay at most 15
    // ms.
    let waited = message.missing_for;
    assert!((20 * MILLISECOND..=100 * MILLISECOND).contains(&waited), "{waited:?}");
    assert_eq!(world.total("retransmitted"), 1);
}

#[test]
fn gap_counts_as_a_loss_at_once_or_after_the_set_delay() {
    for detect_after in [Duration::ZERO, 4 * MILLISECOND] {
        let config = Config {
            timing: Timing::Fixed { c1: 2.0, c2: 0.0, d1: 1.0, d2: 0.0 },
            distance: Distance::Fixed(MILLISECOND),
            detect_after,
            ..from_first(Config::ns2_fixed())
        };
        let mut world = world(3, config, 0.0, 4);
        let is_first = |datagram: &[u8]| {
            datagram.get(HEADER_BYTES..HEADER_BYTES + 4) == Some(&[0, 0, 0, 1][..])
        };
        world.filter = Box::new(move |_, to, class, datagram| {
            (to, class) != (NodeId(2), Class::Data) || !is_first(datagram)
        });
        world.sends(0, 0..2);
        world.run_for(SECOND);
        let repaired = world.hosts[1].messages.iter().find(|it| it.seqno == SeqNo(1));
        let waited = repaired.expect("it was repaired").missing_for;
        // Two distances for the request, one for the repair, and a round trip.
        let expected = detect_after + 3 * MILLISECOND..=detect_after + 4 * MILLISECOND;
        assert!(expected.contains(&waited), "{waited:?} after {detect_after:?}");
    }
}

#[test]
fn few_of_many_members_request_or_repair() {
    let config = Config {
        timing: Timing::Fixed { c1: 2.0, c2: 2.0, d1: 1.0, d2: 1.0 },
        distance: Distance::Fixed(SECOND),
        ..from_first(Config::ns2_fixed())
    };
    let mut world = world(30, config, 0.0, 6);
    // All but five members lack the message: without suppression, 25 requests and 5 repairs.
    world.filter = Box::new(|_, to, class, _| class != Class::Data || to < NodeId(6));
    world.sends(0, 0..1);
    world.run_for(MILLISECOND);
    world.filter = Box::new(|_, _, _, _| true);
    world.run_for(SECOND * 30);
    assert!(world.hosts[1..].iter().all(|host| host.messages.len() == 1));
    let (requests, repairs) = (world.total("requests_sent"), world.total("repairs_sent"));
    assert!((1..=3).contains(&requests), "{requests} requests");
    assert!((1..=2).contains(&repairs), "{repairs} repairs");
    assert!(world.total("requests_suppressed") >= 20);
    assert!(world.total("repairs_suppressed") >= 3);
    assert_eq!(world.sent[&Class::Retransmission], repairs);
}

#[test]
fn a_member_repairs_what_its_crashed_sender_cannot() {
    let mut world = world(4, from_first(Config::ns2_fixed()), 0.0, 7);
    world.filter = Box::new(|_, to, class, _| class != Class::Data || to != NodeId(4));
    world.sends(0, 0..1);
    world.run_for(SECOND * 2);
    world.fail(0);
    world.run_for(SECOND * 60);
    let [message] = &world.hosts[3].messages[..] else { panic!("it did not arrive") };
    assert!(matches!(message.how, How::Retransmitted(NodeId(2 | 3))), "{:?}", message.how);
}

#[test]
fn packet_held_by_no_member_is_reported_lost() {
    let config = Config { give_up_after: SECOND * 10, ..from_first(Config::ns2_fixed()) };
    let mut world = world(3, config, 0.0, 8);
    world.filter = Box::new(|_, _, class, _| class == Class::Control);
    world.sends(0, 0..1);
    world.run_for(SECOND * 5);
    world.fail(0);
    world.run_for(SECOND * 20);
    for host in &world.hosts[1..] {
        let [lost] = &host.lost[..] else { panic!("{:?}", host.lost) };
        assert_eq!((lost.sender, lost.first, lost.last), (NodeId(1), SeqNo(1), SeqNo(1)));
        assert!(host.messages.is_empty());
    }
}

#[test]
fn joiner_is_not_owed_earlier_messages() {
    let mut world = world(3, Config::ns2_fixed(), 0.0, 9);
    world.leave(2, GROUP);
    for round in 0..5 {
        world.send(0, &payload(0, round));
        world.run_for(MILLISECOND);
    }
    world.join(2, GROUP);
    world.run_for(SECOND * 3);
    world.sends(0, 5..6);
    world.run_for(SECOND * 30);
    assert_eq!(world.hosts[2].account(NodeId(1)), (vec![6], vec![]));
    assert_eq!(world.hosts[1].account(NodeId(1)), ((1..=6).collect(), vec![]));
}

#[test]
fn session_messages_of_a_large_group_rotate_their_reports() {
    let mut world = world(80, Config::ns2_fixed(), 0.0, 10);
    for number in 0..80 {
        world.send(number, &payload(number, 0));
    }
    world.run_for(SECOND * 6);
    assert!(world.total("reports_put_off") > 0);
    let measured = world.total("distances_measured");
    assert!(measured >= 80 * 79 * 2, "{measured} distances measured");
}
