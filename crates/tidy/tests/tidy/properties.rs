//! Rules for property tests. `.ci/long` runs all of them, with `PROPTEST_CASES` cases.

use crate::rules::finding;
use crate::tree::Source;

pub(crate) fn left_out(long: &str, source: &Source) -> Vec<String> {
    let parts: Vec<&str> = source.path.split('/').collect();
    let ["crates", _, "tests", target, ..] = parts[..] else { return Vec::new() };
    let option = format!("--test {}", target.trim_end_matches(".rs"));
    if !source.masked.code.contains("proptest!") || long.contains(&option) {
        return Vec::new();
    }
    vec![finding(source, 1, "`.ci/long` must run all property tests", &format!("no `{option}`"))]
}

pub(crate) fn fixed_cases(source: &Source) -> Vec<String> {
    let sets = ["with_cases(", "ProptestConfig { cases"];
    let set = sets.iter().find(|set| source.masked.code.contains(**set));
    let is_asked = source.text.contains("\"PROPTEST_CASES\"");
    let set = set.filter(|_| !is_asked);
    let rule = "`PROPTEST_CASES` must override a fixed number of cases";
    set.map(|set| finding(source, 1, rule, &format!("`{set}`"))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path.to_string(), text.to_string())
    }

    #[test]
    fn property_tests_that_long_runs_leave_out_are_found() {
        let (long, text) = ("cargo test --lib --test one\n", "proptest! {}");
        let found = |path: &str| left_out(long, &source(path, text)).len();
        assert_eq!(found("crates/x/tests/one/main.rs"), 0);
        assert_eq!(found("crates/x/tests/two.rs"), 1);
        assert_eq!(found("crates/x/tests/two/part.rs"), 1);
        assert_eq!(found("crates/x/src/two.rs"), 0, "they are run with the library");
        assert_eq!(left_out(long, &source("crates/x/tests/two.rs", "// proptest! {}")).len(), 0);
    }

    #[test]
    fn numbers_of_cases_that_nobody_can_change_are_found() {
        let found = |text: &str| fixed_cases(&source("crates/x/tests/one.rs", text)).len();
        assert_eq!(found("ProptestConfig { cases: 60, ..ProptestConfig::default() }"), 1);
        assert_eq!(found("ProptestConfig::with_cases(60)"), 1);
        assert_eq!(found("if var_os(\"PROPTEST_CASES\") {} else { C::with_cases(60) }"), 0);
    }
}
