//! Store shared by several processes: both the state and the ownership of partitions are in etcd.
//!
//! This module has the state of one process: its lease, measured by its own clock, and its requests
//! to etcd. [`keys`] and [`records`] define the stored data. [`holdings`] decides about partitions,
//! and [`rendezvous`] selects their owners. [`calls`] and [`follow`] exchange data with etcd
//! through [`client`].
//!
//! # Invariants
//!
//! - A commit takes effect only in the term of its process, after the previous commit, and at most
//!   once: its transaction compares both.
//! - A process decides about partitions only while its lease is valid by its own monotonic clock,
//!   which started to count before etcd's clock did.

mod calls;
mod client;
mod follow;
mod holdings;
mod keys;
mod records;
mod rendezvous;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_proto::membership::service::PartitionState;
use carom_proto::membership::service::server::{Commit, CommitFailure, CommitId, ServerConfig};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use self::calls::{Lease, Transaction};
use self::client::{Members, Trouble};
use self::follow::Follower;
use self::holdings::{Holdings, News, Snapshot, Wish};
use self::keys::Keys;
use self::records::{CommitRecord, operations};
use crate::about::About;
use crate::error::StoreError;
use crate::options::EtcdOptions;
use crate::status::StoreStatus;
use crate::store::{Store, StoreEvent};

/// Maximum number of changes in a commit. Each change may write a member and a head, and by default
/// etcd accepts 128 operations per transaction.
pub(crate) const MAX_COMMIT_CHANGES: usize = 63;

/// State of one process at an etcd.
pub(crate) struct EtcdStore {
    members: Members,
    keys: Keys,
    about: About,
    address: SocketAddr,
    lease_time: Duration,
    reports: mpsc::Sender<Report>,
    standing: Standing,
    /// Lease that etcd may still consider valid.
    old_lease: Option<i64>,
    holdings: Holdings,
    follower: Option<AbortHandle>,
    generation: u64,
    /// `true` while the follower has not read all data yet.
    is_reading: bool,
    trouble: Option<String>,
    counters: Counters,
}

/// Registration of this process at etcd.
#[derive(Debug)]
enum Standing {
    /// Not registered; a lease is requested at this time.
    Away(Instant),
    Asking,
    Alive {
        lease: Lease,
        renew_at: Instant,
        is_renewing: bool,
    },
}

carom_proto::counters! {
    /// Counters, in addition to [`holdings::Counters`].
    struct Counters {
        registrations = "store_registrations",
        lapses = "store_lapses",
        renewals_failed = "store_renewals_failed",
        cuts = "store_cuts",
    }
}

/// Reports of the tasks of an [`EtcdStore`].
#[derive(Debug)]
pub(crate) enum Report {
    /// The process has a lease and is registered under it.
    Registered(Lease),
    /// Registration failed. The lease, if given, may have to be revoked.
    NotRegistered(Option<i64>, String),
    Renewed(Lease),
    NotRenewed(i64, Trouble),
    /// Result of a request about an owner key.
    Answered(u16, Result<Option<i64>, Trouble>),
    Committed(u16, CommitId, Result<i64, CommitFailure>),
    Snapshot(u64, Snapshot),
    News(u64, Vec<News>),
    /// The watch was interrupted. It continues, or all data is read again.
    Cut(u64, String),
    /// Reading all data failed. It is retried.
    Unread(u64, String),
}

/// Time that a starting process waits for etcd.
const START_WITHIN: Duration = Duration::from_secs(5);
/// Pause before the next request for a lease.
const REGISTER_AGAIN_AFTER: Duration = Duration::from_millis(300);

impl EtcdStore {
    /// Creates the store of a process at `address` that is not registered yet. Its tasks report to
    /// `reports`.
    ///
    /// # Errors
    /// Etcd does not answer within 5 s, or its keys belong to another cluster.
    pub(crate) async fn open(
        options: &EtcdOptions,
        config: &ServerConfig,
        address: SocketAddr,
        reports: mpsc::Sender<Report>,
    ) -> Result<Self, StoreError> {
        let members = Members::new(options)?;
        let keys = Keys::new(&config.cluster);
        let partitions = config.partitions;
        let about = About { cluster: config.cluster.clone(), partitions };
        members.introduce(&keys, &about, START_WITHIN).await?;
        Ok(Self {
            members,
            keys,
            about,
            address,
            lease_time: options.lease,
            reports,
            standing: Standing::Away(Instant::now()),
            old_lease: None,
            holdings: Holdings::new(partitions),
            follower: None,
            generation: 0,
            is_reading: false,
            trouble: None,
            counters: Counters::default(),
        })
    }

    fn spawn(&self, task: impl Future<Output = Report> + Send + 'static) {
        let reports = self.reports.clone();
        tokio::spawn(async move {
            // The process may have ended.
            let _ = reports.send(task.await).await;
        });
    }

    /// Reads all data again, unless that is already in progress.
    fn follow(&mut self) {
        if std::mem::replace(&mut self.is_reading, true) {
            return;
        }
        if let Some(old) = self.follower.take() {
            old.abort();
        }
        self.generation += 1;
        let follower = Follower {
            members: self.members.clone(),
            keys: self.keys.clone(),
            generation: self.generation,
            reports: self.reports.clone(),
        };
        self.follower = Some(tokio::spawn(follower.run()).abort_handle());
    }

    fn register(&mut self) {
        self.standing = Standing::Asking;
        let (members, keys, about) = (self.members.clone(), self.keys.clone(), self.about.clone());
        let (old, address, time) = (self.old_lease, self.address, self.lease_time);
        self.spawn(async move {
            // The keys bound to the old lease would block the new registration.
            if let Some(old) = old
                && let Err(trouble) = members.revoke(old).await
            {
                return Report::NotRegistered(Some(old), trouble.text().into());
            }
            // The data of etcd may have been recreated.
            if let Err(error) = members.introduce(&keys, &about, START_WITHIN).await {
                return Report::NotRegistered(None, error.to_string());
            }
            let lease = match members.lease(time).await {
                Ok(lease) => lease,
                Err(trouble) => return Report::NotRegistered(None, trouble.text().into()),
            };
            match members.announce(&keys, lease.id, address).await {
                Ok(()) => Report::Registered(lease),
                Err(trouble) => Report::NotRegistered(Some(lease.id), trouble.text().into()),
            }
        });
    }

    fn renew(&mut self) {
        let Standing::Alive { lease, is_renewing, .. } = &mut self.standing else { return };
        *is_renewing = true;
        let (members, lease) = (self.members.clone(), *lease);
        self.spawn(async move {
            match members.renew(lease).await {
                Ok(lease) => Report::Renewed(lease),
                Err(trouble) => Report::NotRenewed(lease.id, trouble),
            }
        });
    }

    /// Handles the end of the lease: this process cannot prove any more that it is alive.
    fn lapse(&mut self, now: Instant, why: &str) {
        let Standing::Alive { lease, .. } = &self.standing else { return };
        tracing::warn!(lease = lease.id, why, "the lease of this process has ended");
        self.counters.lapses += 1;
        self.old_lease = Some(lease.id);
        self.standing = Standing::Away(now);
        self.trouble = Some(format!("the lease at {} has ended: {why}", self.members.addresses()));
        self.holdings.lapse();
    }

    fn on_registered(&mut self, lease: Lease) {
        tracing::info!(lease = lease.id, "registered at etcd");
        self.counters.registrations += 1;
        (self.old_lease, self.trouble) = (None, None);
        self.on_lease(lease);
        self.holdings.register(lease.id);
    }

    fn on_lease(&mut self, lease: Lease) {
        let renew_at = lease.until - lease.time * 2 / 3;
        self.standing = Standing::Alive { lease, renew_at, is_renewing: false };
    }

    fn on_not_renewed(&mut self, now: Instant, id: i64, trouble: &Trouble) {
        let Standing::Alive { lease, renew_at, is_renewing } = &mut self.standing else { return };
        if lease.id != id {
            return;
        }
        self.counters.renewals_failed += 1;
        match trouble {
            Trouble::Refused(why) => self.lapse(now, why),
            _ => (*renew_at, *is_renewing) = (now + lease.time / 20, false),
        }
    }

    fn is_current(&self, id: i64) -> bool {
        matches!(&self.standing, Standing::Alive { lease, .. } if lease.id == id)
    }

    /// Takes and hands over partitions.
    fn tend(&mut self, now: Instant) {
        for wish in self.holdings.tend(now) {
            self.grant(wish);
        }
    }

    fn grant(&mut self, wish: Wish) {
        let (members, keys, address) = (self.members.clone(), self.keys.clone(), self.address);
        match wish {
            Wish::Take { partition, lease } => self.spawn(async move {
                Report::Answered(partition, members.take(&keys, partition, lease, address).await)
            }),
            Wish::Give { partition, term } => self.spawn(async move {
                Report::Answered(partition, members.give(&keys, partition, term).await)
            }),
            Wish::Reload => self.follow(),
        }
    }

    fn on_snapshot(&mut self, snapshot: Snapshot) {
        self.is_reading = false;
        if self.is_serving() {
            // The state could not be read before.
            self.trouble = None;
        }
        self.holdings.load(snapshot);
    }

    fn on_unread(&mut self, why: &str) {
        self.counters.cuts += 1;
        self.is_reading = true;
        let is_told = self.trouble.is_some();
        // A process that lost its lease tries to register, and reports why that fails.
        if is_told && self.holdings.is_loaded() && !self.is_serving() {
            return;
        }
        let trouble = format!("cannot read {}: {why}", self.members.addresses());
        if !is_told {
            tracing::warn!(%trouble, "the state of the cluster is unknown");
        }
        self.trouble = Some(trouble);
    }

    fn on_news(&mut self, all: Vec<News>) {
        for news in all {
            if let Some(wish) = self.holdings.see(news) {
                self.grant(wish);
            }
        }
    }
}

impl Store for EtcdStore {
    type Report = Report;

    fn commit(&mut self, commit: Commit, before: &PartitionState) {
        let (partition, id) = (commit.partition, commit.id);
        let Some(fence) = self.holdings.begin_commit(partition, id) else {
            return self.holdings.refuse_commit(id);
        };
        let operations = operations(&self.keys, &commit, before);
        let Commit { after, changes, .. } = commit;
        let transaction = Transaction {
            owner_key: self.keys.owner(partition),
            term: fence.term,
            commit_key: self.keys.commit(partition),
            commit_revision: fence.commit_revision,
            record: CommitRecord { term: fence.term, after, changes }.encode(),
            operations,
            is_unsure: fence.is_unsure,
        };
        let members = self.members.clone();
        self.spawn(
            async move { Report::Committed(partition, id, members.commit(transaction).await) },
        );
    }

    fn handle_report(&mut self, now: Instant, report: Report) {
        match report {
            Report::Registered(lease) => self.on_registered(lease),
            Report::NotRegistered(lease, why) => {
                self.old_lease = lease;
                self.standing = Standing::Away(now + REGISTER_AGAIN_AFTER);
                self.trouble =
                    Some(format!("cannot register at {}: {why}", self.members.addresses()));
            }
            Report::Renewed(lease) if self.is_current(lease.id) => self.on_lease(lease),
            Report::Renewed(_) => {}
            Report::NotRenewed(lease, trouble) => self.on_not_renewed(now, lease, &trouble),
            Report::Answered(partition, answer) => {
                if let Err(trouble) = &answer {
                    tracing::debug!(partition, why = trouble.text(), "an owner key is unchanged");
                }
                self.holdings.answered(now, partition, answer.ok().flatten());
            }
            Report::Committed(partition, id, result) => {
                if let Some(wish) = self.holdings.end_commit(partition, id, result) {
                    self.grant(wish);
                }
            }
            Report::Snapshot(generation, snapshot) if generation == self.generation => {
                self.on_snapshot(snapshot);
            }
            Report::News(generation, news) if generation == self.generation => self.on_news(news),
            Report::Cut(generation, why) if generation == self.generation => {
                tracing::debug!(why, "the watch of etcd was interrupted");
                self.counters.cuts += 1;
            }
            Report::Unread(generation, why) if generation == self.generation => {
                self.on_unread(&why);
            }
            // Reports of a follower that was replaced are dropped.
            Report::Snapshot(..) | Report::News(..) | Report::Cut(..) | Report::Unread(..) => {}
        }
        self.tend(now);
    }

    fn handle_time(&mut self, now: Instant) {
        if self.follower.is_none() {
            self.follow();
        }
        match &self.standing {
            Standing::Alive { lease, .. } if lease.until <= now => {
                self.lapse(now, "not renewed in time");
            }
            Standing::Alive { renew_at, is_renewing: false, .. } if *renew_at <= now => {
                self.renew();
            }
            _ => {}
        }
        match &self.standing {
            // Registering before all data is known would only delay the other processes, because
            // this one could not own anything yet.
            Standing::Away(until) if *until <= now && self.holdings.is_loaded() => self.register(),
            _ => {}
        }
        self.tend(now);
    }

    fn poll(&mut self) -> Option<StoreEvent> {
        self.holdings.poll()
    }

    fn due(&self) -> Option<Instant> {
        let own = match &self.standing {
            _ if self.follower.is_none() => Some(Instant::now()),
            Standing::Away(until) if self.holdings.is_loaded() => Some(*until),
            Standing::Away(_) | Standing::Asking => None,
            Standing::Alive { lease, is_renewing: true, .. } => Some(lease.until),
            Standing::Alive { lease, renew_at, .. } => Some(lease.until.min(*renew_at)),
        };
        own.into_iter().chain(self.holdings.due()).min()
    }

    fn reload(&mut self, partition: u16) {
        let wish = self.holdings.reload(partition);
        self.grant(wish);
    }

    async fn close(&mut self) {
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        let lease = match &self.standing {
            Standing::Alive { lease, .. } => Some(lease.id),
            Standing::Away(_) | Standing::Asking => self.old_lease,
        };
        let Some(lease) = lease else { return };
        if let Err(trouble) = self.members.revoke_at_end(lease).await {
            tracing::warn!(lease, why = trouble.text(), "cannot revoke the lease; it expires");
        }
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            kind: "etcd".into(),
            registered: self.is_serving(),
            trouble: self.trouble.clone(),
            processes: self.holdings.processes().map(|it| it.address.to_string()).collect(),
            counters: self.counters.by_name().chain(self.holdings.counters.by_name()).collect(),
        }
    }

    fn is_serving(&self) -> bool {
        matches!(self.standing, Standing::Alive { .. })
    }

    fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}
