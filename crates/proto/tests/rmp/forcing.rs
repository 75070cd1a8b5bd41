//! Lost quorums that an operator forces.

use std::fmt::{Debug, Write as _};
use std::sync::mpsc::{Sender, channel};

use carom_proto::ring::{Epoch, Process, Qos};
use carom_proto::rmp::{Config, Rmp};
use carom_proto::wire::Header;
use carom_proto::{Engine as _, Incarnation, NodeId, Origin, Time};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::payloads;
use crate::quorum::{CLIENT, ELECTORATE, is_working, waits, world};
use crate::reforming::{is_list, is_start, is_vote};
use crate::rig::{GROUP, MS, Told, World};

pub(crate) fn force(world: &mut World, host: usize, epoch: Epoch, lost: &[u64]) {
    let lost = lost.iter().map(|node| NodeId(*node)).collect();
    world.hosts[host].engine.force_quorum(world.now, GROUP, epoch, lost);
    world.run_for(5000 * MS);
}

#[test]
fn an_operator_forces_a_quorum_by_naming_all_that_are_lost() {
    for seed in 0..10 {
        let mut world = world(4, 3, seed, &[0; 4]);
        (0..3).for_each(|number| world.join(number));
        world.join_with(3, CLIENT);
        world.run_for(3000 * MS);
        world.send_and_run(0, Qos::MajorityResilient, 50, 1000 * MS);
        (1..3).for_each(|number| world.crash(number));
        world.send_and_run(0, Qos::TotallyOrdered, 50, 5000 * MS);
        assert!(waits(&world, 0, 1, 2), "seed {seed}: {:?}", world.hosts[0].story);
        let epoch = world.hosts[0].engine.view(GROUP).expect("it is in one").epoch;
        force(&mut world, 3, epoch, &[2]);
        assert!(!is_working(&world, 0), "seed {seed}: a silent voter was not named");
        force(&mut world, 3, epoch, &[1, 2, 3]);
        assert!(!is_working(&world, 0), "seed {seed}: a voter that answers was named");
        let other = Epoch { version: epoch.version + 9, ..epoch };
        force(&mut world, 3, other, &[2, 3]);
        assert!(!is_working(&world, 0), "seed {seed}: the command was for another ring");
        force(&mut world, 3, epoch, &[2, 3]);
        for number in [0, 3] {
            assert!(is_working(&world, number), "seed {seed}");
            let forced = |told: &Told| matches!(told, Told::View { view, .. } if view.is_forced);
            assert!(world.hosts[number].story.iter().any(forced), "seed {seed}");
        }
        world.send_and_run(0, Qos::MajorityResilient, 50, 1000 * MS);
        assert_eq!(payloads(&world, 0).len(), 3, "seed {seed}");
        let next = world.add();
        world.join(next);
        world.run_for(5000 * MS);
        let view = world.hosts[0].engine.view(GROUP).expect("it is in one");
        assert!(view.has_quorum() && !view.is_forced, "seed {seed}: {view:?}");
    }
}

#[derive(Clone)]
struct Log(Sender<String>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").expect("writing to a string succeeds");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.send(line.0).expect("the test reads the log");
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn forced_quorum_is_logged_with_operator_and_lost_voters() {
    let mut world = World::ring_of(ELECTORATE, 3, 0, 1, 3000 * MS);
    (1..3).for_each(|number| world.crash(number));
    world.send_and_run(0, Qos::TotallyOrdered, 50, 5000 * MS);
    let epoch = world.hosts[0].engine.view(GROUP).expect("it is in one").epoch;
    let (to, log) = channel::<String>();
    let force = |world: &mut World, lost: &[u64]| force(world, 0, epoch, lost);
    let entries = || {
        let lines = log.try_iter().filter(|line| line.contains("a quorum is forced"));
        lines.collect::<Vec<_>>()
    };
    tracing::subscriber::with_default(Log(to.clone()), || force(&mut world, &[1]));
    assert_eq!(entries(), [""; 0], "a member that answers was named");
    tracing::subscriber::with_default(Log(to.clone()), || force(&mut world, &[2, 3]));
    let entries = entries();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    let expected = format!("sender={:?} lost={:?}", NodeId(1), [NodeId(2), NodeId(3)]);
    assert!(entry.contains(&expected), "{entry}");
    assert!(is_working(&world, 0));
}

/// One of three voters has accepted a list that may be in force. The two others are dead.
#[test]
fn operator_forces_a_quorum_past_a_list_that_was_accepted() {
    let mut world = World::ring_of(ELECTORATE, 3, 0, 1, 3000 * MS);
    world.held_back = Some(Vec::new());
    world.suspect(0, 2);
    world.hand_over(0, 1, is_start);
    world.hand_over(1, 0, is_vote);
    world.time_out_until(0, is_list);
    world.hand_over(0, 1, is_list);
    [0, 2].into_iter().for_each(|number| world.crash(number));
    world.held_back = None;
    world.tell_views();
    world.run_for(5000 * MS);
    assert!(waits(&world, 1, 1, 2), "{:?}", world.hosts[1].story);
    let epoch = world.hosts[1].engine.view(GROUP).expect("it is in one").epoch;
    force(&mut world, 1, epoch, &[1, 3]);
    assert!(is_working(&world, 1), "{:?}", world.hosts[1].story);
    world.send_and_run(1, Qos::MajorityResilient, 50, 1000 * MS);
    assert_eq!(payloads(&world, 1).len(), 1);
}

/// Another incarnation in the packet would look like a restart of the operator's node. The members
/// would then no longer reply to this incarnation.
#[test]
fn a_forced_quorum_is_asked_for_in_the_name_of_this_start() {
    let origin = Origin { node: NodeId(1), incarnation: Incarnation(77) };
    let mut engine = Rmp::new(origin, Config::default(), 1);
    let creator = Process { node: NodeId(2), life: 1 };
    engine.force_quorum(Time(1), GROUP, Epoch::created_by(creator), vec![NodeId(3)]);
    let mut datagram = Vec::new();
    engine.poll_transmit(&mut datagram).expect("the request is sent");
    let (header, _) = Header::decode(&datagram).expect("it is whole");
    assert_eq!((header.sender, header.incarnation), (origin.node, origin.incarnation));
}
