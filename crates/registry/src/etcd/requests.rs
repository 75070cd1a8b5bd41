//! Requests to etcd. Those that are retried have no further effect if they are repeated.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carom_proto::membership::service::server::CommitFailure;
use etcd_client::{
    Compare, CompareOp, GetResponse, LeaseGrantResponse, PutOptions, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use tokio::time::sleep;

use super::client::{ANSWER_WITHIN, Members, Trouble};
use super::keys::Keys;
use super::records::Operation;
use crate::error::StoreError;
use crate::store_identity::StoreIdentity;

/// Lease, with its end by this process's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(super) id: i64,
    pub(super) time: Duration,
    /// Earliest time at which etcd can end the lease, counted from when the last renewal was sent.
    pub(super) until: Instant,
}

/// Commit, in the form that is sent to etcd.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) owner_key: String,
    pub(super) term: i64,
    pub(super) commit_key: String,
    pub(super) commit_revision: i64,
    pub(super) record: Vec<u8>,
    pub(super) operations: Vec<Operation>,
    pub(super) is_unsure: bool,
}

const CALL_WITHIN: Duration = Duration::from_secs(4);
/// Time within which a stopping process may begin attempts to revoke its lease.
const END_WITHIN: Duration = Duration::from_secs(3);
const END_ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Time within which attempts to commit may begin. If none succeeds, the outcome is unknown.
const COMMIT_WITHIN: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);

impl Members {
    pub(super) async fn check_identity(
        &self,
        keys: &Keys,
        ours: &StoreIdentity,
        within: Duration,
    ) -> Result<(), StoreError> {
        let key = keys.identity();
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.clone(), ours.encode(), None)])
            .or_else([TxnOp::get(key, None)]);
        let answer = self.retry(within, |mut client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        });
        let answer = answer.await.map_err(|trouble| self.failure(&trouble))?;
        match found(&answer).first().and_then(|get| get.kvs().first()) {
            Some(identity) => StoreIdentity::decode(identity.value())?.ensure_matches(ours),
            None => Ok(()),
        }
    }

    fn failure(&self, trouble: &Trouble) -> StoreError {
        let (addresses, error) = (self.addresses(), trouble.text().to_owned());
        match trouble {
            Trouble::Unsure(_) => StoreError::Unreachable { addresses, error },
            Trouble::Full | Trouble::Refused(_) => StoreError::Refused { addresses, error },
        }
    }

    /// Requests a lease of `time` in whole seconds, at least 1 s. Etcd may grant a longer one.
    pub(super) async fn lease(&self, time: Duration) -> Result<Lease, Trouble> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX).max(1);
        let sent = Instant::now();
        let granted: LeaseGrantResponse =
            self.request(ANSWER_WITHIN, |mut client| async move {
                client.lease_grant(seconds, None).await
            })
            .await?;
        let time = Duration::from_secs(granted.ttl().unsigned_abs());
        Ok(Lease { id: granted.id(), time, until: sent + time })
    }

    pub(super) async fn register(
        &self,
        keys: &Keys,
        lease: i64,
        address: SocketAddr,
    ) -> Result<(), Trouble> {
        let (key, put) = (keys.process(lease), PutOptions::new().with_lease(lease));
        let address = address.to_string();
        let registered = self.retry(CALL_WITHIN, |mut client| {
            let (key, address, put) = (key.clone(), address.clone(), put.clone());
            async move { client.put(key, address, Some(put)).await }
        });
        registered.await.map(|_| ())
    }

    pub(super) async fn renew(&self, lease: Lease) -> Result<Lease, Trouble> {
        let sent = Instant::now();
        let renewed = self.request(lease.time / 4, |mut client| async move {
            client.lease_keep_alive(lease.id).await.map(|_| ())
        });
        match renewed.await {
            Ok(()) => Ok(Lease { until: sent + lease.time, ..lease }),
            Err(Trouble::Unsure(text)) if text.contains(LEASE_NOT_FOUND) => {
                Err(Trouble::Refused(text))
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Revokes the lease. Etcd deletes all keys that are bound to it.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Trouble> {
        self.revoke_within(lease, CALL_WITHIN, ANSWER_WITHIN).await
    }

    /// Revokes the lease when the process ends. Attempts are shorter, so that a member that hangs
    /// leaves time for the other members.
    pub(super) async fn revoke_at_end(&self, lease: i64) -> Result<(), Trouble> {
        self.revoke_within(lease, END_WITHIN, END_ANSWER_WITHIN).await
    }

    async fn revoke_within(
        &self,
        lease: i64,
        within: Duration,
        each: Duration,
    ) -> Result<(), Trouble> {
        let revoked = self.retry_each(within, each, |mut client| async move {
            client.lease_revoke(lease).await.map(|_| ())
        });
        match revoked.await {
            Err(Trouble::Refused(text)) if text.contains(LEASE_NOT_FOUND) => Ok(()),
            revoked => revoked,
        }
    }

    /// Creates the owner key of a partition. Returns the revision, or `None` if the key existed or
    /// this process is not registered.
    pub(super) async fn claim(
        &self,
        keys: &Keys,
        partition: u16,
        lease: i64,
        address: SocketAddr,
    ) -> Result<Option<i64>, Trouble> {
        let (key, put) = (keys.owner(partition), PutOptions::new().with_lease(lease));
        let txn = Txn::new()
            .when([
                Compare::create_revision(key.clone(), CompareOp::Equal, 0),
                Compare::create_revision(keys.process(lease), CompareOp::Greater, 0),
            ])
            .and_then([TxnOp::put(key, address.to_string(), Some(put))]);
        self.change_owner(txn).await
    }

    /// Deletes the owner key of a partition. Returns the revision, or `None` if no key had `term`.
    pub(super) async fn release(
        &self,
        keys: &Keys,
        partition: u16,
        term: i64,
    ) -> Result<Option<i64>, Trouble> {
        let key = keys.owner(partition);
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, term)])
            .and_then([TxnOp::delete(key, None)]);
        self.change_owner(txn).await
    }

    async fn change_owner(&self, txn: Txn) -> Result<Option<i64>, Trouble> {
        let answer = self.request(ANSWER_WITHIN, |mut client| async move { client.txn(txn).await });
        let answer = answer.await?;
        let revision = answer.header().map(|header| header.revision());
        Ok(revision.filter(|_| answer.succeeded()))
    }

    /// Stores a commit at most once, regardless of the number of attempts. Returns the revision.
    pub(super) async fn commit(&self, commit: Transaction) -> Result<i64, CommitFailure> {
        let end = Instant::now() + COMMIT_WITHIN;
        let mut is_unsure = commit.is_unsure;
        loop {
            let txn = commit.txn();
            let answer =
                self.request(ANSWER_WITHIN, |mut client| async move { client.txn(txn).await });
            match answer.await {
                Ok(answer) => return commit.outcome(&answer),
                // An earlier attempt may be in flight. Only a later response shows its outcome.
                Err(Trouble::Full) if !is_unsure => return Err(CommitFailure::Full),
                Err(Trouble::Refused(error)) if !is_unsure => {
                    tracing::error!(%error, "etcd rejected a commit");
                    return Err(CommitFailure::Failed);
                }
                Err(trouble) => {
                    is_unsure |= matches!(trouble, Trouble::Unsure(_));
                    tracing::debug!(why = trouble.text(), "retrying a commit");
                }
            }
            if Instant::now() + PAUSE >= end {
                return Err(CommitFailure::Unknown);
            }
            sleep(PAUSE).await;
        }
    }
}

impl Transaction {
    fn txn(&self) -> Txn {
        let Self { owner_key, term, commit_key, commit_revision, .. } = self;
        let mut writes: Vec<TxnOp> =
            vec![TxnOp::put(commit_key.clone(), self.record.clone(), None)];
        writes.extend(self.operations.iter().cloned().map(|operation| match operation {
            Operation::Put(key, value) => TxnOp::put(key, value, None),
            Operation::Delete(key) => TxnOp::delete(key, None),
        }));
        Txn::new()
            .when([
                Compare::create_revision(owner_key.clone(), CompareOp::Equal, *term),
                Compare::mod_revision(commit_key.clone(), CompareOp::Equal, *commit_revision),
            ])
            .and_then(writes)
            .or_else([TxnOp::get(commit_key.clone(), None)])
    }

    /// Returns the revision of the commit. If the comparison failed, either an earlier attempt has
    /// stored this commit, or this process no longer owns the partition.
    fn outcome(&self, answer: &TxnResponse) -> Result<i64, CommitFailure> {
        if answer.succeeded() {
            let revision = answer.header().map(|header| header.revision());
            return revision.ok_or(CommitFailure::Unknown);
        }
        let found = found(answer);
        let last = found.first().and_then(|get| get.kvs().first());
        match last.filter(|last| last.value() == self.record) {
            Some(own) => Ok(own.mod_revision()),
            None => Err(CommitFailure::Deposed),
        }
    }
}

fn found(answer: &TxnResponse) -> Vec<GetResponse> {
    let answers = answer.op_responses().into_iter();
    let reads = answers.filter_map(|answer| match answer {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    });
    reads.collect()
}

/// Error text of etcd and its client for a lease that has ended.
const LEASE_NOT_FOUND: &str = "lease not found";
