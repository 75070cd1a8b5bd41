//! Driver of a client of the registry in its own thread: a failure detector or an observer.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::Client;
use carom_proto::wire::Datagram;
use carom_proto::{Destination, Endpoint, Time, Transmit};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::error::RegistryError;
use crate::links::{Arrival, Links};

/// Thread that runs a client of the registry. Dropping it sends the goodbyes and ends the thread.
#[derive(Debug)]
pub(crate) struct Driver<M> {
    machine: Arc<Mutex<M>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct EventLoop<M> {
    machine: Arc<Mutex<M>>,
    socket: Option<UdpSocket>,
    links: Links,
    opening: BTreeMap<LinkId, AbortHandle>,
    opened: mpsc::UnboundedSender<Opened>,
    begun: Instant,
}

struct Opened {
    link: LinkId,
    result: std::io::Result<TcpStream>,
}

/// Maximum number of arrivals, or of datagrams, handled before the machine's commands are polled.
const BATCH: usize = 64;
/// Size of the receive buffer, in bytes. It is larger than any ping.
const DATAGRAM_BYTES: usize = 2048;
const STOP_WITHIN: Duration = Duration::from_millis(500);

impl<M: Client + Send + 'static> Driver<M> {
    pub(crate) fn start(
        name: &str,
        machine: M,
        socket: Option<StdSocket>,
    ) -> Result<Self, RegistryError> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(RegistryError::Start)?;
        let socket = socket.map(|socket| register(&runtime, socket)).transpose();
        let socket = socket.map_err(RegistryError::Start)?;
        let machine = Arc::new(Mutex::new(machine));
        let (links, arrivals) = Links::new();
        let (opened, openings) = mpsc::unbounded_channel();
        let (stop_sender, stop) = oneshot::channel();
        let event_loop = EventLoop {
            machine: Arc::clone(&machine),
            socket,
            links,
            opening: BTreeMap::new(),
            opened,
            begun: Instant::now(),
        };
        let drive = move || runtime.block_on(event_loop.run(arrivals, openings, stop));
        let thread = thread::Builder::new().name(name.into()).spawn(drive);
        let thread = Some(thread.map_err(RegistryError::Start)?);
        Ok(Self { machine, stop: Some(stop_sender), thread })
    }

    /// Locks the machine. The event loop waits until the guard is dropped.
    pub(crate) fn machine(&self) -> MutexGuard<'_, M> {
        locked(&self.machine)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(crate) fn stop(&mut self) -> Result<(), RegistryError> {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended already.
            let _ = stop.send(());
        }
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| RegistryError::Panicked)
    }
}

impl<M> Drop for Driver<M> {
    fn drop(&mut self) {
        // Dropping the sender also stops the loop.
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The panic was already reported by the thread.
            let _ = thread.join();
        }
    }
}

impl<M: Client> EventLoop<M> {
    async fn run(
        mut self,
        mut arrivals: mpsc::Receiver<Arrival>,
        mut openings: mpsc::UnboundedReceiver<Opened>,
        mut stop: oneshot::Receiver<()>,
    ) {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            self.run_commands().await;
            let due = locked(&self.machine).poll_timeout().map(|due| self.instant(due.at));
            tokio::select! {
                Some(opened) = openings.recv() => self.on_opened(opened),
                Some(arrival) = arrivals.recv() => {
                    self.on_arrival(&arrival);
                    for _ in 1..BATCH {
                        let Ok(arrival) = arrivals.try_recv() else { break };
                        self.on_arrival(&arrival);
                    }
                }
                () = readable(self.socket.as_ref()) => self.receive(&mut buffer),
                () = sleep_until(due) => {
                    let now = self.now();
                    locked(&self.machine).handle_timeout(now);
                }
                _ = &mut stop => break,
            }
        }
        locked(&self.machine).shut_down();
        self.run_commands().await;
        let _ = tokio::time::timeout(STOP_WITHIN, self.links.finish()).await;
    }

    async fn run_commands(&mut self) {
        loop {
            // The lock is released before any await.
            let command = locked(&self.machine).poll_link();
            let Some(command) = command else { break };
            match command {
                LinkCommand::Open { link, to } => self.open(link, to),
                LinkCommand::Send { link, bytes } => {
                    if let Err(why) = self.links.send(link, bytes) {
                        self.notify(link, LinkEvent::Closed { why });
                    }
                }
                LinkCommand::Close { link } => {
                    if let Some(attempt) = self.opening.remove(&link) {
                        attempt.abort();
                    }
                    self.links.close(link);
                }
            }
        }
        let mut datagram = Vec::new();
        loop {
            datagram.clear();
            let transmit = locked(&self.machine).poll_transmit(&mut datagram);
            let Some(Transmit { destination: Destination::Endpoint(to), .. }) = transmit else {
                break;
            };
            if let Some(socket) = &self.socket
                && let Err(error) = socket.send_to(&datagram, to.0).await
            {
                // Equivalent to loss on the network: the ping is repeated.
                tracing::debug!(%to, %error, "cannot send a ping");
            }
        }
    }

    fn open(&mut self, link: LinkId, to: Endpoint) {
        let opened = self.opened.clone();
        let attempt = tokio::spawn(async move {
            let result = TcpStream::connect(to.0).await;
            // The loop may have ended.
            let _ = opened.send(Opened { link, result });
        });
        self.opening.insert(link, attempt.abort_handle());
    }

    fn on_opened(&mut self, Opened { link, result }: Opened) {
        // The attempt was closed while its result was in flight.
        if self.opening.remove(&link).is_none() {
            return;
        }
        match result {
            Ok(stream) => {
                self.links.add_as(link, stream);
                self.notify(link, LinkEvent::Opened);
            }
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::ConnectionRefused => LinkEnd::Refused,
                    _ => LinkEnd::Unreachable,
                };
                self.notify(link, LinkEvent::Closed { why });
            }
        }
    }

    fn on_arrival(&mut self, arrival: &Arrival) {
        if let Some((link, event)) = self.links.event_of(arrival) {
            self.notify(link, event);
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) {
        let Some(socket) = &self.socket else { return };
        for _ in 0..BATCH {
            let Ok((length, from)) = socket.try_recv_from(buffer) else { return };
            let Ok(datagram) = Datagram::parse(&buffer[..length]) else { continue };
            locked(&self.machine).handle_datagram(self.now(), Endpoint(from), &datagram);
        }
    }

    fn notify(&mut self, link: LinkId, event: LinkEvent<'_>) {
        let now = self.now();
        locked(&self.machine).handle_link(now, link, event);
    }

    fn now(&self) -> Time {
        Time(self.begun.elapsed().as_nanos() as u64)
    }

    fn instant(&self, at: Time) -> Instant {
        self.begun + Duration::from_nanos(at.0)
    }
}

pub(crate) fn bind(address: SocketAddr) -> Result<StdSocket, RegistryError> {
    let flag = "--listen";
    StdSocket::bind(address).map_err(|error| RegistryError::Listen { flag, address, error })
}

fn register(runtime: &Runtime, socket: StdSocket) -> std::io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    let _entered = runtime.enter();
    UdpSocket::from_std(socket)
}

/// Locks the machine, even if another thread panicked while it held the lock.
fn locked<M>(machine: &Mutex<M>) -> MutexGuard<'_, M> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a datagram can be received. An error counts as a datagram: receiving clears it.
async fn readable(socket: Option<&UdpSocket>) {
    match socket {
        Some(socket) => {
            let _ = socket.readable().await;
        }
        None => std::future::pending().await,
    }
}

pub(crate) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
