//! Embedded store: one file for one process, without any other server.
//!
//! All data is in one `redb` database. A commit is synced to the disk before it is acknowledged. It
//! therefore survives a crash of the process or the host, but not the loss of the disk. Only one
//! process at a time can open the file. That process owns all partitions.
//!
//! Every page is verified when the store is opened, which reads the whole file. Without this,
//! `redb` trusts a file that was closed cleanly, and panics if it has been damaged since then. A
//! panic while opening, reading or writing is treated as damage ([`catch_panics`]). A marker file
//! next to the database records that a store existed, so that a missing database is not mistaken
//! for a new one. An empty file always counts as lost.
//!
//! | table | key | value |
//! |---|---|---|
//! | `about` | `store` | format u32, partitions u16, cluster text |
//! | `versions` | partition u16 | version u64 |
//! | `groups` | partition u16, group u32 | settings, version u64 |
//! | `members` | partition u16, group u32, node u64 | [`Member`] |

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use carom_proto::codec::Field;
use carom_proto::membership::service::server::{Commit, CommitFailure};
use carom_proto::membership::service::{Change, GroupState, Member, PartitionState};
use carom_proto::wire::DecodeError;
use carom_proto::{GroupId, GroupSettings};
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable, TableDefinition};

use crate::error::{StoreError, plain};
use crate::panic_guard::catch_panics;
use crate::store_identity::StoreIdentity;

const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("about");
const VERSIONS: TableDefinition<'_, u16, u64> = TableDefinition::new("versions");
const GROUPS: TableDefinition<'_, (u16, u32), &[u8]> = TableDefinition::new("groups");
const MEMBERS: TableDefinition<'_, (u16, u32, u64), &[u8]> = TableDefinition::new("members");

pub(crate) struct EmbeddedStore {
    opens: Box<dyn Fn() -> Result<Database, StoreError> + Send>,
    /// `None` after an error: the file must be opened and checked again.
    database: Option<Database>,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, which is created if it is missing. With `new_store`, a lost
    /// or damaged store is moved aside and replaced by an empty one.
    pub(crate) fn open(
        directory: &Path,
        cluster: &str,
        partitions: u16,
        new_store: bool,
    ) -> Result<Self, StoreError> {
        let files = StoreFiles::new(directory);
        files.prepare()?;
        let open = || Self::open_at(&files, cluster, partitions);
        match open() {
            Err(error @ (StoreError::Lost { .. } | StoreError::Damaged { .. })) if new_store => {
                tracing::warn!(%error, "starting with an empty store");
                files.move_aside()?;
                open()
            }
            result => result,
        }
    }

    fn open_at(files: &StoreFiles, cluster: &str, partitions: u16) -> Result<Self, StoreError> {
        let is_new = files.is_new()?;
        let path = files.database.clone();
        let opens = move || {
            let database = Database::builder().set_check_integrity_on_open(true).create(&path);
            database.map_err(|error| cannot_use(&path, error))
        };
        let begun = Self::begin(Box::new(opens), cluster, partitions).and_then(|store| {
            files.mark(&StoreIdentity { cluster: cluster.into(), partitions })?;
            Ok(store)
        });
        let is_ours = is_new && !matches!(begun, Err(StoreError::InUse { .. }));
        if begun.is_err() && is_ours {
            // Without data, an empty file would be reported as a lost store at the next start.
            let _ = std::fs::remove_file(&files.database);
        }
        begun
    }

    /// Opens the store on the storage that `backend` returns, which is called again after an error.
    #[cfg(test)]
    pub(crate) fn on<B: redb::StorageBackend>(
        backend: impl Fn() -> B + Send + 'static,
        cluster: &str,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        let opens = move || {
            Database::builder()
                .set_check_integrity_on_open(true)
                .create_with_backend(backend())
                .map_err(StoreError::from)
        };
        Self::begin(Box::new(opens), cluster, partitions)
    }

    fn begin(
        opens: Box<dyn Fn() -> Result<Database, StoreError> + Send>,
        cluster: &str,
        partitions: u16,
    ) -> Result<Self, StoreError> {
        catch_panics(|| {
            let database = opens()?;
            let store = Self { opens, database: Some(database) };
            store.check_identity(&StoreIdentity { cluster: cluster.into(), partitions })?;
            Ok(store)
        })
    }

    fn check_identity(&self, ours: &StoreIdentity) -> Result<(), StoreError> {
        let transaction = self.database()?.begin_write()?;
        {
            let mut about = transaction.open_table(ABOUT)?;
            // Tables that do not exist yet are created, so that reads find them.
            transaction.open_table(VERSIONS)?;
            transaction.open_table(GROUPS)?;
            transaction.open_table(MEMBERS)?;
            let found = about.get("store")?;
            let found = found.map(|bytes| bytes.value().to_vec());
            match found {
                Some(bytes) => StoreIdentity::decode(&bytes)?.ensure_matches(ours)?,
                None => {
                    let bytes = ours.encode();
                    about.insert("store", &bytes[..])?;
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }

    pub(crate) fn load(&self, partition: u16) -> Result<PartitionState, StoreError> {
        catch_panics(|| self.read(partition))
    }

    fn read(&self, partition: u16) -> Result<PartitionState, StoreError> {
        let transaction = self.database()?.begin_read()?;
        let versions = transaction.open_table(VERSIONS)?;
        let version = version_of(&versions, partition)?;
        let mut groups = BTreeMap::new();
        let heads = transaction.open_table(GROUPS)?;
        let of_partition = (partition, 0)..=(partition, u32::MAX);
        for head in heads.range(of_partition)? {
            let (key, head) = head?;
            let (settings, version) = Field::take(&mut head.value()).map_err(undecodable)?;
            let state = GroupState { settings, version, members: BTreeMap::new() };
            groups.insert(GroupId(key.value().1), state);
        }
        let members = transaction.open_table(MEMBERS)?;
        let of_partition = (partition, 0, 0)..=(partition, u32::MAX, u64::MAX);
        for member in members.range(of_partition)? {
            let (key, member) = member?;
            let group = GroupId(key.value().1);
            let member = Member::take(&mut member.value()).map_err(undecodable)?;
            let state = groups.get_mut(&group).ok_or_else(|| StoreError::Damaged {
                what: format!("{group:?} has members but no settings"),
            })?;
            state.members.insert(member.node, member);
        }
        Ok(PartitionState::restore(version, groups))
    }

    /// Stores all commits in one transaction, or none of them. Skips commits that are already
    /// stored. Returns a [`StoreError`] only if the store can no longer be used.
    pub(crate) fn commit(
        &mut self,
        commits: &[Commit],
    ) -> Result<Result<(), CommitFailure>, StoreError> {
        let error = match self.try_commit(commits) {
            Ok(()) => return Ok(Ok(())),
            Err(error @ StoreError::Damaged { .. }) => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(%error, "the store failed to commit");
        // The error does not show whether the commits were made, but the file does.
        let is_full = error.is_full();
        self.close();
        match self.reopen().and_then(|()| self.has_all(commits)) {
            Ok(true) => Ok(Ok(())),
            Ok(false) if is_full => Ok(Err(CommitFailure::Full)),
            Ok(false) => Ok(Err(CommitFailure::Failed)),
            Err(error @ StoreError::Damaged { .. }) => Err(error),
            Err(_) => Ok(Err(CommitFailure::Unknown)),
        }
    }

    fn try_commit(&mut self, commits: &[Commit]) -> Result<(), StoreError> {
        self.reopen()?;
        catch_panics(|| self.write(commits))
    }

    fn write(&self, commits: &[Commit]) -> Result<(), StoreError> {
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
        catch_panics(|| {
            let transaction = self.database()?.begin_read()?;
            let versions = transaction.open_table(VERSIONS)?;
            for commit in commits {
                let version = version_of(&versions, commit.partition)?;
                if version != commit.after + commit.changes.len() as u64 {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        if self.database.is_none() {
            self.database = Some(catch_panics(&self.opens)?);
        }
        Ok(())
    }

    /// Closes the database, and catches the panic that a damaged one may cause.
    fn close(&mut self) {
        let database = self.database.take();
        let closed = catch_panics(|| {
            drop(database);
            Ok(())
        });
        if let Err(error) = closed {
            tracing::warn!(%error, "cannot close the store");
        }
    }

    fn database(&self) -> Result<&Database, StoreError> {
        let closed = || StoreError::Failed { error: "database closed".into(), is_full: false };
        self.database.as_ref().ok_or_else(closed)
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Debug)]
struct StoreFiles {
    directory: PathBuf,
    database: PathBuf,
    marker: PathBuf,
}

impl StoreFiles {
    fn new(directory: &Path) -> Self {
        let [database, marker] = [DATABASE, MARKER].map(|name| directory.join(name));
        Self { directory: directory.to_owned(), database, marker }
    }

    fn prepare(&self) -> Result<(), StoreError> {
        std::fs::create_dir_all(&self.directory).map_err(|error| self.cannot_open(&error))
    }

    /// Returns `true` if no store existed. Fails if the data of a store is lost.
    fn is_new(&self) -> Result<bool, StoreError> {
        let lost = |how: &'static str| StoreError::Lost { path: self.database.clone(), how };
        let exists = |path: &Path| path.try_exists().map_err(|error| self.cannot_open(&error));
        match std::fs::metadata(&self.database) {
            Ok(file) if file.is_file() && file.len() == 0 => Err(lost("is empty")),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if exists(&self.marker)? {
                    Err(lost("is missing"))
                } else {
                    Ok(true)
                }
            }
            Err(error) => Err(self.cannot_open(&error)),
        }
    }

    fn mark(&self, identity: &StoreIdentity) -> Result<(), StoreError> {
        let text = format!("The store of {identity} is in {DATABASE}.\n");
        let is_marked = std::fs::read(&self.marker).is_ok_and(|found| found == text.as_bytes());
        if is_marked {
            return Ok(());
        }
        let written = std::fs::write(&self.marker, text)
            .and_then(|()| std::fs::File::open(&self.marker)?.sync_all())
            .and_then(|()| std::fs::File::open(&self.directory)?.sync_all());
        written.map_err(|error| StoreError::from(redb::Error::Io(error)))
    }

    fn move_aside(&self) -> Result<(), StoreError> {
        let aside = self.directory.join(ASIDE);
        for (from, to) in [(&self.database, Some(&aside)), (&self.marker, None)] {
            let moved = match to {
                Some(to) => std::fs::rename(from, to),
                None => std::fs::remove_file(from),
            };
            match moved {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.cannot_open(&error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn cannot_open(&self, error: &io::Error) -> StoreError {
        StoreError::Open { path: self.database.clone(), error: plain(error) }
    }
}

const DATABASE: &str = "membership.redb";
const MARKER: &str = "membership.store";
/// Name of an empty or damaged database after a new store has replaced it.
const ASIDE: &str = "membership.redb.damaged";

fn version_of(versions: &impl ReadableTable<u16, u64>, partition: u16) -> Result<u64, StoreError> {
    Ok(versions.get(partition)?.map_or(0, |version| version.value()))
}

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
        let head = head.map(|head| <(GroupSettings, u64)>::take(&mut head.value())).transpose();
        let known = head.map_err(undecodable)?.map(|(settings, _)| settings);
        let member_key = (partition, group.0, member.node.0);
        let settings = match change {
            Change::Join { settings, .. } => {
                self.members.insert(member_key, &member.to_bytes()[..])?;
                known.or(Some(*settings))
            }
            Change::Part { .. } => {
                self.members.remove(member_key)?;
                let of_group = (partition, group.0, 0)..=(partition, group.0, u64::MAX);
                let mut rest = self.members.range(of_group)?;
                known.filter(|_| rest.next().is_some())
            }
        };
        match settings {
            Some(settings) => self.groups.insert(key, &(settings, version).to_bytes()[..])?,
            None => self.groups.remove(key)?,
        };
        Ok(())
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("is_open", &self.database.is_some()).finish()
    }
}

fn cannot_use(path: &Path, error: DatabaseError) -> StoreError {
    let path = path.to_path_buf();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path },
        DatabaseError::UpgradeRequired(found) => StoreError::FileFormat { path, found },
        DatabaseError::Storage(error) => error.into(),
        error => StoreError::Open { path, error: error.to_string() },
    }
}

/// Covers the error types of all operations of the database.
impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = error.to_string();
        let is_full = match &error {
            redb::Error::Corrupted(what) => return Self::Damaged { what: what.clone() },
            redb::Error::Io(error) => match error.kind() {
                // The file is not a database, for example because of a wrong magic number.
                io::ErrorKind::InvalidData => return Self::Damaged { what: plain(error) },
                io::ErrorKind::UnexpectedEof => {
                    return Self::Damaged { what: "the file is too short".into() };
                }
                kind => {
                    text = plain(error);
                    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
                }
            },
            _ => false,
        };
        Self::Failed { error: text, is_full }
    }
}

fn undecodable(error: DecodeError) -> StoreError {
    StoreError::Damaged { what: error.to_string() }
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
pub(crate) mod tests;
