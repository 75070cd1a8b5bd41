//! Whatever a program asks for is refused with an error, or works at every member.

use carom::sim::World;
use carom::{
    Event, Group, JoinGroupError, Loss, MulticastPool, Node, Partition, Profile, PublishError, Qos,
    RingEvent, RingNews, SendOptions,
};
use proptest::prelude::*;

use crate::{PATIENCE, config, start};

fn partitions() -> impl Strategy<Value = Partition> {
    let odd = prop_oneof![Just(0), Just(1), Just(2), Just(1024), Just(1025), any::<u16>()];
    prop_oneof![
        odd.clone().prop_map(Partition::AtLeast),
        odd.prop_map(Partition::QuorumOf),
        Just(Partition::Majority),
        Just(Partition::All)
    ]
}

fn profiles() -> impl Strategy<Value = Profile> {
    let rates = (prop_oneof![0..4_u8, 30..35_u8, any::<u8>()], any::<u8>());
    prop_oneof![
        rates.prop_map(|(r, c)| Profile::time_critical().rate_of_fire(r, c)),
        partitions().prop_map(|partition| Profile::ordered().partition(partition)),
        Just(Profile::bulk()),
    ]
}

fn levels() -> impl Strategy<Value = Option<Qos>> {
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

async fn join(node: &Node, name: &str, profile: Profile) -> Result<Group, JoinGroupError> {
    node.join_async(name, profile).await
}

async fn has_another(node: &Node, group: &Group) {
    while group.members().is_empty() {
        node.sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// The next message that another node has sent.
async fn next_message(group: &Group) -> usize {
    loop {
        match group.recv().await.expect("the group is open") {
            Event::Message(message) => return message.payload.len(),
            _ => continue,
        }
    }
}

/// The members that a group waits for so that it can work.
async fn minority(group: &Group) -> usize {
    loop {
        match group.recv().await.expect("the group is open") {
            Event::Ring(RingEvent { news: RingNews::Minority { needed, .. }, .. }) => {
                return needed;
            }
            _ => continue,
        }
    }
}

/// 60 cases, for each of these is a world of its own, unless the environment asks for a number.
fn few_cases() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(60) }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn settings_are_refused_or_work_at_every_member(
        profile in profiles(),
        name in prop_oneof![Just(String::new()), Just("a\n\0b".into()), "\\PC{1,40}"],
        qos in levels(),
        bytes in prop_oneof![Just(0), Just(1), Just(1284), Just(1285), Just(70_000)],
    ) {
        prop_assume!(name != "fine");
        let mut world = World::new(config(2, 77));
        let [here, there] = start(&world);
        let both = async {
            let odd = join(&here, &name, profile).await;
            // The other node starts to take part when the first has all its groups.
            let fine = join(&here, "fine", Profile::ordered()).await.expect("a sound group");
            let twin = join(&there, &name, profile).await;
            let fine_twin = join(&there, "fine", Profile::ordered()).await.expect("a sound group");
            has_another(&there, &fine_twin).await;
            has_another(&here, &fine).await;
            (odd, twin, fine, fine_twin)
        };
        let joined = world.block_on(PATIENCE, both);
        let (odd, twin, _fine, _fine_twin) = joined.expect("no group hides another one");
        let (odd, twin) = match (odd, twin) {
            (Ok(odd), Ok(twin)) => (odd, twin),
            (Err(error), Err(twin)) => {
                prop_assert_eq!(&error, &twin);
                prop_assert!(!error.to_string().is_empty() && !error.fix().is_empty());
                return Ok(());
            }
            (odd, twin) => panic!("{:?} here, {:?} there", odd.err(), twin.err()),
        };
        let meet = async {
            has_another(&here, &odd).await;
            has_another(&there, &twin).await;
        };
        match profile.quorum() {
            // An electorate of one has no room for the other.
            Some(1) => return Ok(()),
            Some(quorum) if quorum > 2 => {
                let told = world.block_on(PATIENCE, minority(&twin));
                prop_assert!(told.is_some_and(|needed| needed == quorum), "{told:?} of {quorum}");
                return Ok(());
            }
            _ => {}
        }
        prop_assert!(world.block_on(PATIENCE, meet).is_some(), "they do not see each other");
        let options = SendOptions { qos, ..SendOptions::default() };
        match odd.publish_with(vec![7; bytes], options) {
            Ok(published) => {
                let heard = world.block_on(PATIENCE, next_message(&twin));
                prop_assert_eq!(heard, Some(bytes), "what was taken is delivered");
                drop(published);
            }
            Err(PublishError::Qos { asked }) => prop_assert_eq!(Some(asked), qos),
            Err(PublishError::TooLarge { limit, .. }) => prop_assert!(bytes > limit),
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn builder_is_refused_or_its_node_works(
        port in prop_oneof![Just(0), Just(1), any::<u16>()],
        pool_count in prop_oneof![Just(0), Just(1), any::<u16>()],
        rate in prop_oneof![Just(0.0), Just(0.05), Just(1.5), Just(-0.1), Just(f64::NAN)],
        queue in prop_oneof![Just(0), Just(1), 2..100_usize],
        rack in prop_oneof![Just(0), Just(255), Just(256)].prop_map(|bytes| "r".repeat(bytes)),
    ) {
        let mut world = World::new(config(2, 79));
        let build = || {
            let pool = MulticastPool { count: pool_count, ..MulticastPool::default() };
            let builder = Node::builder().multicast_port(port).pool(pool).rack(&rack);
            builder.loss(Loss::Uniform(rate)).queue(queue)
        };
        let started = [0, 1].map(|host| build().start_on(&world.host(host)));
        let is_loss = (0.0..=1.0).contains(&rate);
        let is_sound = port != 0 && pool_count != 0 && is_loss && rack.len() < 256;
        let [Ok(here), Ok(there)] = started else {
            for error in started.into_iter().filter_map(Result::err) {
                prop_assert!(!is_sound, "{error}");
                prop_assert!(!error.to_string().is_empty() && !error.fix().is_empty());
            }
            return Ok(());
        };
        prop_assert!(is_sound, "port {port}, {pool_count} addresses, loss {rate}");
        let heard = async {
            let odd = join(&here, "prices", Profile::time_critical()).await.expect("a group");
            let twin = join(&there, "prices", Profile::time_critical()).await.expect("a group");
            has_another(&here, &odd).await;
            has_another(&there, &twin).await;
            drop(odd.publish_async("x").await.expect("published"));
            next_message(&twin).await
        };
        prop_assert_eq!(world.block_on(PATIENCE, heard), Some(1));
    }
}

#[test]
fn values_that_the_wire_refuses_are_refused_with_what_is_allowed() {
    let mut world = World::new(config(1, 78));
    let [node] = start(&world);
    for least in [0, Partition::MAX_AT_LEAST + 1, u16::MAX] {
        let profile = Profile::ordered().partition(Partition::AtLeast(least));
        let refused = world.block_on(PATIENCE, join(&node, "prices", profile));
        let Err(error) = refused.expect("at once") else { panic!("{least} is accepted") };
        let error = error.to_string();
        let expected = format!("AtLeast({least}) is invalid: expected 1 to 4096 members");
        assert!(error.contains(&expected), "{error}");
    }
    let joined = world.block_on(PATIENCE, join(&node, "prices", Profile::ordered()));
    let group = joined.expect("in time").expect("a sound group");
    let options = SendOptions::from(Qos::Resilient(0));
    let Err(error) = group.publish_with("lost", options) else { panic!("it is accepted") };
    assert_eq!(error, PublishError::Qos { asked: Qos::Resilient(0) });
    assert!(error.fix().contains("Resilient(1) to Resilient(255)"), "{}", error.fix());
}
