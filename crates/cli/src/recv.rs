use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Bytes, Event as GroupEvent, Notice};
use carom_files::{
    Event, Kept, Offer, ReceiveError, ReceiveOptions, Received, Receiving, Reporter, events, kept,
    recover, try_writing,
};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output, plain, units};
use serde_json::json;

use crate::loss::LossArgs;
use crate::node::{self, News, NodeArgs};
use crate::transfer::bars::Bar;
use crate::transfer::{self, human_bytes, human_rate};
use crate::waiting;

/// Receive files that are sent to a group, and write them to a directory
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group to receive from
    #[arg(long = "from", value_name = "GROUP", value_parser = units::name)]
    pub(crate) group: String,
    /// Destination directory (created if missing)
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Name of this receiver in the sender's summary [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Accept only the transfer with this name or this id (8 or more digits of the id that `carom
    /// send` prints). Any sender can use any name, but an id stands for one content only
    #[arg(long, value_name = "NAME|ID")]
    expect: Option<String>,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
    /// Write through the page cache, for files that will be read soon (about twice the CPU time)
    #[arg(long)]
    cached: bool,
    /// Maximum wait for a sender [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    timeout: Option<Duration>,
    /// Maximum wait for a disconnected sender
    #[arg(long, value_name = "TIME", default_value = "5min", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    patience: Duration,
    #[command(flatten)]
    loss: LossArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Print JSON objects: one for each change, and the summary
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen_with(END_PATIENCE)?;
    interrupt::into_outcome(transfer::told_in_json(args.json, receive(args, interrupt)))
}

fn receive(args: &Args, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    refuse_unwritable(&args.directory)?;
    let node =
        args.node.start(args.node.builder().loss(args.loss.model()).queue(QUEUE), interrupt)?;
    let group = transfer::join(&node, &args.group)?;
    let (directory, overwrite) = (args.directory.clone(), args.overwrite);
    let recovered = waiting::done(move || recover(&directory, overwrite), || interrupt.is_asked());
    for (id, finished) in recovered.ok_or_else(CliError::interrupted)? {
        match finished {
            Ok(_) => output::say(format_args!(
                "transfer {} is now complete: only the final names were missing",
                id.short()
            )),
            Err(error) => {
                output::say(format_args!("transfer {} cannot be completed: {error}", id.short()))
            }
        }
    }
    for Kept { directory, bytes, .. } in kept(&args.directory) {
        let (directory, bytes) = (directory.display(), human_bytes(bytes));
        output::say(format_args!("{directory} holds {bytes} of an incomplete transfer"));
    }
    let mut receiver =
        Taker { args, group: &group, node: &node, news: News::from_now(&node), interrupt };
    output::say(format_args!("waiting for a transfer to {}", args.group));
    let offer = receiver.await_offer()?;
    let received = receiver.take(&offer).map_err(|error| match error.is_interruption() {
        true => CliError::interrupted_after(format!(
            "interrupted: verified data is kept in {}, and the same command resumes the transfer",
            args.directory.display()
        )),
        false => error,
    });
    group.leave();
    node.close();
    received.map(|()| Outcome::Fine)
}

/// Rejects a directory that cannot be written. A missing directory is created later.
fn refuse_unwritable(directory: &Path) -> Result<(), CliError> {
    let there = directory.ancestors().find(|it| it.symlink_metadata().is_ok());
    let there = there.unwrap_or(Path::new("."));
    let name = there.display();
    let metadata = there.metadata().map_err(|error| {
        let cause = format!("cannot access {name}: {}", plain(&error));
        CliError::new(cause, "use a directory that exists and can be accessed")
    })?;
    if !metadata.is_dir() {
        let cause = format!("{name} is a file, not a directory");
        return Err(CliError::new(cause, "use a directory (created if missing)"));
    }
    let tried = try_writing(there).or_else(|error| match error.kind() {
        // A resumed transfer may need no more space. If it does, the lack of space is reported
        // later.
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Ok(()),
        _ => Err(error),
    });
    tried.map_err(|error| {
        let cause = format!("cannot write to {name}: {}", plain(&error));
        CliError::new(cause, "use a writable directory")
    })
}

struct Taker<'a> {
    args: &'a Args,
    group: &'a Group,
    node: &'a Node,
    news: News,
    interrupt: &'a Interrupt,
}

impl Taker<'_> {
    fn await_offer(&self) -> Result<Offer, CliError> {
        let began = Instant::now();
        let mut passed_over = BTreeSet::new();
        loop {
            self.news.tell(self.node);
            if let Some(message) = self.next_message()?
                && let Ok(offer) = Offer::decode(&message)
            {
                let Some(expected) = &self.args.expect else { return Ok(offer) };
                if is_expected(&offer, expected) {
                    return Ok(offer);
                }
                if passed_over.len() < MOST_PASSED_OVER && passed_over.insert(offer.id) {
                    let (name, id) = (&offer.name, offer.id.short());
                    output::say(format_args!("skipped: {name} ({id}) is not {expected}"));
                }
            }
            if self.args.timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
                let cause = match &self.args.expect {
                    None => format!("nothing was sent to group '{}'", self.args.group),
                    Some(expected) => {
                        format!("{expected} was not sent to group '{}'", self.args.group)
                    }
                };
                return Err(CliError::new(
                    cause,
                    "check with `carom members` whether `carom send` is running",
                ));
            }
        }
    }

    /// Returns `None` after 50 ms without a message, or if another event arrived.
    fn next_message(&self) -> Result<Option<Bytes>, CliError> {
        if self.interrupt.is_asked() {
            return Err(CliError::interrupted());
        }
        match self.group.recv_timeout(LOOK) {
            Ok(Some(GroupEvent::Message(message))) => Ok(Some(message.payload)),
            Ok(Some(_)) | Err(_) => Ok(None),
            Ok(None) => Err(node::closed(self.node, self.group.name())),
        }
    }

    fn take(&mut self, offer: &Offer) -> Result<(), CliError> {
        let (reporter, events) = events(EVENTS);
        let options = self.options(reporter);
        let began = Instant::now();
        let mut view = View::new(self.args, offer, events);
        let (receiving, early) = self.start(offer, options, &mut view)?;
        early.into_iter().for_each(|message| receiving.on_block(message));
        let ended = thread::scope(|scope| {
            let (tell, ended) = channel();
            let waiting = &receiving;
            // The channel is closed only after `feed` has returned.
            scope.spawn(move || drop(tell.send(waiting.wait())));
            let ended = self.feed(&receiving, &ended, &mut view);
            // This also ends the waiting thread.
            receiving.stop();
            ended
        })?;
        view.end();
        match ended {
            Ok(received) => view.tell(&received, began.elapsed(), self.node),
            Err(error) => Err(failed(&self.args.group, &error)),
        }
    }

    fn options(&self, reporter: Reporter) -> ReceiveOptions {
        let defaults = ReceiveOptions::new(&self.args.directory);
        ReceiveOptions {
            name: self.args.name.clone().unwrap_or(defaults.name),
            overwrite: self.args.overwrite,
            cached: self.args.cached,
            listen: (self.node.endpoint().ip(), 0).into(),
            patience: self.args.patience,
            reporter,
            ..defaults
        }
    }

    /// Connects, and verifies the data that is already present. Reads the stream meanwhile, so that
    /// the group does not wait. Returns the transfer and the messages that were read last.
    fn start(
        &self,
        offer: &Offer,
        options: ReceiveOptions,
        view: &mut View<'_>,
    ) -> Result<(Receiving, VecDeque<Bytes>), CliError> {
        let (mut early, mut stopped) = (VecDeque::new(), None);
        let offer = offer.clone();
        let started = waiting::done(
            move || Receiving::start(&offer, options),
            || {
                match self.next_message() {
                    Ok(message) => early.extend(message),
                    Err(error) => stopped = Some(error),
                }
                while early.len() > EARLY {
                    early.pop_front();
                }
                view.follow();
                stopped.is_some()
            },
        );
        let started = started.ok_or_else(|| stopped.unwrap_or_else(CliError::interrupted))?;
        let receiving = started.map_err(|error| failed(&self.args.group, &error))?;
        Ok((receiving, early))
    }

    fn feed(
        &self,
        receiving: &Receiving,
        ended: &Receiver<Result<Received, ReceiveError>>,
        view: &mut View<'_>,
    ) -> Result<Result<Received, ReceiveError>, CliError> {
        loop {
            if let Some(message) = self.next_message()? {
                match Offer::decode(&message) {
                    Ok(offer) => receiving.on_offer(&offer),
                    Err(_) => receiving.on_block(message),
                }
            }
            view.follow();
            view.show(&self.news.take(self.node));
            match ended.try_recv() {
                Ok(ended) => return Ok(ended),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(Err(ReceiveError::Stopped)),
            }
        }
    }
}

struct View<'a> {
    args: &'a Args,
    name: String,
    total_bytes: u64,
    events: Receiver<Event>,
    bar: Bar,
}

impl<'a> View<'a> {
    fn new(args: &'a Args, offer: &Offer, events: Receiver<Event>) -> Self {
        let bar = Bar::new("receiving", args.json);
        let (name, total_bytes) = (offer.name.clone(), offer.total_bytes);
        bar.line(&format!(
            "receiving {name} ({}, {}) into {}",
            human_bytes(total_bytes),
            counted(offer.entries, "entry"),
            args.directory.display()
        ));
        Self { args, name, total_bytes, events, bar }
    }

    fn show(&self, notices: &[Notice]) {
        for notice in notices {
            self.bar.line(&format!("note: {}", notice.text));
        }
    }

    fn follow(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.on_event(&event);
        }
    }

    fn on_event(&mut self, event: &Event) {
        let object = match event {
            Event::Connected { has, of, bytes } => {
                if *has > 0 {
                    let pieces = counted(of, "piece");
                    self.bar.line(&format!("{has} of {pieces} already present"));
                }
                json!({ "event": "connected", "pieces": has, "of": of, "bytes": bytes })
            }
            Event::Verified { bytes, of } => {
                self.bar.set(*bytes, *of);
                json!({ "event": "progress", "bytes": bytes, "of": of })
            }
            Event::Wrong { piece, from } => {
                let by = from.as_deref().unwrap_or("the stream");
                self.bar
                    .line(&format!("piece {piece} from {by} has a wrong hash: fetching it again"));
                json!({ "event": "wrong", "piece": piece, "from": from })
            }
            Event::SenderLost => {
                self.bar.line("the sender is disconnected: waiting for it to return");
                json!({ "event": "sender lost" })
            }
            _ => return,
        };
        transfer::emit(self.args.json, &object);
    }

    fn end(&mut self) {
        self.follow();
        self.bar.end();
    }

    fn tell(&self, received: &Received, took: Duration, node: &Node) -> Result<(), CliError> {
        let seconds = took.as_secs_f64();
        if self.args.json {
            return output::json(&json!({
                "event": "summary",
                "name": self.name,
                "seconds": seconds,
                "bytes": self.total_bytes,
                "stream_bytes": received.stream_bytes,
                "peer_bytes": received.peer_bytes,
                "sender_bytes": received.sender_bytes,
                "resumed_bytes": received.resumed_bytes,
                "wrong_pieces": received.wrong_pieces,
                "network": transfer::counters(node, None),
            }));
        }
        output::say(outcome(&self.name, self.total_bytes, received, seconds));
        Ok(())
    }
}

/// Formats the result in one line. The rate excludes bytes that were already present.
fn outcome(name: &str, total: u64, received: &Received, seconds: f64) -> String {
    let Received { stream_bytes, peer_bytes, sender_bytes, resumed_bytes, .. } = *received;
    let total = human_bytes(total);
    let came = stream_bytes + peer_bytes + sender_bytes;
    if came == 0 && resumed_bytes > 0 {
        return format!("{name} ({total}) was already present: nothing received, {seconds:.1} s");
    }
    let rate = human_rate(came, seconds);
    let [stream, peers, sender, resumed] =
        [stream_bytes, peer_bytes, sender_bytes, resumed_bytes].map(human_bytes);
    format!(
        "received {name} ({total}) in {seconds:.1} s, {rate}: {stream} from the stream, {peers} \
         from peers, {sender} from the sender, {resumed} already present"
    )
}

fn is_expected(offer: &Offer, expected: &str) -> bool {
    let is_id = expected.len() >= LEAST_ID_DIGITS
        && offer.id.to_string().starts_with(&expected.to_ascii_lowercase());
    offer.name == expected || is_id
}

fn failed(group: &str, error: &ReceiveError) -> CliError {
    let fix = match error {
        ReceiveError::Exists(_) => "use an empty directory, or --overwrite to replace it",
        ReceiveError::InTheWay { .. } => "move it away, or use another directory",
        ReceiveError::NoSpace { .. } => "free some space, or use a directory on another disk",
        ReceiveError::Disk { .. } => "check the directory with `df -h` and `ls -ld`",
        ReceiveError::InUse => "wait until it has finished, or use another directory",
        ReceiveError::Unreachable(_) => {
            "allow TCP in the firewall, and check the path with `carom doctor`"
        }
        ReceiveError::SenderGone | ReceiveError::Stopped => "start `carom recv` again: it resumes",
        ReceiveError::Discarded(_) => "start `carom recv` again for another transfer",
        ReceiveError::Aborted(_) => {
            "start `carom recv` again when the transfer is resent: it resumes from the kept data"
        }
        ReceiveError::Refused(_) => {
            "start `carom recv` again when the sender accepts this receiver"
        }
        ReceiveError::Manifest(_) | ReceiveError::OtherManifest => {
            "report it to the operator of the sender; nothing was written"
        }
        _ => "check the network with `carom doctor`",
    };
    CliError::new(format!("group '{group}': {error}"), fix)
}

const MOST_PASSED_OVER: usize = 16;
const LEAST_ID_DIGITS: usize = 8;
const LOOK: Duration = Duration::from_millis(50);
const EVENTS: usize = 4096;
/// Capacity of the event queue, for messages that wait for the disk.
const QUEUE: usize = 1024;
/// Maximum number of messages kept while the transfer starts.
const EARLY: usize = 256;
const END_PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLE: &str = "Example:
  carom recv --from images /srv/images
  carom recv --from images /srv/images --overwrite --json --timeout 10min

It can be started before or after the sender, and fetches missed data from other receivers. The same
command resumes an interrupted transfer.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_shows_no_rate_for_data_already_present() {
        const MIB: u64 = 1 << 20;
        let told = |stream_bytes, resumed_bytes| {
            let received = Received { stream_bytes, resumed_bytes, ..Received::default() };
            outcome("image", 10 * MIB, &received, 2.0)
        };
        let all = told(0, 10 * MIB);
        assert_eq!(all, "image (10.00 MiB) was already present: nothing received, 2.0 s");
        let part = told(4 * MIB, 6 * MIB);
        assert!(
            part.starts_with("received image (10.00 MiB) in 2.0 s, 2.00 MiB/s: 4.00"),
            "{part}"
        );
        let empty = told(0, 0);
        assert!(empty.starts_with("received image"), "{empty}");
    }

    #[test]
    fn expected_offer_is_matched_by_name_or_start_of_id() {
        let offer = Offer {
            id: carom_files::TransferId([0xAB; 32]),
            addresses: Vec::new(),
            name: "image".into(),
            total_bytes: 1,
            entries: 1,
        };
        for expected in ["image", "abababab", "ABABABABAB", &"ab".repeat(32)] {
            assert!(is_expected(&offer, expected), "{expected}");
        }
        for other in ["imag", "ab", "abababac", &"ab".repeat(33), ""] {
            assert!(!is_expected(&offer, other), "{other}");
        }
    }

    #[test]
    fn fix_continues_from_what_is_kept_only_where_something_is_kept() {
        let told = |error: ReceiveError| {
            let error = failed("images", &error).object();
            ["cause", "fix"].map(|field| error[field].as_str().expect("a text").to_owned())
        };
        let reason = "image has changed since the transfer began".to_owned();
        let [cause, fix] = told(ReceiveError::Discarded(reason.clone()));
        assert!(cause.contains(&reason) && cause.ends_with("were removed"), "{cause}");
        assert_eq!(fix, "start `carom recv` again for another transfer");
        let [cause, fix] = told(ReceiveError::Aborted(reason.clone()));
        assert!(cause.contains(&reason) && !cause.contains("removed"), "{cause}");
        assert!(fix.ends_with("it resumes from the kept data"), "{fix}");
    }
}
