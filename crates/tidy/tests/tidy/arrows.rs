//! Rules for imports between the crates, as in the picture in ARCHITECTURE.md.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::mask::is_word;
use crate::tree::{Manifest, Source, Tree};

/// The folder and the imports of each crate's production code. Tests may import more, except in
/// leaves.
const ARROWS: [Arrow; 16] = [
    Arrow { name: "carom-proto", folder: "proto", imports: &[] },
    Arrow { name: "carom-baselines", folder: "baselines", imports: &["carom-proto"] },
    Arrow { name: "carom-figures", folder: "figures", imports: &[] },
    Arrow { name: "carom-files", folder: "files", imports: &[] },
    Arrow { name: "carom-sim", folder: "sim", imports: &["carom-proto"] },
    Arrow {
        name: "carom-conformance",
        folder: "conformance",
        imports: &["carom-proto", "carom-sim"],
    },
    Arrow { name: "carom", folder: "carom", imports: &["carom-proto", "carom-sim"] },
    Arrow { name: "carom-terminal", folder: "terminal", imports: &["carom-proto"] },
    Arrow { name: "carom-netns", folder: "netns", imports: &["carom-proto"] },
    Arrow {
        name: "carom-paper",
        folder: "paper",
        imports: &[
            "carom",
            "carom-proto",
            "carom-baselines",
            "carom-figures",
            "carom-sim",
            "carom-conformance",
            "carom-terminal",
        ],
    },
    Arrow { name: "carom-registry", folder: "registry", imports: &["carom-proto"] },
    Arrow {
        name: "carom-cli",
        folder: "cli",
        imports: &[
            "carom",
            "carom-bench",
            "carom-proto",
            "carom-registry",
            "carom-files",
            "carom-terminal",
        ],
    },
    Arrow {
        name: "carom-lab",
        folder: "lab",
        imports: &[
            "carom-bench",
            "carom-proto",
            "carom-baselines",
            "carom-figures",
            "carom-sim",
            "carom-conformance",
            "carom-netns",
            "carom-paper",
            "carom-terminal",
        ],
    },
    Arrow { name: "carom-bench", folder: "bench", imports: &["carom", "carom-figures"] },
    Arrow { name: "carom-tidy", folder: "tidy", imports: &[] },
    Arrow {
        name: "carom-fuzz",
        folder: "fuzz",
        imports: &["carom", "carom-proto", "carom-baselines", "carom-sim", "carom-files"],
    },
];

const LEAVES: [&str; 4] = ["carom-cli", "carom-lab", "carom-tidy", "carom-fuzz"];

/// Imports that must be optional, so that they are not built without their feature.
const OPTIONAL: [(&str, &str); 3] =
    [("carom", "carom-sim"), ("carom-bench", "carom"), ("carom-bench", "carom-figures")];

struct Arrow {
    name: &'static str,
    folder: &'static str,
    imports: &'static [&'static str],
}

pub(crate) fn between_manifests(tree: &Tree) -> Vec<String> {
    tree.manifests.iter().flat_map(|manifest| check(manifest, &tree.workspace)).collect()
}

pub(crate) fn in_source(source: &Source) -> Vec<String> {
    let mut parts = source.path.split('/');
    let (Some("crates"), Some(folder), Some("src")) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    let Some(arrow) = ARROWS.iter().find(|arrow| arrow.folder == folder) else {
        return Vec::new();
    };
    let lines = source.masked.code.lines().enumerate();
    lines.flat_map(|(index, line)| wrong_paths(&source.path, index + 1, line, arrow)).collect()
}

pub(crate) fn missing_lints(tree: &Tree) -> Vec<String> {
    let takes_them = |manifest: &Manifest| {
        let lints = manifest.toml.get("lints").and_then(|lints| lints.get("workspace"));
        lints.and_then(Value::as_bool) == Some(true)
    };
    let without = tree.manifests.iter().filter(|manifest| !takes_them(manifest));
    without.map(|m| format!("{}:1: missing `[lints] workspace = true`", m.path)).collect()
}

fn check(manifest: &Manifest, workspace: &Table) -> Vec<String> {
    let name = manifest.name();
    let Some(arrow) = ARROWS.iter().find(|arrow| arrow.name == name) else {
        let rule = "every crate is listed in `ARROWS`";
        return vec![format!("{}:1: {rule} (here: {name})", manifest.path)];
    };
    let mut found = Vec::new();
    if manifest.path != format!("crates/{}/Cargo.toml", arrow.folder) {
        found.push(format!("{}:1: {name} must be in crates/{}", manifest.path, arrow.folder));
    }
    for table in tables(&manifest.toml, &["dependencies", "build-dependencies"]) {
        for (key, dependency) in table {
            let import = package(key, dependency, workspace);
            let optional = dependency.get("optional").and_then(Value::as_bool) == Some(true);
            if is_ours(&import) && !arrow.imports.contains(&import.as_str()) {
                found.push(format!("{}:1: {name} must not import {import}", manifest.path));
            } else if OPTIONAL.contains(&(name, import.as_str())) && !optional {
                found.push(format!("{}:1: {name} must import {import} as optional", manifest.path));
            }
        }
    }
    let tests = tables(&manifest.toml, &["dev-dependencies"]).into_iter().flatten();
    let imports: BTreeSet<String> = tests.map(|(key, dep)| package(key, dep, workspace)).collect();
    for leaf in LEAVES.iter().filter(|leaf| imports.contains(**leaf)) {
        found.push(format!("{}:1: no crate may import {leaf}", manifest.path));
    }
    found
}

fn tables<'a>(manifest: &'a Table, names: &[&str]) -> Vec<&'a Table> {
    let for_targets = manifest.get("target").and_then(Value::as_table);
    let for_targets = for_targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let places = std::iter::once(manifest).chain(for_targets);
    places.flat_map(|place| names.iter().filter_map(|name| place.get(*name)?.as_table())).collect()
}

/// Returns the package name of a dependency, which can differ from its key.
fn package(key: &str, dependency: &Value, workspace: &Table) -> String {
    let inherited = || workspace.get("workspace")?.get("dependencies")?.get(key)?.get("package");
    let renamed = dependency.get("package").or_else(inherited);
    renamed.and_then(Value::as_str).unwrap_or(key).to_string()
}

fn is_ours(package: &str) -> bool {
    package == "carom" || package.starts_with("carom-")
}

fn wrong_paths(path: &str, number: usize, line: &str, arrow: &Arrow) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("carom") {
        let before = line[..at].chars().next_back();
        let word: String = line[at..].chars().take_while(|char| is_word(*char)).collect();
        let starts_path = !before.is_some_and(|char| is_word(char) || char == ':');
        let package = word.replace('_', "-");
        let is_path = line[at + word.len()..].starts_with("::") && is_ours(&package);
        let allowed = package == arrow.name || arrow.imports.contains(&package.as_str());
        if starts_path && is_path && !allowed {
            found.push(format!("{path}:{number}: {} must not import {package}", arrow.name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> Vec<String> {
        let folder = name.strip_prefix("carom-").unwrap_or(name);
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        let workspace = "[workspace.dependencies]\nworld = { package = \"carom-sim\" }";
        let workspace: Table = workspace.parse().expect("this is TOML");
        check(&Manifest::new(format!("crates/{folder}/Cargo.toml"), &text), &workspace)
    }

    fn paths(path: &str, text: &str) -> usize {
        in_source(&Source::new(path.to_string(), text.to_string())).len()
    }

    #[test]
    fn arrows_against_the_table_are_found_under_any_name() {
        assert_eq!(manifest("carom-proto", "[dependencies]\nbytes = \"1\""), [""; 0]);
        for dependency in [
            "[dependencies]\ncarom.workspace = true",
            "[build-dependencies]\nx = { package = \"carom-sim\", path = \"../sim\" }",
            "[target.'cfg(unix)'.dependencies]\ncarom-baselines = \"0.1\"",
            "[dependencies]\nworld.workspace = true",
            "[dev-dependencies]\ncarom-cli.workspace = true",
        ] {
            assert_eq!(manifest("carom-proto", dependency).len(), 1, "{dependency}");
        }
        assert_eq!(manifest("carom-unheard-of", "").len(), 1);
    }

    #[test]
    fn the_runtime_imports_the_simulator_only_as_an_option() {
        let always = "[dependencies]\ncarom-sim.workspace = true";
        assert_eq!(manifest("carom", always).len(), 1);
        let option = "[dependencies]\ncarom-sim = { workspace = true, optional = true }";
        assert_eq!(manifest("carom", option), [""; 0]);
    }

    #[test]
    fn paths_against_the_table_are_found_in_code_only() {
        let file = "crates/sim/src/world.rs";
        assert_eq!(paths(file, "use carom::Node;\nlet x = carom_baselines::srm::Srm;"), 2);
        assert_eq!(paths(file, "use carom_proto::Time; use carom_sim::World;"), 0);
        assert_eq!(paths(file, "// carom::Node\nlet s = \"carom::Node\"; crate::carom::f();"), 0);
        assert_eq!(paths("crates/sim/tests/world.rs", "use carom::Node;"), 0);
    }
}
