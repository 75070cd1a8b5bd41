use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use carom::blocking::{Group, Node};
use carom::{Event, How, LossCause, Lost, Message, RateOfFire, RingNews, Status};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output, units};
use serde_json::json;

use crate::frames::Framing;
use crate::loss::LossArgs;
use crate::node::{self, NodeArgs, ServiceWatch};
use crate::ring::{self, OrderedArgs, Part, RingWatch};

/// Write the messages of a group to standard output
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// Exit after N messages (lost packets count toward N)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    loss: LossArgs,
    /// Write frames instead of lines: 4 bytes of length (big-endian), then the message
    #[arg(long, conflicts_with = "json")]
    frames: bool,
    /// Repair rate: for every R packets, each member sends repairs to C others; the same at all
    /// members
    #[arg(long, value_name = "R,C", default_value = "8,5", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate_of_fire)]
    #[arg(conflicts_with_all = ["ordered", "quorum", "quorum_of", "no_rejoin"])]
    rate_of_fire: RateOfFire,
    #[command(flatten)]
    order: OrderedArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Print one JSON object per event
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let profile = args.order.profile(Part::Voter);
    let interrupt = if profile.is_some() { ring::listen() } else { interrupt::listen() }?;
    let node = args.node.start(args.node.builder().loss(args.loss.model()), interrupt)?;
    let node = Arc::new(node);
    let group = match profile {
        Some(profile) => ring::join(&node, &args.group, profile, interrupt)?,
        None => node::join(&node, &args.group, args.rate_of_fire)?,
    };
    let (endpoint, others) = (node.endpoint(), counted(group.members().len(), "other member"));
    output::say(format_args!("joined {} at {endpoint}, {others}", args.group));
    let mut receiver = Receiver::new(args, profile.is_some().then(|| RingWatch::new(node.id())));
    let (tally, name) = (Arc::clone(&receiver.tally), args.group.clone());
    let (watched, is_ordered) = (Arc::downgrade(&node), profile.is_some());
    interrupt.set_last_words(move || {
        if let Some(node) = watched.upgrade() {
            tally.look(&node.status(), &name);
        }
        tally.last_words(&name, is_ordered)
    });
    let ended = receiver.receive(&node, &group, interrupt);
    let may_be_asked = profile.is_none() && matches!(ended, Ok(Next::End));
    let status = node.status();
    receiver.tally.look(&status, &args.group);
    let told = receiver.summary(&args.group, status.stats.net.losses_injected);
    let Receiver { out, tally, .. } = receiver;
    drop(out);
    if may_be_asked {
        // A node that has left sends no acknowledgments, but senders may still request them.
        interrupt.wait(CONFIRM_WITHIN);
    }
    // After an orderly leave, the other members need not wait for this node.
    group.leave();
    drop(node);
    ended.and(told).map(|_| Outcome::of(tally.has_gaps()))
}

struct Receiver {
    out: BufWriter<StdoutLock<'static>>,
    framing: Framing,
    json: bool,
    count: u64,
    /// `Some` only in an ordered group.
    ring: Option<RingWatch>,
    /// Shared with the interrupt handler, which prints the summary while the output is blocked.
    tally: Arc<Tally>,
}

#[derive(Default)]
struct Tally {
    direct: AtomicU64,
    fec: AtomicU64,
    nak: AtomicU64,
    /// Packets recovered by a repair before their own multicast arrived. They were not lost.
    overtaken: AtomicU64,
    lost: AtomicU64,
    /// Losses because this program's event queue was full. Included in `lost`.
    lost_here: AtomicU64,
    /// Messages that did not fit in the event queue.
    dropped: AtomicU64,
    /// Events still in the event queue at the end.
    unread: AtomicU64,
    /// Messages that contain a line feed. Reported once, in the summary.
    broken_lines: AtomicU64,
    views: AtomicU64,
    removals: AtomicU64,
}

enum Next {
    More,
    End,
}

impl Receiver {
    fn new(args: &Args, ring: Option<RingWatch>) -> Self {
        Self {
            out: BufWriter::with_capacity(OUT_BYTES, std::io::stdout().lock()),
            framing: Framing::of(args.frames),
            json: args.json,
            count: args.count.unwrap_or(u64::MAX),
            ring,
            tally: Arc::default(),
        }
    }

    /// Receives until `--count` is reached, the user interrupts, or the reader closes the output.
    fn receive(
        &mut self,
        node: &Node,
        group: &Group,
        interrupt: &Interrupt,
    ) -> Result<Next, CliError> {
        let ended =
            self.events(node, group, interrupt).and_then(|next| self.out.flush().map(|()| next));
        match ended {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(output::not_written(&error)),
            // The reason was already reported.
            Ok(Next::More) if self.ring.as_ref().is_some_and(|ring| ring.is_out) => Ok(Next::More),
            Ok(Next::More) if !interrupt.is_asked() => Err(node::closed(node, group.name())),
            Ok(next) => Ok(next),
            // The reader has closed the pipe.
            Err(_) => Ok(Next::More),
        }
    }

    /// Writes events. Returns [`Next::More`] if the group is closed or the user interrupts.
    fn events(
        &mut self,
        node: &Node,
        group: &Group,
        interrupt: &Interrupt,
    ) -> std::io::Result<Next> {
        let service = ServiceWatch::new(node);
        while !interrupt.is_asked() {
            if let Some(state) = service.look(node).filter(|_| self.json) {
                self.line(&json!({ "event": "service", "state": state }))?;
            }
            let event = match group.try_recv() {
                Some(event) => event,
                None => {
                    self.out.flush()?;
                    match group.recv_timeout(IDLE) {
                        Ok(Some(event)) => event,
                        Ok(None) => return Ok(Next::More),
                        Err(_) => continue,
                    }
                }
            };
            if matches!(self.on_event(event)?, Next::End) {
                return Ok(Next::End);
            }
        }
        Ok(Next::More)
    }

    fn on_event(&mut self, event: Event) -> std::io::Result<Next> {
        match event {
            Event::Message(message) => self.on_message(&message)?,
            Event::Lost(lost) => self.on_lost(&lost)?,
            Event::View(change) if self.json => {
                let (node, what) = (change.node.to_string(), node::change(change.kind));
                self.line(&json!({ "event": "view", "node": node, "change": what }))?;
            }
            Event::Ring(event) => self.on_ring(&event.news)?,
            _ => {}
        }
        Ok(if self.tally.settled() >= self.count { Next::End } else { Next::More })
    }

    fn on_ring(&mut self, news: &RingNews) -> std::io::Result<()> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        ring.tell(news);
        self.tally.views.store(ring.views, Relaxed);
        self.tally.removals.store(ring.removals, Relaxed);
        match ring::news::object(news).filter(|_| self.json) {
            Some(object) => self.line(&object),
            None => Ok(()),
        }
    }

    fn on_message(&mut self, message: &Message) -> std::io::Result<()> {
        let how = self.tally.add(message.how);
        if !self.json {
            let lines = self.framing == Framing::Lines;
            let broken = lines && message.payload.contains(&b'\n');
            self.tally.broken_lines.fetch_add(u64::from(broken), Relaxed);
            return self.framing.write(&message.payload, &mut self.out);
        }
        let mut object = json!({
            "event": "message",
            "sender": message.sender.to_string(),
            "seqno": message.seqno.0,
            "how": how,
            "age_ms": message.age.map(|age| age.as_secs_f64() * 1e3),
        });
        if self.ring.is_some() {
            object["place"] = message.place.map(ring::news::place).into();
        }
        match std::str::from_utf8(&message.payload) {
            Ok(text) => object["payload"] = text.into(),
            Err(_) => object["payload_hex"] = hex(&message.payload).into(),
        }
        self.line(&object)
    }

    fn on_lost(&mut self, lost: &Lost) -> std::io::Result<()> {
        let count = u64::from(lost.count());
        self.tally.lost.fetch_add(count, Relaxed);
        if lost.cause == LossCause::QueueFull {
            self.tally.lost_here.fetch_add(count, Relaxed);
        }
        let Lost { first, last, sender, cause, .. } = lost;
        output::say(format_args!(
            "lost: {first} to {last} of {sender}, {}: {cause}",
            counted(count, "packet")
        ));
        if !self.json {
            return Ok(());
        }
        self.line(&json!({
            "event": "lost",
            "sender": lost.sender.to_string(),
            "first": lost.first.0,
            "last": lost.last.0,
            "cause": lost.cause.to_string(),
        }))
    }

    fn line(&mut self, object: &serde_json::Value) -> std::io::Result<()> {
        writeln!(self.out, "{object}")
    }

    fn summary(&mut self, group: &str, losses_injected: u64) -> Result<(), CliError> {
        let injected = match losses_injected {
            0 => String::new(),
            count => format!(
                ", {} injected",
                if count == 1 { "1 loss".to_owned() } else { format!("{count} losses") }
            ),
        };
        let words = self.tally.last_words(group, self.ring.is_some());
        output::say(format_args!("{words}{injected}"));
        let broken_lines = self.tally.broken_lines.load(Relaxed);
        if broken_lines > 0 {
            let messages = counted(broken_lines, "message");
            output::say(format_args!(
                "note: {messages} contained line feeds: use --frames to keep message boundaries"
            ));
        }
        if !self.json {
            return Ok(());
        }
        let object = self.tally.object();
        match self.line(&object).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(output::not_written(&error)),
            _ => Ok(()),
        }
    }
}

impl Tally {
    /// Counts a message. Returns its kind of delivery, as used in JSON.
    fn add(&self, how: How) -> &'static str {
        let (count, name) = match how {
            How::Direct => (&self.direct, "direct"),
            How::Recovered(_) => (&self.fec, "fec"),
            How::Retransmitted(_) => (&self.nak, "nak"),
        };
        count.fetch_add(1, Relaxed);
        name
    }

    fn received(&self) -> u64 {
        [&self.direct, &self.fec, &self.nak].map(|count| count.load(Relaxed)).iter().sum()
    }

    fn lost(&self) -> u64 {
        self.lost.load(Relaxed) + self.dropped.load(Relaxed)
    }

    fn look(&self, status: &Status, group: &str) {
        self.overtaken.store(status.stats.lateral.overtaken, Relaxed);
        let Some(group) = status.groups.iter().find(|it| it.name == group) else { return };
        self.unread.store(group.unread as u64, Relaxed);
        let told = self.lost_here.load(Relaxed);
        self.dropped.store(group.dropped.saturating_sub(told), Relaxed);
    }

    fn last_words(&self, group: &str, is_ordered: bool) -> String {
        let words = if is_ordered { self.words_in_order(group) } else { self.words(group) };
        let [unread, dropped] = [&self.unread, &self.dropped].map(|count| count.load(Relaxed));
        let mut rest = Vec::new();
        if dropped > 0 {
            rest.push(format!("{} dropped", counted(dropped, "message")));
        }
        if unread > 0 {
            rest.push(format!("{} still in the queue", counted(unread, "event")));
        }
        match rest.is_empty() {
            true => words,
            false => format!("{words}; slow output: {}", rest.join(", ")),
        }
    }

    fn object(&self) -> serde_json::Value {
        let [direct, fec, nak, unread, dropped] =
            [&self.direct, &self.fec, &self.nak, &self.unread, &self.dropped]
                .map(|count| count.load(Relaxed));
        json!({
            "event": "end",
            "received": self.received(),
            "direct": direct,
            "fec": fec,
            "nak": nak,
            "overtaken": self.overtaken.load(Relaxed),
            "lost": self.lost(),
            "dropped": dropped,
            "unread": unread,
        })
    }

    fn settled(&self) -> u64 {
        self.received() + self.lost.load(Relaxed)
    }

    fn has_gaps(&self) -> bool {
        self.lost() > 0 || self.removals.load(Relaxed) > 0
    }

    fn words_in_order(&self, group: &str) -> String {
        let [views, removals] = [&self.views, &self.removals].map(|it| it.load(Relaxed));
        let received = counted(self.received(), "message");
        let (views, removals) = (counted(views, "ring change"), counted(removals, "removal"));
        format!("received {received} of {group} in order: {views}, {removals} of this node")
    }

    fn words(&self, group: &str) -> String {
        let [direct, fec, nak] = [&self.direct, &self.fec, &self.nak].map(|it| it.load(Relaxed));
        let (received, lost) = (counted(self.received(), "message"), self.lost());
        let overtaken = match self.overtaken.load(Relaxed) {
            0 => String::new(),
            count => format!(" ({} overtaken, not lost)", counted(count, "packet")),
        };
        format!(
            "received {received} of {group}: {direct} directly, {fec} by repair{overtaken}, \
             {nak} by retransmission; {lost} lost"
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

const OUT_BYTES: usize = 64 << 10;
const IDLE: Duration = Duration::from_millis(50);
/// Wait before leaving, because a sender may query the members up to twice after its last message.
const CONFIRM_WITHIN: Duration = Duration::from_millis(500);
const EXAMPLE: &str = "Examples:
  carom sub numbers
  carom sub numbers --count 1000 --loss 5% > numbers.txt
  carom sub numbers --json | jq .payload
  carom sub accounts --ordered

Exit codes: 0 success, 1 messages were lost, or the ring continued without this node, 2 usage or
environment error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_come_is_counted_and_named() {
        let tally = Tally::default();
        let node = carom::NodeId(1);
        let ways = [How::Direct, How::Recovered(node), How::Retransmitted(node)];
        assert_eq!(ways.map(|how| tally.add(how)), ["direct", "fec", "nak"]);
        tally.lost.store(2, Relaxed);
        assert_eq!((tally.received(), tally.settled()), (3, 5));
    }

    #[test]
    fn what_the_output_did_not_take_is_counted_as_lost_and_told() {
        let tally = Tally::default();
        tally.direct.store(317, Relaxed);
        assert_eq!(
            tally.last_words("g", false),
            "received 317 messages of g: 317 directly, 0 by repair, 0 by retransmission; 0 lost"
        );
        tally.dropped.store(1, Relaxed);
        tally.unread.store(65_536, Relaxed);
        assert_eq!(
            tally.last_words("g", false),
            "received 317 messages of g: 317 directly, 0 by repair, 0 by retransmission; 1 lost; \
             slow output: 1 message dropped, 65536 events still in the queue"
        );
        assert!(tally.has_gaps());
        let object = tally.object();
        assert_eq!((&object["lost"], &object["unread"]), (&1.into(), &65_536.into()));
    }

    #[test]
    fn what_a_repair_overtook_is_told_apart() {
        let tally = Tally::default();
        tally.fec.store(5, Relaxed);
        tally.overtaken.store(2, Relaxed);
        let words = tally.last_words("g", false);
        assert!(words.contains("5 by repair (2 packets overtaken, not lost), 0"), "{words}");
        assert_eq!(tally.object()["overtaken"], 2);
    }

    #[test]
    fn bytes_that_are_not_text_are_written_in_hex() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
    }
}
