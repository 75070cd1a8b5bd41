//! Rule against types in slices: the inherent `impl` blocks of a type are in few files.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::Crate;
use crate::tree::Source;

const MAX_FILES: usize = 3;

/// Types that are still in more files: the folder of the definition, and the name. The list must
/// only become shorter.
const KNOWN: [(&str, &str); 3] =
    [("crates/carom/src", "Group"), ("crates/sim/src/bulk", "Player"), ("crates/sim/src", "World")];

/// Finds types in slices that are not in `KNOWN`, and entries of `KNOWN` that are not.
pub(crate) fn slices(sources: &[Source]) -> Vec<String> {
    compare(&Crate::all(sources), &KNOWN)
}

fn compare(crates: &[Crate], known: &[(&str, &str)]) -> Vec<String> {
    let folder = |file: &str| file[..file.rfind('/').unwrap_or_default()].to_string();
    let impls = crates.iter().flat_map(Crate::impls).filter(|(_, files)| files.len() > MAX_FILES);
    let sliced: BTreeMap<(String, String), usize> = impls
        .map(|((file, name), files)| ((folder(file), name.to_string()), files.len()))
        .collect();
    let known = known.iter().map(|(folder, name)| ((*folder).to_string(), (*name).to_string()));
    let known: BTreeSet<(String, String)> = known.collect();
    let rule = format!("the inherent impls of a type are in at most {MAX_FILES} files");
    let new = sliced.iter().filter(|(of, _)| !known.contains(of));
    let new = new
        .map(|((folder, name), files)| format!("{folder}: {rule} (here: `{name}` is in {files})"));
    let gone = known.iter().filter(|of| !sliced.contains_key(of));
    let gone = gone.map(|(folder, name)| {
        let rule = "the type is in few files: delete it from `KNOWN` in impls.rs";
        format!("{folder}: {rule} (here: `{name}`)")
    });
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings in a crate whose type `A` has inherent `impl` blocks in `count` files.
    fn found(count: usize, known: &[(&str, &str)]) -> Vec<String> {
        let declarations: String = (1..count).map(|file| format!("mod a{file};")).collect();
        let root = format!("{declarations} mod b; pub struct A; impl A {{}} impl A {{}}");
        let source = |file: &str, text: &str| {
            Source::new(format!("crates/x/src/{file}.rs"), text.to_string())
        };
        let mut sources = vec![source("lib", &root)];
        sources.push(source("b", "struct A; impl A {} impl Clone for crate::A {}"));
        for file in 1..count {
            let text = "use super::A; impl A {} fn f(x: impl Fn()) {}";
            let text = if file == 1 { "impl<T> super::A where T: Fn() {}" } else { text };
            sources.push(source(&format!("a{file}"), text));
        }
        compare(&Crate::all(&sources), known)
    }

    #[test]
    fn a_type_may_have_impls_in_three_files() {
        assert_eq!(found(3, &[]), [""; 0]);
        let rule = "the inherent impls of a type are in at most 3 files (here: `A` is in 4)";
        assert_eq!(found(4, &[]), [format!("crates/x/src: {rule}")]);
    }

    #[test]
    fn only_types_in_the_list_may_have_impls_in_more_files() {
        let known = ("crates/x/src", "A");
        assert_eq!(found(4, &[known]), [""; 0]);
        let gone = "the type is in few files: delete it from `KNOWN` in impls.rs (here: `A`)";
        assert_eq!(found(3, &[known]), [format!("crates/x/src: {gone}")]);
        assert_eq!(found(4, &[("crates/x/src/b", "A")]).len(), 2);
    }
}
