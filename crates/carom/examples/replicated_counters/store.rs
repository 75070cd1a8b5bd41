//! A store of counters that all replicas hold, and that each replica can change at any time.
//!
//! For each counter, every replica keeps the totals that each replica has added and subtracted so
//! far. The totals only increase, and a replica keeps the larger of two values, so messages may be
//! reordered or repeated. In the literature, this is a PN-counter. When a replica changes a
//! counter, it multicasts its new totals.
//!
//! Losses are repaired by comparison. Every second, and whenever a member joins or a loss is
//! reported, a replica multicasts a digest of its state. A replica with a different state answers
//! with its whole state. In this way, replicas that were partitioned or have just started catch up.
//!
//! The same code runs on real and on simulated nodes, because it waits only in async calls and
//! takes the time from the node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carom::{Event, Group, JoinGroupError, Node, NodeId, Profile, PublishError};

/// One replica of the counters.
pub struct Counters {
    node: Node,
    group: Group,
    known: Mutex<Known>,
}

/// The state of a replica: for each counter, the totals of each replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known(BTreeMap<String, BTreeMap<NodeId, Totals>>);

/// The totals of one replica's changes to one counter. Both only increase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    added: u64,
    taken: u64,
}

impl Counters {
    /// Joins the replicas that share the counters `name`.
    ///
    /// # Errors
    /// See [`Node::join`].
    pub async fn join(node: Node, name: &str) -> Result<Self, JoinGroupError> {
        let group = node.join(name, Profile::time_critical()).await?;
        Ok(Self { node, group, known: Mutex::new(Known::default()) })
    }

    /// Adds `amount` to a counter. The other replicas learn of the change by multicast.
    ///
    /// # Errors
    /// See [`Group::publish`]. Even if an error is returned, the counter has changed at this
    /// replica.
    ///
    /// # Panics
    /// Panics if the counter's name is longer than 255 bytes.
    pub async fn add(&self, counter: &str, amount: i64) -> Result<(), PublishError> {
        assert!(counter.len() <= 255, "a counter's name has at most 255 bytes");
        let own = self.node.id();
        let change = {
            let replicas = &mut self.known().0;
            let replicas = replicas.entry(counter.to_owned()).or_default();
            let totals = replicas.entry(own).or_default();
            match amount {
                0.. => totals.added += amount.unsigned_abs(),
                _ => totals.taken += amount.unsigned_abs(),
            }
            encode_totals(counter, own, *totals)
        };
        self.group.publish([&[TOTALS], &change[..]].concat()).await.map(drop)
    }

    /// Returns the value of a counter as known to this replica.
    pub fn value(&self, counter: &str) -> i64 {
        self.known().0.get(counter).map_or(0, value)
    }

    /// Returns all counters and their values.
    pub fn values(&self) -> BTreeMap<String, i64> {
        self.known()
            .0
            .iter()
            .map(|(counter, replicas)| (counter.clone(), value(replicas)))
            .collect()
    }

    /// Returns the other replicas in the current view.
    pub fn replicas(&self) -> Vec<NodeId> {
        self.group.members()
    }

    /// Replicates until the group is closed.
    pub async fn replicate(&self) {
        let mut next_digest = self.node.now() + DIGEST_PERIOD;
        loop {
            let now = self.node.now();
            let news = match next_digest.since(now) {
                Duration::ZERO => News::Digest,
                left => match self.group.recv_timeout(left).await {
                    Ok(Some(event)) => self.take(event),
                    Ok(None) => return,
                    Err(_) => News::Digest,
                },
            };
            let published = match news {
                News::Nothing => Ok(()),
                News::Digest => {
                    next_digest = self.node.now() + DIGEST_PERIOD;
                    self.publish_digest().await
                }
                News::Difference => self.publish_all().await,
            };
            if published.is_err() {
                return;
            }
        }
    }

    /// Processes an event and returns the required reaction.
    fn take(&self, event: Event) -> News {
        match event {
            Event::Message(message) => match message.payload.split_first() {
                Some((&TOTALS, mut rest)) => {
                    let known = &mut *self.known();
                    while let Some((counter, replica, totals)) = decode_totals(&mut rest) {
                        known.learn(counter, replica, totals);
                    }
                    News::Nothing
                }
                Some((&DIGEST, digest)) if *digest != self.known().digest().to_be_bytes() => {
                    News::Difference
                }
                _ => News::Nothing,
            },
            Event::Lost(_) => News::Digest,
            Event::View(change) if self.group.members().contains(&change.node) => News::Digest,
            _ => News::Nothing,
        }
    }

    async fn publish_digest(&self) -> Result<(), PublishError> {
        let digest = self.known().digest().to_be_bytes();
        self.group.publish([&[DIGEST], &digest[..]].concat()).await.map(drop)
    }

    /// Multicasts the whole state, in as many messages as necessary.
    async fn publish_all(&self) -> Result<(), PublishError> {
        let known = self.known().clone();
        let limit = self.group.payload_limit();
        let mut message = vec![TOTALS];
        for entry in known.entries() {
            if message.len() + entry.len() > limit {
                self.group.publish(std::mem::replace(&mut message, vec![TOTALS])).await?;
            }
            message.extend(entry);
        }
        self.group.publish(message).await.map(drop)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The required reaction to an event.
enum News {
    Nothing,
    /// The other replicas should compare their states.
    Digest,
    /// Another replica has a different state.
    Difference,
}

impl Known {
    fn learn(&mut self, counter: &str, replica: NodeId, totals: Totals) {
        let ours = self.0.entry(counter.to_owned()).or_default().entry(replica).or_default();
        ours.added = ours.added.max(totals.added);
        ours.taken = ours.taken.max(totals.taken);
    }

    fn entries(&self) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().flat_map(|(counter, replicas)| {
            replicas.iter().map(|(replica, totals)| encode_totals(counter, *replica, *totals))
        })
    }

    /// Returns a hash of the state (FNV-1a, 64 bits). Equal states have equal digests.
    fn digest(&self) -> u64 {
        self.entries().flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

fn value(replicas: &BTreeMap<NodeId, Totals>) -> i64 {
    let of_one = |it: &Totals| it.added.cast_signed().wrapping_sub(it.taken.cast_signed());
    replicas.values().map(of_one).sum()
}

/// Encodes the name's length (1 byte), the name, the replica (8 bytes), the added total (8 bytes),
/// and the subtracted total (8 bytes).
fn encode_totals(counter: &str, replica: NodeId, totals: Totals) -> Vec<u8> {
    let mut out = vec![u8::try_from(counter.len()).expect("checked where counters are changed")];
    out.extend(counter.as_bytes());
    for number in [replica.0, totals.added, totals.taken] {
        out.extend(number.to_be_bytes());
    }
    out
}

fn decode_totals<'a>(bytes: &mut &'a [u8]) -> Option<(&'a str, NodeId, Totals)> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let (numbers, rest) = rest.split_at_checked(24)?;
    let number = |place: usize| {
        let bytes = numbers[8 * place..][..8].try_into().expect("eight bytes");
        u64::from_be_bytes(bytes)
    };
    *bytes = rest;
    let totals = Totals { added: number(1), taken: number(2) };
    Some((std::str::from_utf8(name).ok()?, NodeId(number(0)), totals))
}

/// First byte of a message with totals. [`DIGEST`] announces a digest.
const TOTALS: u8 = 1;
const DIGEST: u8 = 2;
const DIGEST_PERIOD: Duration = Duration::from_secs(1);
