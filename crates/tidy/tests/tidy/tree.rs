use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proc_macro2::TokenStream;

use crate::mask::Masked;

pub(crate) struct Tree {
    pub(crate) workspace: toml::Table,
    pub(crate) manifests: Vec<Manifest>,
    pub(crate) sources: Vec<Source>,
    pub(crate) long: String,
}

pub(crate) struct Manifest {
    pub(crate) path: String,
    pub(crate) toml: toml::Table,
}

pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) masked: Masked,
}

impl Tree {
    /// Returns the source tree. All rules share one copy, because reading it takes seconds.
    pub(crate) fn read() -> &'static Self {
        static TREE: LazyLock<Tree> = LazyLock::new(Tree::new);
        &TREE
    }

    fn new() -> Self {
        // Read at run time, because checkouts with a common target folder share test binaries.
        let this = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
        let root =
            Path::new(&this).ancestors().nth(2).expect("this crate is in crates/tidy of the tree");
        let mut files = Vec::new();
        walk(root, &mut files);
        files.sort();
        let named = |suffix: &str| {
            let of_kind = files.iter().filter(move |file| relative(root, file).ends_with(suffix));
            of_kind.map(|file| (relative(root, file), read(file))).collect::<Vec<_>>()
        };
        let sources = named(".rs").into_iter().map(|(path, text)| Source::new(path, text));
        let manifests = named("/Cargo.toml").into_iter().filter(|(path, _)| is_member(path));
        Self {
            workspace: parse(&read(&root.join("Cargo.toml"))),
            manifests: manifests.map(|(path, text)| Manifest::new(path, &text)).collect(),
            sources: sources.collect(),
            long: read(&root.join(".ci/long")),
        }
    }
}

impl Manifest {
    pub(crate) fn new(path: String, text: &str) -> Self {
        Self { path, toml: parse(text) }
    }

    pub(crate) fn name(&self) -> &str {
        self.toml["package"]["name"].as_str().expect("cargo has checked that names are strings")
    }
}

impl Source {
    pub(crate) fn new(path: String, text: String) -> Self {
        let masked = Masked::new(&text, tokens(&text));
        Self { path, text, masked }
    }

    pub(crate) fn tokens(&self) -> TokenStream {
        tokens(&self.text)
    }

    pub(crate) fn is_test(&self) -> bool {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        let in_tests = self.path.split('/').any(|part| part == "tests");
        in_tests || file == "tests.rs" || file.ends_with("_tests.rs")
    }
}

fn is_member(path: &str) -> bool {
    path.starts_with("crates/") && path.split('/').count() == 3
}

/// Collects the files below `folder` except build output, which Cargo marks with a cache tag.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the source tree can be read");
    for entry in entries {
        let entry = entry.expect("the source tree can be read");
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().expect("files have a type").is_dir() {
            let is_built = name == "target" || path.join("CACHEDIR.TAG").exists();
            if !is_built && !name.to_string_lossy().starts_with('.') {
                walk(&path, files);
            }
        } else {
            files.push(path);
        }
    }
}

fn relative(root: &Path, file: &Path) -> String {
    let path = file.strip_prefix(root).expect("the walk stays below the root");
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("sources are Rust")
}

fn parse(text: &str) -> toml::Table {
    text.parse().expect("cargo has parsed this manifest before it ran this test")
}
