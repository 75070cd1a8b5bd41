//! Pieces of work: what can be done apart from everything else, and may be wanted by several
//! experiments.

use std::fmt;

use crate::cluster::{BulkOutcome, BulkRun, StreamOutcome, StreamRun};
use crate::cost::{CostOutcome, CostRun};
use crate::lateral::{LateralOutcome, LateralRun, SrmOutcome, SrmRun};
use crate::ordered::{PingPongOutcome, PingPongRun, TransferOutcome, TransferRun};
use crate::service::{ServiceOutcome, ServiceRun};

/// Whether the work is to end early.
pub(crate) type Ends<'a> = &'a (dyn Fn() -> bool + 'a);

/// A piece of work. Two that say the same are one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Job {
    /// The lateral engine in one setting.
    Lateral(LateralRun),
    /// SRM in the same setting.
    Srm(SrmRun),
    /// A replicated service.
    Service(ServiceRun),
    /// Files over a token ring.
    Transfer(TransferRun),
    /// Single messages over a token ring.
    PingPong(PingPongRun),
    /// A file to many receivers in a data center.
    Bulk(BulkRun),
    /// A stream in a data center in which something happens.
    Stream(StreamRun),
    /// Processor time, measured with nothing beside it.
    Cost(CostRun),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Of [`Job::Lateral`].
    Lateral(LateralOutcome),
    /// Of [`Job::Srm`].
    Srm(SrmOutcome),
    /// Of [`Job::Service`].
    Service(ServiceOutcome),
    /// Of [`Job::Transfer`].
    Transfer(TransferOutcome),
    /// Of [`Job::PingPong`].
    PingPong(PingPongOutcome),
    /// Of [`Job::Bulk`].
    Bulk(BulkOutcome),
    /// Of [`Job::Stream`].
    Stream(StreamOutcome),
    /// Of [`Job::Cost`].
    Cost(CostOutcome),
}

impl Job {
    /// Does it; `None` if it was ended early.
    pub(crate) fn run(&self, ends: Ends<'_>) -> Option<Outcome> {
        match self {
            Self::Lateral(run) => run.run(ends).map(Outcome::Lateral),
            Self::Srm(run) => run.run(ends).map(Outcome::Srm),
            Self::Service(run) => run.run(ends).map(Outcome::Service),
            Self::Transfer(run) => run.run(ends).map(Outcome::Transfer),
            Self::PingPong(run) => run.run(ends).map(Outcome::PingPong),
            Self::Bulk(run) => run.run(ends).map(Outcome::Bulk),
            Self::Stream(run) => run.run(ends).map(Outcome::Stream),
            Self::Cost(run) => run.run(ends).map(Outcome::Cost),
        }
    }

    /// How long it takes, roughly, beside others: data packets and repairs that are handled.
    pub(crate) fn cost(&self) -> f64 {
        match self {
            Self::Lateral(run) => run.deliveries(),
            Self::Srm(run) => 2.0 * run.run.deliveries(),
            Self::Service(run) => run.deliveries(),
            Self::Transfer(run) => run.deliveries(),
            Self::PingPong(run) => run.deliveries(),
            Self::Bulk(run) => run.deliveries(),
            Self::Stream(run) => run.deliveries(),
            Self::Cost(_) => 0.0,
        }
    }

    /// Whether it must have the machine to itself.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Cost(_))
    }
}

impl Outcome {
    /// The outcome of a run of the lateral engine.
    ///
    /// # Panics
    /// If it is that of other work: experiments get the outcomes of their own jobs.
    pub(crate) fn lateral(&self) -> &LateralOutcome {
        match self {
            Self::Lateral(outcome) => outcome,
            other => panic!("not the outcome of a lateral run: {other:?}"),
        }
    }

    /// The outcome of a run of SRM.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn srm(&self) -> &SrmOutcome {
        match self {
            Self::Srm(outcome) => outcome,
            other => panic!("not the outcome of a run of SRM: {other:?}"),
        }
    }

    /// The outcome of a replicated service.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn service(&self) -> &ServiceOutcome {
        match self {
            Self::Service(outcome) => outcome,
            other => panic!("not the outcome of a service: {other:?}"),
        }
    }

    /// The outcome of files over a token ring.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn transfer(&self) -> &TransferOutcome {
        match self {
            Self::Transfer(outcome) => outcome,
            other => panic!("not the outcome of a transfer: {other:?}"),
        }
    }

    /// The outcome of single messages over a token ring.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn ping_pong(&self) -> &PingPongOutcome {
        match self {
            Self::PingPong(outcome) => outcome,
            other => panic!("not the outcome of a ping-pong: {other:?}"),
        }
    }

    /// The outcome of a file in a data center.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn bulk(&self) -> &BulkOutcome {
        match self {
            Self::Bulk(outcome) => outcome,
            other => panic!("not the outcome of a file in a data center: {other:?}"),
        }
    }

    /// The outcome of a stream in a data center.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn stream(&self) -> &StreamOutcome {
        match self {
            Self::Stream(outcome) => outcome,
            other => panic!("not the outcome of a stream in a data center: {other:?}"),
        }
    }

    /// What a measurement of processor time gave.
    ///
    /// # Panics
    /// As [`Outcome::lateral`].
    pub(crate) fn cost(&self) -> &CostOutcome {
        match self {
            Self::Cost(outcome) => outcome,
            other => panic!("not a measurement: {other:?}"),
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lateral(run) => run.fmt(f),
            Self::Srm(run) => run.fmt(f),
            Self::Service(run) => run.fmt(f),
            Self::Transfer(run) => run.fmt(f),
            Self::PingPong(run) => run.fmt(f),
            Self::Bulk(run) => run.fmt(f),
            Self::Stream(run) => run.fmt(f),
            Self::Cost(run) => run.fmt(f),
        }
    }
}
