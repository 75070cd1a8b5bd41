//! Experiments of the paper on RMP.

mod bed;
pub(super) mod latency;
pub(super) mod throughput;
