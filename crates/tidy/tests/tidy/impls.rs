//! Rule against scattered types: the inherent `impl` blocks of a type are in few files.

use std::collections::BTreeMap;

use crate::modules::Crate;
use crate::tree::Source;

const MAX_FILES: usize = 3;

pub(crate) fn slices(sources: &[Source]) -> Vec<String> {
    let folder = |file: &str| file[..file.rfind('/').unwrap_or_default()].to_string();
    let crates = Crate::all(sources);
    let impls = crates.iter().flat_map(Crate::impls).filter(|(_, files)| files.len() > MAX_FILES);
    let sliced: BTreeMap<(String, String), usize> = impls
        .map(|((file, name), files)| ((folder(file), name.to_string()), files.len()))
        .collect();
    let rule = format!("the inherent impls of a type are in at most {MAX_FILES} files");
    let finding =
        |((folder, name), files)| format!("{folder}: {rule} (here: `{name}` is in {files})");
    sliced.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: usize) -> Vec<String> {
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
        slices(&sources)
    }

    #[test]
    fn a_type_may_have_impls_in_three_files() {
        assert_eq!(found(3), [""; 0]);
        let rule = "the inherent impls of a type are in at most 3 files (here: `A` is in 4)";
        assert_eq!(found(4), [format!("crates/x/src: {rule}")]);
    }
}
