//! `carom serve`: a command that replies to the requests of a group.

mod job;
pub(crate) mod reply;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use carom::rmp::{Handler, ReplyError, Request, RequestId};
use carom::{Event, Group, Lock, LockError, Node, RingNews};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::counted::counted;
use crate::error::{CliError, Outcome, plain};
use crate::interrupt::{self, Interrupt};
use crate::node::{self, NodeArgs};
use crate::ring::{self, Part, RingArgs, RingWatch};
use crate::{output, units};
pub(crate) use job::code;
use job::{Done, FAILED, Program};
use reply::Reply;

/// Reply to the requests of an ordered group: a command gets each on its standard input, and its
/// output is the reply
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// The group's name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// The command, after `--`, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Which of the six handlers of the group this is, 0 to 5
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = reply::handler)]
    handler: Handler,
    /// Run the command at most so many times at once; requests beyond that wait
    #[arg(long, value_name = "N", default_value_t = 4, allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// End a command that runs longer: the reply has code 124 and what it wrote until then; without
    /// this it may run for ever
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    ring: RingArgs,
    #[command(flatten)]
    node: NodeArgs,
}

/// Runs the verb.
///
/// # Errors
/// If the group cannot be joined.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    Program::check(&args.command)?;
    let interrupt = interrupt::listen_to_all()?;
    args.ring.warn("other servers may reply at the same time");
    let node = args.node.start(args.node.builder(), interrupt)?;
    let group = ring::join(&node, &args.group, args.ring.profile(Part::Voter), interrupt)?;
    let (handler, name) = (args.handler.number(), &args.group);
    output::say(format_args!("stands by for handler {handler} of {name} at {}", node.endpoint()));
    let mut server = Server::new(args, &node, &group, interrupt);
    let ended = server.serve();
    server.summary();
    drop(server);
    group.leave();
    node.close();
    ended.map(|()| Outcome::Fine)
}

/// A server of one handler.
struct Server<'a> {
    args: &'a Args,
    node: &'a Node,
    group: &'a Group,
    interrupt: &'a Interrupt,
    program: Program,
    ring: RingWatch,
    lock: Right<'a>,
    waiting: VecDeque<Request>,
    running: BTreeMap<RequestId, Running>,
    /// Replies that the group has not taken yet.
    replies: VecDeque<(RequestId, Vec<u8>)>,
    to: Sender<Done>,
    done: Receiver<Done>,
    counts: Counts,
}

/// A command that runs.
#[derive(Debug)]
struct Running {
    /// The id of its process, and of the group of its processes.
    process: u32,
    /// When it is to be ended, or killed.
    end_at: Option<Instant>,
    /// It was asked to end.
    is_late: bool,
}

/// The handler's lock: who has it replies.
enum Right<'a> {
    Asked(Pin<Box<dyn Future<Output = Result<Lock<'a>, LockError>> + 'a>>),
    Held(Lock<'a>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    replied: u64,
    failed: u64,
    /// Of those that failed, commands that took too long.
    ended: u64,
    /// Requests that somebody else has replied to, or whose caller waits no more.
    late: u64,
    /// Requests for which there was no room.
    refused: u64,
}

impl<'a> Server<'a> {
    fn new(args: &'a Args, node: &'a Node, group: &'a Group, interrupt: &'a Interrupt) -> Self {
        let (to, done) = channel();
        // One byte of a reply is the exit code.
        let limit = group.payload_limit().saturating_sub(1);
        let (name, command) = (args.group.clone(), args.command.clone());
        Self {
            args,
            node,
            group,
            interrupt,
            program: Program { group: name, command, limit },
            ring: RingWatch::new(node.id()),
            lock: Right::asked(group, args.handler),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            replies: VecDeque::new(),
            to,
            done,
            counts: Counts::default(),
        }
    }

    /// Serves until the user asks to end: then what runs is ended first, and asked once more at
    /// once.
    fn serve(&mut self) -> Result<(), CliError> {
        loop {
            let asked = self.interrupt.count();
            let is_idle = self.running.is_empty() && self.replies.is_empty();
            if asked > 1 || (asked == 1 && is_idle) {
                return Ok(());
            }
            self.take_events()?;
            self.see_to_lock()?;
            while let Ok(done) = self.done.try_recv() {
                self.on_done(done);
            }
            self.end_late_commands();
            self.send_replies();
            if asked == 0 {
                self.start_commands()?;
            }
        }
    }

    /// Takes what has happened, and waits for it a while.
    fn take_events(&mut self) -> Result<(), CliError> {
        let mut patience = STEP;
        loop {
            match self.group.recv_timeout(patience) {
                Ok(Some(Event::Ring(event))) => match event.news {
                    RingNews::Request(request) => self.on_request(request),
                    news => self.ring.tell(&news),
                },
                Ok(Some(_)) => {}
                Ok(None) => return Err(node::closed(self.node, &self.args.group)),
                Err(_) => return Ok(()),
            }
            patience = Duration::ZERO;
        }
    }

    fn see_to_lock(&mut self) -> Result<(), CliError> {
        let (handler, name) = (self.args.handler.number(), &self.args.group);
        match &mut self.lock {
            Right::Held(lock) if lock.is_held() => {}
            Right::Held(_) => {
                output::say(format_args!(
                    "serves handler {handler} of {name} no more: another may"
                ));
                self.lock = Right::asked(self.group, self.args.handler);
            }
            Right::Asked(asked) => {
                match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(lock)) => {
                        output::say(format_args!("serves handler {handler} of {name}"));
                        self.lock = Right::Held(lock);
                    }
                    // It is a new member by now, which stands at the end of the queue.
                    Poll::Ready(Err(LockError::Lost)) => {
                        self.lock = Right::asked(self.group, self.args.handler);
                    }
                    Poll::Ready(Err(error)) => {
                        let cause = format!("handler {handler} of {name}: {error}");
                        return Err(CliError::new(cause, "see `carom doctor` for the network"));
                    }
                }
            }
        }
        Ok(())
    }

    fn on_request(&mut self, request: Request) {
        let is_known = self.running.contains_key(&request.id)
            || self.waiting.iter().any(|it| it.id == request.id);
        if !request.is_ours || request.handler != Some(self.args.handler) || is_known {
            return;
        }
        if self.waiting.len() >= MOST_WAITING {
            self.counts.refused += 1;
            let why = format!("{MOST_WAITING} requests wait already");
            return self.reply(request.id, Reply::failure(FAILED, &why));
        }
        self.waiting.push_back(request);
    }

    /// Starts commands for requests that wait.
    ///
    /// # Errors
    /// The program cannot be run, now or later: the next server takes over, and its request with
    /// it.
    fn start_commands(&mut self) -> Result<(), CliError> {
        while self.running.len() < usize::from(self.args.jobs) {
            let Some(request) = self.waiting.pop_front() else { return Ok(()) };
            match self.program.start(&request, self.to.clone()) {
                Ok(process) => {
                    let end_at = self.args.timeout.map(|timeout| Instant::now() + timeout);
                    let running = Running { process, end_at, is_late: false };
                    self.running.insert(request.id, running);
                }
                Err(error) if !job::may_pass(&error) => {
                    return Err(Program::cannot_run(&self.args.command[0], &error));
                }
                Err(error) => {
                    let program = self.args.command[0].to_string_lossy();
                    let why = format!("command {program}: {}", plain(&error));
                    output::say(format_args!("{why}"));
                    self.reply(request.id, Reply::failure(NOT_RUN, &why));
                }
            }
        }
        Ok(())
    }

    fn on_done(&mut self, done: Done) {
        // It was given up, and replied to, if it is not there any more.
        let Some(running) = self.running.remove(&done.request) else { return };
        let code = if running.is_late { LATE } else { done.reply.code };
        self.reply(done.request, Reply { code, ..done.reply });
    }

    /// Asks commands that take too long to end, kills those that do not, and goes on without those
    /// whose output has no end even so.
    fn end_late_commands(&mut self) {
        let (now, mut given_up) = (Instant::now(), Vec::new());
        for (request, running) in &mut self.running {
            if running.end_at.is_none_or(|at| now < at) {
                continue;
            }
            running.end_at = Some(now + GRACE);
            if !std::mem::replace(&mut running.is_late, true) {
                self.counts.ended += 1;
                running.signal(Signal::SIGTERM);
            } else {
                running.signal(Signal::SIGKILL);
                given_up.push(*request);
            }
        }
        for request in given_up {
            self.running.remove(&request);
            let span = self.args.timeout.unwrap_or_default();
            let why = format!("the command took longer than {span:?} and did not end: killed");
            self.reply(request, Reply::failure(LATE, &why));
        }
    }

    fn reply(&mut self, request: RequestId, reply: Reply) {
        if reply.code != 0 {
            self.counts.failed += 1;
            output::say(format_args!(
                "request {} of {}: code {}",
                request.number, request.caller, reply.code
            ));
        }
        self.replies.push_back((request, reply.into_bytes()));
    }

    /// Sends the replies that the group takes now.
    fn send_replies(&mut self) {
        while let Some((request, payload)) = self.replies.pop_front() {
            match self.group.reply_blocking(request, payload.clone()) {
                Ok(()) => self.counts.replied += 1,
                Err(ReplyError::QueueFull { .. }) => {
                    self.replies.push_front((request, payload));
                    return;
                }
                Err(_) => self.counts.late += 1,
            }
        }
    }

    fn summary(&self) {
        let Counts { replied, failed, ended, late, refused } = self.counts;
        let name = &self.args.group;
        output::say(format_args!(
            "replied to {} of {name}: the command failed {}, {} of these as it took too long; {} \
             refused, {} came too late",
            counted(replied, "request"),
            counted(failed, "time"),
            ended,
            counted(refused, "request"),
            counted(late, "reply")
        ));
    }
}

impl Drop for Server<'_> {
    /// Commands that nobody waits for any more are ended.
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.signal(Signal::SIGTERM));
    }
}

impl Running {
    /// Sends the command and what it has started a signal.
    fn signal(&self, signal: Signal) {
        if let Ok(process) = i32::try_from(self.process) {
            // It may have ended by now.
            let _ = killpg(Pid::from_raw(process), signal);
        }
    }
}

impl<'a> Right<'a> {
    fn asked(group: &'a Group, handler: Handler) -> Self {
        Self::Asked(Box::pin(group.lock(handler)))
    }
}

const STEP: Duration = Duration::from_millis(5);
/// Requests that wait for a command to end.
const MOST_WAITING: usize = 1024;
/// How long a command that takes too long has to end before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// As `timeout` says that a command took too long.
const LATE: u8 = 124;
/// As a shell says that a command cannot be run.
const NOT_RUN: u8 = 126;
const EXAMPLE: &str = "Examples:
  carom serve quotes -- ./quote.sh
  carom serve quotes --handler 2 --jobs 1 --timeout 5s -- sh -c 'tr a-z A-Z'
  echo hello | carom call quotes                 in another terminal

Start it on several machines: one replies, and the next one takes over when it ends or dies. What it
was at then is done again, and CAROM_MAY_BE_DONE is 1 in the command's environment, which also has
CAROM_GROUP, CAROM_CALLER and CAROM_REQUEST. When the command fails its reply says so.

Give --quorum-of N to all members: without it servers that do not see each other, such as those on
machines that start apart, each reply.

A command that runs longer than --timeout, with all that it has started, is sent SIGTERM, and
SIGKILL 2 s later. The request is replied to with code 124 and not left to another server, where it
would take as long again.

A server whose program is not there any more, or cannot be executed, ends, so that the next one
takes over.

Exit codes: 0 ended with Ctrl-C, 2 wrong use or environment";
