mod bed;
pub(super) mod latency;
pub(super) mod throughput;
