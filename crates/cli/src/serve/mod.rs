mod job;
pub(crate) mod reply;

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Handler, Lock, LockError, ReplyError, Request, RequestId, Requests};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output, plain, units};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::node::{self, NodeArgs};
use crate::ring::{self, Part, RingArgs, RingWatch};
use crate::waiting;
pub(crate) use job::code;
use job::{Done, FAILED, Program};
use reply::Reply;

/// Reply to the requests to an ordered group: run a command for each one, with the request as
/// standard input and the output as the reply
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// Command and its arguments, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Handler to serve, one of the six of the group, 0 to 5
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = reply::handler)]
    handler: Handler,
    /// Maximum number of commands that run at once; further requests wait
    #[arg(long, value_name = "N", default_value_t = 4, allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Maximum run time of a command. A command that exceeds it is ended, and its reply has code
    /// 124 and, unless it had to be killed, the output so far [default: no limit]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = units::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    ring: RingArgs,
    #[command(flatten)]
    node: NodeArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    Program::check(&args.command)?;
    let interrupt = interrupt::listen_to_all()?;
    args.ring.warn("other servers may reply at the same time");
    let node = args.node.start(args.node.builder(), interrupt)?;
    let group = ring::join(&node, &args.group, args.ring.profile(Part::Voter), interrupt)?;
    let (handler, name) = (args.handler.number(), &args.group);
    output::say(format_args!("standing by for handler {handler} of {name} at {}", node.endpoint()));
    let requests = waiting::until(group.as_async().requests(), || interrupt.is_asked());
    let ended = requests.ok_or_else(CliError::interrupted).and_then(|requests| {
        let mut server = Server::new(args, &node, &group, requests, interrupt);
        let ended = server.serve();
        server.summary();
        ended
    });
    group.leave();
    node.close();
    ended.map(|()| Outcome::Fine)
}

struct Server<'a> {
    args: &'a Args,
    node: &'a Node,
    group: &'a Group,
    interrupt: &'a Interrupt,
    program: Program,
    ring: RingWatch,
    requests: Requests,
    lock: Right<'a>,
    waiting: VecDeque<Request>,
    running: BTreeMap<RequestId, Running>,
    replies: VecDeque<(RequestId, Vec<u8>)>,
    to: Sender<Done>,
    done: Receiver<Done>,
    counts: Counts,
}

#[derive(Debug)]
struct Running {
    process: u32,
    /// Time of the next signal: first SIGTERM, then SIGKILL.
    end_at: Option<Instant>,
    /// `true` once SIGTERM has been sent.
    is_late: bool,
}

enum Right<'a> {
    Asked(Pin<Box<dyn Future<Output = Result<Lock, LockError>> + 'a>>),
    Held(Lock),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    replied: u64,
    failed: u64,
    /// Failed commands that exceeded `--timeout`. Included in `failed`.
    ended: u64,
    /// Replies that came too late, because another server had replied or the caller no longer
    /// waited.
    late: u64,
    refused: u64,
}

impl<'a> Server<'a> {
    fn new(
        args: &'a Args,
        node: &'a Node,
        group: &'a Group,
        requests: Requests,
        interrupt: &'a Interrupt,
    ) -> Self {
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
            requests,
            lock: Right::asked(group, args.handler),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            replies: VecDeque::new(),
            to,
            done,
            counts: Counts::default(),
        }
    }

    /// Serves until it is interrupted. A second interrupt request also ends running commands.
    fn serve(&mut self) -> Result<(), CliError> {
        loop {
            let asked = self.interrupt.count();
            let is_idle = self.running.is_empty() && self.replies.is_empty();
            if asked > 1 || (asked == 1 && is_idle) {
                return Ok(());
            }
            self.take_requests()?;
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

    /// Handles pending events and requests. Waits up to 5 ms for the first request.
    fn take_requests(&mut self) -> Result<(), CliError> {
        let mut patience = STEP;
        let mut is_open = ring::drain(self.group, &mut self.ring);
        while is_open {
            match waiting::within(self.requests.recv(), patience) {
                Some(Some(request)) => self.on_request(request),
                Some(None) => is_open = false,
                None => return Ok(()),
            }
            patience = Duration::ZERO;
        }
        Err(node::closed(self.node, &self.args.group))
    }

    fn see_to_lock(&mut self) -> Result<(), CliError> {
        let (handler, name) = (self.args.handler.number(), &self.args.group);
        match &mut self.lock {
            Right::Held(lock) if lock.is_held() => {}
            Right::Held(_) => {
                output::say(format_args!(
                    "stopped serving handler {handler} of {name}: another server may take over"
                ));
                self.lock = Right::asked(self.group, self.args.handler);
            }
            Right::Asked(asked) => {
                match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(lock)) => {
                        output::say(format_args!("serving handler {handler} of {name}"));
                        self.lock = Right::Held(lock);
                    }
                    // This node has rejoined as a new member, so its new request is last in the
                    // queue.
                    Poll::Ready(Err(LockError::Lost)) => {
                        self.lock = Right::asked(self.group, self.args.handler);
                    }
                    Poll::Ready(Err(error)) => {
                        let cause = format!("handler {handler} of {name}: {error}");
                        return Err(CliError::new(cause, "check the network with `carom doctor`"));
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
            let why = format!("{MOST_WAITING} requests are already waiting");
            return self.reply(request.id, Reply::failure(FAILED, &why));
        }
        self.waiting.push_back(request);
    }

    /// Starts commands for waiting requests, up to `--jobs`. Fails if the program can never be run:
    /// the next server then takes over and gets the request.
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
                    let why = format!("cannot run '{program}': {}", plain(&error));
                    output::say(format_args!("{why}"));
                    self.reply(request.id, Reply::failure(NOT_RUN, &why));
                }
            }
        }
        Ok(())
    }

    fn on_done(&mut self, done: Done) {
        // A command that was given up is no longer in the map, because its request already has a
        // reply.
        let Some(running) = self.running.remove(&done.request) else { return };
        let code = if running.is_late { LATE } else { done.reply.code };
        self.reply(done.request, Reply { code, ..done.reply });
    }

    /// Sends SIGTERM to commands that exceed `--timeout`, and SIGKILL after the grace period. A
    /// killed command gets a reply at once, because other processes may keep its output open.
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
                "request {} from {}: code {}",
                request.number, request.caller, reply.code
            ));
        }
        self.replies.push_back((request, reply.into_bytes()));
    }

    fn send_replies(&mut self) {
        while let Some((request, payload)) = self.replies.pop_front() {
            match self.group.reply(request, payload.clone()) {
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
            "replied to {} of {name}: the command failed {} ({} timed out); {} refused, {} too \
             late",
            counted(replied, "request"),
            counted(failed, "time"),
            ended,
            counted(refused, "request"),
            counted(late, "reply")
        ));
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.signal(Signal::SIGTERM));
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        if let Ok(process) = i32::try_from(self.process) {
            // The command may have ended already.
            let _ = killpg(Pid::from_raw(process), signal);
        }
    }
}

impl<'a> Right<'a> {
    fn asked(group: &'a Group, handler: Handler) -> Self {
        Self::Asked(Box::pin(group.as_async().lock(handler)))
    }
}

const STEP: Duration = Duration::from_millis(5);
const MOST_WAITING: usize = 1024;
/// Time between SIGTERM and SIGKILL for a command that exceeds `--timeout`.
const GRACE: Duration = Duration::from_secs(2);
/// Exit code of a command that exceeds `--timeout`, the same as in timeout(1).
const LATE: u8 = 124;
/// Exit code of a command that cannot be run, the same as in a shell.
const NOT_RUN: u8 = 126;
const EXAMPLE: &str = "Examples:
  carom serve quotes -- ./quote.sh
  carom serve quotes --handler 2 --jobs 1 --timeout 5s -- sh -c 'tr a-z A-Z'
  echo hello | carom call quotes                 in another terminal

Start it on several machines: one replies, and the next one takes over when it ends or dies. That
server repeats unfinished requests, with CAROM_MAY_BE_DONE=1 in the environment of the command. The
environment also has CAROM_GROUP, CAROM_CALLER, and CAROM_REQUEST. A reply includes the exit code of
the command.

Give --quorum-of N to all members: without it, servers that cannot reach each other, such as those
on machines that start separately, each reply.

A command that runs longer than --timeout gets SIGTERM, with all processes that it has started, and
SIGKILL 2 s later. The reply has code 124. The request is not passed to another server, where it
would take as long again.

A server whose program no longer exists, or cannot be executed, exits, so that the next one takes
over.

Exit codes: 0 ended with Ctrl-C, 2 usage or environment error";
