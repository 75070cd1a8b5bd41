use alloc::collections::VecDeque;

use crate::Endpoint;
use crate::membership::ManagerNews;
use crate::membership::link::LinkId;

#[derive(Debug, Default)]
pub(super) struct ManagerConnection {
    reported: Option<(Endpoint, LinkId)>,
    answers: VecDeque<Vec<u8>>,
}

impl ManagerConnection {
    pub(super) fn on_answer(&mut self, from: Endpoint, answer: Vec<u8>) {
        if self.reported.is_some_and(|(at, _)| at == from) {
            self.answers.push_back(answer);
        }
    }

    /// Returns the next report. `reached` is the current connection to the manager, if any.
    pub(super) fn poll(&mut self, reached: Option<(Endpoint, LinkId)>) -> Option<ManagerNews> {
        if self.reported != reached {
            self.answers.clear();
            let is_lost = self.reported.is_some();
            self.reported = if is_lost { None } else { reached };
            return Some(if is_lost { ManagerNews::Lost } else { ManagerNews::Reached });
        }
        self.answers.pop_front().map(ManagerNews::Answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manager_that_moves_is_lost_before_the_new_one_is_reached() {
        let at = |port: u16| Endpoint(([127, 0, 0, 1], port).into());
        let (first, second) = (Some((at(1), LinkId(1))), Some((at(2), LinkId(2))));
        let mut connection = ManagerConnection::default();
        assert_eq!(connection.poll(None), None);
        assert_eq!(connection.poll(first), Some(ManagerNews::Reached));
        connection.on_answer(at(2), vec![2]);
        connection.on_answer(at(1), vec![1]);
        assert_eq!(connection.poll(first), Some(ManagerNews::Answered(vec![1])));
        assert_eq!(connection.poll(first), None, "the other process does not run the manager");
        connection.on_answer(at(1), vec![1]);
        assert_eq!(connection.poll(second), Some(ManagerNews::Lost));
        assert_eq!(connection.poll(second), Some(ManagerNews::Reached));
        assert_eq!(connection.poll(second), None);
        // The same process has another connection now.
        assert_eq!(connection.poll(Some((at(2), LinkId(3)))), Some(ManagerNews::Lost));
    }
}
