//! Runs of the lateral engine: nodes that send at one rate, and the outcome of each lost packet.

mod churn;
mod guest;
mod ledger;
mod member;
mod membership;
mod run;
mod sending;
mod stays;

pub(crate) use churn::{Churn, Views};
pub(crate) use guest::{Guest, GuestOutcome, GuestRun};
pub(crate) use ledger::GroupOutcome;
pub(crate) use membership::{Groups, Membership, group_id, node_id};
pub(crate) use run::{LateralOutcome, LateralRun, Length, Variant};
