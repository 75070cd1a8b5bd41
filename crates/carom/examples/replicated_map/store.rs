//! A map that every replica holds completely, with linearizable reads and writes.
//!
//! Each operation, including a read, is a message in an ordered group. All replicas execute the
//! same operations in the same order, and therefore hold the same map. The caller receives the
//! result of an operation when the operation is delivered to its own replica. The operation takes
//! effect at its place in the order, which lies between the call and its answer. This is the
//! definition of linearizability.
//!
//! **Guarantees.** An operation is delivered once a majority of the members hold it
//! ([`Qos::MajorityResilient`]), and after a fault, only a part with a majority continues. Answered
//! operations are therefore not lost while a majority of the replicas that have the map keeps
//! running. A replica in a minority gets no answers. When it is removed, its calls end with
//! [`NotDone::Unknown`]: the operation may or may not have taken effect.
//!
//! **New replicas** receive the map as of the view that admits them, through [`SharedState`].
//! Exactly one replica creates the map with [`Store::found`]. All other replicas call
//! [`Store::join`], including those that return. A replica that finds no holder waits, and must not
//! create another map.
//!
//! The same code runs on real and on simulated nodes, because it waits only in async calls.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_channel::{Receiver, Sender};
use carom::{JoinGroupError, Message, Node, Profile, Qos, SharedState, StateEvent};

use crate::codec::{Command, Operation, decode_map, encode_map};

/// One replica of the map.
pub struct Store {
    node: Node,
    shared: SharedState,
    replica: Mutex<Replica>,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value of the key, or its value before it was written.
    Value(Option<String>),
    /// `true` if the value was the expected one and was replaced.
    Replaced(bool),
}

/// The error returned when an operation was not executed or its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// This replica does not have the map yet. The operation was not executed.
    NotReady,
    /// The operation could not be published, or this replica was removed or closed before the
    /// outcome was known. The operation may or may not have taken effect.
    Unknown,
}

/// The state of a replica.
#[derive(Debug, Default)]
struct Replica {
    map: BTreeMap<String, String>,
    /// Operations of this replica that are in flight.
    asked: BTreeMap<u64, Sender<Outcome>>,
    last: u64,
}

impl Store {
    /// Joins the replicas of the map `name` and creates the map, which is empty at first. Call this
    /// only once in the life of the map.
    ///
    /// # Errors
    /// See [`Node::join`].
    pub async fn found(node: Node, name: &str) -> Result<Self, JoinGroupError> {
        let group = node.join(name, Profile::ordered()).await?;
        Ok(Self { node, shared: SharedState::founding(group), replica: Mutex::default() })
    }

    /// Joins the replicas of the map `name`, one of which sends the map to this replica.
    ///
    /// # Errors
    /// See [`Node::join`].
    pub async fn join(node: Node, name: &str) -> Result<Self, JoinGroupError> {
        let group = node.join(name, Profile::ordered()).await?;
        Ok(Self { node, shared: SharedState::joining(group), replica: Mutex::default() })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Returns an error if this replica does not have the map yet, or is removed or closed before
    /// the outcome is known.
    pub async fn get(&self, key: &str) -> Result<Option<String>, NotDone> {
        match self.call(Operation::Get { key: key.to_owned() }).await? {
            Outcome::Value(value) => Ok(value),
            Outcome::Replaced(_) => unreachable!("this outcome belongs to another operation"),
        }
    }

    /// Sets the value of a key, and returns its previous value.
    ///
    /// # Errors
    /// Returns an error if this replica does not have the map yet, or is removed or closed before
    /// the outcome is known.
    pub async fn put(&self, key: &str, value: &str) -> Result<Option<String>, NotDone> {
        let (key, value) = (key.to_owned(), value.to_owned());
        match self.call(Operation::Put { key, value }).await? {
            Outcome::Value(value) => Ok(value),
            Outcome::Replaced(_) => unreachable!("this outcome belongs to another operation"),
        }
    }

    /// Sets the value of a key if its current value is the expected one. Returns `true` if it was
    /// set.
    ///
    /// # Errors
    /// Returns an error if this replica does not have the map yet, or is removed or closed before
    /// the outcome is known.
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
            Outcome::Value(_) => unreachable!("this outcome belongs to another operation"),
        }
    }

    /// Returns `true` if this replica has the map.
    pub fn is_ready(&self) -> bool {
        self.shared.has_state()
    }

    /// Returns the number of other replicas in the ring, in this replica's view.
    pub fn others(&self) -> usize {
        self.shared.group().members().len()
    }

    /// Returns the map of this replica. Other replicas may have executed more operations.
    pub fn values(&self) -> BTreeMap<String, String> {
        self.replica().map.clone()
    }

    /// Returns the node on which the replica runs.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Replicates until the group is closed. Calls are answered only while this runs.
    pub async fn replicate(&self) {
        while let Some(what) = self.shared.recv().await {
            match what {
                StateEvent::Message(message) => self.replica().execute(&message, &self.node),
                StateEvent::Give => {
                    let map = encode_map(&self.replica().map);
                    if self.shared.give(&map).await.is_err() {
                        break;
                    }
                }
                StateEvent::Take(map) => {
                    self.replica().map = decode_map(&map).expect("a replica encoded it");
                }
                StateEvent::Forget => self.replica().forget(),
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
        // The answer reports the outcome of the message, so this handle is dropped.
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

    /// Discards the map after this replica was removed from the ring. Operation numbers are not
    /// reused.
    fn forget(&mut self) {
        self.map.clear();
        // Dropping the senders ends the waiting calls with an unknown outcome.
        self.asked.clear();
    }

    /// Executes the operation of a message, and sends the outcome to its caller if that is local.
    fn execute(&mut self, message: &Message, node: &Node) {
        let command = Command::decode(&message.payload).expect("a replica encoded it");
        let outcome = self.apply(command.operation);
        if message.sender == node.id()
            && let Some(asked) = self.asked.remove(&command.number)
        {
            // The caller may have given up.
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
            Self::Unknown => "the outcome of the operation is not known",
        })
    }
}

impl Error for NotDone {}
