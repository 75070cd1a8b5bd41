//! Store shared by several processes: both the state and the ownership of partitions are in etcd.
//!
//! This module holds the state of one process: its lease, measured by its own clock, and its
//! requests to etcd.
//!
//! # Invariants
//!
//! - A commit takes effect only in the term of its process, after the previous commit, and at most
//!   once, because its transaction compares the term and the previous commit.
//! - A process decides about partitions only while its lease is valid by its own monotonic clock,
//!   which started to count before etcd's clock did.

mod client;
mod follower;
mod keys;
mod ownership;
mod records;
mod rendezvous;
mod report;
mod requests;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_proto::codec::Field as _;
use carom_proto::membership::service::PartitionState;
use carom_proto::membership::service::server::{Commit, ServerConfig};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use self::client::{Members, Trouble};
use self::follower::Follower;
use self::keys::Keys;
use self::ownership::{Ownership, Request, Snapshot, WatchEvent};
use self::records::{CommitRecord, operations};
use self::report::Report;
use self::requests::{Lease, Transaction};
use crate::error::StoreError;
use crate::options::EtcdOptions;
use crate::status::StoreStatus;
use crate::store::{Store, StoreEvent};
use crate::store_identity::StoreIdentity;

/// Maximum number of changes in a commit. Each needs up to two operations, and etcd by default
/// accepts 128 in a transaction.
pub(crate) const MAX_COMMIT_CHANGES: usize = 63;

pub(crate) struct EtcdStore {
    members: Members,
    keys: Keys,
    identity: StoreIdentity,
    address: SocketAddr,
    lease_time: Duration,
    reports: mpsc::Sender<Report>,
    registration: Registration,
    /// Lease that etcd may still consider valid.
    old_lease: Option<i64>,
    ownership: Ownership,
    follower: Option<AbortHandle>,
    generation: u64,
    is_reading: bool,
    trouble: Option<String>,
    counters: Counters,
}

#[derive(Debug)]
enum Registration {
    /// Not registered. A lease is requested at this time.
    None(Instant),
    Pending,
    Valid {
        lease: Lease,
        renew_at: Instant,
        is_renewing: bool,
    },
}

carom_proto::counters! {
    struct Counters {
        registrations = "store_registrations",
        lapses = "store_lapses",
        renewals_failed = "store_renewals_failed",
        cuts = "store_cuts",
    }
}

/// Time for which a process that starts or registers retries the check of the store's identity.
const START_WITHIN: Duration = Duration::from_secs(5);
const REGISTER_AGAIN_AFTER: Duration = Duration::from_millis(300);

impl EtcdStore {
    /// Creates the store, which is not registered yet. Fails if the settings are invalid, if etcd
    /// rejects the request or does not answer in time, or if its data has another identity.
    pub(crate) async fn open(
        options: &EtcdOptions,
        config: &ServerConfig,
        address: SocketAddr,
        reports: mpsc::Sender<Report>,
    ) -> Result<Self, StoreError> {
        let members = Members::new(options)?;
        let keys = Keys::new(&config.cluster);
        let partitions = config.partitions;
        let identity = StoreIdentity { cluster: config.cluster.clone(), partitions };
        members.check_identity(&keys, &identity, START_WITHIN).await?;
        Ok(Self {
            members,
            keys,
            identity,
            address,
            lease_time: options.lease,
            reports,
            registration: Registration::None(Instant::now()),
            old_lease: None,
            ownership: Ownership::new(partitions),
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

    /// Starts to read all data again, unless that is already in progress.
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
        self.registration = Registration::Pending;
        let (members, keys, identity) =
            (self.members.clone(), self.keys.clone(), self.identity.clone());
        let (old, address, time) = (self.old_lease, self.address, self.lease_time);
        self.spawn(async move {
            // The keys bound to the old lease would block the new registration.
            if let Some(old) = old
                && let Err(trouble) = members.revoke(old).await
            {
                return Report::NotRegistered(Some(old), trouble.text().into());
            }
            // The data of etcd may have been recreated.
            if let Err(error) = members.check_identity(&keys, &identity, START_WITHIN).await {
                return Report::NotRegistered(None, error.to_string());
            }
            let lease = match members.lease(time).await {
                Ok(lease) => lease,
                Err(trouble) => return Report::NotRegistered(None, trouble.text().into()),
            };
            match members.register(&keys, lease.id, address).await {
                Ok(()) => Report::Registered(lease),
                Err(trouble) => Report::NotRegistered(Some(lease.id), trouble.text().into()),
            }
        });
    }

    fn renew(&mut self) {
        let Registration::Valid { lease, is_renewing, .. } = &mut self.registration else { return };
        *is_renewing = true;
        let (members, lease) = (self.members.clone(), *lease);
        self.spawn(async move {
            match members.renew(lease).await {
                Ok(lease) => Report::Renewed(lease),
                Err(trouble) => Report::NotRenewed(lease.id, trouble),
            }
        });
    }

    fn lapse(&mut self, now: Instant, why: &str) {
        let Registration::Valid { lease, .. } = &self.registration else { return };
        tracing::warn!(lease = lease.id, why, "the lease of this process has ended");
        self.counters.lapses += 1;
        self.old_lease = Some(lease.id);
        self.registration = Registration::None(now);
        self.trouble = Some(format!("the lease at {} has ended: {why}", self.members.addresses()));
        self.ownership.lapse();
    }

    fn on_registered(&mut self, lease: Lease) {
        tracing::info!(lease = lease.id, "registered at etcd");
        self.counters.registrations += 1;
        (self.old_lease, self.trouble) = (None, None);
        self.on_lease(lease);
        self.ownership.register(lease.id);
    }

    fn on_lease(&mut self, lease: Lease) {
        let renew_at = lease.until - lease.time * 2 / 3;
        self.registration = Registration::Valid { lease, renew_at, is_renewing: false };
    }

    fn on_not_renewed(&mut self, now: Instant, id: i64, trouble: &Trouble) {
        let Registration::Valid { lease, renew_at, is_renewing } = &mut self.registration else {
            return;
        };
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
        matches!(&self.registration, Registration::Valid { lease, .. } if lease.id == id)
    }

    fn update_ownership(&mut self, now: Instant) {
        for request in self.ownership.update(now) {
            self.send(request);
        }
    }

    fn send(&mut self, request: Request) {
        let (members, keys, address) = (self.members.clone(), self.keys.clone(), self.address);
        match request {
            Request::Claim { partition, lease } => self.spawn(async move {
                Report::Answered(partition, members.claim(&keys, partition, lease, address).await)
            }),
            Request::Release { partition, term } => self.spawn(async move {
                Report::Answered(partition, members.release(&keys, partition, term).await)
            }),
            Request::Reload => self.follow(),
        }
    }

    fn on_snapshot(&mut self, snapshot: Snapshot) {
        self.is_reading = false;
        if self.is_serving() {
            // The trouble was that the state could not be read.
            self.trouble = None;
        }
        self.ownership.load(snapshot);
    }

    fn on_read_failed(&mut self, why: &str) {
        self.counters.cuts += 1;
        self.is_reading = true;
        let is_known = self.trouble.is_some();
        // A process that lost its lease tries to register, and reports why that fails.
        if is_known && self.ownership.is_loaded() && !self.is_serving() {
            return;
        }
        let trouble = format!("cannot read {}: {why}", self.members.addresses());
        if !is_known {
            tracing::warn!(%trouble, "the state of the cluster is unknown");
        }
        self.trouble = Some(trouble);
    }

    fn on_watch_events(&mut self, events: Vec<WatchEvent>) {
        for event in events {
            if let Some(request) = self.ownership.on_watch_event(event) {
                self.send(request);
            }
        }
    }
}

impl Store for EtcdStore {
    type Report = Report;

    fn commit(&mut self, commit: Commit, before: &PartitionState) {
        let (partition, id) = (commit.partition, commit.id);
        let Some(fence) = self.ownership.begin_commit(partition, id) else {
            return self.ownership.refuse_commit(id);
        };
        let operations = operations(&self.keys, &commit, before);
        let Commit { after, changes, .. } = commit;
        let transaction = Transaction {
            owner_key: self.keys.owner(partition),
            term: fence.term,
            commit_key: self.keys.commit(partition),
            commit_revision: fence.commit_revision,
            record: CommitRecord { term: fence.term, after, changes }.to_bytes(),
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
                self.registration = Registration::None(now + REGISTER_AGAIN_AFTER);
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
                self.ownership.on_answer(now, partition, answer.ok().flatten());
            }
            Report::Committed(partition, id, result) => {
                if let Some(request) = self.ownership.end_commit(partition, id, result) {
                    self.send(request);
                }
            }
            Report::Snapshot(generation, snapshot) if generation == self.generation => {
                self.on_snapshot(snapshot);
            }
            Report::Watched(generation, events) if generation == self.generation => {
                self.on_watch_events(events);
            }
            Report::Interrupted(generation, why) if generation == self.generation => {
                tracing::debug!(why, "the watch of etcd was interrupted");
                self.counters.cuts += 1;
            }
            Report::ReadFailed(generation, why) if generation == self.generation => {
                self.on_read_failed(&why);
            }
            // Reports of a follower that was replaced are dropped.
            Report::Snapshot(..)
            | Report::Watched(..)
            | Report::Interrupted(..)
            | Report::ReadFailed(..) => {}
        }
        self.update_ownership(now);
    }

    fn handle_time(&mut self, now: Instant) {
        if self.follower.is_none() {
            self.follow();
        }
        match &self.registration {
            Registration::Valid { lease, .. } if lease.until <= now => {
                self.lapse(now, "not renewed in time");
            }
            Registration::Valid { renew_at, is_renewing: false, .. } if *renew_at <= now => {
                self.renew();
            }
            _ => {}
        }
        match &self.registration {
            // Without all data, this process would own nothing, and would only delay other
            // processes.
            Registration::None(until) if *until <= now && self.ownership.is_loaded() => {
                self.register()
            }
            _ => {}
        }
        self.update_ownership(now);
    }

    fn poll(&mut self) -> Option<StoreEvent> {
        self.ownership.poll()
    }

    fn due(&self) -> Option<Instant> {
        let own = match &self.registration {
            _ if self.follower.is_none() => Some(Instant::now()),
            Registration::None(until) if self.ownership.is_loaded() => Some(*until),
            Registration::None(_) | Registration::Pending => None,
            Registration::Valid { lease, is_renewing: true, .. } => Some(lease.until),
            Registration::Valid { lease, renew_at, .. } => Some(lease.until.min(*renew_at)),
        };
        own.into_iter().chain(self.ownership.due()).min()
    }

    fn reload(&mut self, partition: u16) {
        let request = self.ownership.reload(partition);
        self.send(request);
    }

    async fn close(&mut self) {
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        let lease = match &self.registration {
            Registration::Valid { lease, .. } => Some(lease.id),
            Registration::None(_) | Registration::Pending => self.old_lease,
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
            processes: self.ownership.processes().map(|it| it.address.to_string()).collect(),
            counters: self.counters.by_name().chain(self.ownership.counters.by_name()).collect(),
        }
    }

    fn is_serving(&self) -> bool {
        matches!(self.registration, Registration::Valid { .. })
    }

    fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}
