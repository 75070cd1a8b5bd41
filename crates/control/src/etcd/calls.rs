//! What is asked of etcd: each may be asked again without doing more than once.

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
use crate::about::About;
use crate::error::StoreError;

/// A lease that runs, as far as this process knows by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(super) id: i64,
    pub(super) time: Duration,
    /// It was alive when its last renewal was sent, and that long ago at most.
    pub(super) until: Instant,
}

/// A commit as etcd gets it.
#[derive(Clone, Debug)]
pub(super) struct Transaction {
    pub(super) owner_key: String,
    pub(super) term: i64,
    pub(super) commit_key: String,
    pub(super) commit_revision: i64,
    pub(super) record: Vec<u8>,
    pub(super) operations: Vec<Operation>,
    /// It was asked for before, and may have taken effect.
    pub(super) is_unsure: bool,
}

/// How long one call may take with all its attempts.
const CALL_WITHIN: Duration = Duration::from_secs(4);
/// Until when a process that ends may begin to ask for the end of its lease, and how long each
/// attempt may take.
const END_WITHIN: Duration = Duration::from_secs(3);
const END_ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// How long a commit is tried before its fate is called unknown.
const COMMIT_WITHIN: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(50);

impl Members {
    /// Says what the keys are for, if nobody has; checks that they are for the same.
    pub(super) async fn introduce(
        &self,
        keys: &Keys,
        ours: &About,
        within: Duration,
    ) -> Result<(), StoreError> {
        let key = keys.about();
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.clone(), ours.encode(), None)])
            .or_else([TxnOp::get(key, None)]);
        let answer = self.insist(within, |mut client| {
            let txn = txn.clone();
            async move { client.txn(txn).await }
        });
        let answer = answer.await.map_err(|trouble| self.failure(&trouble))?;
        match found(&answer).first().and_then(|get| get.kvs().first()) {
            Some(about) => About::decode(about.value())?.must_be(ours),
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

    /// A lease of about this time.
    pub(super) async fn lease(&self, time: Duration) -> Result<Lease, Trouble> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX).max(1);
        let sent = Instant::now();
        let granted: LeaseGrantResponse = self
            .ask(ANSWER_WITHIN, |mut client| async move { client.lease_grant(seconds, None).await })
            .await?;
        let time = Duration::from_secs(granted.ttl().unsigned_abs());
        Ok(Lease { id: granted.id(), time, until: sent + time })
    }

    /// The process is there, for as long as its lease is.
    pub(super) async fn announce(
        &self,
        keys: &Keys,
        lease: i64,
        address: SocketAddr,
    ) -> Result<(), Trouble> {
        let (key, put) = (keys.process(lease), PutOptions::new().with_lease(lease));
        let address = address.to_string();
        let announced = self.insist(CALL_WITHIN, |mut client| {
            let (key, address, put) = (key.clone(), address.clone(), put.clone());
            async move { client.put(key, address, Some(put)).await }
        });
        announced.await.map(|_| ())
    }

    /// The lease runs for its time again.
    pub(super) async fn renew(&self, lease: Lease) -> Result<Lease, Trouble> {
        let sent = Instant::now();
        let renewed = self.ask(lease.time / 4, |mut client| async move {
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

    /// The lease ends, and with it all that is bound to it.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), Trouble> {
        self.revoke_within(lease, CALL_WITHIN, ANSWER_WITHIN).await
    }

    /// As [`Members::revoke`], for a process that is about to end: a member that hangs leaves time
    /// for the others.
    pub(super) async fn revoke_at_end(&self, lease: i64) -> Result<(), Trouble> {
        self.revoke_within(lease, END_WITHIN, END_ANSWER_WITHIN).await
    }

    async fn revoke_within(
        &self,
        lease: i64,
        within: Duration,
        each: Duration,
    ) -> Result<(), Trouble> {
        let revoked = self.insist_each(within, each, |mut client| async move {
            client.lease_revoke(lease).await.map(|_| ())
        });
        match revoked.await {
            Err(Trouble::Refused(text)) if text.contains(LEASE_NOT_FOUND) => Ok(()),
            revoked => revoked,
        }
    }

    /// Makes the owner key of a partition that nobody owns; the revision at which it was made, or
    /// `None` if it is there.
    pub(super) async fn take(
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

    /// Takes the owner key of this term away; the revision at which that was, or `None` if it was
    /// gone.
    pub(super) async fn give(
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
        let answer = self.ask(ANSWER_WITHIN, |mut client| async move { client.txn(txn).await });
        let answer = answer.await?;
        let revision = answer.header().map(|header| header.revision());
        Ok(revision.filter(|_| answer.succeeded()))
    }

    /// Makes a commit, at most once however often it is tried; the revision that it has.
    pub(super) async fn commit(&self, commit: Transaction) -> Result<i64, CommitFailure> {
        let end = Instant::now() + COMMIT_WITHIN;
        let mut is_unsure = commit.is_unsure;
        loop {
            let txn = commit.txn();
            let answer = self.ask(ANSWER_WITHIN, |mut client| async move { client.txn(txn).await });
            match answer.await {
                Ok(answer) => return commit.outcome(&answer),
                // An earlier attempt may still be on its way: only the next answer tells.
                Err(Trouble::Full) if !is_unsure => return Err(CommitFailure::Full),
                Err(Trouble::Refused(error)) if !is_unsure => {
                    tracing::error!(%error, "etcd refuses a commit");
                    return Err(CommitFailure::Failed);
                }
                Err(trouble) => {
                    is_unsure |= matches!(trouble, Trouble::Unsure(_));
                    tracing::debug!(why = trouble.text(), "a commit is tried again");
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

    /// If something else than expected was there, it is this commit itself, of an earlier attempt,
    /// or another owner has been there.
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

/// What the reads of a transaction found.
fn found(answer: &TxnResponse) -> Vec<GetResponse> {
    let answers = answer.op_responses().into_iter();
    let reads = answers.filter_map(|answer| match answer {
        TxnOpResponse::Get(get) => Some(get),
        _ => None,
    });
    reads.collect()
}

/// How etcd and its client say that a lease is over.
const LEASE_NOT_FOUND: &str = "lease not found";
