//! Benchmark of many nodes that start together and join many groups.
//!
//! It measures the time until all views are complete. Each node is a process with its own sockets
//! on loopback. Membership is provided by one registry process with its store on disk, or by
//! gossip. The output is the elapsed time, and the processor time of each thread.
//!
//! `cargo bench -p carom-registry --bench joins [-- [service|gossip] NODES GROUPS [OF_HOW_MANY]]`
//!
//! Each node joins GROUPS groups at once: all of them, or GROUPS drawn at random from OF_HOW_MANY.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

mod child;
mod participant;
mod plan;
mod processor;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_registry::Status;
use child::Child;
use plan::{Plan, Provider};
use processor::Processor;

const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["as-registry", folder] => participant::registry(folder),
        ["as-node", number, address, ref plan @ ..] => {
            participant::node(number, address, &Plan::parse(plan));
        }
        [] => {
            measure(&Plan { provider: Provider::Service, nodes: 64, groups: 1000, of: 1000 });
            measure(&Plan { provider: Provider::Service, nodes: 64, groups: 1000, of: 4000 });
        }
        ref plan => measure(&Plan::parse(plan)),
    }
}

fn measure(plan: &Plan) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the store");
    let write = time_of_a_durable_write(folder.path());
    let mut registry = (plan.provider == Provider::Service).then(|| {
        let path = folder.path().to_str().expect("a path in UTF-8");
        Child::start(&["as-registry", path])
    });
    let addresses = registry.as_mut().map(|registry| {
        let line = registry.line();
        let (address, http) = line.split_once(' ').expect("two addresses");
        (address.to_owned(), http.parse::<SocketAddr>().expect("an address"))
    });
    let meeting_point = addresses.as_ref().map_or("-", |it| &it.0).to_owned();
    let mut nodes = Vec::new();
    for number in 0..plan.nodes {
        // With gossip, the first node is the seed of the other nodes.
        let at = match nodes.first_mut() {
            Some((_, first)) if plan.provider == Provider::Gossip => first,
            _ => &meeting_point,
        };
        let (number, at) = (number.to_string(), at.clone());
        let settings = plan.arguments();
        let mut arguments = vec!["as-node", &number, &at];
        arguments.extend(settings.iter().map(String::as_str));
        let mut child = Child::start(&arguments);
        let endpoint = child.line();
        nodes.push((child, endpoint));
    }
    let mut nodes: Vec<Child> = nodes.into_iter().map(|(child, _)| child).collect();
    nodes.iter_mut().for_each(|node| node.await_line("settled"));
    let before = usage(&nodes, registry.as_ref());
    let begun = Instant::now();
    nodes.iter_mut().for_each(|node| node.tell("join"));
    nodes.iter_mut().for_each(|node| node.await_line("joined"));
    let joined = begun.elapsed();
    nodes.iter_mut().for_each(|node| node.await_line("complete"));
    let complete = begun.elapsed();
    let after = usage(&nodes, registry.as_ref());
    report(plan, joined, complete, [&before, &after]);
    if let Some((_, http)) = addresses {
        report_service(&status(http), write);
    }
    nodes.iter_mut().for_each(|node| node.tell("end"));
}

fn usage(nodes: &[Child], registry: Option<&Child>) -> [Processor; 2] {
    let nodes = nodes.iter().map(|node| Processor::of(node.id()));
    let registry = registry.map(|registry| Processor::of(registry.id()));
    [nodes.sum(), registry.unwrap_or_default()]
}

fn report(
    plan: &Plan,
    joined: Duration,
    complete: Duration,
    [before, after]: [&[Processor; 2]; 2],
) {
    let joins = plan.nodes * plan.groups;
    let changes: usize = (0..plan.nodes).map(|node| plan.views_of(node)).sum();
    println!(
        "\n{} nodes, each in {} of {} groups, by {}: {joins} joins, {changes} members in views",
        plan.nodes, plan.groups, plan.of, plan.provider,
    );
    println!("all joins acknowledged after {:.2} s", joined.as_secs_f64());
    println!("all views complete     after {:.2} s", complete.as_secs_f64());
    let [nodes, registry] = [0, 1].map(|part| after[part].since(&before[part]));
    println!("processor, s: nodes {nodes}");
    println!("              registry {registry}");
    let all = nodes.total() + registry.total();
    println!(
        "              {:.1} in all: {:.0} us a join, {:.2} us a member in a view",
        all,
        all / joins as f64 * 1e6,
        all / changes as f64 * 1e6,
    );
}

fn report_service(status: &Status, write: Duration) {
    let counter = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    println!(
        "store: {} changes in {} commits; a durable write of 4 KiB takes {:.2} ms there",
        counter("changes_committed"),
        counter("commits"),
        write.as_secs_f64() * 1e3,
    );
    println!(
        "pushed: {} updates, {} snapshots, {:.1} MB in all",
        counter("updates_sent"),
        counter("snapshots_sent"),
        counter("bytes_sent") as f64 / 1e6,
    );
}

/// Returns the median time of a durable write of 4 KiB in `folder`.
fn time_of_a_durable_write(folder: &std::path::Path) -> Duration {
    use std::io::{Seek as _, Write as _};
    let mut file = std::fs::File::create(folder.join("probe")).expect("a file");
    let mut times: Vec<Duration> = (0..21)
        .map(|_| {
            let begun = Instant::now();
            file.rewind().expect("a file that can be written");
            file.write_all(&[7; 4096]).expect("room on the disk");
            file.sync_data().expect("a disk that works");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn status(http: SocketAddr) -> Status {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(http).expect("it listens");
    write!(stream, "GET /status HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (_, body) = text.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("a status")
}
