use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carom::sim::{Fault, Troubles, World};
use carom::{Loss, Node, Profile};

use crate::{PATIENCE, config, join, join_with, messages, run, simulation, started};

#[test]
fn members_meet_lose_a_crashed_node_and_meet_its_successor() {
    let (mut world, [a, b, c]) = started::<3>(2, Loss::None);
    let (a_id, b_id, c_id) = (a.id(), b.id(), c.id());
    let host = world.host(2);
    world.spawn(&host, async move {
        let _group = join_with(&c, 2).await;
        std::future::pending::<()>().await;
    });
    // The group handle of `b` is dropped with the future, so `b` has left.
    let in_a = run(&mut world, async {
        let (in_a, _in_b) = (join_with(&a, 1).await, join_with(&b, 1).await);
        in_a.wait_for_members(2).await.expect("open");
        in_a
    });
    world.run_for(Duration::from_secs(1));
    assert_eq!(in_a.members(), [c_id]);
    world.crash(&host);
    assert_eq!(world.tasks_of(&host), 0);
    world.run_for(Duration::from_secs(10));
    assert_eq!(in_a.members(), [], "its failure was detected");
    let successor = Node::builder().start_on(&host).expect("a node");
    assert!(![a_id, b_id, c_id].contains(&successor.id()));
    let met = run(&mut world, join_with(&successor, 1));
    assert_eq!(met.members(), [a_id]);
}

#[test]
fn a_partition_parts_the_members_and_heals() {
    let (mut world, nodes) = started::<4>(7, Loss::None);
    let joined = simulation::join_all(&nodes, "prices", Profile::time_critical());
    let groups = run(&mut world, joined);
    let side: Vec<_> = [0, 1].map(|host| world.host(host).ix()).to_vec();
    world.apply(&Fault::Partition(side));
    groups[0].try_publish("to this side").expect("published");
    world.run_for(Duration::from_secs(10));
    assert_eq!(groups[0].members(), [nodes[1].id()]);
    assert_eq!(messages(&groups[1]), ["to this side"]);
    assert_eq!(messages(&groups[2]), [""; 0]);
    world.apply(&Fault::Heal);
    world.run_for(Duration::from_secs(30));
    assert_eq!(groups[0].members().len(), 3);
    groups[0].try_publish("to all").expect("published");
    let safe = run(&mut world, groups[0].confirm(PATIENCE)).expect("confirmed");
    assert!(safe.incomplete.is_empty());
    for group in &groups[1..] {
        assert_eq!(messages(group), ["to all"]);
    }
}

#[test]
fn tasks_of_a_paused_host_stop_and_resume_where_they_were() {
    let mut world = World::new(config(2, 8));
    let host = world.host(0);
    let ticks = Rc::new(Cell::new(0));
    let counting = Rc::clone(&ticks);
    let own = host.clone();
    world.spawn(&host, async move {
        let node = Node::builder().start_on(&own).expect("a node");
        let group = join(&node).await;
        loop {
            node.sleep(Duration::from_millis(100)).await;
            group.try_publish("tick").expect("published");
            counting.set(counting.get() + 1);
        }
    });
    world.run_for(Duration::from_secs(10));
    let before = ticks.get();
    assert!(before > 50);
    world.apply(&Fault::Pause(host.ix()));
    world.run_for(Duration::from_secs(2));
    assert_eq!(ticks.get(), before);
    world.apply(&Fault::Resume(host.ix()));
    world.run_for(Duration::from_millis(1050));
    assert_eq!(ticks.get(), before + 11, "one at once, then one each 100 ms");
}

#[test]
fn troubles_of_every_kind_come_and_all_of_them_end() {
    let mut world = World::new(config(5, 13));
    let starts = Rc::new(Cell::new(0));
    for host in world.hosts() {
        let starts = Rc::clone(&starts);
        world.install(&host, move |host| {
            starts.set(starts.get() + 1);
            async move {
                let node = Node::builder().start_on(&host).expect("a node");
                let group = join(&node).await;
                loop {
                    group.publish("tick").await.expect("published");
                    node.sleep(Duration::from_millis(10)).await;
                    while group.try_recv().is_some() {}
                }
            }
        });
    }
    world.run_troubled(Duration::from_secs(60), &Troubles::default());
    let during = *world.counters();
    let evils = [
        during.lost_at_host,
        during.cut_off,
        during.nobody_there,
        during.duplicated,
        during.corrupted,
        during.reordered,
    ];
    assert!(evils.iter().all(|evil| *evil > 0) && starts.get() > 5, "{during:#?}");
    // Datagrams in flight may still be affected by a host that was down.
    world.run_for(Duration::from_secs(1));
    let before = *world.counters();
    world.run_for(Duration::from_secs(20));
    let after = *world.counters();
    assert_eq!((after.lost_at_host, after.cut_off), (before.lost_at_host, before.cut_off));
    assert_eq!((after.corrupted, after.buffer_full), (before.corrupted, before.buffer_full));
    assert!(world.hosts().iter().all(|host| world.tasks_of(host) == 1));
}
