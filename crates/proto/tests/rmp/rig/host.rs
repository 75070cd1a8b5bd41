//! One host: its engine, what its application has and wants, and what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use carom_proto::rmp::{
    Answer, LockChange, LockName, LockNews, Place, Request, RequestId, RingView, Rmp,
};
use carom_proto::{Lost, NodeId, Safe, Time};

/// One process of one host; a restart makes another host.
pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) engine: Rmp,
    pub(crate) is_alive: bool,
    pub(crate) is_paused: bool,
    pub(crate) is_joined: bool,
    /// When its link is free again.
    pub(crate) is_free_at: Time,
    /// It neither sends nor hears multicast.
    pub(crate) is_without_multicast: bool,
    /// What its clock is ahead of the others'.
    pub(crate) ahead: Duration,
    /// It was a member and is none any more, by its own will.
    pub(crate) has_left: bool,
    pub(crate) story: Vec<Told>,
    pub(crate) sent: u32,
    /// Locks that it wants, or has.
    pub(crate) wanted: BTreeSet<LockName>,
    /// Locks that it may use now.
    pub(crate) held: BTreeSet<LockName>,
    /// Requests made, each with what was asked.
    pub(crate) calls: BTreeMap<RequestId, Bytes>,
    /// Requests that it works at, and when it is done.
    pub(super) work: BTreeMap<(Time, RequestId), Bytes>,
}

/// What an application was told, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Message { sender: NodeId, payload: Bytes, place: Option<Place> },
    Stable { up_to: Place },
    View { view: RingView, place: Place },
    Lock { news: LockNews },
    Request { request: Request },
    Answer { answer: Answer },
    Safe { safe: Safe },
    Lost { lost: Lost },
    Minority,
    Waiting { voters: usize, needed: usize },
    Full { voters: usize },
    Removed,
    Rejoined { missed: Option<u64> },
}

impl Host {
    /// What is told is about the last that was asked, unless that was to leave.
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
