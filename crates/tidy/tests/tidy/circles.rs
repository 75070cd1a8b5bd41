//! Rule against import circles: among the files and subfolders of a folder, imports go one way.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Crate;
use crate::tree::Source;

pub(crate) fn circles(sources: &[Source]) -> Vec<String> {
    let circles: BTreeMap<(String, String), String> =
        Crate::all(sources).iter().flat_map(in_crate).collect();
    let circles = circles.iter().map(|((folder, parts), arrows)| {
        format!("{folder}: no import circle among the files of a folder (here: {parts}; {arrows})")
    });
    circles.collect()
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

/// Returns the entry of `folder` that contains `file`. `x.rs` and `x/` are one module.
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

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(file, text): &(&str, &str)| {
            Source::new(format!("crates/x/src/{file}"), (*text).to_string())
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        circles(&sources)
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
        assert_eq!(found(&files), [format!("crates/x/src: {rule} (here: {circle})")]);
        let within = [("lib.rs", "mod a;"), ("a/mod.rs", "mod d; use d::D;")];
        let back = [&within[..], &[("a/d.rs", "use super::A;")]].concat();
        let circle = "d mod; d -> mod, mod -> d";
        assert_eq!(found(&back), [format!("crates/x/src/a: {rule} (here: {circle})")]);
        let down = [&within[..], &[("a/d.rs", "use d::D;")]].concat();
        assert_eq!(found(&down), [""; 0]);
    }

    #[test]
    fn circle_through_the_root_of_a_crate_is_found() {
        let files = [("lib.rs", "mod a; use a::A;"), ("a.rs", "use crate::B;")];
        let rule = "no import circle among the files of a folder";
        let circle = "a lib; a -> lib, lib -> a";
        assert_eq!(found(&files), [format!("crates/x/src: {rule} (here: {circle})")]);
    }
}
