//! Jobs: runs that are independent of each other. Several experiments can share one.

use std::fmt;

use crate::cluster::{BulkOutcome, BulkRun, StreamOutcome, StreamRun};
use crate::cost::{CostOutcome, CostRun};
use crate::ends::Ends;
use crate::lateral::{LateralOutcome, LateralRun, SrmOutcome, SrmRun};
use crate::ordered::{PingPongOutcome, PingPongRun, TransferOutcome, TransferRun};
use crate::service::{ServiceOutcome, ServiceRun};

/// Independent run. Equal jobs run once.
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
    /// A stream in a data center, with events such as failures.
    Stream(StreamRun),
    /// Processor time, measured while no other job runs.
    Cost(CostRun),
}

/// Outcome of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// Outcome of [`Job::Lateral`].
    Lateral(LateralOutcome),
    /// Outcome of [`Job::Srm`].
    Srm(SrmOutcome),
    /// Outcome of [`Job::Service`].
    Service(ServiceOutcome),
    /// Outcome of [`Job::Transfer`].
    Transfer(TransferOutcome),
    /// Outcome of [`Job::PingPong`].
    PingPong(PingPongOutcome),
    /// Outcome of [`Job::Bulk`].
    Bulk(BulkOutcome),
    /// Outcome of [`Job::Stream`].
    Stream(StreamOutcome),
    /// Outcome of [`Job::Cost`].
    Cost(CostOutcome),
}

impl Job {
    /// Runs the job. Returns `None` if it is ended early.
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

    /// Estimates the duration relative to other jobs, as the number of data packets and repairs
    /// handled.
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

    /// Returns `true` if no other job may run at the same time.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Cost(_))
    }
}

impl Outcome {
    /// Returns the outcome of [`Job::Lateral`].
    ///
    /// # Panics
    /// Panics if it is the outcome of another kind of job. Experiments get the outcomes of their
    /// own jobs.
    pub(crate) fn lateral(&self) -> &LateralOutcome {
        match self {
            Self::Lateral(outcome) => outcome,
            other => panic!("not the outcome of a lateral run: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::Srm`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
    pub(crate) fn srm(&self) -> &SrmOutcome {
        match self {
            Self::Srm(outcome) => outcome,
            other => panic!("not the outcome of a run of SRM: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::Service`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
    pub(crate) fn service(&self) -> &ServiceOutcome {
        match self {
            Self::Service(outcome) => outcome,
            other => panic!("not the outcome of a service: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::Transfer`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
    pub(crate) fn transfer(&self) -> &TransferOutcome {
        match self {
            Self::Transfer(outcome) => outcome,
            other => panic!("not the outcome of a transfer: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::PingPong`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
    pub(crate) fn ping_pong(&self) -> &PingPongOutcome {
        match self {
            Self::PingPong(outcome) => outcome,
            other => panic!("not the outcome of a ping-pong: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::Bulk`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
    pub(crate) fn bulk(&self) -> &BulkOutcome {
        match self {
            Self::Bulk(outcome) => outcome,
            other => panic!("not the outcome of a file in a data center: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::Stream`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
    pub(crate) fn stream(&self) -> &StreamOutcome {
        match self {
            Self::Stream(outcome) => outcome,
            other => panic!("not the outcome of a stream in a data center: {other:?}"),
        }
    }

    /// Returns the outcome of [`Job::Cost`].
    ///
    /// # Panics
    /// Like [`Outcome::lateral`].
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
