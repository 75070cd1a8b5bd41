//! Connection to the multicast manager of the service.

use alloc::collections::VecDeque;

use super::super::frame::{MANAGER_PARTITION, Owners};
use super::paths::Path;
use super::{Phase, Service};
use crate::Endpoint;
use crate::membership::ManagerNews;
use crate::membership::link::LinkId;

/// State of the manager, as last reported.
#[derive(Debug, Default)]
pub(super) struct ManagerPath {
    /// Connection on which the manager was reported as reached.
    told: Option<(Endpoint, LinkId)>,
    answers: VecDeque<Vec<u8>>,
}

impl ManagerPath {
    /// Queues an answer of the manager, if it comes from its process.
    pub(super) fn on_answer(&mut self, from: Endpoint, answer: Vec<u8>) {
        if self.told.is_some_and(|(at, _)| at == from) {
            self.answers.push_back(answer);
        }
    }

    /// Returns the next report, given the connection on which the manager is reached now.
    pub(super) fn poll(&mut self, reached: Option<(Endpoint, LinkId)>) -> Option<ManagerNews> {
        if self.told != reached {
            // If the connection changed, the loss of the former one is reported first.
            self.answers.clear();
            let is_lost = self.told.is_some();
            self.told = if is_lost { None } else { reached };
            return Some(if is_lost { ManagerNews::Lost } else { ManagerNews::Reached });
        }
        self.answers.pop_front().map(ManagerNews::Answered)
    }
}

impl Service {
    /// Returns the address and connection of the manager, if it can be reached.
    pub(super) fn manager_address(&self) -> Option<(Endpoint, LinkId)> {
        if self.phase != Phase::Running {
            return None;
        }
        let Owners { owned, .. } = self.owners.as_ref()?;
        let (_, at) = owned.first().filter(|(partition, _)| *partition == MANAGER_PARTITION)?;
        let link = self.paths.get(at).and_then(Path::ready_link)?;
        Some((*at, link))
    }

    pub(super) fn manager_link(&self) -> Option<LinkId> {
        self.manager_address().map(|(_, link)| link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_that_moves_is_lost_before_the_new_one_is_reached() {
        let at = |port: u16| Endpoint(([127, 0, 0, 1], port).into());
        let (first, second) = (Some((at(1), LinkId(1))), Some((at(2), LinkId(2))));
        let mut path = ManagerPath::default();
        assert_eq!(path.poll(None), None);
        assert_eq!(path.poll(first), Some(ManagerNews::Reached));
        path.on_answer(at(2), vec![2]);
        path.on_answer(at(1), vec![1]);
        assert_eq!(path.poll(first), Some(ManagerNews::Answered(vec![1])));
        assert_eq!(path.poll(first), None, "the other process is not the manager's");
        path.on_answer(at(1), vec![1]);
        assert_eq!(path.poll(second), Some(ManagerNews::Lost));
        assert_eq!(path.poll(second), Some(ManagerNews::Reached));
        assert_eq!(path.poll(second), None);
        // The same process, on another connection.
        assert_eq!(path.poll(Some((at(2), LinkId(3)))), Some(ManagerNews::Lost));
    }
}
