//! Rule against import circles: among the files and subfolders of a folder, imports go one way.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Crate;
use crate::tree::Source;

/// Circles that are still in the tree: the folder, and its files and subfolders that reach each
/// other. The list must only become shorter.
const KNOWN: [(&str, &str); 1] =
    [("crates/proto/src", "engine error outbox rdcm rmp settings view")];

pub(crate) fn circles(sources: &[Source]) -> Vec<String> {
    compare(&Crate::all(sources), &KNOWN)
}

fn compare(crates: &[Crate], known: &[(&str, &str)]) -> Vec<String> {
    let circles: BTreeMap<(String, String), String> = crates.iter().flat_map(in_crate).collect();
    let known = known.iter().map(|(folder, parts)| ((*folder).to_string(), (*parts).to_string()));
    let known: BTreeSet<(String, String)> = known.collect();
    let new = circles.iter().filter(|(circle, _)| !known.contains(circle));
    let new = new.map(|((folder, parts), arrows)| {
        format!("{folder}: no import circle among the files of a folder (here: {parts}; {arrows})")
    });
    let gone = known.iter().filter(|circle| !circles.contains_key(circle));
    let gone = gone.map(|(folder, parts)| {
        let rule = "the circle is gone: delete it from `KNOWN` in circles.rs";
        format!("{folder}: {rule} (here: {parts})")
    });
    new.chain(gone).collect()
}

/// Returns the folder and the parts of each circle, and the arrows between these parts.
fn in_crate(of: &Crate) -> Vec<((String, String), String)> {
    let folders: BTreeSet<&str> = of.files().into_iter().flat_map(folders).collect();
    let arrows = of.arrows();
    let mut circles = Vec::new();
    for folder in folders {
        let mut parts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in &arrows {
            if let (Some(from), Some(to)) = (part(folder, from), part(folder, to)) {
                parts.entry(from).or_default().insert(to);
            }
        }
        for circle in circles_of(&parts) {
            let pairs = circle.iter().flat_map(|from| circle.iter().map(move |to| (*from, *to)));
            let pairs = pairs.filter(|(from, to)| from != to && parts[from].contains(to));
            let within: Vec<String> = pairs.map(|(from, to)| format!("{from} -> {to}")).collect();
            circles.push(((folder.to_string(), circle.join(" ")), within.join(", ")));
        }
    }
    circles
}

fn folders(file: &str) -> impl Iterator<Item = &str> {
    let ends = file.match_indices('/').map(|(at, _)| &file[..at]);
    ends.filter(|folder| folder.split('/').count() > 2)
}

/// Returns the file or subfolder of `folder` that contains `file`, without `.rs`: `x.rs` and `x/`
/// are the same module.
fn part<'a>(folder: &str, file: &'a str) -> Option<&'a str> {
    let below = file.strip_prefix(folder)?.strip_prefix('/')?;
    let first = below.split('/').next()?;
    Some(first.trim_end_matches(".rs"))
}

/// Returns the largest sets of two or more parts that all reach each other.
fn circles_of<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<Vec<&'a str>> {
    let reached = arrows.keys().map(|part| (*part, reached(part, arrows)));
    let reached: BTreeMap<&str, BTreeSet<&str>> = reached.collect();
    let mut circles = BTreeSet::new();
    for (part, others) in &reached {
        let returns = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(part));
        circles.insert(others.iter().filter(returns).copied().collect::<Vec<_>>());
    }
    circles.retain(|circle| circle.len() > 1);
    circles
}

fn reached<'a>(from: &str, arrows: &BTreeMap<&str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut unread = vec![from];
    while let Some(part) = unread.pop() {
        for to in arrows.get(part).into_iter().flatten() {
            if reached.insert(*to) {
                unread.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], known: &[(&str, &str)]) -> Vec<String> {
        let source = |(file, text): &(&str, &str)| {
            Source::new(format!("crates/x/src/{file}"), (*text).to_string())
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        compare(&Crate::all(&sources), known)
    }

    #[test]
    fn circles_among_files_and_subfolders_are_found() {
        let rule = "no import circle among the files of a folder";
        let files = [
            ("lib.rs", "mod a; mod b; mod c; use c::C;"),
            ("a/mod.rs", "mod d; use crate::b::B;"),
            ("a/d.rs", ""),
            ("b.rs", "use crate::a::d::D;"),
            ("c.rs", "use crate::a;"),
        ];
        let circle = "a b; a -> b, b -> a";
        assert_eq!(found(&files, &[]), [format!("crates/x/src: {rule} (here: {circle})")]);
        let within = [("lib.rs", "mod a;"), ("a/mod.rs", "mod d; use d::D;")];
        let back = [&within[..], &[("a/d.rs", "use super::A;")]].concat();
        let circle = "d mod; d -> mod, mod -> d";
        assert_eq!(found(&back, &[]), [format!("crates/x/src/a: {rule} (here: {circle})")]);
        let down = [&within[..], &[("a/d.rs", "use d::D;")]].concat();
        assert_eq!(found(&down, &[]), [""; 0]);
    }

    #[test]
    fn only_circles_in_the_list_are_allowed_and_must_be_there() {
        let files = [("lib.rs", "mod a; use a::A;"), ("a.rs", "use crate::B;")];
        let known = ("crates/x/src", "a lib");
        assert_eq!(found(&files, &[known]), [""; 0]);
        assert_eq!(found(&files, &[("crates/x/src", "a b lib")]).len(), 2);
        let gone = "the circle is gone: delete it from `KNOWN` in circles.rs (here: a lib)";
        assert_eq!(found(&[("lib.rs", "")], &[known]), [format!("crates/x/src: {gone}")]);
    }
}
