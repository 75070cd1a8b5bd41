//! A single-threaded executor whose order of execution depends only on the tasks.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::hash::Hasher;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use carom_proto::Time;
use carom_sim::HostIx;
use siphasher::sip::SipHasher13;

#[derive(Default)]
pub(super) struct Executor {
    tasks: BTreeMap<TaskId, Task>,
    held: Vec<TaskId>,
    ready: Arc<Ready>,
    next: u64,
    history: SipHasher13,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId(u64);

struct Task {
    host: HostIx,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    task_waker: Arc<TaskWaker>,
}

#[derive(Default)]
struct Ready(Mutex<VecDeque<TaskId>>);

pub(super) struct TaskWaker {
    task: TaskId,
    is_woken: AtomicBool,
    ready: Arc<Ready>,
}

impl Executor {
    pub(super) fn spawn(&mut self, host: HostIx, future: Pin<Box<dyn Future<Output = ()>>>) {
        let task_waker = self.new_task();
        let waker = Waker::from(Arc::clone(&task_waker));
        self.tasks.insert(task_waker.task, Task { host, future, waker, task_waker });
    }

    /// Creates the waker of a new task, and marks the task as ready. The caller stores the task.
    pub(super) fn new_task(&mut self) -> Arc<TaskWaker> {
        self.next += 1;
        let (task, ready) = (TaskId(self.next), Arc::clone(&self.ready));
        let waker = Arc::new(TaskWaker { task, is_woken: AtomicBool::new(false), ready });
        Waker::from(Arc::clone(&waker)).wake();
        waker
    }

    pub(super) fn next_ready(&mut self) -> Option<TaskId> {
        self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    pub(super) fn host_of(&self, task: TaskId) -> Option<HostIx> {
        self.tasks.get(&task).map(|task| task.host)
    }

    pub(super) fn hold(&mut self, task: TaskId) {
        self.held.push(task);
    }

    pub(super) fn resume(&mut self, host: HostIx) {
        let of_host = |task: &mut TaskId| self.tasks.get(task).is_none_or(|it| it.host == host);
        let woken: Vec<TaskId> = self.held.extract_if(.., of_host).collect();
        self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).extend(woken);
    }

    pub(super) fn poll(&mut self, now: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.history.write_u64(now.0);
        self.history.write_u64(id.0);
        task.task_waker.reset();
        let mut context = Context::from_waker(&task.waker);
        if let Poll::Ready(()) = task.future.as_mut().poll(&mut context) {
            self.tasks.remove(&id);
        }
    }

    pub(super) fn kill(&mut self, host: HostIx) -> usize {
        let before = self.tasks.len();
        self.tasks.retain(|_, task| task.host != host);
        before - self.tasks.len()
    }

    pub(super) fn tasks_of(&self, host: HostIx) -> usize {
        self.tasks.values().filter(|task| task.host == host).count()
    }

    pub(super) fn history(&self) -> u64 {
        self.history.finish()
    }
}

impl TaskWaker {
    pub(super) fn task(&self) -> TaskId {
        self.task
    }

    pub(super) fn reset(&self) {
        self.is_woken.store(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            let mut ready = self.ready.0.lock().unwrap_or_else(PoisonError::into_inner);
            ready.push_back(self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    const HERE: HostIx = HostIx(0);
    const THERE: HostIx = HostIx(1);

    type Log = Rc<RefCell<Vec<u32>>>;

    fn run(executor: &mut Executor) {
        while let Some(task) = executor.next_ready() {
            executor.poll(Time(1), task);
        }
    }

    fn spawn(executor: &mut Executor, host: HostIx, log: &Log, number: u32) -> Sender {
        let (sender, receiver) = async_channel::unbounded();
        let log = Rc::clone(log);
        let task = async move {
            while receiver.recv().await.is_ok() {
                log.borrow_mut().push(number);
            }
        };
        executor.spawn(host, Box::pin(task));
        sender
    }

    type Sender = async_channel::Sender<()>;

    fn send(sender: &Sender) {
        sender.try_send(()).expect("unbounded, and received");
    }

    #[test]
    fn tasks_run_in_the_order_in_which_they_were_woken() {
        let (mut executor, log) = (Executor::default(), Log::default());
        let tasks = [1, 2, 3].map(|number| spawn(&mut executor, HERE, &log, number));
        run(&mut executor);
        [2, 0, 1].into_iter().for_each(|task| send(&tasks[task]));
        run(&mut executor);
        assert_eq!(*log.borrow(), [3, 1, 2]);
        let history = executor.history();
        [0, 0, 0].into_iter().for_each(|task| send(&tasks[task]));
        assert!(executor.next_ready().is_some() && executor.next_ready().is_none(), "woken once");
        assert_eq!(executor.history(), history, "nothing has run");
    }

    #[test]
    fn a_task_ends_with_its_future_or_with_its_host() {
        let (mut executor, log) = (Executor::default(), Log::default());
        let here = [1, 2].map(|number| spawn(&mut executor, HERE, &log, number));
        let there = spawn(&mut executor, THERE, &log, 3);
        run(&mut executor);
        let [first, second] = here;
        drop(first);
        run(&mut executor);
        assert_eq!((executor.tasks_of(HERE), executor.tasks_of(THERE)), (1, 1));
        send(&second);
        assert_eq!(executor.kill(HERE), 1);
        send(&there);
        run(&mut executor);
        assert!(second.is_closed(), "its captured values are dropped");
        assert_eq!(*log.borrow(), [3]);
    }

    #[test]
    fn a_held_task_is_ready_again_once_its_host_goes_on() {
        let (mut executor, log) = (Executor::default(), Log::default());
        let task = spawn(&mut executor, HERE, &log, 1);
        run(&mut executor);
        send(&task);
        let woken = executor.next_ready().expect("it was woken");
        assert_eq!(executor.host_of(woken), Some(HERE));
        executor.hold(woken);
        executor.resume(THERE);
        run(&mut executor);
        assert!(log.borrow().is_empty());
        executor.resume(HERE);
        run(&mut executor);
        assert_eq!(*log.borrow(), [1]);
    }
}
