//! A map that every replica holds as a whole, with linearisable reads and writes.
//!
//! Each operation, a read as well, is a message in an ordered group. All replicas are given the
//! same operations in the same order, so that they do the same and hold the same. Who asked for
//! one has its result when the operation comes back to it: at that place in the order it took
//! effect, and that place lies between the call and its answer. That is what linearisable means.
//!
//! **What is promised.** An operation is given out when a majority of the members hold it
//! ([`Qos::MajorityResilient`]), and after a fault only a part with a majority goes on. So what was
//! answered is not lost while a majority of the replicas that have the map keep running. Who is cut
//! off with a minority gets no answer; when it is removed its calls end with
//! [`NotDone::Unknown`]: the operation may have taken effect or not.
//!
//! **New replicas** get the map at the view that admits them, by [`SharedState`]. The map exists
//! since one replica [founded](Store::found) it. All others join, those that come back as well: one
//! that finds nobody waits, and does not begin another map.
//!
//! Nothing here knows whether the node is real or simulated: it waits by async calls alone.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_channel::{Receiver, Sender};
use carom::{JoinGroupError, Message, Node, Profile, Qos, Shared, SharedState};

use crate::codec::{Command, Operation, decode_map, encode_map};

/// One replica of the map.
pub struct Store {
    node: Node,
    shared: SharedState,
    replica: Mutex<Replica>,
}

/// What an operation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value that the key has, or had before it was written.
    Value(Option<String>),
    /// Whether the value was the expected one, and was replaced.
    Replaced(bool),
}

/// Why an operation has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// This replica does not have the map yet. Nothing was done.
    NotReady,
    /// This replica was removed, or has closed, before it knew: it may have been done or not.
    Unknown,
}

/// What a replica knows.
#[derive(Debug, Default)]
struct Replica {
    map: BTreeMap<String, String>,
    /// Own operations under way.
    asked: BTreeMap<u64, Sender<Outcome>>,
    last: u64,
}

impl Store {
    /// Joins the replicas of the map called `name` as the one that founds it: it begins empty. To
    /// be done once in the map's life.
    ///
    /// # Errors
    /// As [`Node::join`].
    pub async fn found(node: Node, name: &str) -> Result<Self, JoinGroupError> {
        let group = node.join_async(name, Profile::ordered()).await?;
        Ok(Self { node, shared: SharedState::founding(group), replica: Mutex::default() })
    }

    /// Joins the replicas of the map called `name`, which give this one the map.
    ///
    /// # Errors
    /// As [`Node::join`].
    pub async fn join(node: Node, name: &str) -> Result<Self, JoinGroupError> {
        let group = node.join_async(name, Profile::ordered()).await?;
        Ok(Self { node, shared: SharedState::joining(group), replica: Mutex::default() })
    }

    /// The key's value.
    ///
    /// # Errors
    /// The operation has no outcome.
    pub async fn get(&self, key: &str) -> Result<Option<String>, NotDone> {
        match self.call(Operation::Get { key: key.to_owned() }).await? {
            Outcome::Value(value) => Ok(value),
            Outcome::Replaced(_) => unreachable!("that is no answer to this"),
        }
    }

    /// Gives the key a value; returns the one it had.
    ///
    /// # Errors
    /// The operation has no outcome.
    pub async fn put(&self, key: &str, value: &str) -> Result<Option<String>, NotDone> {
        let (key, value) = (key.to_owned(), value.to_owned());
        match self.call(Operation::Put { key, value }).await? {
            Outcome::Value(value) => Ok(value),
            Outcome::Replaced(_) => unreachable!("that is no answer to this"),
        }
    }

    /// Gives the key a value if it has the expected one; says whether it had.
    ///
    /// # Errors
    /// The operation has no outcome.
    pub async fn replace(
        &self,
        key: &str,
        expected: Option<&str>,
        value: &str,
    ) -> Result<bool, NotDone> {
        let (key, value) = (key.to_owned(), value.to_owned());
        let expected = expected.map(str::to_owned);
        match self.call(Operation::Replace { key, expected, value }).await? {
            Outcome::Replaced(was_replaced) => Ok(was_replaced),
            Outcome::Value(_) => unreachable!("that is no answer to this"),
        }
    }

    /// Whether this replica has the map.
    pub fn is_ready(&self) -> bool {
        self.shared.has_state()
    }

    /// How many other replicas are in the ring as this one knows it.
    pub fn others(&self) -> usize {
        self.shared.group().members().len()
    }

    /// The map as far as this replica has come: others may be further.
    pub fn values(&self) -> BTreeMap<String, String> {
        self.replica().map.clone()
    }

    /// The node that the replica runs on.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Takes part in the replication, until the group is closed. Calls are answered while it runs.
    pub async fn replicate(&self) {
        while let Some(what) = self.shared.recv().await {
            match what {
                Shared::Message(message) => self.replica().execute(&message, &self.node),
                Shared::Give => {
                    let map = encode_map(&self.replica().map);
                    if self.shared.give(&map).await.is_err() {
                        break;
                    }
                }
                Shared::Take(map) => {
                    self.replica().map = decode_map(&map).expect("a replica has encoded it");
                }
                Shared::Forget => self.replica().forget(),
                _ => {}
            }
        }
        self.replica().asked.clear();
    }

    async fn call(&self, operation: Operation) -> Result<Outcome, NotDone> {
        if !self.is_ready() {
            return Err(NotDone::NotReady);
        }
        let (number, answer) = self.replica().ask();
        let message = Command { number, operation }.encode();
        // What becomes of the message is told by the answer.
        let published = self.shared.publish(&message, Qos::MajorityResilient).await;
        published.map(drop).map_err(|_| NotDone::Unknown)?;
        answer.recv().await.map_err(|_| NotDone::Unknown)
    }

    fn replica(&self) -> MutexGuard<'_, Replica> {
        self.replica.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replica {
    fn ask(&mut self) -> (u64, Receiver<Outcome>) {
        let (sender, answer) = async_channel::bounded(1);
        self.last += 1;
        self.asked.insert(self.last, sender);
        (self.last, answer)
    }

    /// The others went on without this replica. Numbers are not used again.
    fn forget(&mut self) {
        self.map.clear();
        // Dropping them tells those who asked that nobody knows.
        self.asked.clear();
    }

    /// Does what the message says, and tells whoever asked for it here.
    fn execute(&mut self, message: &Message, node: &Node) {
        let command = Command::decode(&message.payload).expect("a replica has encoded it");
        let outcome = self.apply(command.operation);
        if message.sender == node.id()
            && let Some(asked) = self.asked.remove(&command.number)
        {
            // Whoever asked may have gone.
            let _ = asked.try_send(outcome);
        }
    }

    fn apply(&mut self, operation: Operation) -> Outcome {
        match operation {
            Operation::Get { key } => Outcome::Value(self.map.get(&key).cloned()),
            Operation::Put { key, value } => Outcome::Value(self.map.insert(key, value)),
            Operation::Replace { key, expected, value } => {
                let is_expected = self.map.get(&key) == expected.as_ref();
                if is_expected {
                    self.map.insert(key, value);
                }
                Outcome::Replaced(is_expected)
            }
        }
    }
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReady => "this replica does not have the map yet",
            Self::Unknown => "nobody here knows whether it was done",
        })
    }
}

impl Error for NotDone {}
