//! Tests connections of the simulated world, which have the guarantees of TCP and break like TCP.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::loss::Loss;
use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::{Endpoint, NodeId, Rng, Time, Transmit};
use carom_sim::{Fault, HostIx, Link, Machine, Topology, World, WorldConfig};

#[derive(Default)]
struct Talker {
    listens: bool,
    opened: u64,
    commands: Vec<LinkCommand>,
    ends: BTreeMap<LinkId, End>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct End {
    opened_at: Option<Time>,
    bytes: Vec<u8>,
    closed: Option<LinkEnd>,
    has_closed: bool,
}

impl Talker {
    fn open(&mut self, to: Endpoint) -> LinkId {
        self.opened += 1;
        let link = LinkId(self.opened);
        self.ends.insert(link, End::default());
        self.commands.push(LinkCommand::Open { link, to });
        link
    }

    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        self.commands.push(LinkCommand::Send { link, bytes: bytes.to_vec() });
    }

    fn close(&mut self, link: LinkId) {
        self.ends.get_mut(&link).expect("a known link").has_closed = true;
        self.commands.push(LinkCommand::Close { link });
    }

    fn accepted(&self) -> (LinkId, &End) {
        let mut ends = self.ends.iter();
        let (link, end) = ends.next().expect("a link was accepted");
        assert!(ends.next().is_none(), "more than one");
        (*link, end)
    }
}

impl Machine for Talker {
    type Command = ();
    type Event = ();

    fn handle_command(&mut self, _now: Time, _command: ()) {}

    fn poll_transmit(&mut self, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn listens(&self) -> bool {
        self.listens
    }

    fn handle_accepted(&mut self, now: Time, link: LinkId, _from: Endpoint) {
        let end = End { opened_at: Some(now), ..End::default() };
        assert_eq!(self.ends.insert(link, end), None, "a number was used again");
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        let end = self.ends.get_mut(&link).expect("a known link");
        assert!(end.closed.is_none() && !end.has_closed, "{event:?} after the end");
        match event {
            LinkEvent::Opened => assert_eq!(end.opened_at.replace(now), None, "opened twice"),
            LinkEvent::Received(bytes) => {
                assert!(end.opened_at.is_some(), "bytes before it was open");
                end.bytes.extend_from_slice(bytes);
            }
            LinkEvent::Closed { why } => end.closed = Some(why),
        }
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        (!self.commands.is_empty()).then(|| self.commands.remove(0))
    }
}

const A: HostIx = HostIx(0);
const B: HostIx = HostIx(1);
const MS: Duration = Duration::from_millis(1);

fn world(loss: Loss, seed: u64) -> World<Talker> {
    let topology = Topology::lan(3, Link::of_delay(MS));
    let config = WorldConfig { loss, link_buffer: 10_000, ..WorldConfig::new(topology, seed) };
    let mut world = World::new(config);
    world.spawn(A, NodeId(1), Talker::default());
    world.spawn(B, NodeId(2), Talker { listens: true, ..Talker::default() });
    world
}

fn run(world: &mut World<Talker>, span: Duration) {
    world.run_for(span, &mut |_| {});
}

fn at<T>(world: &mut World<Talker>, host: HostIx, act: impl FnOnce(&mut Talker) -> T) -> T {
    world.with(host, |talker, _| act(talker)).expect("the host is up")
}

fn linked(seed: u64) -> (World<Talker>, LinkId, LinkId) {
    let mut world = world(Loss::None, seed);
    let here = at(&mut world, A, |it| it.open(B.endpoint()));
    run(&mut world, 3 * MS);
    let there = at(&mut world, B, |it| it.accepted().0);
    (world, here, there)
}

fn end(world: &mut World<Talker>, host: HostIx, link: LinkId) -> End {
    at(world, host, |it| it.ends[&link].clone())
}

#[test]
fn link_opens_in_a_round_trip_and_bytes_take_half_of_it() {
    let mut world = world(Loss::None, 1);
    let start = world.now();
    let link = at(&mut world, A, |it| it.open(B.endpoint()));
    run(&mut world, 10 * MS);
    assert_eq!(end(&mut world, A, link).opened_at, Some(start + 2 * MS));
    at(&mut world, A, |it| it.send(link, b"hello"));
    run(&mut world, MS / 2);
    assert_eq!(at(&mut world, B, |it| it.accepted().1.bytes.clone()), b"");
    run(&mut world, MS / 2);
    assert_eq!(at(&mut world, B, |it| it.accepted().1.bytes.clone()), b"hello");
    at(&mut world, A, |it| {
        it.send(link, b", and");
        it.send(link, b" good-bye");
        it.close(link);
    });
    run(&mut world, MS);
    let there = at(&mut world, B, |it| it.accepted().1.clone());
    assert_eq!(there.bytes, b"hello, and good-bye", "bytes sent before the end arrive first");
    assert_eq!(there.closed, Some(LinkEnd::ByPeer));
    assert_eq!(world.counters().link_bytes, there.bytes.len() as u64);
}

#[test]
fn link_that_cannot_be_opened_ends_once_with_its_cause() {
    let mut world = world(Loss::None, 1);
    let nowhere = Endpoint("192.0.2.1:80".parse().expect("an address"));
    let links = at(&mut world, A, |it| [A, HostIx(2)].map(|to| it.open(to.endpoint())));
    let unknown = at(&mut world, A, |it| it.open(nowhere));
    let cut_off = at(&mut world, A, |it| it.open(B.endpoint()));
    world.apply(&Fault::Partition(vec![B]));
    run(&mut world, 10 * MS);
    for link in links {
        assert_eq!(end(&mut world, A, link).closed, Some(LinkEnd::Refused), "no machine listens");
    }
    assert_eq!(end(&mut world, A, unknown).closed, Some(LinkEnd::Unreachable));
    assert_eq!(end(&mut world, A, cut_off).closed, None, "attempts are repeated for a while");
    run(&mut world, Duration::from_secs(20));
    assert_eq!(end(&mut world, A, cut_off).closed, Some(LinkEnd::Unreachable));
    world.apply(&Fault::Heal);
    let many = at(&mut world, A, |it| [(); 15].map(|()| it.open(B.endpoint())));
    run(&mut world, 10 * MS);
    let ends: Vec<End> = many.iter().map(|link| end(&mut world, A, *link)).collect();
    assert!(ends[..14].iter().all(|end| end.opened_at.is_some() && end.closed.is_none()));
    assert_eq!(ends[14].closed, Some(LinkEnd::NoRoom), "a driver keeps 14");
}

#[test]
fn a_partition_stalls_a_link_and_breaks_it_if_it_lasts() {
    let (mut world, here, there) = linked(1);
    world.apply(&Fault::Partition(vec![B]));
    at(&mut world, A, |it| it.send(here, b"one"));
    run(&mut world, 100 * MS);
    at(&mut world, A, |it| it.send(here, b" two"));
    run(&mut world, Duration::from_secs(5));
    assert_eq!(end(&mut world, B, there).bytes, b"");
    world.apply(&Fault::Heal);
    run(&mut world, Duration::from_secs(2));
    assert_eq!(end(&mut world, B, there).bytes, b"one two");
    world.apply(&Fault::Partition(vec![B]));
    at(&mut world, A, |it| it.send(here, b"three"));
    run(&mut world, Duration::from_secs(20));
    assert_eq!(end(&mut world, A, here).closed, Some(LinkEnd::Broken));
    world.apply(&Fault::Heal);
    run(&mut world, Duration::from_secs(20));
    let half_open = end(&mut world, B, there);
    assert_eq!((half_open.bytes.len(), half_open.closed), (7, None), "it was not notified");
    at(&mut world, B, |it| it.send(there, b"still there?"));
    run(&mut world, Duration::from_secs(1));
    assert_eq!(end(&mut world, B, there).closed, Some(LinkEnd::Broken));
}

#[test]
fn a_crash_ends_a_link_at_once_or_when_the_peer_sends() {
    let mut silent = 0;
    for seed in 0..20 {
        let (mut world, here, _) = linked(seed);
        world.kill(B);
        run(&mut world, Duration::from_secs(1));
        if end(&mut world, A, here).closed.is_none() {
            silent += 1;
            at(&mut world, A, |it| it.send(here, b"anybody?"));
            run(&mut world, Duration::from_secs(1));
            assert_eq!(end(&mut world, A, here).closed, None, "a dead host does not answer");
            // The next process on the host does not know the connection.
            world.spawn(B, NodeId(3), Talker { listens: true, ..Talker::default() });
            run(&mut world, Duration::from_secs(3));
            assert_eq!(end(&mut world, A, here).closed, Some(LinkEnd::Broken));
        } else {
            assert_eq!(end(&mut world, A, here).closed, Some(LinkEnd::ByPeer));
        }
    }
    assert!((4..=16).contains(&silent), "{silent} of 20 hosts ended silently");
}

#[test]
fn peer_that_does_not_read_is_cut_off_at_full_buffers() {
    let (mut world, here, there) = linked(1);
    world.apply(&Fault::Pause(B));
    let kilobytes = |world: &mut World<Talker>, count: u32| {
        for _ in 0..count {
            at(world, A, |it| it.send(here, &[7; 1000]));
            run(world, 3 * MS);
        }
    };
    kilobytes(&mut world, 60);
    assert_eq!(end(&mut world, A, here).closed, None, "the reader's host receives 64 KiB");
    kilobytes(&mut world, 30);
    assert_eq!(end(&mut world, A, here).closed, Some(LinkEnd::TooSlow));
    world.apply(&Fault::Resume(B));
    run(&mut world, Duration::from_secs(3));
    let reader = end(&mut world, B, there);
    assert_eq!(reader.closed, Some(LinkEnd::Broken));
    assert!(reader.bytes.len() >= 60_000, "{}", reader.bytes.len());
}

#[test]
fn bytes_arrive_in_order_without_gaps_under_any_faults() {
    let mut stalls = 0;
    for seed in 0..60 {
        let mut world = world(Loss::Uniform(0.2), seed);
        let mut rng = Rng::new(seed);
        let link = at(&mut world, A, |it| it.open(B.endpoint()));
        run(&mut world, Duration::from_secs(4));
        let there = at(&mut world, B, |it| it.accepted().0);
        let mut sent = [Vec::new(), Vec::new()];
        for _ in 0..200 {
            match rng.below(12) {
                0 => world.apply(&Fault::Partition(vec![A])),
                1 => world.apply(&Fault::OneWay(vec![A], vec![B])),
                2..=4 => world.apply(&Fault::Heal),
                5 => world.apply(&Fault::Pause(B)),
                6 => world.apply(&Fault::Resume(B)),
                side => {
                    let (host, link) = [(A, link), (B, there)][side % 2];
                    if !world.is_paused(host) {
                        let bytes: Vec<u8> =
                            (0..rng.below(50)).map(|_| rng.next_u64() as u8).collect();
                        at(&mut world, host, |it| it.send(link, &bytes));
                        sent[side % 2].extend(bytes);
                    }
                }
            }
            run(&mut world, MS * rng.below(30) as u32);
        }
        world.apply(&Fault::Heal);
        world.apply(&Fault::Resume(B));
        run(&mut world, Duration::from_secs(10));
        stalls += world.counters().link_stalls;
        assert_eq!(end(&mut world, B, there).bytes, sent[0], "seed {seed}");
        assert_eq!(end(&mut world, A, link).bytes, sent[1], "seed {seed}");
        let both = [end(&mut world, A, link).closed, end(&mut world, B, there).closed];
        assert_eq!(both, [None, None], "seed {seed}");
    }
    assert!(stalls > 500, "only {stalls} deliveries stalled");
}
