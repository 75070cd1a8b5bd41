use std::collections::BTreeMap;

/// The handle of a scheduled command, for [`World::cancel`](crate::World::cancel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduled(pub(super) u64);

#[derive(Debug)]
pub(super) struct Commands<C> {
    waiting: BTreeMap<u64, C>,
    next: u64,
}

impl<C> Commands<C> {
    pub(super) fn new() -> Self {
        Self { waiting: BTreeMap::new(), next: 0 }
    }

    pub(super) fn add(&mut self, command: C) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, command);
        number
    }

    pub(super) fn take(&mut self, number: u64) -> Option<C> {
        self.waiting.remove(&number)
    }
}
