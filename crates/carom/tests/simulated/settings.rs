use std::net::Ipv4Addr;
use std::time::Duration;

use carom::sim::World;
use carom::{
    Event, Group, JoinGroupError, Loss, MulticastPool, Node, NodeId, Profile, PublishError, Qos,
    Quorum, RingEvent, RingNews, SendOptions, StartError,
};
use proptest::prelude::*;

use crate::{PATIENCE, cases, config, run, simulation, started};

/// A profile, and the settings that its ring must report at every member.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    profile: Profile,
    quorum: Option<Quorum>,
    voters: [bool; 2],
}

impl Drawn {
    fn of_node(self, at: usize) -> Profile {
        self.profile.voter(self.voters[at])
    }

    fn fate(self) -> Fate {
        let Some(Quorum::QuorumOf(electorate)) = self.quorum else { return Fate::Works };
        let voters = self.voters.into_iter().filter(|it| *it).count();
        let needed = usize::from(electorate) / 2 + 1;
        match voters {
            _ if voters > electorate.into() => Fate::IsFull,
            _ if voters < needed => Fate::Waits { needed },
            _ => Fate::Works,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Works,
    /// The group waits for voters that are not online.
    Waits {
        needed: usize,
    },
    /// The electorate has no room for the second voter.
    IsFull,
}

fn quorums() -> impl Strategy<Value = Quorum> {
    let most = Quorum::MAX_AT_LEAST;
    let odd =
        prop_oneof![6 => 0..4_u16, 1 => Just(most), 1 => Just(most + 1), 1 => any::<u16>()].boxed();
    prop_oneof![
        odd.clone().prop_map(Quorum::AtLeast),
        odd.prop_map(Quorum::QuorumOf),
        Just(Quorum::Majority),
        Just(Quorum::All)
    ]
}

fn profiles() -> impl Strategy<Value = Drawn> {
    let rates = (prop_oneof![0..4_u8, 30..35_u8, any::<u8>()], any::<u8>());
    let plain = prop_oneof![
        rates.prop_map(|(r, c)| Profile::time_critical().rate_of_fire(r, c)),
        Just(Profile::bulk()),
        Just(Profile::guest()),
    ];
    let settings = prop_oneof![
        2 => plain.prop_map(|profile| (profile, None)),
        3 => quorums().prop_map(|it| (Profile::ordered().quorum(it), Some(it))),
    ];
    (settings, any::<[bool; 2]>(), any::<bool>()).prop_map(
        |((profile, quorum), voters, rejoins)| Drawn {
            profile: profile.rejoin(rejoins),
            quorum,
            voters,
        },
    )
}

pub(crate) fn spans() -> impl Strategy<Value = Duration> {
    let some = Duration::from_secs(5);
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::from_nanos(1)),
        Just(some),
        Just(Duration::MAX)
    ]
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just(0), 1 => Just(255), 1 => Just(256)].prop_map(|bytes| "r".repeat(bytes))
}

fn pools() -> impl Strategy<Value = MulticastPool> {
    let address = prop_oneof![
        3 => Just(Ipv4Addr::new(239, 77, 0, 1)),
        1 => Just(Ipv4Addr::new(239, 255, 255, 255)),
        1 => Just(Ipv4Addr::UNSPECIFIED),
        1 => Just(Ipv4Addr::BROADCAST),
        1 => Just(Ipv4Addr::new(224, 0, 0, 1)),
    ];
    let hello =
        prop_oneof![3 => Just(MulticastPool::default().hello), 1 => Just(Ipv4Addr::LOCALHOST)];
    let count = prop_oneof![Just(0), Just(1), Just(1024), any::<u16>()];
    (address, count, hello).prop_map(|(first, count, hello)| MulticastPool { first, count, hello })
}

/// Generates losses with which a message still arrives, and some that are invalid.
fn losses() -> impl Strategy<Value = Loss> {
    let share = || prop_oneof![4 => 0.0..0.1, 1 => Just(1.5), 1 => Just(-0.1), 1 => Just(f64::NAN)];
    let bursts = (share(), prop_oneof![Just(0), 1..4_u32]);
    let mean = prop_oneof![Just(f64::INFINITY), Just(0.5), 1.0..4.0];
    prop_oneof![
        2 => Just(Loss::None),
        2 => share().prop_map(Loss::Uniform),
        1 => bursts.prop_map(|(rate, length)| Loss::Burst { rate, length }),
        1 => (share(), mean).prop_map(|(rate, mean_burst)| Loss::Markov { rate, mean_burst }),
        1 => (share(), share()).prop_map(|(to_bad, loss_bad)| Loss::GilbertElliott {
            to_bad,
            to_good: 0.5,
            loss_good: 0.0,
            loss_bad,
        }),
    ]
}

pub(crate) fn levels() -> impl Strategy<Value = Option<Qos>> {
    prop_oneof![
        Just(None),
        Just(Some(Qos::Unreliable)),
        Just(Some(Qos::Unordered)),
        Just(Some(Qos::SourceOrdered)),
        prop_oneof![0..3_u8, any::<u8>()].prop_map(|k| Some(Qos::Resilient(k))),
        Just(Some(Qos::MajorityResilient)),
        Just(Some(Qos::TotallyResilient)),
    ]
}

async fn has_another(group: &Group) {
    group.wait_for_members(1).await.expect("open");
}

async fn next_message(group: &Group) -> usize {
    simulation::until(group, |event| match event {
        Event::Message(message) => Some(message.payload.len()),
        _ => None,
    })
    .await
}

async fn until_told(node: &Node, groups: [&Group; 2], is_it: impl Fn(&RingNews) -> bool) {
    loop {
        for event in groups.iter().flat_map(|group| std::iter::from_fn(|| group.try_recv())) {
            if matches!(&event, Event::Ring(RingEvent { news, .. }) if is_it(news)) {
                return;
            }
        }
        node.sleep(Duration::from_millis(5)).await;
    }
}

async fn assert_ring(drawn: Drawn, of: [&Node; 2], at: &Node) {
    let Some(quorum) = drawn.quorum else { return };
    let mut groups = at.status().await.groups;
    groups.retain(|group| {
        group.profile.required_voters() == drawn.profile.required_voters() && group.name != "fine"
    });
    let ring = groups[0].ring.as_ref().expect("it has ordered a message");
    let has_electorate = matches!(quorum, Quorum::QuorumOf(_));
    for (node, is_voter) in of.into_iter().zip(drawn.voters) {
        let member = ring.view.members.iter().find(|member| member.process.node == node.id());
        let member = member.expect("it is a member");
        assert_eq!(member.quorum, quorum);
        assert!(member.is_voter == is_voter || !has_electorate, "{member:?}");
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn settings_are_refused_or_work_at_every_member(
        drawn in profiles(),
        name in prop_oneof![
            1 => Just(String::new()),
            1 => Just("a\n\0b".into()),
            8 => "\\PC{1,40}",
        ],
        qos in levels(),
        deadline in proptest::option::of(spans()),
        bytes in prop_oneof![Just(0), Just(1), Just(1284), Just(1285), Just(70_000)],
    ) {
        prop_assume!(name != "fine");
        let (mut world, [here, there]) = started::<2>(77, Loss::None);
        let both = async {
            let odd = here.join(&name, drawn.of_node(0)).await;
            // The other node joins after the first has joined all its groups.
            let fine = here.join("fine", Profile::ordered()).await.expect("a valid group");
            let twin = there.join(&name, drawn.of_node(1)).await;
            let fine_twin = there.join("fine", Profile::ordered()).await.expect("a valid group");
            has_another(&fine_twin).await;
            has_another(&fine).await;
            (odd, twin, fine, fine_twin)
        };
        let joined = world.block_on(PATIENCE, both);
        let (odd, twin, _fine, _fine_twin) = joined.expect("no group blocks another one");
        let (odd, twin) = match (odd, twin) {
            (Ok(odd), Ok(twin)) => (odd, twin),
            (Err(error), Err(twin)) => {
                prop_assert_eq!(&error, &twin);
                prop_assert!(!error.to_string().is_empty() && !error.fix().is_empty());
                return Ok(());
            }
            (odd, twin) => panic!("{:?} here, {:?} there", odd.err(), twin.err()),
        };
        let is_told: fn(&RingNews, Fate) -> bool = |news, fate| match (news, fate) {
            (RingNews::Minority { needed, .. }, Fate::Waits { needed: expected }) => {
                *needed == expected
            }
            (RingNews::ElectorateFull { voters: 1 }, Fate::IsFull) => true,
            _ => false,
        };
        let fate = drawn.fate();
        if !matches!(fate, Fate::Works) {
            let told = until_told(&here, [&odd, &twin], |news| is_told(news, fate));
            prop_assert!(world.block_on(PATIENCE, told).is_some(), "no report: {fate:?}");
            return Ok(());
        }
        let meet = async {
            has_another(&odd).await;
            has_another(&twin).await;
        };
        prop_assert!(world.block_on(PATIENCE, meet).is_some(), "they do not see each other");
        match odd.try_publish_with(vec![7; bytes], SendOptions { qos, deadline }) {
            Ok(published) => {
                let heard = world.block_on(PATIENCE, next_message(&twin));
                prop_assert_eq!(heard, Some(bytes), "accepted messages are delivered");
                drop(published);
                let ring = assert_ring(drawn, [&here, &there], &there);
                prop_assert!(world.block_on(PATIENCE, ring).is_some());
            }
            Err(PublishError::Qos { asked }) => prop_assert_eq!(Some(asked), qos),
            Err(PublishError::TooLarge { limit, .. }) => prop_assert!(bytes > limit),
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn builder_is_refused_or_its_node_works(
        port in prop_oneof![Just(0), Just(1), any::<u16>()],
        pool in pools(),
        loss in losses(),
        queue in prop_oneof![Just(0), Just(1), Just(usize::MAX), 2..100_usize],
        names in [names(), names()],
        mtu in proptest::option::of(prop_oneof![Just(0), 690..710_u16, any::<u16>()]),
        (ids, is_static) in (any::<bool>(), any::<bool>()),
        seed in proptest::option::of(any::<u64>()),
        found in proptest::sample::select(vec!["", "nonsense", "10.0.0.1", ":", "10.0.0.1:0"]),
    ) {
        let mut world = World::new(config(2, 79));
        let ids = if ids { [NodeId(0), NodeId(u64::MAX)] } else { [NodeId(1), NodeId(2)] };
        let endpoints = [0, 1].map(|host| world.host(host).endpoint());
        let members: Vec<_> = ids.into_iter().zip(endpoints).collect();
        let build = |at: usize| {
            let [cluster, rack] = &names;
            let builder = Node::builder().multicast_port(port).pool(pool).loss(loss).queue(queue);
            let mut builder = builder.cluster(cluster).rack(rack).node_id(ids[at]);
            builder = mtu.into_iter().fold(builder, carom::Builder::mtu);
            builder = seed.into_iter().fold(builder, carom::Builder::seed);
            if !found.is_empty() && at == 1 {
                builder = builder.seeds([found]);
            }
            if is_static {
                // The list may contain the node itself, and a node twice.
                builder = builder.static_members([&members[..], &members[..1]].concat());
            }
            builder
        };
        let started = [0, 1].map(|at| build(at).start_on(&world.host(at as u32)));
        let is_sound = [
            port != 0,
            pool.is_valid(),
            loss.is_valid(),
            names.iter().all(|name| name.len() < 256),
            mtu.is_none_or(|mtu| mtu >= 700),
        ];
        let is_sound = is_sound.into_iter().all(|it| it);
        let [Ok(here), Ok(there)] = started else {
            for error in started.into_iter().filter_map(Result::err) {
                let is_seed = matches!(error, StartError::Seed { .. }) && !found.is_empty();
                prop_assert!(!is_sound || is_seed, "{error}");
                prop_assert!(!error.to_string().is_empty() && !error.fix().is_empty());
            }
            return Ok(());
        };
        prop_assert!(is_sound, "port {port}, {pool}, {loss:?}, {mtu:?}");
        let heard = async {
            let odd = here.join("prices", Profile::time_critical()).await.expect("a group");
            let twin = match there.join("prices", Profile::time_critical()).await {
                Err(JoinGroupError::NoSeedAnswered { .. }) if !found.is_empty() => return 1,
                twin => twin.expect("a group"),
            };
            has_another(&odd).await;
            has_another(&twin).await;
            drop(odd.publish("x").await.expect("published"));
            next_message(&twin).await
        };
        prop_assert_eq!(world.block_on(PATIENCE, heard), Some(1));
    }
}

#[test]
fn values_the_wire_cannot_carry_are_refused_with_the_range() {
    let (mut world, [node]) = started::<1>(78, Loss::None);
    for least in [0, Quorum::MAX_AT_LEAST + 1, u16::MAX] {
        let profile = Profile::ordered().quorum(Quorum::AtLeast(least));
        let refused = run(&mut world, node.join("prices", profile));
        let Err(error) = refused else { panic!("{least} is accepted") };
        let error = error.to_string();
        let expected = format!("AtLeast({least}) is invalid: expected 1 to 4096 members");
        assert!(error.contains(&expected), "{error}");
    }
    let group = run(&mut world, node.join("prices", Profile::ordered())).expect("a valid group");
    let options = SendOptions::from(Qos::Resilient(0));
    let Err(error) = group.try_publish_with("lost", options) else { panic!("it is accepted") };
    assert_eq!(error, PublishError::Qos { asked: Qos::Resilient(0) });
    assert!(error.fix().contains("Resilient(1) to Resilient(255)"), "{}", error.fix());
}
