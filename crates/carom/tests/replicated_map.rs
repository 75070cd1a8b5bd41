//! Tests the example's map in a simulated world. Under all faults, every history of its operations
//! must be possible for a single map on which each operation takes effect between its call and its
//! answer.

#[path = "../examples/replicated_map/codec.rs"]
mod codec;
mod network;
mod simulation;
#[path = "../examples/replicated_map/store.rs"]
pub mod store;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use carom::sim::{Fault, Host, World};
use carom::{Loss, Node};
use carom_proto::Rng;
use codec::{Command, Operation, decode_map, encode_map};
use network::{PATIENCE, multicast_port, on_loopback};
use pollster::block_on;
use simulation::world;
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};
use store::{NotDone, Outcome, Store};

const REPLICAS: u32 = 5;
const KEYS: usize = 8;

/// One key of the map. Operations on different keys are independent, so each key is checked on its
/// own.
#[derive(Clone, Debug, Default)]
struct Register(Option<String>);

impl SequentialSpec for Register {
    type Op = Operation;
    type Ret = Outcome;

    fn invoke(&mut self, operation: &Operation) -> Outcome {
        match operation.clone() {
            Operation::Get { .. } => Outcome::Value(self.0.clone()),
            Operation::Put { value, .. } => Outcome::Value(self.0.replace(value)),
            Operation::Replace { expected, value, .. } => {
                let is_expected = self.0 == expected;
                if is_expected {
                    self.0 = Some(value);
                }
                Outcome::Replaced(is_expected)
            }
        }
    }
}

#[derive(Default)]
struct History {
    of_keys: BTreeMap<String, LinearizabilityTester<i64, Register>>,
    /// Newest caller. Numbers decrease, because the tester tries callers in order, and those whose
    /// last call was never answered must come last.
    callers: i64,
    answered: usize,
    unanswered: usize,
}

impl History {
    fn new_caller(&mut self) -> i64 {
        self.callers -= 1;
        self.callers
    }

    fn on_call(&mut self, caller: i64, key: &str, operation: Operation) {
        let tester = self.of_keys.entry(key.to_owned()).or_default();
        tester.on_invoke(caller, operation).expect("a caller waits for its answer");
    }

    fn on_answer(&mut self, caller: i64, key: &str, outcome: Outcome) {
        self.answered += 1;
        let tester = self.of_keys.get_mut(key).expect("it was called");
        tester.on_return(caller, outcome).expect("a caller waits for its answer");
    }

    fn assert_linearisable(&self) {
        for (key, tester) in &self.of_keys {
            assert!(tester.is_consistent(), "{key}: {tester:#?}");
        }
    }
}

struct Replicas {
    world: World,
    now: Rc<RefCell<BTreeMap<u32, Rc<Store>>>>,
    history: Rc<RefCell<History>>,
    is_calling: Rc<Cell<bool>>,
}

impl Replicas {
    fn new(seed: u64) -> Self {
        let mut replicas = Self {
            world: world(REPLICAS, seed, Loss::Uniform(0.02)),
            now: Rc::default(),
            history: Rc::default(),
            is_calling: Rc::new(Cell::new(true)),
        };
        for host in replicas.world.hosts() {
            replicas.install(&host, seed);
        }
        replicas
    }

    fn install(&mut self, host: &Host, seed: u64) {
        let (now, history) = (Rc::clone(&self.now), Rc::clone(&self.history));
        let is_calling = Rc::clone(&self.is_calling);
        let lives = Cell::new(0_u64);
        self.world.install(host, move |host| {
            let (now, history) = (Rc::clone(&now), Rc::clone(&history));
            let is_calling = Rc::clone(&is_calling);
            let life = lives.replace(lives.get() + 1);
            async move {
                let number = host.ix().0;
                let node = Node::builder().start_on(&host).expect("the host is free");
                let store = match (number, life) {
                    (0, 0) => Store::found(node, "accounts").await,
                    _ => Store::join(node, "accounts").await,
                };
                let store = Rc::new(store.expect("joined"));
                now.borrow_mut().insert(number, Rc::clone(&store));
                let mut dice = Rng::new(seed << 20 | u64::from(number) << 10 | life);
                let call = async {
                    let mut caller = history.borrow_mut().new_caller();
                    loop {
                        host.sleep(Duration::from_millis(20 + dice.below(100) as u64)).await;
                        if is_calling.get() && store.is_ready() {
                            caller = call_once(&store, &history, caller, &mut dice).await;
                        }
                    }
                };
                tokio::join!(store.replicate(), call);
            }
        });
    }

    fn are_all_ready(&self) -> bool {
        let now = self.now.borrow();
        // A replica in a minority that does not yet know of its removal counts itself as ready.
        let is_back = |store: &Rc<Store>| store.is_ready() && store.others() + 1 == now.len();
        now.len() == REPLICAS as usize && now.values().all(is_back)
    }

    fn await_all_ready(&mut self) {
        for _ in 0..600 {
            if self.are_all_ready() {
                return;
            }
            self.world.run_for(Duration::from_millis(200));
        }
        let now = self.now.borrow();
        let lacking: Vec<&u32> = now.keys().filter(|host| !now[host].is_ready()).collect();
        panic!("replicas {lacking:?} did not receive the map");
    }

    fn converge(&mut self) -> BTreeMap<String, String> {
        self.world.apply(&Fault::Heal);
        self.await_all_ready();
        self.is_calling.set(false);
        self.world.run_for(Duration::from_secs(30));
        self.await_all_ready();
        let values: Vec<_> = self.now.borrow().values().map(|store| store.values()).collect();
        assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:#?}");
        values[0].clone()
    }
}

/// Makes one call. Returns the caller of the next call, which is a new one if there was no answer.
async fn call_once(store: &Store, history: &RefCell<History>, caller: i64, dice: &mut Rng) -> i64 {
    let key = format!("key {}", dice.below(KEYS));
    let value = || format!("{caller}.{}", history.borrow().answered);
    let own = key.clone();
    let operation = match dice.below(3) {
        0 => Operation::Get { key: own },
        1 => Operation::Put { key: own, value: value() },
        _ => {
            let expected = store.values().get(&key).cloned();
            Operation::Replace { key: own, expected, value: value() }
        }
    };
    history.borrow_mut().on_call(caller, &key, operation.clone());
    let answer = match operation {
        Operation::Get { .. } => store.get(&key).await.map(Outcome::Value),
        Operation::Put { value, .. } => store.put(&key, &value).await.map(Outcome::Value),
        Operation::Replace { expected, value, .. } => {
            store.replace(&key, expected.as_deref(), &value).await.map(Outcome::Replaced)
        }
    };
    let mut history = history.borrow_mut();
    match answer {
        Ok(outcome) => {
            history.on_answer(caller, &key, outcome);
            caller
        }
        Err(NotDone::NotReady | NotDone::Unknown) => {
            history.unanswered += 1;
            history.new_caller()
        }
    }
}

#[test]
fn the_same_map_is_shared_over_real_sockets() {
    let port = multicast_port();
    let replicate = |store: Store| {
        let store = Arc::new(store);
        let replica = Arc::clone(&store);
        // The thread ends with the test process.
        thread::spawn(move || block_on(replica.replicate()));
        let start = std::time::Instant::now();
        while !store.is_ready() {
            assert!(start.elapsed() < PATIENCE, "a replica did not receive the map");
            thread::sleep(Duration::from_millis(1));
        }
        store
    };
    let node = || on_loopback(port).start().expect("a node");
    let first = replicate(block_on(Store::found(node(), "accounts")).expect("joined"));
    assert_eq!(block_on(first.put("alice", "100")), Ok(None));
    let second = replicate(block_on(Store::join(node(), "accounts")).expect("joined"));
    let third = replicate(block_on(Store::join(node(), "accounts")).expect("joined"));
    assert_eq!(block_on(third.get("alice")), Ok(Some("100".to_owned())));
    assert_eq!(block_on(second.replace("alice", Some("100"), "0")), Ok(true));
    assert_eq!(block_on(third.replace("alice", Some("100"), "0")), Ok(false));
    assert_ne!(first.node().id(), second.node().id());
}

#[test]
fn joiner_during_writes_gets_the_map_and_later_changes() {
    let mut replicas = Replicas::new(1);
    replicas.await_all_ready();
    replicas.world.run_for(Duration::from_secs(5));
    let agreed = replicas.converge();
    assert_eq!(agreed.len(), KEYS);
    let history = replicas.history.borrow();
    history.assert_linearisable();
    assert!(history.answered > 200 && history.unanswered == 0, "{} answers", history.answered);
}

#[test]
fn minority_answers_no_request_and_gets_the_map_again() {
    let mut replicas = Replicas::new(2);
    replicas.await_all_ready();
    let side = [0, 1].map(|number| replicas.world.host(number).ix());
    replicas.world.apply(&Fault::Partition(side.to_vec()));
    replicas.world.run_for(Duration::from_secs(10));
    let stale = replicas.now.borrow()[&0].values();
    let fresh = replicas.now.borrow()[&4].values();
    assert!(stale != fresh, "the majority continues");
    replicas.converge();
    replicas.history.borrow().assert_linearisable();
}

/// Applies a fault. A majority of the replicas with the map remains, and the others receive it
/// again before the next fault.
fn trouble(replicas: &mut Replicas, dice: &mut Rng) {
    let pause = |dice: &mut Rng| Duration::from_millis(300 + dice.below(4000) as u64);
    for _ in 0..6 {
        let host = replicas.world.host(dice.below(REPLICAS as usize) as u32);
        let other = replicas.world.host(dice.below(REPLICAS as usize) as u32);
        let partition = Fault::Partition(vec![host.ix(), other.ix()]);
        let kind = dice.below(4);
        let (fault, relief) = match kind {
            0 => (None, None),
            1 | 2 => (Some(partition), Some(Fault::Heal)),
            _ => {
                let loss = |rate| Some(Fault::Loss(host.ix(), Loss::Uniform(rate)));
                (loss(0.5), loss(0.02))
            }
        };
        if let Some(fault) = fault {
            replicas.world.apply(&fault);
            replicas.world.run_for(pause(dice));
        }
        // A replica that restarts in the minority cannot receive the map there.
        if matches!(kind, 0 | 2) {
            replicas.now.borrow_mut().remove(&host.ix().0);
            replicas.world.restart(&host);
            replicas.world.run_for(pause(dice));
        }
        if let Some(relief) = relief {
            replicas.world.apply(&relief);
        }
        replicas.await_all_ready();
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "shown if the test fails")]
fn every_history_is_linearizable_under_any_troubles() {
    for seed in 100..112 {
        println!("seed {seed}"); // Reproduces a failure.
        let mut replicas = Replicas::new(seed);
        replicas.await_all_ready();
        trouble(&mut replicas, &mut Rng::new(seed));
        assert!(!replicas.converge().is_empty());
        let history = replicas.history.borrow();
        println!("{} answered, {} not", history.answered, history.unanswered);
        assert!(history.answered > 100);
        history.assert_linearisable();
    }
}

#[test]
fn the_tester_finds_a_read_that_is_out_of_date() {
    let mut history = History::default();
    let put = Operation::Put { key: "k".to_owned(), value: "new".to_owned() };
    history.on_call(1, "k", put);
    history.on_answer(1, "k", Outcome::Value(None));
    history.on_call(2, "k", Operation::Get { key: "k".to_owned() });
    history.on_answer(2, "k", Outcome::Value(None));
    assert!(!history.of_keys["k"].is_consistent());
}

#[test]
fn messages_are_read_as_they_were_written() {
    let text = |text: &str| text.to_owned();
    let operations = [
        Operation::Get { key: text("a") },
        Operation::Put { key: text(""), value: text("ü") },
        Operation::Replace { key: text("a"), expected: None, value: text("b") },
        Operation::Replace { key: text("a"), expected: Some(text("")), value: text("b") },
    ];
    for (number, operation) in (0..).zip(operations) {
        let command = Command { number, operation };
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes), Some(command));
        assert!((0..bytes.len()).all(|cut| Command::decode(&bytes[..cut]).is_none()));
    }
    let map = BTreeMap::from([(text("a"), text("b")), (text(""), text("ü"))]);
    assert_eq!(decode_map(&encode_map(&map)), Some(map));
}
