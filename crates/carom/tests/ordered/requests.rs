use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use carom::{Event, Group, Loss, Node, Profile, Reply, RequestError, RingNews, blocking};
use carom::{Handler, ReplyError, RequestId, RequestOptions};
use pollster::block_on;

use crate::network::{multicast_port, on_loopback};
use crate::simulation::{news, run, started, until, world};

const HANDLER: Handler = Handler::new(2).expect("there are six");

async fn join(node: &Node) -> Group {
    node.join("quotes", Profile::ordered()).await.expect("a group")
}

/// Replies forever to all requests that this member must answer, with their text in capitals.
async fn serve(group: Group, log: impl Fn(&str)) {
    let _lock = group.lock(HANDLER).await.expect("the handler's lock");
    while let Some(event) = group.recv().await {
        let Event::Ring(event) = event else { continue };
        if let RingNews::Request(request) = event.news
            && request.is_ours
        {
            let question = String::from_utf8(request.payload.to_vec()).expect("text");
            log(&question);
            match group.reply(request.id, question.to_uppercase()).await {
                // Another member has replied in the meantime, or this server was removed from the
                // ring.
                Ok(()) | Err(ReplyError::NotOpen | ReplyError::NotJoined) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn text(answered: Result<Reply, RequestError>) -> String {
    match answered.expect("an answer") {
        Reply::Handled { payload, .. } => String::from_utf8(payload.to_vec()).expect("text"),
        other => panic!("a handler was named: {other:?}"),
    }
}

#[test]
fn handler_answers_all_callers_and_is_replaced_when_it_dies() {
    let mut world = world(5, 1, Loss::Uniform(0.02));
    let served = Rc::new(RefCell::new(BTreeMap::<String, Vec<u32>>::new()));
    for server in 0..3 {
        let served = Rc::clone(&served);
        let host = world.host(server);
        world.spawn(&host.clone(), async move {
            let node = Node::builder().start_on(&host).expect("a node");
            let log = |question: &str| {
                served.borrow_mut().entry(question.to_owned()).or_default().push(server);
            };
            serve(join(&node).await, log).await;
        });
    }
    let [member, stranger] =
        [3, 4].map(|host| Node::builder().start_on(&world.host(host)).expect("a node"));
    let of_member = run(&mut world, join(&member));
    run(&mut world, of_member.wait_for_members(3)).expect("open");
    for round in 0..30 {
        if round == 10 || round == 20 {
            // The current server crashes while it is working.
            let last = served.borrow()[&format!("b{}", round - 1)][0];
            world.crash(&world.host(last));
        }
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let by_member = run(&mut world, of_member.request(a.clone(), HANDLER));
        assert_eq!(text(by_member), a.to_uppercase());
        let by_stranger = run(&mut world, stranger.request("quotes", b.clone(), HANDLER));
        assert_eq!(text(by_stranger), b.to_uppercase());
    }
    let served = served.borrow();
    assert_eq!(served.len(), 60);
    let servers: BTreeSet<&u32> = served.values().flatten().collect();
    assert_eq!(servers.len(), 3);
}

#[test]
fn request_to_all_is_acknowledged_and_an_unserved_one_ends() {
    let (mut world, [member, stranger]) = started::<2>(2, Loss::Uniform(0.02));
    run(&mut world, async {
        let group = join(&member).await;
        let told = stranger.request("quotes", "for all", RequestOptions::default()).await;
        assert_eq!(told, Ok(Reply::Acknowledged));
        let request = |event: &Event| match news(event) {
            Some(RingNews::Request(request)) => Some(request),
            _ => None,
        };
        let told = until(&group, request).await;
        assert_eq!((&told.payload[..], told.is_ours), (&b"for all"[..], false));
        assert_eq!(group.reply(told.id, "x").await, Err(ReplyError::NotOpen));

        let patience = Some(Duration::from_secs(1));
        let options = RequestOptions { handler: Some(HANDLER), patience, ..Default::default() };
        for asked in [
            group.request("anybody?", options).await,
            stranger.request("quotes", "anybody?", options).await,
            stranger.request("no such group", "anybody?", options).await,
        ] {
            assert_eq!(asked, Err(RequestError::Unanswered));
        }
        let unordered = member.join("b", Profile::time_critical()).await.expect("a group");
        assert_eq!(unordered.request("x", options).await, Err(RequestError::NoRequests));
        let id = RequestId { caller: stranger.id(), number: 77 };
        assert_eq!(unordered.reply(id, "x").await, Err(ReplyError::NotJoined));
    });
}

#[test]
fn outsider_is_answered_over_sockets_on_any_path() {
    for path in [carom::PathChoice::Auto, carom::PathChoice::Unicast] {
        let port = multicast_port();
        let server = on_loopback(port).path(path).start().expect("a node");
        let seed = server.endpoint().to_string();
        let caller = on_loopback(port).path(path).seeds([seed]);
        let caller = blocking::Node::start(caller).expect("a node");
        std::thread::spawn(move || block_on(async { serve(join(&server).await, |_| {}).await }));
        assert!(caller.settled(crate::network::PATIENCE));
        let large = "x".repeat(100_000);
        for question in ["what?", &large] {
            let answered = caller.request("quotes", question.to_owned(), HANDLER);
            assert_eq!(text(answered), question.to_uppercase());
        }
    }
}
