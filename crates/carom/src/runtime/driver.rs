use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::{self, JoinHandle, ThreadId};

use carom_proto::Time;
use mio::{Events, Poll, Token, Waker};

use super::clock::Clock;
use super::node_runtime::NodeRuntime;
use super::poll_timer::{PollTimer, sharpen};
use crate::net::receive::RecvBuffer;
use crate::net::udp::{TOKENS, UdpNetwork};
use crate::shared::commands::{NodeCommand, ReplySender};
use crate::shared::driver_handle::DriverHandle;
use crate::shared::timers::TimerQueue;

/// A thread that drives nodes and owns their sockets and state.
///
/// By default, each node has its own driver, for the lowest latency. To save threads, share a
/// driver between nodes with [`Builder::driver`](crate::Builder::driver). The thread ends when the
/// last handle of the driver and of its nodes is dropped.
#[derive(Debug)]
pub struct Driver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: Option<Sender<Command>>,
    waker: Waker,
    clock: Clock,
    timers: Arc<TimerQueue>,
    next_key: AtomicUsize,
    thread: Option<JoinHandle<()>>,
    thread_id: ThreadId,
}

struct ThreadHandle {
    driver: Driver,
    key: usize,
}

enum Command {
    Attach { key: usize, node: Box<NodeRuntime<UdpNetwork>>, reply: SyncSender<io::Result<()>> },
    Node { key: usize, command: NodeCommand },
}

impl Driver {
    /// Starts the thread of a driver.
    ///
    /// # Errors
    /// Returns an error if the operating system refuses the poll, the timer or the thread.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let timer = PollTimer::new(poll.registry(), TIMER)?;
        let (commands, receiver) = channel();
        let (clock, timers) = (Clock::new(), Arc::new(TimerQueue::default()));
        let work = Loop {
            poll,
            timer,
            commands: receiver,
            clock,
            timers: Arc::clone(&timers),
            buffer: RecvBuffer::new(),
            nodes: BTreeMap::new(),
            has_more_commands: false,
            is_abandoned: false,
        };
        let thread = thread::Builder::new().name("carom".into()).spawn(|| work.run())?;
        let shared = Shared {
            commands: Some(commands),
            waker,
            clock,
            timers,
            next_key: AtomicUsize::new(0),
            thread_id: thread.thread().id(),
            thread: Some(thread),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(crate) fn share(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }

    /// Hands a node to the thread. Returns `None` if the thread has stopped.
    pub(crate) fn attach(
        &self,
        node: NodeRuntime<UdpNetwork>,
    ) -> Option<io::Result<Arc<dyn DriverHandle>>> {
        let key = self.shared.next_key.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = sync_channel(1);
        self.command(Command::Attach { key, node: Box::new(node), reply });
        let driver = self.share();
        answer.recv().ok().map(|attached| {
            attached.map(|()| Arc::new(ThreadHandle { driver, key }) as Arc<dyn DriverHandle>)
        })
    }

    /// Sends a command. If the thread has stopped, the command is dropped, which wakes waiting
    /// callers.
    fn command(&self, command: Command) {
        if let Some(commands) = &self.shared.commands {
            let _ = commands.send(command);
            self.wake();
        }
    }

    fn wake(&self) {
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
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl DriverHandle for ThreadHandle {
    fn send(&self, command: NodeCommand) {
        self.driver.command(Command::Node { key: self.key, command });
    }

    fn wake(&self) {
        self.driver.wake();
    }

    fn timers_changed(&self) {
        self.driver.wake();
    }

    fn now(&self) -> Time {
        self.driver.shared.clock.now()
    }

    fn timers(&self) -> &TimerQueue {
        &self.driver.shared.timers
    }

    fn runs_without_caller(&self) -> bool {
        !self.driver.shared.is_this_thread()
    }

    fn may_block(&self) -> bool {
        true
    }
}

impl Drop for Loop {
    /// Closes the timers. This also runs after a panic, because sleeping tasks would never be woken
    /// otherwise.
    fn drop(&mut self) {
        self.timers.close();
    }
}

struct Loop {
    poll: Poll,
    timer: PollTimer,
    commands: Receiver<Command>,
    clock: Clock,
    timers: Arc<TimerQueue>,
    buffer: RecvBuffer,
    nodes: BTreeMap<usize, NodeRuntime<UdpNetwork>>,
    has_more_commands: bool,
    is_abandoned: bool,
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
                let Some(place) = event.token().0.checked_sub(FIRST_NODE) else { continue };
                if let Some(node) = self.nodes.get_mut(&(place / TOKENS)) {
                    node.on_socket(place % TOKENS, event.is_writable());
                }
            }
            if !self.is_abandoned && !self.take_commands() {
                self.close_all();
            }
            // If a task on this thread closes a node, no caller waits for it, but the node still
            // leaves its rings in order.
            if self.is_abandoned && self.nodes.is_empty() {
                return;
            }
            let now = self.clock.now();
            self.timers.wake_due(now);
            let mut ending = Vec::new();
            for (key, node) in self.nodes.iter_mut().filter(|(_, node)| node.has_work(now)) {
                node.turn(&self.clock, &mut self.buffer, self.poll.registry());
                ending.extend(node.is_closing().then_some(*key));
            }
            for key in ending {
                self.remove_closed(now, key);
            }
        }
    }

    /// Closes all nodes, even those that were never closed, because no handle can use them any
    /// more.
    fn close_all(&mut self) {
        self.is_abandoned = true;
        let now = self.clock.now();
        let keys: Vec<usize> = self.nodes.keys().copied().collect();
        for key in keys {
            if let Some(node) = self.nodes.get_mut(&key).filter(|node| !node.is_closing()) {
                let (reply, _) = ReplySender::channel();
                node.command(now, NodeCommand::Close { reply });
            }
            self.remove_closed(now, key);
        }
    }

    fn remove_closed(&mut self, now: Time, key: usize) {
        let Some(node) = self.nodes.get_mut(&key) else { return };
        if let Some(reply) = node.closed(now) {
            node.carry_links(now, self.poll.registry());
            node.flush();
            self.nodes.remove(&key);
            reply.send_if_wanted(());
        }
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let now = self.clock.now();
        let due: Option<Time> = match self.has_more_commands {
            true => Some(now),
            false => {
                let nodes = self.nodes.values().filter_map(|node| node.wakeup(now));
                nodes.chain(self.timers.next()).min()
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

    /// Executes a limited number of commands, so that the sockets do not starve. Returns `false` if
    /// all senders of commands are gone.
    fn take_commands(&mut self) -> bool {
        self.has_more_commands = false;
        for _ in 0..COMMANDS_PER_TURN {
            match self.commands.try_recv() {
                Ok(Command::Attach { key, mut node, reply }) => {
                    let token = FIRST_NODE + key * TOKENS;
                    let result = node.attach(self.clock.now(), self.poll.registry(), token);
                    if result.is_ok() {
                        self.nodes.insert(key, *node);
                    }
                    let _ = reply.send(result);
                }
                Ok(Command::Node { key, command }) => {
                    let Some(node) = self.nodes.get_mut(&key) else { continue };
                    #[cfg(test)]
                    assert!(!matches!(command, NodeCommand::Panic), "requested by a test");
                    let now = self.clock.now();
                    node.command(now, command);
                    self.remove_closed(now, key);
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
const FIRST_NODE: usize = 2;
const COMMANDS_PER_TURN: usize = 16;
const EVENTS: usize = 256;
