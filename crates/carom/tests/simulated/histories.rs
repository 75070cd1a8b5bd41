//! Tests that a program has the same result on sockets and in a simulated world, and that the
//! history of the world follows from its seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use carom::sim::{Disturbance, Fault, Membership, World, WorldConfig};
use carom::{Builder, Event, Group, Loss, Node, NodeId};
use pollster::block_on;

use crate::network::{multicast_port, on_loopback};
use crate::simulation::Capture;
use crate::{PATIENCE, config, join_with, simulation};

/// Exchanges messages. Returns the group, because a member that left could not confirm the other's
/// messages.
async fn exchange(node: &Node, own: u32) -> (Vec<u32>, Group) {
    let group = join_with(node, 1).await;
    for number in 0..100_u32 {
        group.publish((own + number).to_be_bytes().to_vec()).await.expect("published");
        if number % 10 == 0 {
            node.sleep(Duration::from_millis(1)).await;
        }
    }
    let mut heard = Vec::new();
    while heard.len() < 100 {
        match group.recv().await.expect("an open group") {
            Event::Message(message) => {
                let bytes = message.payload[..].try_into().expect("four bytes");
                heard.push(u32::from_be_bytes(bytes));
            }
            Event::Lost(lost) => panic!("{lost:?}"),
            _ => {}
        }
    }
    let safe = group.confirm(PATIENCE).await.expect("confirmed");
    assert!(safe.incomplete.is_empty());
    heard.sort_unstable();
    (heard, group)
}

async fn both([a, b]: [Node; 2]) -> [Vec<u32>; 2] {
    let (a, b) = tokio::join!(exchange(&a, 0), exchange(&b, 1000));
    [a.0, b.0]
}

#[test]
fn program_gives_the_same_result_on_sockets_and_simulated() {
    let lossy = |builder: Builder| builder.loss(Loss::Uniform(0.1));
    let port = multicast_port();
    let real = [(), ()].map(|()| lossy(on_loopback(port)).start().expect("a node"));
    let on_sockets = block_on(both(real));

    let mut world = World::new(config(2, 1));
    let simulated: [Node; 2] = simulation::start(&world, || lossy(Node::builder()));
    let in_simulation = world.block_on(PATIENCE, both(simulated));
    assert_eq!(Some(&on_sockets), in_simulation.as_ref());
    let [a, b] = on_sockets;
    assert_eq!((a, b), ((1000..1100).collect(), (0..100).collect()));
}

fn busy(seed: u64, membership: Membership) -> (u64, Vec<u8>, BTreeMap<NodeId, Vec<String>>) {
    let config = WorldConfig { loss: Loss::Uniform(0.05), ..config(4, seed) };
    let mut world = World::with_membership(config, membership);
    let capture = Capture::default();
    world.trace_to(Box::new(capture.clone()));
    let heard = Rc::new(RefCell::new(BTreeMap::<NodeId, Vec<String>>::new()));
    for (number, host) in world.hosts().into_iter().enumerate() {
        let heard = Rc::clone(&heard);
        world.install(&host, move |host| {
            let heard = Rc::clone(&heard);
            async move {
                let node = Node::builder().start_on(&host).expect("a node");
                let group = join_with(&node, 2).await;
                for message in 0..30 {
                    group.try_publish(format!("{number}.{message}")).expect("published");
                    node.sleep(Duration::from_millis(7 + number as u64)).await;
                    while let Some(event) = group.try_recv() {
                        heard.borrow_mut().entry(node.id()).or_default().push(format!("{event:?}"));
                    }
                }
                while let Some(event) = group.recv().await {
                    heard.borrow_mut().entry(node.id()).or_default().push(format!("{event:?}"));
                }
            }
        });
    }
    let host = world.host(3);
    world.run_for(Duration::from_secs(3));
    world.apply(&Fault::Disturb(Disturbance {
        reorder: 0.1,
        duplicate: 0.1,
        corrupt: 0.05,
        spread: Duration::from_millis(2),
    }));
    world.restart(&host);
    world.run_for(Duration::from_secs(7));
    world.end_trace().expect("writing to memory cannot fail");
    let history = world.history();
    drop(world);
    let heard = Rc::try_unwrap(heard).expect("the world is gone").into_inner();
    (history, capture.take(), heard)
}

#[test]
fn each_seed_gives_its_own_history_byte_for_byte() {
    for membership in [Membership::Gossip, Membership::Oracle { delay: Duration::from_millis(1) }] {
        let [once, again, other] = [11, 11, 12].map(|seed| busy(seed, membership));
        assert_eq!(once.0, again.0);
        assert!(once.1 == again.1, "the captures differ");
        assert_eq!(once.2, again.2);
        assert_ne!(once.0, other.0);
        assert!(once.1 != other.1 && once.1.len() > 100_000);
        assert_eq!(once.2.len(), 5, "four nodes, and a fifth after the restart");
        assert!(once.2.keys().ne(other.2.keys()), "the ids follow from the seed too");
    }
}
