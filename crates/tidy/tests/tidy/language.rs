//! Rules about the English of comments, as far as a program can check them.

use crate::mask::is_word;
use crate::rules::{finding, has_word};
use crate::tree::Source;

/// Words with which no summary line begins, because its subject must be a thing or the function.
const OPENINGS: [&str; 6] = ["Who", "Whoever", "What", "Whether", "How", "As"];

/// Words and phrases for which the field has better ones, in lower case.
const HOMEMADE: [(&str, &str); 9] = [
    ("tell", "report"),
    ("tells", "reports"),
    ("telling", "reporting"),
    ("told", "notified"),
    ("whoever", "a node that"),
    ("nobody", "no member"),
    ("somebody", "another node"),
    ("under way", "in flight"),
    ("goes on", "continues"),
];

pub(crate) fn summaries(source: &Source) -> Vec<String> {
    let comments: Vec<&str> = source.masked.comments.lines().collect();
    let begins_badly = |index: &usize| {
        let (line, before) = (doc(comments[*index]), index.checked_sub(1).map(|it| comments[it]));
        let is_first = before.and_then(doc).is_none();
        let word = line.map(first_word).unwrap_or_default();
        is_first && OPENINGS.contains(&word)
    };
    let found = (0..comments.len()).filter(begins_badly);
    let rule = "a summary line is a verb phrase or a noun phrase";
    found.map(|index| finding(source, index + 1, rule, &comments[index].trim())).collect()
}

pub(crate) fn homemade_words(source: &Source) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (index, line) in source.masked.comments.lines().enumerate() {
        if line.contains("```") {
            is_code = !is_code;
        }
        let prose = if is_code { String::new() } else { without_code(line).to_lowercase() };
        for (word, better) in HOMEMADE.iter().filter(|(word, _)| has_word(&prose, word)) {
            found.push(finding(source, index + 1, &format!("write \"{better}\""), word));
        }
    }
    found
}

fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    &text[..text.find(|char| !is_word(char)).unwrap_or(text.len())]
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crates/x/src/x.rs".to_string(), text.to_string())
    }

    #[test]
    fn summaries_that_begin_with_a_clause_are_found() {
        let found = |text: &str| summaries(&source(text)).len();
        assert_eq!(found("/// Whether it is.\nfn f() {}\n    /// Who it is."), 2);
        assert_eq!(found("//! What a file holds."), 1);
        assert_eq!(found("/// Returns it.\n/// What is more."), 0, "a later line");
        assert_eq!(found("// Who reads this?\nlet s = \"/// Who\";"), 0);
        assert_eq!(found("/// Whole messages.\n\n/// Assembly."), 0);
    }

    #[test]
    fn words_of_our_own_are_found_outside_of_code() {
        let found = |text: &str| homemade_words(&source(text)).len();
        assert_eq!(found("// It tells nobody, and goes on."), 3);
        assert_eq!(found("/// Storytelling of `told` and [`told`](Self::told)."), 1);
        assert_eq!(found("/// ```\n/// told()\n/// ```\nlet told = \"under way\";"), 0);
    }
}
