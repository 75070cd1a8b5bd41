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

/// Counts of the sender and of all receivers at a time.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) at_ns: u64,
    pub(super) counts: Vec<Count>,
}

/// Messages that a receiver has delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deliveries {
    /// Times of the deliveries by `CLOCK_MONOTONIC`, in nanoseconds and in order.
    pub(super) times: Vec<u64>,
    /// Number of messages before the last delivered one that were not delivered.
    pub(super) lost: u64,
}

impl Deliveries {
    /// Returns the number of deliveries from `begin` up to but excluding `end`.
    fn between(&self, begin: u64, end: u64) -> usize {
        let before = |limit: u64| self.times.partition_point(|time| *time < limit);
        before(end) - before(begin)
    }
}

/// Rates of one interval, in Mbit/s.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bin {
    /// Beginning and end, in seconds.
    pub(super) span: (f64, f64),
    /// IP octets that the sender multicasts.
    pub(super) sent: f64,
    /// Rates of each receiver.
    pub(super) received: Vec<Received>,
}

/// Rates of a receiver in one interval, in Mbit/s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Received {
    /// Delivered messages, without any header or duplicate. `None` for the receiver that is
    /// killed, whose record is lost.
    pub(super) payload: Option<f64>,
    /// IP octets by multicast.
    pub(super) tree: f64,
    /// IP octets by unicast: repairs, and acknowledgments of others.
    pub(super) unicast: f64,
}

impl Bin {
    /// Computes the rates between two samples. Times are relative to `begun_ns`. `deliveries` are
    /// those of each receiver, with messages of `size` bytes.
    pub(super) fn between(
        [before, after]: [&Sample; 2],
        begun_ns: u64,
        deliveries: &[Option<Deliveries>],
        size: usize,
    ) -> Self {
        let seconds = |at_ns: u64| (at_ns - begun_ns) as f64 / 1e9;
        let span = (seconds(before.at_ns), seconds(after.at_ns));
        let rate = |octets: u64| octets as f64 * 8.0 / 1e6 / (span.1 - span.0).max(1e-6);
        let counts: Vec<(&Count, &Count)> = before.counts.iter().zip(&after.counts).collect();
        let sent = counts.first().map_or(0, |(before, after)| after.multicast - before.multicast);
        let receivers = counts.iter().skip(1).zip(deliveries);
        let received = receivers.map(|((earlier, later), delivered)| {
            let tree = later.by_tree - earlier.by_tree;
            let all = later.received - earlier.received;
            let payload = delivered.as_ref().map(|delivered| {
                rate((delivered.between(before.at_ns, after.at_ns) * size) as u64)
            });
            Received { payload, tree: rate(tree), unicast: rate(all.saturating_sub(tree)) }
        });
        Self { span, sent: rate(sent), received: received.collect() }
    }

    fn seconds(&self) -> f64 {
        self.span.1 - self.span.0
    }
}

/// Lowest rate of delivered messages of a receiver in a number of consecutive intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lowest {
    /// Share of the set sending rate.
    pub(super) share: f64,
    pub(super) at: f64,
    pub(super) receiver: usize,
    /// Number of pairs of a span and a receiver, and of those below [`SHARE`].
    pub(super) pairs: usize,
    pub(super) below: usize,
}

/// Share of the set sending rate that each receiver must deliver in each second.
pub(super) const SHARE: f64 = 0.9;

/// Judges each span of `length` intervals by the set sending `rate`, not by what the sender sends:
/// a pause of the sender is a dip for its receivers.
pub(super) fn lowest(bins: &[Bin], length: usize, rate: f64) -> Option<Lowest> {
    let mut lowest: Option<Lowest> = None;
    for span in bins.windows(length) {
        let (first, last) = (&span[0], &span[length - 1]);
        let seconds = last.span.1 - first.span.0;
        for receiver in 0..first.received.len() {
            let payload = |bin: &Bin| Some(bin.received[receiver].payload? * bin.seconds());
            let Some(delivered) = span.iter().map(payload).sum::<Option<f64>>() else { continue };
            let share = delivered / seconds / rate;
            let here = Lowest { share, at: first.span.0, receiver, pairs: 0, below: 0 };
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

/// Returns the beginning of the first interval after the time `cut_at` in which each of the
/// `below` receivers gets at least half of the set `rate` by multicast.
pub(super) fn rebuilt_at(bins: &[Bin], cut_at: f64, below: &[usize], rate: f64) -> Option<f64> {
    let is_reached = |bin: &&Bin| below.iter().all(|it| bin.received[*it].tree >= rate / 2.0);
    bins.iter().filter(|bin| bin.span.0 >= cut_at).find(is_reached).map(|bin| bin.span.0)
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
    fn interval_has_the_deliveries_and_octets_of_its_time() {
        let sample = |at_ns, received, by_tree, multicast| {
            let receiver = Count { received, by_tree, multicast: 0 };
            let counts = vec![Count { multicast, ..Count::default() }, receiver, receiver];
            Sample { at_ns, counts }
        };
        let samples = [sample(5_000_000_000, 0, 0, 0), sample(6_000_000_000, 5000, 2000, 9000)];
        let times = vec![4_999_999_999, 5_000_000_000, 5_999_999_999, 6_000_000_000];
        let deliveries = [Some(Deliveries { times, lost: 0 }), None];
        let [before, after] = &samples;
        let bin = Bin::between([before, after], 4_000_000_000, &deliveries, 1000);
        assert_eq!((bin.span, bin.sent), ((1.0, 2.0), 0.072));
        let received = Received { payload: Some(0.016), tree: 0.016, unicast: 0.024 };
        assert_eq!(bin.received, [received, Received { payload: None, ..received }]);
    }

    fn bin(number: u32, sent: f64, payload: Option<f64>, tree: f64) -> Bin {
        let at = f64::from(number);
        Bin { span: (at, at + 1.0), sent, received: vec![Received { payload, tree, unicast: 0.0 }] }
    }

    #[test]
    fn pause_of_the_sender_is_a_dip_of_its_receivers() {
        let bins = [bin(0, 10.0, Some(9.5), 10.0), bin(1, 0.0, Some(0.0), 0.0)];
        let lowest = |bins: &[Bin]| lowest(bins, 1, 10.0).expect("some intervals");
        assert_eq!((lowest(&bins).share, lowest(&bins).at), (0.0, 1.0));
        assert_eq!((lowest(&bins).pairs, lowest(&bins).below), (2, 1));
        assert_eq!(lowest(&bins[..1]).below, 0);
        assert_eq!(super::lowest(&[bin(0, 10.0, None, 0.0)], 1, 10.0), None, "it is killed");
    }

    #[test]
    fn messages_of_a_pause_count_if_they_follow_in_the_same_span() {
        let bins = [10.0, 4.0, 16.0, 2.0].into_iter().zip(0..);
        let bins: Vec<Bin> =
            bins.map(|(payload, number)| bin(number, 10.0, Some(payload), 10.0)).collect();
        let lowest = |length| lowest(&bins, length, 10.0).expect("some intervals");
        assert_eq!((lowest(1).share, lowest(1).below), (0.2, 2));
        assert_eq!((lowest(2).share, lowest(2).at, lowest(2).pairs), (0.7, 0.0, 3));
        assert_eq!(super::lowest(&bins, 5, 10.0), None, "there is no such span");
    }

    #[test]
    fn tree_is_rebuilt_once_multicast_arrives_below_the_link() {
        let bins = [9.0, 9.0, 0.0, 0.1, 9.0].into_iter().zip(0..);
        let bins: Vec<Bin> = bins.map(|(tree, number)| bin(number, 9.0, Some(9.0), tree)).collect();
        assert_eq!(rebuilt_at(&bins, 1.5, &[0], 10.0), Some(4.0));
        assert_eq!(rebuilt_at(&bins[..4], 1.5, &[0], 10.0), None, "by repairs only");
    }
}
