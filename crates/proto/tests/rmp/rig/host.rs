//! One host: its engine, the state of its application, and the events that it was given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{
    Answer, LockChange, LockName, LockNews, Place, Request, RequestId, RingView,
};
use carom_proto::rmp::Rmp;
use carom_proto::{Confirmed, Lost, NodeId, Time};

/// One process of one host. A restart makes another `Host`.
pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) engine: Rmp,
    pub(crate) is_alive: bool,
    pub(crate) is_paused: bool,
    pub(crate) is_joined: bool,
    /// Time at which its link is free again.
    pub(crate) is_free_at: Time,
    /// `true` if it neither sends nor receives multicast.
    pub(crate) is_without_multicast: bool,
    /// Time by which its clock is ahead of the others' clocks.
    pub(crate) ahead: Duration,
    /// `true` if it was a member and left on its own request.
    pub(crate) has_left: bool,
    pub(crate) story: Vec<Told>,
    pub(crate) sent: u32,
    /// Locks that it has requested or holds.
    pub(crate) wanted: BTreeSet<LockName>,
    /// Locks that it may use now.
    pub(crate) held: BTreeSet<LockName>,
    /// Payloads of its requests.
    pub(crate) calls: BTreeMap<RequestId, Bytes>,
    /// Replies that it prepares, by the time at which they are due.
    pub(super) work: BTreeMap<(Time, RequestId), Bytes>,
}

/// Event that an application was given.
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

    /// Applies a lock event. It concerns the last request of the host, unless the host has left.
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
                assert!(!is_wanted, "{:?} has not given it back: {news:?}", self.id);
            }
            LockChange::Refused { .. } | LockChange::Lost => {
                self.wanted.remove(&news.name);
                self.held.remove(&news.name);
            }
        }
        Told::Lock { news }
    }
}
