//! The embedded store: one file, one process, nothing else to run.
//!
//! Everything is in one `redb` database. What was committed is on the disk before it is
//! acknowledged, so that neither a killed process nor a lost machine loses a join. Only one process
//! at a time can have the file open, which is what makes it the owner of all partitions.
//!
//! | table | key | value |
//! |---|---|---|
//! | `about` | name | format u32, partitions u16, cluster text |
//! | `versions` | partition u16 | version u64 |
//! | `groups` | partition u16, group u32 | settings and version, as [`GroupState::encode_head`] |
//! | `members` | partition u16, group u32, node u64 | [`Member`] |

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use carom_proto::GroupId;
use carom_proto::membership::service::server::{Commit, CommitFailure};
use carom_proto::membership::service::{Change, FrameError, GroupState, Member, PartitionState};
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable, TableDefinition};

use crate::about::About;
use crate::error::StoreError;

const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
const VERSIONS: TableDefinition<'_, u16, u64> = TableDefinition::new("versions");
const GROUPS: TableDefinition<'_, (u16, u32), &[u8]> = TableDefinition::new("groups");
const MEMBERS: TableDefinition<'_, (u16, u32, u64), &[u8]> = TableDefinition::new("members");

/// The store of one process.
pub(crate) struct EmbeddedStore {
    opens: Box<dyn Fn() -> Result<Database, StoreError> + Send>,
    /// `None` after an error: what is on the disk has to be looked at again.
    database: Option<Database>,
}

impl EmbeddedStore {
    /// Opens the store in the folder `directory`, which is made if it is not there.
    pub(crate) fn open(
        directory: &Path,
        cluster: &str,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        let path = directory.join("membership.redb");
        let failed = |error: String| StoreError::Open { path: path.clone(), error };
        std::fs::create_dir_all(directory).map_err(|error| failed(error.to_string()))?;
        let opens = move || {
            Database::create(&path).map_err(|error| match error {
                DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.clone() },
                DatabaseError::Storage(error) => error.into(),
                error => StoreError::Open { path: path.clone(), error: error.to_string() },
            })
        };
        Self::begin(Box::new(opens), cluster, partitions)
    }

    /// A store whose bytes are kept by `backend`, which is asked for again after an error.
    #[cfg(test)]
    pub(crate) fn on<B: redb::StorageBackend>(
        backend: impl Fn() -> B + Send + 'static,
        cluster: &str,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        let opens = move || {
            Database::builder()
                .create_with_backend(backend())
                .map_err(|error| StoreError::from(redb::Error::from(error)))
        };
        Self::begin(Box::new(opens), cluster, partitions)
    }

    fn begin(
        opens: Box<dyn Fn() -> Result<Database, StoreError> + Send>,
        cluster: &str,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        let database = opens()?;
        let store = Self { opens, database: Some(database) };
        store.introduce(&About { cluster: cluster.into(), partitions })?;
        Ok(store)
    }

    /// Writes what a new store is for; checks that an old one is for the same.
    fn introduce(&self, ours: &About) -> Result<(), StoreError> {
        let transaction = self.database()?.begin_write()?;
        {
            let mut about = transaction.open_table(ABOUT)?;
            // The others are there from now on, so that reading finds them.
            transaction.open_table(VERSIONS)?;
            transaction.open_table(GROUPS)?;
            transaction.open_table(MEMBERS)?;
            let found = about.get("store")?;
            let found = found.map(|bytes| bytes.value().to_vec());
            match found {
                Some(bytes) => About::decode(&bytes)?.must_be(ours)?,
                None => {
                    let bytes = ours.encode();
                    about.insert("store", &bytes[..])?;
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// The partition as it is stored.
    pub(crate) fn load(&self, partition: u16) -> Result<PartitionState, StoreError> {
        let transaction = self.database()?.begin_read()?;
        let versions = transaction.open_table(VERSIONS)?;
        let version = version_of(&versions, partition)?;
        let mut groups = BTreeMap::new();
        let heads = transaction.open_table(GROUPS)?;
        let of_partition = (partition, 0)..=(partition, u32::MAX);
        for head in heads.range(of_partition)? {
            let (key, head) = head?;
            let state = GroupState::decode_head(&mut head.value())?;
            groups.insert(GroupId(key.value().1), state);
        }
        let members = transaction.open_table(MEMBERS)?;
        let of_partition = (partition, 0, 0)..=(partition, u32::MAX, u64::MAX);
        for member in members.range(of_partition)? {
            let (key, member) = member?;
            let group = GroupId(key.value().1);
            let member = Member::decode(&mut member.value())?;
            let state = groups.get_mut(&group).ok_or_else(|| StoreError::Damaged {
                what: format!("{group:?} has members and no settings"),
            })?;
            state.members.insert(member.node, member);
        }
        Ok(PartitionState::restore(version, groups))
    }

    /// Stores the commits, all together or none; one that is there already is not made again. A
    /// failure is that of each of them.
    pub(crate) fn commit(&mut self, commits: &[Commit]) -> Result<(), CommitFailure> {
        let result = self.try_commit(commits);
        let Err(error) = &result else { return Ok(()) };
        tracing::warn!(%error, "the store did not take a commit");
        // After an error the database only says that there was one. What became of the commit is
        // on the disk, and it is made again only if it is not there.
        let is_full = error.is_full();
        self.database = None;
        match self.reopen().and_then(|()| self.has_all(commits)) {
            Ok(true) => Ok(()),
            Ok(false) if is_full => Err(CommitFailure::Full),
            Ok(false) => Err(CommitFailure::Failed),
            Err(_) => Err(CommitFailure::Unknown),
        }
    }

    fn try_commit(&mut self, commits: &[Commit]) -> Result<(), StoreError> {
        self.reopen()?;
        let transaction = self.database()?.begin_write()?;
        {
            let mut tables = Tables {
                versions: transaction.open_table(VERSIONS)?,
                groups: transaction.open_table(GROUPS)?,
                members: transaction.open_table(MEMBERS)?,
            };
            for commit in commits {
                tables.make(commit)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn has_all(&self, commits: &[Commit]) -> Result<bool, StoreError> {
        let transaction = self.database()?.begin_read()?;
        let versions = transaction.open_table(VERSIONS)?;
        for commit in commits {
            let version = version_of(&versions, commit.partition)?;
            if version != commit.after + commit.changes.len() as u64 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.database.is_none() {
            self.database = Some((self.opens)()?);
        }
        Ok(())
    }

    fn database(&self) -> Result<&Database, StoreError> {
        let closed = || StoreError::Failed { error: "it is closed".into(), is_full: false };
        self.database.as_ref().ok_or_else(closed)
    }
}

/// How many changes of the partition are stored.
fn version_of(versions: &impl ReadableTable<u16, u64>, partition: u16) -> Result<u64, StoreError> {
    Ok(versions.get(partition)?.map_or(0, |version| version.value()))
}

/// The tables of a transaction that writes.
struct Tables<'t> {
    versions: redb::Table<'t, u16, u64>,
    groups: redb::Table<'t, (u16, u32), &'static [u8]>,
    members: redb::Table<'t, (u16, u32, u64), &'static [u8]>,
}

impl Tables<'_> {
    fn make(&mut self, commit: &Commit) -> Result<(), StoreError> {
        let partition = commit.partition;
        let version = version_of(&self.versions, partition)?;
        let last = commit.after + commit.changes.len() as u64;
        if version == last {
            return Ok(());
        }
        if version != commit.after {
            return Err(StoreError::Damaged {
                what: format!(
                    "partition {partition} is at version {version}, expected {}",
                    commit.after
                ),
            });
        }
        for (change, version) in commit.changes.iter().zip(version + 1..) {
            self.apply(partition, change, version)?;
        }
        self.versions.insert(partition, last)?;
        Ok(())
    }

    fn apply(&mut self, partition: u16, change: &Change, version: u64) -> Result<(), StoreError> {
        let (group, member) = (change.group(), change.member());
        let key = (partition, group.0);
        let head = self.groups.get(key)?;
        let head = head.map(|head| GroupState::decode_head(&mut head.value())).transpose()?;
        let member_key = (partition, group.0, member.node.0);
        let state = match change {
            Change::Join { settings, .. } => {
                let mut bytes = Vec::new();
                member.encode(&mut bytes);
                self.members.insert(member_key, &bytes[..])?;
                let settings = head.map_or(*settings, |head| head.settings);
                Some(GroupState { settings, version, members: BTreeMap::new() })
            }
            Change::Part { .. } => {
                self.members.remove(member_key)?;
                let of_group = (partition, group.0, 0)..=(partition, group.0, u64::MAX);
                let mut rest = self.members.range(of_group)?;
                head.filter(|_| rest.next().is_some()).map(|head| GroupState { version, ..head })
            }
        };
        match state {
            Some(state) => {
                let mut bytes = Vec::new();
                state.encode_head(&mut bytes);
                self.groups.insert(key, &bytes[..])?;
            }
            None => {
                self.groups.remove(key)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("is_open", &self.database.is_some()).finish()
    }
}

impl From<redb::Error> for StoreError {
    fn from(error: redb::Error) -> Self {
        let is_full = match &error {
            redb::Error::Io(error) => {
                matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        };
        Self::Failed { error: error.to_string(), is_full }
    }
}

impl From<redb::TransactionError> for StoreError {
    fn from(error: redb::TransactionError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::TableError> for StoreError {
    fn from(error: redb::TableError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::StorageError> for StoreError {
    fn from(error: redb::StorageError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<redb::CommitError> for StoreError {
    fn from(error: redb::CommitError) -> Self {
        redb::Error::from(error).into()
    }
}

impl From<FrameError> for StoreError {
    fn from(error: FrameError) -> Self {
        Self::Damaged { what: error.to_string() }
    }
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
