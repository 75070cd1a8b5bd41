//! Selects the owner of a partition.
//!
//! The method is highest random weight: a process that starts or ends moves only its own share
//! (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998).

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::net::SocketAddr;

use siphasher::sip::SipHasher13;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(super) address: SocketAddr,
    /// Revision at which the process registered.
    pub(super) since: i64,
}

/// Returns the lease of the process that is entitled to `partition`.
///
/// The result is the same in every process. A process restarted at the same address gets its old
/// share. Of two processes with the same address, the later one wins.
pub(super) fn entitled(partition: u16, processes: &BTreeMap<i64, Registered>) -> Option<i64> {
    let weigh = |process: &Registered| (weight(partition, process.address), process.since);
    let heaviest = processes.iter().max_by_key(|(_, process)| weigh(process));
    heaviest.map(|(lease, _)| *lease)
}

/// Returns the weight of a process for a partition. It must be the same in every process and every
/// version: processes that disagree would pass the partition back and forth.
fn weight(partition: u16, address: SocketAddr) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&partition.to_be_bytes());
    hasher.write(address.to_string().as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(count: i64) -> BTreeMap<i64, Registered> {
        let process = |lease| {
            let address = SocketAddr::from(([10, 0, 0, lease as u8], 7402));
            (lease, Registered { address, since: lease })
        };
        (1..=count).map(process).collect()
    }

    #[test]
    fn every_process_has_a_share_and_a_leave_moves_only_its_own() {
        let three = processes(3);
        let before: Vec<i64> = (0..256).filter_map(|it| entitled(it, &three)).collect();
        for lease in three.keys() {
            let share = before.iter().filter(|owner| *owner == lease).count();
            assert!((40..130).contains(&share), "{share} of 256 partitions");
        }
        let two = processes(2);
        for (partition, owner) in (0..).zip(&before).filter(|(_, owner)| **owner != 3) {
            assert_eq!(entitled(partition, &two), Some(*owner));
        }
    }

    #[test]
    fn restarted_process_gets_its_share_during_the_old_lease() {
        let mut processes = processes(3);
        let before: Vec<Option<i64>> = (0..64).map(|it| entitled(it, &processes)).collect();
        let again = Registered { since: 9, ..processes[&2] };
        processes.insert(77, again);
        for (partition, owner) in (0..).zip(before) {
            let expected = if owner == Some(2) { Some(77) } else { owner };
            assert_eq!(entitled(partition, &processes), expected);
        }
    }

    #[test]
    fn weights_are_those_of_every_version() {
        let address = SocketAddr::from(([10, 0, 0, 5], 7402));
        assert_eq!(weight(0, address), GOLDEN[0]);
        assert_eq!(weight(4095, address), GOLDEN[1]);
    }

    /// Changing these values would make processes of two versions compete for partitions.
    const GOLDEN: [u64; 2] = [8_937_778_348_760_444_406, 5_081_428_328_339_752_498];
}
