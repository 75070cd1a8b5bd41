//! The thread that drives nodes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::thread::{self, JoinHandle, ThreadId};

use carom_proto::Time;
use mio::{Events, Poll, Token, Waker};

use crate::alarms::Alarms;
use crate::clock::Clock;
use crate::command::{Command, NodeCommand};
use crate::host::Host;
use crate::receive::Landing;
use crate::timer::{Timer, sharpen};
use crate::udp::{TOKENS, UdpNetwork};

/// Thread that drives nodes: it owns their sockets and their state, so that packets are never
/// passed between threads.
///
/// Each node has its own driver unless it is started [on](crate::Builder::on) a shared one. Share a
/// driver between nodes to save threads; give each node its own for the lowest latency. The thread
/// ends with the last handle of the driver and of its nodes.
#[derive(Debug)]
pub struct Driver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Unbounded, but each handle has at most one request in flight, and one for its end.
    commands: Option<Sender<Command>>,
    waker: Waker,
    clock: Clock,
    alarms: Arc<Alarms>,
    next_key: AtomicUsize,
    thread: Option<JoinHandle<()>>,
    thread_id: ThreadId,
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system refuses the poll, the timer or the thread.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let timer = Timer::new(poll.registry(), TIMER)?;
        let (commands, receiver) = channel();
        let (clock, alarms) = (Clock::new(), Arc::new(Alarms::default()));
        let work = Loop {
            poll,
            timer,
            commands: receiver,
            clock,
            alarms: Arc::clone(&alarms),
            landing: Landing::new(),
            hosts: BTreeMap::new(),
            has_more_commands: false,
            is_let_go: false,
        };
        let thread = thread::Builder::new().name("carom".into()).spawn(|| work.run())?;
        let shared = Shared {
            commands: Some(commands),
            waker,
            clock,
            alarms,
            next_key: AtomicUsize::new(0),
            thread_id: thread.thread().id(),
            thread: Some(thread),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns another handle to the same thread.
    pub(crate) fn share(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }

    /// Returns `true` if the caller runs on the driver's thread, which must not wait for itself.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.shared.is_this_thread()
    }

    /// Attaches a node to the thread and returns its key. Returns `None` if the thread has stopped.
    pub(crate) fn attach(&self, host: Host<UdpNetwork>) -> Option<io::Result<usize>> {
        let key = self.shared.next_key.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = sync_channel(1);
        self.command(Command::Attach { key, host: Box::new(host), reply });
        answer.recv().ok().map(|attached| attached.map(|()| key))
    }

    /// Sends a command. If the thread has stopped, the command is dropped, which wakes callers that
    /// wait for its reply.
    pub(crate) fn command(&self, command: Command) {
        if let Some(commands) = &self.shared.commands {
            let _ = commands.send(command);
            self.wake();
        }
    }

    /// Returns the time of the clock of the nodes on this thread.
    pub(crate) fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Returns the timers of tasks that sleep by that clock.
    pub(crate) fn alarms(&self) -> &Alarms {
        &self.shared.alarms
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.shared.waker.wake() {
            tracing::warn!("the driver cannot be woken: {error}");
        }
    }
}

impl Shared {
    fn is_this_thread(&self) -> bool {
        thread::current().id() == self.thread_id
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread ends when all senders of commands are gone.
        self.commands = None;
        let woken = self.waker.wake().is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken && !self.is_this_thread()) {
            // A panic of the thread was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Loop {
    /// Also runs after a panic. Otherwise sleeping tasks would never be woken.
    fn drop(&mut self) {
        self.alarms.close();
    }
}

/// State of the driver thread.
struct Loop {
    poll: Poll,
    timer: Timer,
    commands: Receiver<Command>,
    clock: Clock,
    alarms: Arc<Alarms>,
    landing: Landing,
    hosts: BTreeMap<usize, Host<UdpNetwork>>,
    has_more_commands: bool,
    /// `true` when no handles are left.
    is_let_go: bool,
}

impl Loop {
    fn run(mut self) {
        sharpen();
        let mut events = Events::with_capacity(EVENTS);
        loop {
            if let Err(error) = self.wait(&mut events) {
                tracing::error!("the driver cannot wait for its sockets: {error}");
                return;
            }
            for event in &events {
                let Some(place) = event.token().0.checked_sub(FIRST_HOST) else { continue };
                if let Some(host) = self.hosts.get_mut(&(place / TOKENS)) {
                    host.on_socket(place % TOKENS, event.is_writable());
                }
            }
            if !self.is_let_go && !self.take_commands() {
                self.let_all_go();
            }
            // A node that was closed by a task on this thread has no waiting caller. It still
            // leaves its rings in order.
            if self.is_let_go && self.hosts.is_empty() {
                return;
            }
            let now = self.clock.now();
            self.alarms.ring(now);
            let mut ending = Vec::new();
            for (key, host) in self.hosts.iter_mut().filter(|(_, host)| host.has_work(now)) {
                host.turn(&self.clock, &mut self.landing, self.poll.registry());
                ending.extend(host.is_closing().then_some(*key));
            }
            for key in ending {
                self.let_go(now, key);
            }
        }
    }

    /// Closes all nodes, as no handle is left to use them, including nodes that were never closed.
    fn let_all_go(&mut self) {
        self.is_let_go = true;
        let now = self.clock.now();
        let keys: Vec<usize> = self.hosts.keys().copied().collect();
        for key in keys {
            if let Some(host) = self.hosts.get_mut(&key).filter(|host| !host.is_closing()) {
                let (reply, _) = async_channel::bounded(1);
                host.command(now, NodeCommand::Close { reply });
            }
            self.let_go(now, key);
        }
    }

    /// Removes a node that has closed.
    fn let_go(&mut self, now: Time, key: usize) {
        let Some(host) = self.hosts.get_mut(&key) else { return };
        if let Some(reply) = host.closed(now) {
            host.carry_links(now, self.poll.registry());
            host.network.flush();
            self.hosts.remove(&key);
            let _ = reply.try_send(());
        }
    }

    /// Waits for a socket, a command or a timer.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let now = self.clock.now();
        let due: Option<Time> = match self.has_more_commands {
            true => Some(now),
            false => {
                let hosts = self.hosts.values().filter_map(|host| host.wakeup(now));
                hosts.chain(self.alarms.next()).min()
            }
        };
        let timeout = self.timer.arm(now, due)?;
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            result => result,
        }
    }

    /// Executes a limited number of commands, so that threads that send commands continuously do
    /// not starve the sockets. Returns `false` if no more commands can arrive.
    fn take_commands(&mut self) -> bool {
        self.has_more_commands = false;
        for _ in 0..COMMANDS_PER_TURN {
            match self.commands.try_recv() {
                Ok(Command::Attach { key, mut host, reply }) => {
                    let token = FIRST_HOST + key * TOKENS;
                    let result = host.attach(self.clock.now(), self.poll.registry(), token);
                    if result.is_ok() {
                        self.hosts.insert(key, *host);
                    }
                    let _ = reply.send(result);
                }
                Ok(Command::Node { key, command }) => {
                    let Some(host) = self.hosts.get_mut(&key) else { continue };
                    #[cfg(test)]
                    assert!(!matches!(command, NodeCommand::Panic), "asked for");
                    let now = self.clock.now();
                    host.command(now, command);
                    self.let_go(now, key);
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        self.has_more_commands = true;
        true
    }
}

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
const FIRST_HOST: usize = 2;
/// Maximum number of commands between two turns of the nodes.
const COMMANDS_PER_TURN: usize = 16;
/// Maximum number of events per poll. The rest is returned by the next poll.
const EVENTS: usize = 256;
