use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::mask::is_word;
use crate::tree::Source;

const MAX_COLUMNS: usize = 100;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 500;
const MAX_TEST_NAME: usize = 60;

const EMPTY_NAMES: [&str; 5] = ["common", "util", "utils", "helpers", "core"];

const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
const MARKS: [&str; 2] = ["FIXME", "XXX"];

pub(crate) fn wide_lines(source: &Source) -> Vec<String> {
    let widths = source.text.lines().map(|line| line.chars().count()).enumerate();
    let wide = widths.filter(|(_, columns)| *columns > MAX_COLUMNS);
    let rule = format!("a line has at most {MAX_COLUMNS} columns");
    wide.map(|(index, columns)| finding(source, index + 1, &rule, &columns)).collect()
}

pub(crate) fn long_functions(source: &Source) -> Vec<String> {
    let functions = functions(source.tokens());
    let long = functions.iter().filter(|function| function.lines() > MAX_FUNCTION_LINES);
    let rule = format!("a function has at most {MAX_FUNCTION_LINES} lines");
    long.map(|function| function.finding(source, &rule, function.lines())).collect()
}

pub(crate) fn long_files(source: &Source) -> Vec<String> {
    let lines = production_lines(source);
    if source.is_test() || lines <= MAX_FILE_LINES {
        return Vec::new();
    }
    let rule = format!("a file has at most {MAX_FILE_LINES} lines of production code");
    vec![finding(source, 1, &rule, &lines)]
}

pub(crate) fn empty_names(source: &Source) -> Vec<String> {
    let parts = source.path.split('/').map(|part| part.trim_end_matches(".rs"));
    let empty = parts.filter(|part| EMPTY_NAMES.contains(part));
    let rule = "a file or folder is named after its content";
    empty.map(|part| finding(source, 1, rule, &format!("`{part}`"))).collect()
}

pub(crate) fn long_test_names(source: &Source) -> Vec<String> {
    let tests = functions(source.tokens()).into_iter().filter(|function| function.is_test);
    let long = tests.filter(|test| test.name.len() > MAX_TEST_NAME);
    let rule = format!("a test's name has at most {MAX_TEST_NAME} characters");
    long.map(|test| test.finding(source, &rule, test.name.len())).collect()
}

pub(crate) fn leftovers(source: &Source) -> Vec<String> {
    let (code, comments) = (&source.masked.code, &source.masked.comments);
    let unfinished = UNFINISHED.iter().flat_map(|word| lines_with(code, word));
    let marks = MARKS
        .iter()
        .flat_map(|word| lines_with(code, word).into_iter().chain(lines_with(comments, word)));
    let mut found: Vec<String> = unfinished
        .chain(marks)
        .map(|(line, word)| finding(source, line, "no code is left unfinished", &word))
        .collect();
    found.extend(
        lines_with_attribute(code, "ignore")
            .into_iter()
            .map(|line| finding(source, line, "no test is ignored", &"#[ignore]")),
    );
    found
}

pub(crate) fn finding(
    source: &Source,
    line: usize,
    rule: &str,
    is: &impl std::fmt::Display,
) -> String {
    format!("{}:{line}: {rule} (here: {is})", source.path)
}

struct Function {
    name: String,
    first_line: usize,
    last_line: usize,
    is_test: bool,
}

impl Function {
    fn lines(&self) -> usize {
        self.last_line + 1 - self.first_line
    }

    fn finding(&self, source: &Source, rule: &str, is: usize) -> String {
        finding(source, self.first_line, rule, &format!("`{}` has {is}", self.name))
    }
}

fn functions(tokens: TokenStream) -> Vec<Function> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut functions = Vec::new();
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        match (token, tokens.get(at + 1)) {
            (TokenTree::Group(group), _) => {
                is_test |= is_test_attribute(group);
                functions.extend(self::functions(group.stream()));
            }
            (TokenTree::Ident(word), Some(TokenTree::Ident(name))) if word == "fn" => {
                functions.extend(body(&tokens[at..]).map(|body| Function {
                    name: name.to_string(),
                    first_line: word.span().start().line,
                    last_line: body.span_close().end().line,
                    is_test,
                }));
                is_test = false;
            }
            _ => {}
        }
    }
    functions
}

/// Returns `true` for the brackets of `#[test]` and `#[tokio::test]`, with or without an argument.
fn is_test_attribute(group: &Group) -> bool {
    let is_test = |path: &str| path == "test" || path.starts_with("tokio::test");
    let path = || group.stream().to_string().replace(' ', "");
    group.delimiter() == Delimiter::Bracket && is_test(&path())
}

fn body(tokens: &[TokenTree]) -> Option<&Group> {
    let is = |token: Option<&TokenTree>, chars: &str| {
        let Some(TokenTree::Punct(punct)) = token else { return false };
        chars.contains(punct.as_char())
    };
    let mut places = 0..tokens.len();
    let end = places.find_map(|at| match &tokens[at] {
        TokenTree::Punct(punct) if punct.as_char() == ';' => Some(None),
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
            // This is a const argument, as in `Ring<{ 2 * N }>`.
            let is_argument = is(tokens[..at].last(), "<,") && is(tokens.get(at + 1), ">,");
            (!is_argument).then_some(Some(group))
        }
        _ => None,
    });
    end.flatten()
}

fn production_lines(source: &Source) -> usize {
    let tokens: Vec<TokenTree> = source.tokens().into_iter().collect();
    let tests = tokens.windows(5).filter_map(|tokens| match tokens {
        [pound, TokenTree::Group(attribute), TokenTree::Ident(word), _, TokenTree::Group(body)]
            if word == "mod" && attribute.stream().to_string().replace(' ', "") == "cfg(test)" =>
        {
            Some(body.span_close().end().line + 1 - pound.span().start().line)
        }
        _ => None,
    });
    source.text.lines().count() - tests.sum::<usize>()
}

fn lines_with(text: &str, word: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate().filter(|(_, line)| has_word(line, word));
    lines.map(|(index, _)| (index + 1, word.to_string())).collect()
}

/// Returns `true` if `word`, or a phrase, stands by itself on the line.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && (word.ends_with('!') || !after.is_some_and(is_word))
    })
}

fn lines_with_attribute(code: &str, name: &str) -> Vec<usize> {
    let begins = |line: &str| {
        line.match_indices("#[").any(|(at, _)| {
            let rest = line[at + 2..].trim_start();
            rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_word))
        })
    };
    let lines = code.lines().enumerate().filter(|(_, line)| begins(line));
    lines.map(|(index, _)| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("crates/x/src/x.rs".to_string(), text.to_string())
    }

    fn found(text: &str) -> Vec<(String, usize)> {
        functions(source(text).tokens())
            .iter()
            .map(|function| (function.name.clone(), function.lines()))
            .collect()
    }

    #[test]
    fn the_length_of_a_function_is_told_despite_braces_in_literals() {
        let text = "fn a() {\n  f(\"}\"); // }\n  g('}', r#\"}\"#);\n}\nfn b() {}\n";
        assert_eq!(found(text), [("a".to_string(), 4), ("b".to_string(), 1)]);
    }

    #[test]
    fn declarations_pointers_and_raw_names_are_no_functions() {
        assert_eq!(found("trait T { fn f(x: [u8; 2]) -> [u8; 3]; }"), []);
        assert_eq!(found("type F = fn(u8) -> u8; struct S { r#fn: u8 }"), []);
        assert_eq!(found("// fn f() {}\nconst S: &str = \"fn f() {}\";"), []);
    }

    #[test]
    fn signatures_over_many_lines_belong_to_the_function() {
        let text =
            "fn a<T>(\n  x: [u8; { 1 + 2 }],\n) -> R<{ N }>\nwhere\n  T: Fn() -> R,\n{\n  1\n}";
        assert_eq!(found(text), [("a".to_string(), 8)]);
    }

    #[test]
    fn functions_inside_functions_count_twice() {
        let text = "fn a() {\n  fn b() {\n  }\n  let c = || {\n  };\n}";
        assert_eq!(found(text), [("a".to_string(), 6), ("b".to_string(), 2)]);
    }

    #[test]
    fn the_longest_function_that_is_allowed_has_70_lines() {
        let of_lines = |count: usize| format!("fn a() {{\n{}}}\n", "x();\n".repeat(count - 2));
        assert!(long_functions(&source(&of_lines(70))).is_empty());
        let rule = "a function has at most 70 lines";
        let expected = [format!("crates/x/src/x.rs:1: {rule} (here: `a` has 71)")];
        assert_eq!(long_functions(&source(&of_lines(71))), expected);
    }

    #[test]
    fn columns_are_counted_in_characters() {
        let line = format!("//{}", "§".repeat(98));
        assert!(wide_lines(&source(&line)).is_empty());
        let found = wide_lines(&source(&format!("\n{line}§")));
        let rule = "a line has at most 100 columns";
        assert_eq!(found, [format!("crates/x/src/x.rs:2: {rule} (here: 101)")]);
    }

    #[test]
    fn test_modules_do_not_count_as_production_code() {
        let tests = "#[cfg(test)]\nmod tests {\n  fn a() {}\n}\n";
        let code = "x();\n".repeat(500);
        assert!(long_files(&source(&format!("{code}{tests}"))).is_empty());
        assert_eq!(long_files(&source(&format!("{code}{tests}x();\n"))).len(), 1);
        // Neither a test module in its own file nor a test function ends the production code.
        let declared = "#[cfg(test)]\nmod tests;\n";
        assert_eq!(long_files(&source(&format!("{declared}{code}"))).len(), 1);
        assert_eq!(production_lines(&source("#[cfg(test)]\nfn f() {\n}\nmod m {\n}\n")), 5);
    }

    #[test]
    fn names_of_tests_may_have_60_characters() {
        let named = |attribute: &str, length: usize| {
            let text = format!("#[{attribute}]\n#[cfg(unix)]\nfn {}() {{}}", "a".repeat(length));
            long_test_names(&source(&text)).len()
        };
        for attribute in ["test", "tokio::test", "tokio::test(flavor = \"multi_thread\")"] {
            assert_eq!((named(attribute, 60), named(attribute, 61)), (0, 1), "{attribute}");
        }
        assert_eq!(named("cfg(test)", 61), 0);
        let within =
            format!("proptest! {{\n#[test]\nfn {}(x in any::<u8>()) {{}}}}", "a".repeat(61));
        let rule = "a test's name has at most 60 characters";
        let is = format!("`{}` has 61", "a".repeat(61));
        let expected = [format!("crates/x/src/x.rs:3: {rule} (here: {is})")];
        assert_eq!(long_test_names(&source(&within)), expected);
    }

    #[test]
    fn names_that_say_nothing_are_found_in_files_and_folders() {
        let named = |path: &str| empty_names(&Source::new(path.to_string(), String::new())).len();
        assert_eq!(named("crates/proto/src/util.rs"), 1);
        assert_eq!(named("crates/proto/src/helpers/mod.rs"), 1);
        assert_eq!(named("crates/proto/src/utility.rs"), 0);
    }

    #[test]
    fn leftovers_are_found_where_they_do_harm() {
        let lines = |text: &str| leftovers(&source(text)).len();
        assert_eq!(lines("fn f() { todo!() }"), 1);
        assert_eq!(lines("fn f() { std::dbg!(1) }\n// FIXME later\n#[ignore = \"slow\"]"), 3);
        assert_eq!(lines("/* XXX */ #[test] #[ignore] fn f() {}"), 2);
        assert_eq!(lines("let s = \"XXX todo!\"; // XXXL, ignore dbg!\n#[ignored] fn f() {}"), 0);
    }
}
