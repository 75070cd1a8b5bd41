use std::collections::BTreeMap;

use carom::Place;
use carom::{Event, Group, Loss, Profile, Qos, RingNews};
use pollster::block_on;

use crate::network::{multicast_port, on_loopback};
use crate::simulation::{PATIENCE, run};
use crate::{join_all, ring, take};

async fn publish_from_all(groups: &[Group], rounds: usize) -> Vec<Vec<String>> {
    for round in 0..rounds {
        for (number, group) in groups.iter().enumerate() {
            drop(group.publish(format!("{number}.{round}")).await.expect("published"));
        }
    }
    let mut given = Vec::new();
    for group in groups {
        given.push(take(group, rounds * groups.len()).await);
    }
    given
}

fn assert_one_order(given: &[Vec<String>], rounds: usize) {
    let mut all = given[0].clone();
    assert!(given.iter().all(|other| *other == given[0]), "{given:?}");
    for number in 0..given.len() {
        let own = given[0].iter().filter(|text| text.starts_with(&format!("{number}.")));
        let expected: Vec<String> = (0..rounds).map(|round| format!("{number}.{round}")).collect();
        assert_eq!(own.cloned().collect::<Vec<String>>(), expected);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), rounds * given.len());
}

#[test]
fn all_members_deliver_one_order_of_messages_under_losses() {
    for seed in 1..=5 {
        let (mut world, _nodes, groups) = ring::<4>(seed, Loss::Uniform(0.05));
        let given = run(&mut world, publish_from_all(&groups, 100));
        assert_one_order(&given, 100);
    }
}

#[test]
fn all_members_are_given_the_same_order_over_sockets() {
    let port = multicast_port();
    let lossy = || on_loopback(port).loss(Loss::Uniform(0.05)).start().expect("a node");
    let nodes = [lossy(), lossy(), lossy()];
    let given = block_on(async {
        let groups = join_all(&nodes, Profile::ordered()).await;
        publish_from_all(&groups, 300).await
    });
    assert_one_order(&given, 300);
}

#[test]
fn ordered_messages_carry_places_and_stability_is_reported() {
    let (mut world, _nodes, groups) = ring::<3>(15, Loss::Uniform(0.03));
    run(&mut world, async {
        for number in 0..100 {
            let qos = if number % 4 == 0 { Qos::SourceOrdered } else { Qos::TotallyOrdered };
            let group = &groups[number % 3];
            drop(group.publish_with(number.to_string(), qos).await.expect("published"));
        }
        let mut told = Vec::new();
        for group in &groups {
            told.push(places_until_stable(group, 100).await);
        }
        assert_eq!(told[0].len(), 75, "only totally ordered messages have a place");
        let mut places: Vec<Place> = told[0].values().copied().collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 75, "each message has its own place");
        assert!(told.iter().all(|it| *it == told[0]), "the same at all members");
    });
}

async fn places_until_stable(group: &Group, count: usize) -> BTreeMap<String, Place> {
    let (mut places, mut given, mut last) = (BTreeMap::new(), 0, None);
    loop {
        let event = group.recv_timeout(PATIENCE).await.expect("in time").expect("open");
        match event {
            Event::Message(message) => {
                given += 1;
                let Some(place) = message.place else { continue };
                assert!(Some(place) > last.replace(place), "{place:?}");
                places.insert(String::from_utf8_lossy(&message.payload).into_owned(), place);
            }
            Event::Ring(event) => match event.news {
                RingNews::View(view) => assert!(Some(view.place) > last.replace(view.place)),
                RingNews::Stable { up_to, members } => {
                    assert!(Some(up_to) <= last, "no member learns of messages it did not deliver");
                    if given == count && Some(up_to) == last {
                        assert_eq!(members, 3);
                        return places;
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
}
