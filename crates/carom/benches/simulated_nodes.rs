//! Measures the cost of a virtual second of many nodes in many groups, through the whole public
//! API. Run it with `cargo bench -p carom --bench simulated_nodes`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use carom::sim::{Host, Jitter, Link, Membership, Topology, World, WorldConfig};
use carom::{Event, Group, Loss, Node, Profile};
use carom_proto::Rng;

fn main() {
    let oracle = Membership::Oracle { delay: Duration::from_millis(10) };
    println!("{NODES} nodes in {GROUPS_OF_NODE} of {GROUPS} groups, 100 messages/s each, 1 % loss");
    for (name, membership, has_history) in [
        ("oracle", oracle, false),
        ("gossip", Membership::Gossip, false),
        ("oracle, with a history", oracle, true),
    ] {
        let (joining, running, datagrams, messages) = run(membership, has_history);
        let per_second = running.as_secs_f64() / SPAN.as_secs_f64();
        let rate = datagrams as f64 / running.as_secs_f64();
        println!(
            "{name}: joining {joining:.2?}, then {per_second:.2} s per virtual second, \
             {rate:.0} datagrams delivered a second, {messages} messages"
        );
    }
}

fn run(membership: Membership, has_history: bool) -> (Duration, Duration, u64, u64) {
    let jitter = Jitter::Exponential(Duration::from_micros(30));
    let link = Link::of_delay(Duration::from_micros(100)).with_jitter(jitter);
    let config = WorldConfig {
        loss: Loss::Uniform(0.01),
        checks: false,
        hashes_history: has_history,
        ..WorldConfig::new(Topology::lan(NODES, link), 7)
    };
    let start = Instant::now();
    let mut world = World::with_membership(config, membership);
    let messages = Rc::new(Cell::new(0));
    let mut rng = Rng::new(5);
    for host in world.hosts() {
        let mut groups: Vec<usize> = (0..GROUPS).collect();
        rng.choose_to_front(&mut groups, GROUPS_OF_NODE);
        groups.truncate(GROUPS_OF_NODE);
        join(&mut world, &host, groups, rng.fork(u64::from(host.ix().0)), &messages);
    }
    world.run_for(SETTLING);
    let joining = start.elapsed();
    let before = world.counters().delivered.all_datagrams();
    let start = Instant::now();
    world.run_for(SPAN);
    let datagrams = world.counters().delivered.all_datagrams() - before;
    (joining, start.elapsed(), datagrams, messages.get())
}

fn join(
    world: &mut World,
    host: &Host,
    groups: Vec<usize>,
    mut rng: Rng,
    messages: &Rc<Cell<u64>>,
) {
    let node = Rc::new(Node::builder().start_on(host).expect("a node"));
    let joined: Rc<Cell<Vec<Rc<Group>>>> = Rc::default();
    for number in groups {
        let (node, joined, messages) = (Rc::clone(&node), Rc::clone(&joined), Rc::clone(messages));
        world.spawn(host, async move {
            let name = format!("group {number}");
            let group = node.join(&name, Profile::time_critical()).await.expect("joined");
            let group = Rc::new(group);
            let mut all = joined.take();
            all.push(Rc::clone(&group));
            joined.set(all);
            while let Some(event) = group.recv().await {
                messages.set(messages.get() + u64::from(matches!(event, Event::Message(_))));
            }
        });
    }
    world.spawn(host, async move {
        node.sleep(SETTLING).await;
        let groups = joined.take();
        loop {
            let group = &groups[rng.below(groups.len())];
            group.publish(vec![0; 100]).await.expect("published");
            node.sleep(Duration::from_millis(10)).await;
        }
    });
}

const NODES: u32 = 64;
const GROUPS_OF_NODE: usize = 64;
/// Number of groups, chosen so that a group has ten members on average.
const GROUPS: usize = 410;
const SETTLING: Duration = Duration::from_secs(3);
const SPAN: Duration = Duration::from_secs(3);
