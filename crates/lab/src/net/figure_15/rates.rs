use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use carom_netns::{Error, Namespace};

/// Counters of the IP octets of a namespace.
pub(super) struct Octets(File);

/// Octets that a namespace has received and sent, including headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) received: u64,
    /// Octets received by multicast.
    pub(super) by_tree: u64,
    /// Octets sent by multicast.
    pub(super) multicast: u64,
}

impl Octets {
    pub(super) fn open(namespace: &Namespace) -> Result<io::Result<Self>, Error> {
        // An open file stays in the namespace of the thread that has opened it.
        namespace.enter(|| File::open("/proc/thread-self/net/netstat").map(Self))
    }

    pub(super) fn read(&self) -> io::Result<Count> {
        let mut text = vec![0; 65_536];
        let mut length = 0;
        loop {
            let read = self.0.read_at(&mut text[length..], length as u64)?;
            if read == 0 {
                break;
            }
            length += read;
        }
        Ok(parse(&String::from_utf8_lossy(&text[..length])))
    }
}

fn parse(text: &str) -> Count {
    let mut lines = text.lines().filter(|line| line.starts_with("IpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return Count::default();
    };
    let of = |name: &str| {
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        let value = pairs.find(|(it, _)| *it == name).and_then(|(_, value)| value.parse().ok());
        value.unwrap_or(0)
    };
    Count {
        received: of("InOctets"),
        by_tree: of("InMcastOctets"),
        multicast: of("OutMcastOctets"),
    }
}

/// Rates of one interval, in Mbit/s.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bin {
    /// Beginning and end, in seconds.
    pub(super) span: (f64, f64),
    pub(super) sent: f64,
    /// Rates received by tree and by overlay, for each receiver.
    pub(super) received: Vec<(f64, f64)>,
}

impl Bin {
    /// Computes the rates between two samples of the sender and of all receivers.
    pub(super) fn between(before: &(f64, Vec<Count>), after: &(f64, Vec<Count>)) -> Self {
        let seconds = (after.0 - before.0).max(1e-6);
        let rate = |octets: u64| octets as f64 * 8.0 / 1e6 / seconds;
        let counts: Vec<(&Count, &Count)> = before.1.iter().zip(&after.1).collect();
        let sent = counts.first().map_or(0, |(before, after)| after.multicast - before.multicast);
        let received = counts.iter().skip(1).map(|(before, after)| {
            let by_tree = after.by_tree - before.by_tree;
            let all = after.received - before.received;
            (rate(by_tree), rate(all.saturating_sub(by_tree)))
        });
        Self { span: (before.0, after.0), sent: rate(sent), received: received.collect() }
    }

    pub(super) fn total(&self, receiver: usize) -> f64 {
        let (by_tree, by_overlay) = self.received[receiver];
        by_tree + by_overlay
    }
}

/// Lowest share of the sending rate that a living receiver gets in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lowest {
    pub(super) share: f64,
    pub(super) at: f64,
    pub(super) receiver: usize,
    /// Number of pairs of an interval and a receiver, and of those below [`SHARE`].
    pub(super) pairs: usize,
    pub(super) below: usize,
}

/// Share of the sending rate that each living receiver must get in each interval.
pub(super) const SHARE: f64 = 0.9;

/// Judges the intervals from `from` on. `killed` is a receiver with the time of its death.
pub(super) fn lowest(bins: &[Bin], from: f64, killed: (usize, f64)) -> Option<Lowest> {
    let mut lowest: Option<Lowest> = None;
    for bin in bins.iter().filter(|bin| bin.span.0 >= from && bin.sent > 0.0) {
        for receiver in 0..bin.received.len() {
            if receiver == killed.0 && bin.span.1 > killed.1 {
                continue;
            }
            let share = bin.total(receiver) / bin.sent;
            let here = Lowest { share, at: bin.span.0, receiver, pairs: 0, below: 0 };
            let lowest = lowest.get_or_insert(here);
            if share < lowest.share {
                *lowest = Lowest { pairs: lowest.pairs, below: lowest.below, ..here };
            }
            lowest.pairs += 1;
            lowest.below += usize::from(share < SHARE);
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_read_by_name() {
        let text = "TcpExt: InOctets\nTcpExt: 7\nIpExt: InMcastOctets InOctets OutMcastOctets\n\
            IpExt: 5 12 3\n";
        assert_eq!(parse(text), Count { received: 12, by_tree: 5, multicast: 3 });
        assert_eq!(parse(""), Count::default());
    }

    #[test]
    fn rates_are_judged_at_living_receivers_after_the_fault() {
        let count = |all, by_tree, multicast| Count { received: all, by_tree, multicast };
        let sample = |at: f64, sent, got: [u64; 2]| {
            (at, vec![count(0, 0, sent), count(got[0], 0, 0), count(got[1], got[1], 0)])
        };
        let samples = [
            sample(0.0, 0, [0, 0]),
            sample(1.0, 1000, [100, 1000]),
            sample(2.0, 2000, [1095, 1950]),
            sample(3.0, 3000, [1095, 2950]),
        ];
        let pairs = samples.windows(2);
        let bins: Vec<Bin> = pairs.map(|it| Bin::between(&it[0], &it[1])).collect();
        assert_eq!(bins[0].received, [(0.0, 0.0008), (0.008, 0.0)]);
        let lowest = |from| lowest(&bins, from, (0, 2.5)).expect("some intervals");
        let all = lowest(0.0);
        assert!((all.share - 0.1).abs() < 1e-9 && all.receiver == 0, "{all:?}");
        assert_eq!((all.pairs, all.below), (5, 1), "the dead receiver does not count");
        assert_eq!((lowest(1.0).receiver, lowest(1.0).below), (1, 0));
    }
}
