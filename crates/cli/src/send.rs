//! `carom send`: files and directories to all receivers of a group at once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use carom::{Event as GroupEvent, Group, LossCause, Node, NodeId, ViewChangeKind, rdcm};
use carom_files::{
    Event, ReceiverRow, SendError, SendHandle, SendOptions, Sending, Source, SourceError,
    StartWhen, State, Summary, events,
};
use carom_paper::units::UnitError;
use clap::value_parser;
use comfy_table::Table;
use serde_json::json;

use crate::error::{CliError, Outcome};
use crate::interrupt::{self, Interrupt};
use crate::node::NodeArgs;
use crate::output;
use crate::transfer::bars::Bar;
use crate::transfer::stream::Stream;
use crate::transfer::topology::{Described, TopologyArgs};
use crate::transfer::{self, human_bytes, human_rate};
use crate::units::{self, Bandwidth};

/// Send files and directories to many machines at once
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Files and directories; `-` is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The group whose members receive
    #[arg(long = "to", value_name = "GROUP", value_parser = units::name)]
    group: String,
    /// Begin when so many receivers are ready
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = value_parser!(u64).range(1..=2048))]
    receivers: Option<u64>,
    /// Begin after this time, if anybody is ready [default: 5s, unless --receivers is given]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    start_after: Option<Duration>,
    /// How fast to send at most: auto, 500Mbit, 1Gbit, 60MB
    #[arg(long, value_name = "RATE", default_value = "auto", allow_hyphen_values = true)]
    #[arg(value_parser = rate)]
    rate: Bandwidth,
    /// Copies of each packet that the sender, and every receiver in turn, sends to those whom
    /// multicast does not reach. With 1 they are a chain: the sender's link carries one copy, over
    /// a hop for each receiver, which suits large files and few receivers
    #[arg(long, value_name = "N", default_value_t = 2, allow_hyphen_values = true)]
    #[arg(value_parser = value_parser!(u64).range(1..=rdcm::packet::MAX_RELAYS as u64))]
    copies: u64,
    /// What standard input is called at the receivers [default: stdin]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How long to wait for a receiver that was lost, in the end
    #[arg(long, value_name = "TIME", default_value = "30s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    patience: Duration,
    #[command(flatten)]
    topology: TopologyArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Write objects of JSON: one for each change, and the summary
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// If nothing can be sent, or the transfer ended for everybody.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen_with(END_PATIENCE)?;
    interrupt::told_by_code(transfer::told_in_json(args.json, send(args, interrupt)))
}

/// A rate of 0 has no unit, but says what is wrong with it.
fn rate(text: &str) -> Result<Bandwidth, UnitError> {
    let is_zero = text.trim().parse() == Ok(0.0);
    units::bandwidth(if is_zero { "0kbit" } else { text })
}

fn send(args: &Args, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    if args.name.is_some() && !args.paths.iter().any(|path| is_stdin(path)) {
        let cause = "--name is what standard input is called, and it is not sent";
        return Err(CliError::new(cause, "give `-` as PATH, or no --name"));
    }
    let relay_children = args.copies as usize;
    let mut bulk = rdcm::Config { relay_children, ..rdcm::Config::default() };
    if let Bandwidth::BytesPerSecond(rate) = args.rate {
        bulk.rate = Some(rate);
    }
    let described = args.topology.read(&mut bulk)?;
    let node = args.node.start(args.node.builder().bulk(bulk), interrupt)?;
    let group = transfer::join(&node, &args.group)?;
    let (reporter, events) = events(EVENTS);
    let start = match (args.receivers, args.start_after) {
        (None, None) => StartWhen { receivers: None, after: Some(START_AFTER) },
        (receivers, after) => StartWhen { receivers: receivers.map(|it| it as usize), after },
    };
    let options = SendOptions {
        listen: transfer::tcp_address(&node),
        start,
        patience: args.patience,
        reporter,
        ..SendOptions::default()
    };
    allow_connections();
    let began = Instant::now();
    let sending = open(args, options, &events)?;
    let mut sender = Sender::new(args, sending.handle(), &node, described);
    let sent = sender.run(&group, interrupt, sending, &events);
    let summary = sent.map_err(|error| ended(&args.group, &error, interrupt, sender.has_begun))?;
    tell(args, &summary, began.elapsed(), &node)?;
    group.leave();
    Node::close(node);
    Ok(Outcome::of(!summary.is_success()))
}

/// Each receiver is a connection, and a thousand are more than a process may have open at first.
fn allow_connections() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // If the system does not let us, those who do not fit are refused and say so.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Reads the sources, and shows how far it is.
fn open(args: &Args, options: SendOptions, events: &Receiver<Event>) -> Result<Sending, CliError> {
    let name = args.name.as_deref().unwrap_or("stdin");
    let sources: Vec<Source> = args.paths.iter().map(|path| source(path, name)).collect();
    thread::scope(|scope| {
        let reading = scope.spawn(|| Sending::open(sources, options));
        let mut bar = Bar::new("reading", args.json);
        while !reading.is_finished() {
            if let Ok(Event::Scanned { bytes, of }) = events.recv_timeout(LOOK) {
                bar.set(bytes, of);
            }
        }
        bar.end();
        let opened = reading.join().expect("reading does not panic");
        opened.map_err(|error| CliError::new(error.to_string(), fix(&error)))
    })
}

fn source(path: &Path, name: &str) -> Source {
    match is_stdin(path) {
        true => Source::Reader { name: name.to_owned(), reader: Box::new(std::io::stdin()) },
        false => Source::Path(path.to_path_buf()),
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Follows a transfer while it runs.
struct Sender<'a> {
    args: &'a Args,
    handle: SendHandle,
    bar: Bar,
    data_bytes: u64,
    node: &'a Node,
    /// What a file says of the network.
    described: Option<Described>,
    /// Notices of the node that were told.
    told: Cell<usize>,
    has_begun: bool,
    /// Pieces that the engine has taken, and bytes that were sent of files when it has sent them.
    ahead: VecDeque<(u32, u64)>,
    /// Pieces of the transfer, those that are behind, and bytes that were multicast.
    progress: (u32, u32, u64),
}

impl<'a> Sender<'a> {
    fn new(
        args: &'a Args,
        handle: SendHandle,
        node: &'a Node,
        described: Option<Described>,
    ) -> Self {
        let (bar, told) = (Bar::new("sending", args.json), Cell::new(node.notices().len()));
        let (ahead, progress) = (VecDeque::new(), (0, 0, 0));
        let (data_bytes, has_begun) = (0, false);
        Self { args, handle, bar, data_bytes, node, described, told, has_begun, ahead, progress }
    }

    fn run(
        &mut self,
        group: &Group,
        interrupt: &Interrupt,
        sending: Sending,
        events: &Receiver<Event>,
    ) -> Result<Summary, SendError> {
        let offer = sending.offer().clone();
        self.data_bytes = offer.total_bytes;
        self.bar.line(&format!(
            "offering {} ({}, {} entries) to {} as {}",
            offer.name,
            human_bytes(offer.total_bytes),
            offer.entries,
            self.args.group,
            offer.id.short()
        ));
        if let Some(described) = &self.described {
            let line = described.look_at_sender(self.node);
            line.into_iter().for_each(|line| self.bar.line(&line));
        }
        let stream = Stream::new(group, interrupt, &offer, self.handle.clone());
        stream.set_path_mtu(self.node.status().path_mtu);
        let sent = thread::scope(|scope| {
            let sent = scope.spawn(|| sending.run(&mut &stream));
            while !sent.is_finished() {
                stream.offer_again();
                self.watch_group(group, &stream);
                if interrupt.is_asked() {
                    self.handle.cancel();
                }
                self.follow(events, &stream);
                self.advance(&stream);
            }
            sent.join().expect("sending does not panic")
        });
        self.follow(events, &stream);
        self.bar.end();
        match sent {
            Err(SendError::Cancelled | SendError::Sink(_)) if stream.is_refused() => {
                Err(SendError::Sink(carom_files::SinkError(OTHER_SENDER.to_owned())))
            }
            sent => sent,
        }
    }

    /// Whether somebody else sends there, and who does not keep up.
    fn watch_group(&self, group: &Group, stream: &Stream<'_>) {
        for notice in self.node.notices().iter().skip(self.told.get()) {
            self.told.set(self.told.get() + 1);
            self.bar.line(&format!("note: {}", notice.text));
        }
        while let Some(event) = group.try_recv() {
            match event {
                GroupEvent::Lost(lost) if lost.cause == LossCause::AnotherSender => {
                    stream.refuse();
                    self.handle.cancel();
                }
                GroupEvent::Slow(slow) => {
                    let (who, behind) = (self.called(slow.node), slow.behind);
                    self.bar.line(&format!("{who} is left behind by {behind} packets"));
                }
                GroupEvent::View(change) if change.kind == ViewChangeKind::Joined => {
                    if let Some(described) = &self.described {
                        let line = described.look_at_member(self.node, change.node);
                        line.into_iter().for_each(|line| self.bar.line(&line));
                    }
                }
                _ => {}
            }
        }
    }

    /// Tells what happened, and waits a while for more.
    fn follow(&mut self, events: &Receiver<Event>, stream: &Stream<'_>) {
        let until = Instant::now() + LOOK;
        loop {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(event) => self.on_event(event, stream),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => return thread::sleep(LOOK),
            }
        }
    }

    /// A node by its id, and by the receiver's name if there is one alone on its host.
    fn called(&self, node: NodeId) -> String {
        let members = self.node.status().members;
        let host = members.iter().find(|it| it.node == node).map(|it| it.endpoint.ip());
        let rows = self.handle.receivers();
        let rows = rows.iter().map(|row| (row.host, &*row.name));
        called(&node.to_string(), host, rows)
    }

    /// Shows how far the stream is: what the engine has only taken is still ahead.
    fn advance(&mut self, stream: &Stream<'_>) {
        let status = self.node.status();
        stream.set_path_mtu(status.path_mtu);
        let sent = stream.sent_bytes(status.stats.bulk.data_sent);
        let (of, mut pieces, told) = self.progress;
        while let Some((piece, _)) = self.ahead.pop_front_if(|(_, last)| *last <= sent) {
            pieces = piece;
        }
        if (pieces, sent) == (self.progress.1, told) {
            return;
        }
        self.progress = (of, pieces, sent);
        let share = u64::from(pieces) as f64 / f64::from(of.max(1));
        self.bar.set((self.data_bytes as f64 * share) as u64, self.data_bytes);
        if self.args.json {
            let object = json!({ "event": "progress", "pieces": pieces, "of": of, "bytes": sent });
            // Who does not read it finds out at the summary.
            let _ = output::json(&object);
        }
    }

    fn on_event(&mut self, event: Event, stream: &Stream<'_>) {
        let object = match &event {
            Event::ReceiverReady { name, has } => {
                self.bar.line(&format!("ready: {name}, which has {has} pieces"));
                json!({ "event": "ready", "receiver": name, "pieces": has })
            }
            Event::ReceiverGone { name } => {
                self.bar.line(&format!("lost: {name}; it may come back"));
                json!({ "event": "gone", "receiver": name })
            }
            Event::ReceiverFinished { name } => {
                self.bar.line(&format!("finished: {name}"));
                json!({ "event": "finished", "receiver": name })
            }
            Event::ReceiverFailed { name, reason } => {
                self.bar.line(&format!("failed: {name}: {reason}"));
                json!({ "event": "failed", "receiver": name, "reason": reason })
            }
            Event::Waiting { ready, failed, of } => {
                let of_all = of.map(|of| format!(" of {of}")).unwrap_or_default();
                self.bar.line(&format!("waiting: {ready}{of_all} ready, {failed} failed"));
                json!({ "event": "waiting", "ready": ready, "failed": failed, "of": of })
            }
            Event::Began { receivers } => {
                self.has_begun = true;
                self.bar.say(format!("to {receivers} receivers"));
                json!({ "event": "began", "receivers": receivers })
            }
            Event::Streamed { pieces, of, bytes } => {
                self.progress.0 = *of;
                self.ahead.push_back((*pieces, *bytes));
                return;
            }
            Event::StreamOver => {
                self.advance(stream);
                self.bar.say("receivers fetch what they lack".to_owned());
                json!({ "event": "over" })
            }
            _ => return,
        };
        if self.args.json {
            // Who does not read it finds out at the summary.
            let _ = output::json(&object);
        }
    }
}

/// What a node is called, by the hosts and names of receivers.
fn called<'a>(
    node: &str,
    host: Option<IpAddr>,
    receivers: impl Iterator<Item = (IpAddr, &'a str)>,
) -> String {
    let mut there = receivers.filter(|(at, _)| Some(*at) == host);
    match (there.next(), there.next(), host) {
        (Some((_, name)), None, _) => format!("{name} (node {node})"),
        (_, _, Some(host)) => format!("node {node} at {host}"),
        _ => format!("node {node}"),
    }
}

fn tell(args: &Args, summary: &Summary, took: Duration, node: &Node) -> Result<(), CliError> {
    let seconds = took.as_secs_f64();
    if args.json {
        let receivers: Vec<_> = summary.receivers.iter().map(row_of).collect();
        return output::json(&json!({
            "event": "summary",
            "transfer": summary.id.short(),
            "seconds": seconds,
            "bytes": summary.total_bytes,
            "stream_bytes": summary.stream_bytes,
            "sender_bytes": summary.sender_bytes,
            "pieces": summary.pieces,
            "pieces_skipped": summary.pieces_skipped,
            "receivers": receivers,
            "network": transfer::counters(node),
        }));
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["receiver", "state", "by stream", "from peers", "from sender", "had before"]);
    for row in &summary.receivers {
        let state = match &row.state {
            State::Receiving => "receiving".to_owned(),
            State::Finished => "finished".to_owned(),
            State::Failed(reason) => format!("failed: {reason}"),
            State::Gone => "gone".to_owned(),
        };
        let bytes = [row.stream_bytes, row.peer_bytes, row.sender_bytes, row.resumed_bytes];
        let [stream, peers, sender, resumed] = bytes.map(human_bytes);
        table.add_row([row.name.clone(), state, stream, peers, sender, resumed]);
    }
    output::say(&table);
    let finished = summary.receivers.len() - summary.not_finished().count();
    output::say(format_args!(
        "{} to {finished} of {} receivers in {seconds:.1} s: {} each",
        human_bytes(summary.total_bytes),
        summary.receivers.len(),
        human_rate(summary.total_bytes, seconds)
    ));
    for row in summary.not_finished() {
        output::say(format_args!("not finished: {}", row.name));
    }
    Ok(())
}

fn row_of(row: &ReceiverRow) -> serde_json::Value {
    let (state, reason) = match &row.state {
        State::Receiving => ("receiving", None),
        State::Finished => ("finished", None),
        State::Failed(reason) => ("failed", Some(reason)),
        State::Gone => ("gone", None),
    };
    json!({
        "name": row.name,
        "host": row.host,
        "state": state,
        "reason": reason,
        "pieces": row.pieces,
        "stream_bytes": row.stream_bytes,
        "peer_bytes": row.peer_bytes,
        "sender_bytes": row.sender_bytes,
        "resumed_bytes": row.resumed_bytes,
        "wrong_pieces": row.wrong_pieces,
    })
}

fn ended(group: &str, error: &SendError, interrupt: &Interrupt, has_begun: bool) -> CliError {
    match interrupt.is_asked() {
        true if has_begun => return CliError::interrupted_after(ENDED),
        true => return CliError::interrupted(),
        false => {}
    }
    CliError::new(format!("group {group}: {error}"), fix(error))
}

fn fix(error: &SendError) -> &'static str {
    match error {
        SendError::Source(SourceError::Changed(_)) => {
            "send a copy that nobody writes to; receivers keep nothing of what has changed"
        }
        SendError::Source(SourceError::Read { .. }) => "see whether it is there and may be read",
        SendError::Source(SourceError::Gone(_)) => {
            "put it back and send it again: receivers go on from where they are"
        }
        SendError::Source(SourceError::Spool { .. }) => {
            "free some space there, or name another directory in TMPDIR"
        }
        SendError::Source(_) => "send something else, or under another name",
        SendError::NoReceivers => {
            "start `carom recv --from GROUP DIR` on the receivers, or wait longer (--start-after)"
        }
        SendError::Sink(error) if error.0 == OTHER_SENDER => {
            "wait until it has finished, or use another group"
        }
        SendError::Listen { .. } | SendError::Start(_) => "see `carom doctor`",
        SendError::Options(_) | SendError::Sink(_) | SendError::Cancelled => {
            "send it again: receivers go on from where they are"
        }
    }
}

const ENDED: &str = "ended before all had everything: receivers keep what they have verified, and \
                     go on from there when the same is sent again";
const OTHER_SENDER: &str = "another member sends in this group";
const START_AFTER: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);
const EVENTS: usize = 4096;
/// Receivers are told that it is over.
const END_PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLE: &str = "Example:
  carom recv --from images /srv/images        on each receiver, and then
  carom send disk.img models/ --to images --receivers 8
  tar c /data | carom send - --name data.tar --to images --start-after 10s --rate 1Gbit
  carom send disk.img --to images --topology network.toml

A transfer that was broken off is taken up again by the same command: receivers keep what they
have verified. Exit code 1 if a receiver did not get everything, with its name.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_called_by_the_name_of_the_only_receiver_on_its_host() {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let receivers = [(ip(1), "one"), (ip(2), "two"), (ip(2), "more")];
        let called = |host| called("07", host, receivers.into_iter());
        assert_eq!(called(Some(ip(1))), "one (node 07)");
        assert_eq!(called(Some(ip(2))), "node 07 at 10.0.0.2");
        assert_eq!(called(Some(ip(3))), "node 07 at 10.0.0.3");
        assert_eq!(called(None), "node 07");
    }
}
