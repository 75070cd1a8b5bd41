use std::fmt::Display;

/// Formats a count with its noun, in the plural unless the count is 1: `1 message`, `2 entries`.
///
/// `noun` is singular and ends with the word to inflect, such as `other member`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    match noun.strip_suffix('y') {
        _ if count == "1" => format!("1 {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_everything_else_plural() {
        let counts = [0, 1, 2].map(|count| counted(count, "other member"));
        assert_eq!(counts, ["0 other members", "1 other member", "2 other members"]);
        assert_eq!((&*counted(1, "entry"), &*counted(7, "entry")), ("1 entry", "7 entries"));
        assert_eq!(counted(2, "day"), "2 days");
    }
}
