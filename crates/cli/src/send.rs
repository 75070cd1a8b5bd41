mod slow;
mod summary;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::unstable::rdcm;
use carom::unstable::rdcm::Slowest;
use carom::{Event as GroupEvent, LossCause, NodeId, ViewChangeKind};
use carom_files::{
    Event, Findings, SendError, SendHandle, SendOptions, Sending, Source, SourceError, StartWhen,
    State, Summary, events,
};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::units::{self, Bandwidth, UnitError};
use carom_terminal::{CliError, Outcome, counted};
use clap::value_parser;
use serde_json::json;

use self::summary::SlowReceiver;
use crate::node::{News, NodeArgs};
use crate::transfer::bars::Bar;
use crate::transfer::stream::Stream;
use crate::transfer::topology::{Described, TopologyArgs};
use crate::transfer::{self, human_bytes};
use crate::waiting;

/// Send files and directories to many receivers at once
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Files and directories; `-` is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Group to send to
    #[arg(long = "to", value_name = "GROUP", value_parser = units::name)]
    pub(crate) group: String,
    /// Start when N receivers are ready
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = value_parser!(u64).range(1..=2048))]
    receivers: Option<u64>,
    /// Start after this time if any receiver is ready [default: 5s, unless --receivers is given]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    start_after: Option<Duration>,
    /// Maximum sending rate: auto, 500Mbit, 1Gbit, 60MB
    #[arg(long, value_name = "RATE", default_value = "auto", allow_hyphen_values = true)]
    #[arg(value_parser = rate)]
    rate: Bandwidth,
    /// Unicast copies of each packet that the sender, and each receiver in turn, sends where
    /// multicast does not reach. With 1, the receivers form a chain: the sender's link carries one
    /// copy, and there is one hop per receiver, which suits large files and few receivers
    #[arg(long, value_name = "N", default_value_t = 2, allow_hyphen_values = true)]
    #[arg(value_parser = value_parser!(u64).range(1..=rdcm::packet::MAX_RELAYS as u64))]
    copies: u64,
    /// Name of standard input at the receivers [default: stdin]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Treatment of a receiver that is slower than the others could be. `wait` never evicts it,
    /// `leave-behind` evicts it once it has slowed the others by a tenth, and a percentage evicts
    /// it below that share of the median rate. An evicted receiver is named, and fetches the
    /// missing data from the others
    #[arg(long, value_name = "wait|leave-behind|N%", default_value_t = Slowest::default())]
    #[arg(allow_hyphen_values = true)]
    slowest: Slowest,
    /// Leave out directory entries that cannot be sent, and list them: symlinks that lead out of
    /// the directory, devices, pipes, and sockets. Without this flag, they are listed and nothing
    /// is sent
    #[arg(long)]
    skip_unsendable: bool,
    /// Maximum wait at the end for disconnected receivers
    #[arg(long, value_name = "TIME", default_value = "30s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    patience: Duration,
    #[command(flatten)]
    topology: TopologyArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Print JSON objects: one for each change, and the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen_with(END_PATIENCE)?;
    interrupt::into_outcome(transfer::told_in_json(args.json, send(args, interrupt)))
}

/// Parses `--rate`. Adds a unit to a zero without one, so that the error is about the value zero.
fn rate(text: &str) -> Result<Bandwidth, UnitError> {
    let is_zero = text.trim().parse() == Ok(0.0);
    units::bandwidth(if is_zero { "0kbit" } else { text })
}

fn send(args: &Args, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    if args.name.is_some() && !args.paths.iter().any(|path| is_stdin(path)) {
        let cause = "--name is given, but standard input is not sent";
        return Err(CliError::new(cause, "pass `-` as PATH, or remove --name"));
    }
    let relay_children = args.copies as usize;
    let slowest = args.slowest;
    let mut bulk = rdcm::Config { relay_children, slowest, ..rdcm::Config::default() };
    if let Bandwidth::BytesPerSecond(rate) = args.rate {
        bulk.rate = Some(rate);
    }
    let described = args.topology.read(&mut bulk)?;
    let node = args.node.start(args.node.builder().bulk(bulk), interrupt)?;
    // Notices that arise while the sources are read are printed afterwards.
    let news = News::from_now(&node);
    let group = transfer::join(&node, &args.group)?;
    let (reporter, events) = events(EVENTS);
    let start = match (args.receivers, args.start_after) {
        (None, None) => StartWhen { receivers: None, after: Some(START_AFTER) },
        (receivers, after) => StartWhen { receivers: receivers.map(|it| it as usize), after },
    };
    let options = SendOptions {
        listen: (node.endpoint().ip(), 0).into(),
        start,
        patience: args.patience,
        skip_unsendable: args.skip_unsendable,
        reporter,
        ..SendOptions::default()
    };
    allow_connections();
    let began = Instant::now();
    let sending = open(args, options, &events, interrupt)?;
    let mut sender = Sender::new(args, sending.handle(), (&node, news), described);
    let sent = sender.run(&group, interrupt, sending, &events);
    let summary = sent.map_err(|error| match interrupt.is_asked() {
        true => sender.interrupted(),
        false => CliError::new(format!("group '{}': {error}", args.group), fix(&error)),
    })?;
    let slow = sender.slow.take();
    summary::tell(args.json, &summary, &slow, began.elapsed(), (&node, sender.path_mtu))?;
    group.leave();
    Node::close(node);
    Ok(Outcome::of(!summary.is_success()))
}

/// Raises the limit on open files, because the default is too low for a thousand receivers.
fn allow_connections() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    // If the limit stays low, surplus receivers are refused, and they report this.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn open(
    args: &Args,
    options: SendOptions,
    events: &Receiver<Event>,
    interrupt: &Interrupt,
) -> Result<Sending, CliError> {
    let name = args.name.as_deref().unwrap_or("stdin");
    let sources: Vec<Source> = args.paths.iter().map(|path| source(path, name)).collect();
    let mut bar = Bar::new("reading", args.json);
    let opened = waiting::done(
        move || Sending::open(sources, options),
        || {
            if let Some(Event::Scanned { bytes, of }) = events.try_iter().last() {
                bar.set(bytes, of);
            }
            interrupt.is_asked()
        },
    );
    bar.end();
    let interrupted = || CliError::interrupted_after(summary::ended_early(false, &[]));
    let opened = opened.ok_or_else(interrupted)?;
    opened.map_err(|error| CliError::new(error.to_string(), fix(&error)))
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

struct Sender<'a> {
    args: &'a Args,
    handle: SendHandle,
    bar: Bar,
    data_bytes: u64,
    node: &'a Node,
    described: Option<Described>,
    news: News,
    has_begun: bool,
    is_over: bool,
    /// Path MTU to all receivers while the stream was running.
    path_mtu: Option<u16>,
    /// Accepted pieces, each with the total of sent bytes at which the piece is complete.
    ahead: VecDeque<(u32, u64)>,
    /// Numbers of pieces in the transfer, pieces sent, and bytes multicast.
    progress: (u32, u32, u64),
    slow: RefCell<BTreeMap<NodeId, SlowReceiver>>,
}

impl<'a> Sender<'a> {
    fn new(
        args: &'a Args,
        handle: SendHandle,
        (node, news): (&'a Node, News),
        described: Option<Described>,
    ) -> Self {
        let bar = Bar::new("sending", args.json);
        let (ahead, progress) = (VecDeque::new(), (0, 0, 0));
        Self {
            args,
            handle,
            bar,
            data_bytes: 0,
            node,
            described,
            news,
            has_begun: false,
            is_over: false,
            path_mtu: None,
            ahead,
            progress,
            slow: RefCell::default(),
        }
    }

    fn interrupted(&self) -> CliError {
        let of = self.progress.0;
        let rows = self.handle.receivers();
        let unfinished: Vec<String> = rows
            .iter()
            .filter(|row| !matches!(row.state, State::Finished | State::Failed(_)))
            .map(|row| match of {
                0 => row.name.clone(),
                of => summary::how_far(&row.name, row.pieces, of),
            })
            .collect();
        CliError::interrupted_after(summary::ended_early(self.has_begun, &unfinished))
    }

    fn tell_findings(&self, findings: &Findings) {
        let named = |named: &[String], count: usize| match count.saturating_sub(named.len()) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        };
        if findings.unsendable_count > 0 {
            let paths: Vec<String> = findings.unsendable.iter().map(ToString::to_string).collect();
            let paths = named(&paths, findings.unsendable_count);
            self.bar.line(&format!("note: not sent: {paths}"));
        }
        if findings.special_modes_count > 0 {
            let paths = named(&findings.special_modes, findings.special_modes_count);
            self.bar.line(&format!(
                "note: receivers do not set the setuid, setgid or sticky bit of {paths}"
            ));
        }
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
            "offering {} ({}, {}) to {} as {}",
            offer.name,
            human_bytes(offer.total_bytes),
            counted(offer.entries, "entry"),
            self.args.group,
            offer.id.short()
        ));
        self.tell_findings(sending.findings());
        if let (Some(count), None) = (self.args.receivers, self.args.start_after) {
            self.bar.line(&format!(
                "waiting for {} without a time limit; --start-after sets one",
                counted(count, "receiver")
            ));
        }
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

    fn watch_group(&self, group: &Group, stream: &Stream<'_>) {
        for notice in self.news.take(self.node) {
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
                    let packets = counted(behind, "packet");
                    self.bar.line(&format!("{who} is evicted: {packets} behind"));
                    self.note_slow(slow.node, |it| it.is_left_behind = true);
                    let event = json!({
                        "event": "left behind",
                        "receiver": self.name_of(slow.node),
                        "node": slow.node.to_string(),
                        "packets": slow.behind,
                    });
                    transfer::emit(self.args.json, &event);
                }
                GroupEvent::Limiting(limiting) => self.on_limiting(&limiting),
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

    /// Shows the progress of the stream, excluding data that is accepted but not sent.
    fn advance(&mut self, stream: &Stream<'_>) {
        let status = self.node.status();
        stream.set_path_mtu(status.path_mtu);
        if !self.is_over {
            self.path_mtu = Some(status.path_mtu);
        }
        let sent = stream.sent_bytes(status.stats.bulk.data_sent);
        let (of, mut pieces, told) = self.progress;
        while let Some((piece, last)) = self.ahead.front()
            && *last <= sent
        {
            pieces = *piece;
            self.ahead.pop_front();
        }
        if (pieces, sent) == (self.progress.1, told) {
            return;
        }
        self.progress = (of, pieces, sent);
        let share = u64::from(pieces) as f64 / f64::from(of.max(1));
        self.bar.set((self.data_bytes as f64 * share) as u64, self.data_bytes);
        let event = json!({ "event": "progress", "pieces": pieces, "of": of, "bytes": sent });
        transfer::emit(self.args.json, &event);
    }

    fn on_event(&mut self, event: Event, stream: &Stream<'_>) {
        let object = match &event {
            Event::ReceiverReady { name, has } => {
                let pieces = counted(has, "piece");
                self.bar.line(&format!("ready: {name}, has {pieces}"));
                json!({ "event": "ready", "receiver": name, "pieces": has })
            }
            Event::ReceiverGone { name } => {
                self.bar.line(&format!("disconnected: {name}; it may reconnect"));
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
                let to = counted(receivers, "receiver");
                self.bar.say(format!("to {to}"));
                json!({ "event": "began", "receivers": receivers })
            }
            Event::Streamed { pieces, of, bytes } => {
                self.progress.0 = *of;
                self.ahead.push_back((*pieces, *bytes));
                return;
            }
            Event::StreamOver => {
                self.advance(stream);
                self.is_over = true;
                self.bar.say("receivers fetch missing data".to_owned());
                json!({ "event": "over" })
            }
            _ => return,
        };
        transfer::emit(self.args.json, &object);
    }
}

fn fix(error: &SendError) -> &'static str {
    match error {
        SendError::Source(SourceError::Changed(_)) => {
            "send a copy that no program writes to; receivers discard the changed source"
        }
        SendError::Source(SourceError::Read { .. }) => "check that it exists and is readable",
        SendError::Source(SourceError::Gone(_)) => "restore it and send it again: receivers resume",
        SendError::Source(SourceError::Spool { .. }) => {
            "free some space there, or set TMPDIR to another directory"
        }
        SendError::Source(SourceError::Unsendable(..)) => {
            "remove them, or leave them out with --skip-unsendable"
        }
        SendError::Source(_) => "send other files, or give them other names",
        SendError::NoReceivers => {
            "start `carom recv --from GROUP DIR` on the receivers, or wait longer (--start-after)"
        }
        SendError::Sink(error) if error.0 == OTHER_SENDER => {
            "wait until it has finished, or use another group"
        }
        SendError::Options(_) | SendError::Sink(_) | SendError::Cancelled => {
            "send it again: receivers resume"
        }
        _ => "check the network with `carom doctor`",
    }
}

const OTHER_SENDER: &str = "another member is sending to this group";
const START_AFTER: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);
const EVENTS: usize = 4096;
const END_PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLE: &str = "Example:
  carom recv --from images /srv/images        on each receiver, then
  carom send disk.img models/ --to images --receivers 8
  tar c /data | carom send - --name data.tar --to images --start-after 10s --rate 1Gbit
  carom send disk.img --to images --topology network.toml

The same command resumes an interrupted transfer: receivers keep verified data. The exit code is 1
if a receiver did not finish, and the summary names it.";
