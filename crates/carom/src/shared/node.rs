use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::{Receiver, Sender};
use carom_proto::NodeId;

use super::notices::NoticeLog;
use super::send_queue::ReadyList;
use super::status::Status;

#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) ready: ReadyList,
    pub(crate) notices: Arc<NoticeLog>,
    is_settled: AtomicBool,
    is_away: AtomicBool,
    endpoint: Mutex<SocketAddr>,
    /// Channel that closes when the node has settled or is closed.
    settling: Receiver<()>,
    first_status: Status,
}

impl NodeState {
    pub(crate) fn new(first_status: Status, notices: Arc<NoticeLog>) -> (Self, Sender<()>) {
        let (latch, settling) = async_channel::bounded(1);
        let state = Self {
            ready: ReadyList::default(),
            notices,
            is_settled: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            endpoint: Mutex::new(first_status.endpoint),
            settling,
            first_status,
        };
        (state, latch)
    }

    pub(crate) fn id(&self) -> NodeId {
        self.first_status.id
    }

    pub(crate) fn endpoint(&self) -> SocketAddr {
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_endpoint(&self, endpoint: SocketAddr) {
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = endpoint;
    }

    pub(crate) fn first_status(&self) -> Status {
        Status { endpoint: self.endpoint(), ..self.first_status.clone() }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::SeqCst)
    }

    pub(crate) fn set_settled(&self) {
        self.is_settled.store(true, Ordering::SeqCst);
    }

    pub(crate) async fn settling(&self) {
        let _ = self.settling.recv().await;
    }

    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }
}
