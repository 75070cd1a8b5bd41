use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Text of the notice, in one line.
    pub text: String,
    /// Suggested fix in one line, if there is one.
    pub fix: Option<String>,
    /// `true` if the notice reports normal operation, so that a log can omit it.
    pub is_routine: bool,
}

#[derive(Debug, Default)]
pub(crate) struct NoticeLog(Mutex<Notices>);

#[derive(Debug, Default)]
struct Notices {
    latest: VecDeque<Notice>,
    dropped: usize,
}

impl Notice {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), fix: None, is_routine: false }
    }

    pub(crate) fn with_fix(text: String, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..Self::plain(text) }
    }
}

impl NoticeLog {
    pub(crate) fn add(&self, notice: Notice) {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.latest.back() == Some(&notice) {
            return;
        }
        tracing::info!("{}", notice.text);
        if notices.latest.len() == MAX_NOTICES {
            notices.latest.pop_front();
            notices.dropped += 1;
        }
        notices.latest.push_back(notice);
    }

    pub(crate) fn since(&self, known: usize) -> (Vec<Notice>, usize) {
        let notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = notices.latest.iter().skip(known.saturating_sub(notices.dropped));
        (others.cloned().collect(), notices.dropped + notices.latest.len())
    }
}

const MAX_NOTICES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_report_each_event_and_collapse_only_repeats() {
        let notices = NoticeLog::default();
        let add = |text: &str| notices.add(Notice::plain(text));
        let texts = |known| -> Vec<String> {
            notices.since(known).0.into_iter().map(|it| it.text).collect()
        };
        ["A to B", "A to B", "B to A", "A to B"].into_iter().for_each(add);
        assert_eq!(texts(0), ["A to B", "B to A", "A to B"]);
        assert_eq!(texts(2), ["A to B"]);
        (0..2 * MAX_NOTICES).for_each(|number| add(&format!("{number}")));
        assert_eq!(texts(0).len(), MAX_NOTICES);
        let all = notices.since(0).1;
        assert_eq!(all, 3 + 2 * MAX_NOTICES);
        assert_eq!(texts(all), [""; 0]);
        add("the group is closed");
        assert_eq!(texts(all), ["the group is closed"]);
    }
}
