//! Jobs: runs that are independent of each other. Several experiments can share one.

use std::fmt;

use crate::cluster::{BulkOutcome, BulkRun, StreamOutcome, StreamRun};
use crate::cost::{CostOutcome, CostRun};
use crate::ends::Ends;
use crate::lateral::{LateralOutcome, LateralRun, SrmOutcome, SrmRun};
use crate::ordered::{PingPongOutcome, PingPongRun, TransferOutcome, TransferRun};
use crate::service::{ServiceOutcome, ServiceRun};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Job {
    Lateral(LateralRun),
    Srm(SrmRun),
    Service(ServiceRun),
    Transfer(TransferRun),
    PingPong(PingPongRun),
    Bulk(BulkRun),
    Stream(StreamRun),
    /// Processor time, measured while no other job runs.
    Cost(CostRun),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Lateral(LateralOutcome),
    Srm(SrmOutcome),
    Service(ServiceOutcome),
    Transfer(TransferOutcome),
    PingPong(PingPongOutcome),
    Bulk(BulkOutcome),
    Stream(StreamOutcome),
    Cost(CostOutcome),
}

impl Job {
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

    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Cost(_))
    }
}

/// Each method panics if this is the outcome of another kind of job: experiments get the outcomes
/// of their own jobs.
impl Outcome {
    pub(crate) fn lateral(&self) -> &LateralOutcome {
        let Self::Lateral(outcome) = self else {
            panic!("not the outcome of a lateral run: {self:?}")
        };
        outcome
    }

    pub(crate) fn srm(&self) -> &SrmOutcome {
        let Self::Srm(outcome) = self else { panic!("not the outcome of a run of SRM: {self:?}") };
        outcome
    }

    pub(crate) fn service(&self) -> &ServiceOutcome {
        let Self::Service(outcome) = self else { panic!("not the outcome of a service: {self:?}") };
        outcome
    }

    pub(crate) fn transfer(&self) -> &TransferOutcome {
        let Self::Transfer(outcome) = self else {
            panic!("not the outcome of a transfer: {self:?}")
        };
        outcome
    }

    pub(crate) fn ping_pong(&self) -> &PingPongOutcome {
        let Self::PingPong(outcome) = self else {
            panic!("not the outcome of a ping-pong: {self:?}")
        };
        outcome
    }

    pub(crate) fn bulk(&self) -> &BulkOutcome {
        let Self::Bulk(outcome) = self else {
            panic!("not the outcome of a file in a data center: {self:?}")
        };
        outcome
    }

    pub(crate) fn stream(&self) -> &StreamOutcome {
        let Self::Stream(outcome) = self else {
            panic!("not the outcome of a stream in a data center: {self:?}")
        };
        outcome
    }

    pub(crate) fn cost(&self) -> &CostOutcome {
        let Self::Cost(outcome) = self else { panic!("not a measurement: {self:?}") };
        outcome
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
