//! One host: its engine, the state of its application, and the events that it received.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{
    Answer, LockChange, LockName, LockNews, Place, Request, RequestId, RingView,
};
use carom_proto::rmp::Rmp;
use carom_proto::{Confirmed, Lost, NodeId, Time};

/// One process of one host. A restart creates another `Host`.
pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) engine: Rmp,
    pub(crate) is_alive: bool,
    pub(crate) is_paused: bool,
    pub(crate) is_joined: bool,
    pub(crate) is_free_at: Time,
    pub(crate) is_without_multicast: bool,
    /// Time by which the clock of this host is ahead of the other clocks.
    pub(crate) ahead: Duration,
    /// `true` if the host was a member and left on its own request.
    pub(crate) has_left: bool,
    pub(crate) story: Vec<Told>,
    pub(crate) sent: u32,
    pub(crate) wanted: BTreeSet<LockName>,
    pub(crate) held: BTreeSet<LockName>,
    pub(crate) calls: BTreeMap<RequestId, Bytes>,
    pub(super) work: BTreeMap<(Time, RequestId), Bytes>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Message { sender: NodeId, payload: Bytes, place: Option<Place> },
    Stable { up_to: Place },
    View { view: RingView, place: Place },
    Lock { news: LockNews },
    Request { request: Request },
    Answer { answer: Answer },
    Confirmed { safe: Confirmed },
    Lost { lost: Lost },
    Minority,
    Waiting { voters: usize, needed: usize },
    Full { voters: usize },
    Removed,
    Rejoined { missed: Option<u64> },
}

impl Host {
    pub(crate) fn select<'a, T>(&'a self, pick: impl Fn(&'a Told) -> Option<T>) -> Vec<T> {
        self.story.iter().filter_map(pick).collect()
    }

    /// Applies a lock event, which must belong to the host's last request unless the host has left.
    pub(super) fn on_lock(&mut self, news: LockNews) -> Told {
        let is_wanted = self.wanted.contains(&news.name);
        match news.change {
            LockChange::Granted { .. } => {
                assert!(is_wanted || self.has_left, "{:?} does not want {news:?}", self.id);
                if is_wanted {
                    self.held.insert(news.name);
                }
            }
            LockChange::Released => {
                assert!(!is_wanted, "{:?} has not released it: {news:?}", self.id);
            }
            LockChange::Refused { .. } | LockChange::Lost => {
                self.wanted.remove(&news.name);
                self.held.remove(&news.name);
            }
        }
        Told::Lock { news }
    }
}
