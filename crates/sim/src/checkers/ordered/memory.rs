//! The rule that no engine holds more bytes than its settings allow.

use super::Story;
use crate::checkers::Violation;

pub(super) fn check(story: &Story, found: &mut Vec<Violation>) {
    if let Some((bytes, limit)) = story.memory.filter(|(bytes, limit)| bytes > limit) {
        let what = format!("{bytes} bytes are held: at most {limit} are allowed");
        found.push(Violation::new("memory is bounded", what));
    }
}
