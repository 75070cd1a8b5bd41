use std::time::Duration;

use carom::{
    Event, Group, LockError, Loss, Node, NodeId, Profile, Qos, Reply, RequestError, RingEvent,
    RingNews,
};
use carom::{Handler, LockName, RequestOptions};
use proptest::prelude::*;

use crate::settings::{levels, spans};
use crate::{PATIENCE, cases, run, simulation, started};

async fn serve(group: &Group) -> ! {
    for handler in 0..SERVED {
        let handler = Handler::new(handler).expect("there are six");
        std::mem::forget(group.lock(handler).await.expect("no other server"));
    }
    loop {
        let event = group.recv().await.expect("the group is open");
        if let Event::Ring(RingEvent { news: RingNews::Request(request), .. }) = event
            && request.is_ours
        {
            group.reply(request.id, request.payload).await.expect("it is open");
        }
    }
}

async fn beside<T>(group: &Group, asked: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        never = serve(group) => never,
        asked = asked => asked,
    }
}

async fn join_both(nodes: &[Node; 2]) -> [Group; 2] {
    let groups = simulation::join_all(nodes, "quotes", Profile::ordered()).await;
    groups.try_into().expect("two groups")
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn requests_are_refused_or_answered_in_time(
        handler in proptest::option::of(0..6_u8),
        qos in levels(),
        patience in proptest::option::of(spans()),
        via in prop_oneof![Just(None), Just(Some(0)), Just(Some(1)), Just(Some(u64::MAX))],
        is_member in any::<bool>(),
        bytes in prop_oneof![Just(0), Just(1), Just(1400), Just(70_000), Just(16 << 20)],
    ) {
        let (mut world, [here, there, stranger]) = started::<3>(81, Loss::None);
        let handler = handler.and_then(Handler::new);
        let nodes = [here, there];
        let ids = nodes.each_ref().map(Node::id);
        let via = via.map(|at| ids.get(at as usize).copied().unwrap_or(NodeId(at)));
        let options = RequestOptions { handler, qos: qos.unwrap_or_default(), patience, via };
        let asked = async {
            let [group, server] = join_both(&nodes).await;
            let payload = vec![7; bytes];
            beside(&server, async {
                // By then, the server has its locks.
                group.lock("last").await.expect("it is free");
                nodes[0].sleep(Duration::from_secs(1)).await;
                match is_member {
                    true => group.request(payload, options).await,
                    false => stranger.request("quotes", payload, options).await,
                }
            })
            .await
        };
        let answer = world.block_on(PATIENCE, asked);
        let is_served = handler.is_none_or(|it| it.number() < SERVED);
        let is_hurried = patience.is_some_and(|it| it < Duration::from_secs(1));
        // Such a request is delivered at once or never. From a node outside the group it is never
        // delivered first.
        let is_dropped = !is_member && options.qos == Qos::Unreliable;
        match answer {
            None => {
                let is_open = !is_served || is_dropped;
                prop_assert!(is_open && patience == Some(Duration::MAX), "no answer");
            }
            Some(Ok(Reply::Acknowledged)) => prop_assert_eq!(handler, None),
            Some(Ok(Reply::Handled { by, payload })) => {
                prop_assert!(handler.is_some() && by == ids[1]);
                prop_assert_eq!(payload.len(), bytes);
            }
            Some(Err(RequestError::Unanswered)) => {
                prop_assert!(is_hurried || !is_served || is_dropped);
            }
            Some(Err(error @ RequestError::Refused(_))) => {
                let is_invalid = qos == Some(Qos::Resilient(0));
                prop_assert!(is_invalid || bytes >= 1400, "{error}");
                prop_assert!(!error.to_string().is_empty() && !error.fix().is_empty());
            }
            Some(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn locks_are_granted_once_or_refused_in_time(
        name in prop_oneof![Just(String::new()), Just("a\n\0b".into()), "\\PC{1,300}"],
        handler in proptest::option::of(0..6_u8),
        spans in [spans(), spans()],
    ) {
        let (mut world, nodes) = started::<2>(82, Loss::None);
        let name: LockName = match handler.and_then(Handler::new) {
            Some(handler) => handler.lock(),
            None => name.as_str().into(),
        };
        let spans = [spans[0], spans[1].min(PATIENCE / 4)];
        let (both, errors) = run(&mut world, async {
            let [here, there] = join_both(&nodes).await;
            let first = here.lock_timeout(name, spans[0]).await;
            let second = there.lock_timeout(name, spans[1]).await;
            let both = first.is_ok() && second.is_ok();
            let errors = [first.err(), second.err()];
            (both, errors)
        });
        prop_assert!(!both, "two members hold it");
        for (error, span) in errors.iter().zip(spans) {
            match error {
                None => {}
                Some(LockError::Timeout(after)) => prop_assert_eq!(*after, span),
                Some(error) => panic!("{error}"),
            }
        }
        let had_time = spans[0] >= Duration::from_secs(5);
        prop_assert!(!had_time || errors[0].is_none(), "no member holds it");
    }
}

const SERVED: u8 = 3;
