//! Follower of etcd: reads all data at one revision, then watches the changes after it.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_proto::GroupId;
use carom_proto::codec::Field;
use carom_proto::membership::service::{GroupState, Member, PartitionState};
use etcd_client::{
    Event, EventType, GetOptions, KeyValue, WatchOptions, WatchResponse, WatchStream,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::client::{Members, Trouble};
use super::keys::{Key, Keys};
use super::ownership::{KeyChange, Owner, PartitionSnapshot, Snapshot, WatchEvent};
use super::records::{self, CommitRecord};
use super::rendezvous::Registered;
use super::report::Report;

/// A task whose reports carry `generation`, so that those of a replaced follower are dropped.
pub(super) struct Follower {
    pub(super) members: Members,
    pub(super) keys: Keys,
    pub(super) generation: u64,
    pub(super) reports: mpsc::Sender<Report>,
}

enum Ended {
    /// The watch can continue at its last revision.
    Broken(String),
    /// The watch cannot continue. All data must be read again.
    Lost(String),
    /// The receiver of the reports was dropped.
    Over,
}

struct Backoff {
    next: Duration,
}

impl Follower {
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new();
        loop {
            let report = match self.snapshot().await {
                Ok(snapshot) => {
                    let revision = snapshot.revision;
                    let report = Report::Snapshot(self.generation, snapshot);
                    if self.reports.send(report).await.is_err() {
                        return;
                    }
                    let begun = Instant::now();
                    let Some(why) = self.watch_on(revision).await else { return };
                    backoff.reset_after(begun.elapsed());
                    Report::Interrupted(self.generation, why)
                }
                Err(trouble) => Report::ReadFailed(self.generation, trouble.text().to_owned()),
            };
            if self.reports.send(report).await.is_err() {
                return;
            }
            sleep(backoff.take()).await;
        }
    }

    /// Reports the changes after `revision`, across interruptions. Returns the reason when the
    /// watch is lost, or `None` if the receiver of the reports was dropped.
    async fn watch_on(&self, mut revision: i64) -> Option<String> {
        loop {
            match self.watch(&mut revision).await {
                Ended::Lost(why) => return Some(why),
                Ended::Over => return None,
                Ended::Broken(why) => {
                    self.reports.send(Report::Interrupted(self.generation, why)).await.ok()?;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn snapshot(&self) -> Result<Snapshot, Trouble> {
        let (watched, revision) = self.range(self.keys.watched(), None).await?;
        let (states, _) = self.range(self.keys.states(), Some(revision)).await?;
        let mut snapshot = Snapshot { revision, ..Snapshot::default() };
        let mut versions = BTreeMap::new();
        for pair in &watched {
            let Some(event) = watch_event(&self.keys, pair, false) else { continue };
            match event.change {
                KeyChange::Process(lease, process) => {
                    snapshot.processes.extend(process.map(|process| (lease, process)));
                }
                KeyChange::Owner(partition, owner) => {
                    snapshot.partitions.entry(partition).or_default().owner = owner;
                }
                KeyChange::Commit(partition, record) => {
                    let found = snapshot.partitions.entry(partition).or_default();
                    found.commit_revision = pair.mod_revision();
                    versions.insert(partition, record.version());
                }
                KeyChange::Damage(partition) => {
                    return Err(damaged(&format!("the last commit of partition {partition}")));
                }
            }
        }
        let states = states.iter().map(|pair| (pair.key(), pair.value()));
        for (partition, groups) in groups(&self.keys, states)? {
            let version = versions.get(&partition).copied();
            let version = version.ok_or_else(|| damaged("a partition without a commit"))?;
            let found: &mut PartitionSnapshot = snapshot.partitions.entry(partition).or_default();
            found.state = PartitionState::restore(version, groups);
            versions.remove(&partition);
        }
        for (partition, version) in versions {
            let found = snapshot.partitions.entry(partition).or_default();
            found.state = PartitionState::restore(version, BTreeMap::new());
        }
        Ok(snapshot)
    }

    /// Reads keys at `revision`, or at the newest revision. Also returns the revision of the data.
    async fn range(
        &self,
        (from, to): (String, String),
        revision: Option<i64>,
    ) -> Result<(Vec<KeyValue>, i64), Trouble> {
        let (mut from, mut revision) = (from.into_bytes(), revision);
        let mut pairs = Vec::new();
        loop {
            let options = GetOptions::new()
                .with_range(to.clone())
                .with_limit(PAGE_KEYS)
                .with_revision(revision.unwrap_or(0));
            let page = self.members.retry(READ_WITHIN, |client| {
                let (from, options) = (from.clone(), options.clone());
                let mut client = client.kv_client().max_decoding_message_size(MESSAGE_BYTES);
                async move { client.get(from, Some(options)).await }
            });
            let mut page = page.await?;
            let now = page.header().map_or(0, |header| header.revision());
            let revision = *revision.get_or_insert(now);
            let more = page.more();
            pairs.extend(page.take_kvs());
            match pairs.last().filter(|_| more) {
                Some(last) => from = [last.key(), b"\0"].concat(),
                None => return Ok((pairs, revision)),
            }
        }
    }

    async fn watch(&self, revision: &mut i64) -> Ended {
        let mut selection = self.members.selection();
        let selected = *selection.borrow_and_update();
        let (from, to) = self.keys.watched();
        let options = WatchOptions::new().with_range(to).with_start_revision(*revision + 1);
        let stream = self.members.request(READ_WITHIN, |client| async move {
            let mut client = client.watch_client().max_decoding_message_size(MESSAGE_BYTES);
            client.watch(from, Some(options)).await
        });
        let mut stream: WatchStream = match stream.await {
            Ok(stream) => stream,
            Err(trouble) => return Ended::by(&trouble),
        };
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                _ = selection.changed() => {
                    return Ended::Broken("another member was selected".into());
                }
            };
            let response = match message {
                Ok(Some(response)) => response,
                Ok(None) => return Ended::Broken("the watch has ended".into()),
                Err(error) => {
                    self.members.deselect(selected);
                    return Ended::by(&Trouble::of(&error));
                }
            };
            if let Some(ended) = self.forward(&response, revision).await {
                return ended;
            }
        }
    }

    async fn forward(&self, response: &WatchResponse, revision: &mut i64) -> Option<Ended> {
        // The member lags behind, or the data of etcd was recreated.
        let is_behind = response.header().is_some_and(|header| header.revision() < *revision);
        if is_behind {
            return Some(Ended::Lost("an etcd member lags behind".into()));
        }
        // The changes were compacted, or the token has expired. Reading all data renews the token.
        if response.canceled() || response.compact_revision() != 0 {
            return Some(Ended::Lost(format!(
                "etcd canceled the watch: {}",
                response.cancel_reason()
            )));
        }
        let pairs = response.events().iter().filter_map(|event| Some((event, event.kv()?)));
        let mut all = Vec::new();
        for (event, pair) in pairs {
            *revision = pair.mod_revision().max(*revision);
            all.extend(watch_event(&self.keys, pair, is_deletion(event)));
        }
        if all.is_empty() {
            return None;
        }
        let report = Report::Watched(self.generation, all);
        self.reports.send(report).await.is_err().then_some(Ended::Over)
    }
}

impl Ended {
    /// Classifies the failure of a watch. If etcd rejects it, repeating the same watch is useless.
    fn by(trouble: &Trouble) -> Self {
        let why = trouble.text().to_owned();
        match trouble {
            Trouble::Refused(_) => Self::Lost(why),
            Trouble::Unsure(_) | Trouble::Full => Self::Broken(why),
        }
    }
}

impl Backoff {
    fn new() -> Self {
        Self { next: PAUSE }
    }

    fn take(&mut self) -> Duration {
        let next = (self.next * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.next, next)
    }

    fn reset_after(&mut self, watched: Duration) {
        if watched > LONGEST_PAUSE {
            self.next = PAUSE;
        }
    }
}

fn watch_event(keys: &Keys, pair: &KeyValue, is_gone: bool) -> Option<WatchEvent> {
    let change = match keys.read(pair.key())? {
        Key::Process(lease) if is_gone => KeyChange::Process(lease, None),
        Key::Process(lease) => {
            let address = records::address(pair.value())?;
            KeyChange::Process(lease, Some(Registered { address, since: pair.create_revision() }))
        }
        Key::Owner(partition) if is_gone => KeyChange::Owner(partition, None),
        Key::Owner(partition) => {
            let address = records::address(pair.value())?;
            let (lease, term) = (pair.lease(), pair.create_revision());
            KeyChange::Owner(partition, Some(Owner { lease, address, term }))
        }
        Key::Commit(partition) => match CommitRecord::take(&mut pair.value()) {
            Ok(record) if !is_gone => KeyChange::Commit(partition, record),
            _ => KeyChange::Damage(partition),
        },
        Key::Group(..) | Key::Member(..) => return None,
    };
    Some(WatchEvent { revision: pair.mod_revision(), change })
}

/// Parses the pairs under [`Keys::states`], sorted by key, into the groups of each partition.
pub(super) fn groups<'a>(
    keys: &Keys,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<BTreeMap<u16, BTreeMap<GroupId, GroupState>>, Trouble> {
    let mut partitions: BTreeMap<u16, BTreeMap<GroupId, GroupState>> = BTreeMap::new();
    for (key, mut value) in pairs {
        match keys.read(key) {
            Some(Key::Group(partition, group)) => {
                let (settings, version) = Field::take(&mut value)
                    .map_err(|_| damaged(&format!("the head of {group:?}")))?;
                let state = GroupState { settings, version, members: BTreeMap::new() };
                partitions.entry(partition).or_default().insert(group, state);
            }
            // The key of the group is a prefix of this one, and was read before it.
            Some(Key::Member(partition, group, node)) => {
                let groups = partitions.entry(partition).or_default();
                let member = Member::take(&mut value).ok();
                let member = member.filter(|member| member.node == node);
                let (Some(state), Some(member)) = (groups.get_mut(&group), member) else {
                    return Err(damaged(&format!("{node:?} in {group:?}")));
                };
                state.members.insert(node, member);
            }
            _ => {}
        }
    }
    Ok(partitions)
}

fn is_deletion(event: &Event) -> bool {
    event.event_type() == EventType::Delete
}

fn damaged(what: &str) -> Trouble {
    Trouble::Refused(format!("the data is damaged: {what}"))
}

const READ_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two attempts to watch, and first pause between two attempts to read.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// Number of pairs per response. With pairs of the maximum size, a response is about 2 MiB.
const PAGE_KEYS: i64 = 500;
/// Size limit of a response. A watch that lags behind gets a thousand events at once.
const MESSAGE_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_until_a_watch_goes_on_for_long() {
        let mut backoff = Backoff::new();
        let taken: Vec<u128> = (0..7).map(|_| backoff.take().as_millis()).collect();
        assert_eq!(taken, [100, 200, 400, 800, 1600, 3000, 3000]);
        backoff.reset_after(LONGEST_PAUSE);
        assert_eq!(backoff.take(), LONGEST_PAUSE);
        backoff.reset_after(LONGEST_PAUSE + PAUSE);
        assert_eq!(backoff.take(), PAUSE);
    }
}
