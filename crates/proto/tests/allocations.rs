//! Allocations of a warm engine: at most one for every ten packets that it receives.

#[path = "../benches/workload/mod.rs"]
mod workload;

use workload::Workload;

#[test]
fn a_warm_engine_allocates_at_most_once_per_received_packet() {
    for groups in [2, 64] {
        let mut workload = Workload::new(groups, 40_000, 1000);
        let mut delivered = 0;
        let before = workload.counters();
        let allocated = allocation_counter::measure(|| delivered = workload.run());
        let repairs = workload.counters().repairs_sent - before.repairs_sent;
        assert_eq!(delivered, 1000);
        assert!(repairs > 300, "the packets were put into repairs: {repairs}");
        // Payloads share reused chunks, so the count is far below one per packet. The remaining
        // allocations, if any, are for streams and bins that are used for the first time.
        let allocations = allocated.count_total;
        assert!(allocations <= 100, "{allocations} allocations for 1000 packets");
    }
}
