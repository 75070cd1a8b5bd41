//! The modules of a crate without tests, and the names that each defines, imports and uses.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, ImplItemFn, Item, ItemImpl, ItemMod, ItemUse, Macro, Meta, Type, UseTree, Visibility,
};

use crate::tree::Source;

/// Maximum number of re-exports of a name. It ends the search for a name that imports itself.
const MAX_REEXPORTS: usize = 8;

pub(crate) struct Crate {
    /// The keys are the modules' paths from the root of the crate.
    modules: BTreeMap<Vec<String>, Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    definitions: BTreeSet<String>,
    imports: Vec<Import>,
    paths: Vec<Vec<String>>,
    impls: Vec<Vec<String>>,
    declared: Vec<String>,
}

struct Import {
    path: Vec<String>,
    name: String,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Module(&'a [String]),
    Item(&'a str),
}

impl Crate {
    pub(crate) fn all(sources: &[Source]) -> Vec<Self> {
        let files = sources.iter().map(|source| (source.path.as_str(), source));
        let files: BTreeMap<&str, &Source> = files.collect();
        let is_root = |path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            matches!(parts[..], ["crates", _, "src", "lib.rs" | "main.rs"])
        };
        let roots = files.keys().filter(|path| is_root(path));
        roots.map(|root| Self::read(root, &files)).collect()
    }

    fn read(root: &str, files: &BTreeMap<&str, &Source>) -> Self {
        let mut modules = BTreeMap::new();
        let mut unread = vec![(Vec::new(), root.to_string())];
        while let Some((path, file)) = unread.pop() {
            let code = syn::parse_file(&files[file.as_str()].text);
            let code = code.unwrap_or_else(|error| panic!("{file}: {error}"));
            let mut reader = Reader { path, modules: BTreeMap::new() };
            reader.module();
            reader.visit_file(&code);
            for (path, module) in &mut reader.modules {
                module.file.clone_from(&file);
                for name in &module.declared {
                    let child = [path.as_slice(), std::slice::from_ref(name)].concat();
                    let file = file_of_module(root, &child, files);
                    unread.push((child, file));
                }
            }
            modules.append(&mut reader.modules);
        }
        Self { modules }
    }

    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.modules.values().map(|module| module.file.as_str()).collect()
    }

    /// Returns pairs of files in which the first uses items that the second defines.
    pub(crate) fn arrows(&self) -> BTreeSet<(&str, &str)> {
        let mut arrows = BTreeSet::new();
        for (at, module) in &self.modules {
            let imports = module.imports.iter().map(|import| &import.path);
            let used = imports.chain(&module.paths);
            let used = used.filter_map(|path| self.file_of(self.find(at, path, 0)?));
            let others = used.filter(|file| *file != module.file);
            arrows.extend(others.map(|file| (module.file.as_str(), file)));
        }
        arrows
    }

    /// Returns the files with inherent `impl` blocks of each type, by the type's file and name.
    pub(crate) fn impls(&self) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
        let mut impls: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for (at, module) in &self.modules {
            for path in &module.impls {
                let place = self.find(at, path, 0);
                let file = place.and_then(|place| self.file_of(place)).unwrap_or(&module.file);
                let name = path.last().expect("the path of a type has a name");
                impls.entry((file, name.as_str())).or_default().insert(&module.file);
            }
        }
        impls
    }

    fn file_of<'a>(&'a self, place: Place<'a>) -> Option<&'a str> {
        match place {
            Place::Module(path) => Some(&self.modules.get(path)?.file),
            Place::Item(file) => Some(file),
        }
    }

    /// Returns the meaning of `path` in module `at`, or `None` if it is not in this crate.
    fn find<'a>(
        &'a self,
        at: &'a [String],
        path: &[String],
        reexports: usize,
    ) -> Option<Place<'a>> {
        let mut place = Place::Module(at);
        for (index, name) in path.iter().enumerate() {
            let Place::Module(module) = place else { break };
            let next = match (name.as_str(), module.split_last()) {
                ("crate", _) => Some(Place::Module(&[])),
                ("self", _) => Some(place),
                ("super", Some((_, parent))) => Some(Place::Module(parent)),
                _ => self.find_name(module, name, reexports),
            };
            match next {
                Some(next) => place = next,
                None if index == 0 => return None,
                // A macro can define names that are not found by this search.
                None => break,
            }
        }
        Some(place)
    }

    fn find_name<'a>(
        &'a self,
        at: &'a [String],
        name: &String,
        reexports: usize,
    ) -> Option<Place<'a>> {
        let module = self.modules.get(at)?;
        let child = [at, std::slice::from_ref(name)].concat();
        if let Some((child, _)) = self.modules.get_key_value(&child) {
            return Some(Place::Module(child));
        }
        if module.definitions.contains(name) {
            return Some(Place::Item(&module.file));
        }
        if reexports == MAX_REEXPORTS {
            return None;
        }
        let import = module.imports.iter().find(|import| import.name == *name);
        if let Some(import) = import {
            return self.find(at, &import.path, reexports + 1);
        }
        let mut globs = module.imports.iter().filter(|import| import.name == "*");
        globs.find_map(|glob| match self.find(at, &glob.path, reexports + 1)? {
            Place::Module(module) if module != at => self.find_name(module, name, reexports + 1),
            _ => None,
        })
    }
}

fn file_of_module(root: &str, module: &[String], files: &BTreeMap<&str, &Source>) -> String {
    let folder = &root[..root.rfind('/').expect("a crate's root is in `src`")];
    let path = format!("{folder}/{}", module.join("/"));
    let candidates = [format!("{path}.rs"), format!("{path}/mod.rs")];
    let file = candidates.into_iter().find(|file| files.contains_key(file.as_str()));
    file.unwrap_or_else(|| panic!("{path} must have no `#[path]`"))
}

struct Reader {
    path: Vec<String>,
    modules: BTreeMap<Vec<String>, Module>,
}

impl Reader {
    fn module(&mut self) -> &mut Module {
        self.modules.entry(self.path.clone()).or_default()
    }

    fn import(&mut self, tree: &UseTree, mut path: Vec<String>) {
        let name = match tree {
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, path.clone()));
                return;
            }
            UseTree::Path(prefix) => {
                path.push(prefix.ident.to_string());
                self.import(&prefix.tree, path);
                return;
            }
            UseTree::Name(name) if name.ident == "self" => path.last().cloned().unwrap_or_default(),
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                name.ident.to_string()
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                name.rename.to_string()
            }
            UseTree::Glob(_) => "*".to_string(),
        };
        self.module().imports.push(Import { path, name });
    }

    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.read_tokens(group.stream());
                    colons = 0;
                }
                _ => colons = 0,
            }
        }
        self.add_path(path);
    }

    /// Adds a path. A single name is local, or already in an import.
    fn add_path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            self.module().paths.push(path);
        }
    }
}

impl Visit<'_> for Reader {
    fn visit_item(&mut self, item: &Item) {
        let (attributes, name) = outline(item);
        if !attributes.iter().any(is_test_only) {
            self.module().definitions.extend(name);
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        if !function.attrs.iter().any(is_test_only) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &ItemMod) {
        let name = module.ident.to_string();
        if module.content.is_none() {
            self.module().declared.push(name);
            return;
        }
        self.path.push(name);
        self.module();
        visit::visit_item_mod(self, module);
        self.path.pop();
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_item_impl(&mut self, block: &ItemImpl) {
        if let (None, Type::Path(of)) = (&block.trait_, &*block.self_ty) {
            let path = names(&of.path);
            self.module().impls.push(path);
        }
        visit::visit_item_impl(self, block);
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.add_path(names(path));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.visit_path(&call.path);
        self.read_tokens(call.tokens.clone());
    }

    /// Skips paths such as `pub(in crate::rmp)`, which use nothing.
    fn visit_visibility(&mut self, _: &Visibility) {}
}

fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Returns the attributes and the name of an item. Imports and modules define no name.
fn outline(item: &Item) -> (&[Attribute], Option<String>) {
    let (attributes, name) = match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Impl(item) => (&item.attrs, None),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Mod(item) => (&item.attrs, None),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Use(item) => (&item.attrs, None),
        _ => return (&[], None),
    };
    (attributes, name.map(ToString::to_string))
}

/// Returns `true` for `#[cfg(test)]`, `#[cfg(doctest)]` and combinations such as `all(test, unix)`.
fn is_test_only(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && names_tests(list.tokens.clone())
}

fn names_tests(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if name == "test" || name == "doctest" => return true,
            TokenTree::Ident(name) if name == "not" => drop(tokens.next()),
            TokenTree::Group(group) if names_tests(group.stream()) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(file, text): &(&str, &str)| {
            Source::new(format!("crates/x/src/{file}"), (*text).to_string())
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        let crates = Crate::all(&sources);
        let arrows = crates.iter().flat_map(Crate::arrows);
        let short = |path: &str| path.replace("crates/x/src/", "");
        arrows.map(|(from, to)| format!("{} -> {}", short(from), short(to))).collect()
    }

    #[test]
    fn every_form_of_use_is_an_arrow() {
        let b = ("b.rs", "pub struct B; pub fn f() {}");
        for text in [
            "use crate::b::B;",
            "use super::b::{self as other, B as C};",
            "use super::{b::{B}};",
            "fn f(b: &crate::b::B) {}",
            "fn f() { vec![1, super::b::f()]; }",
            "use crate::b; fn f() { b::f() }",
            "mod inner { fn f() { super::super::b::f() } }",
        ] {
            let found = arrows(&[("lib.rs", "mod a; mod b;"), ("a.rs", text), b]);
            assert_eq!(found, ["a.rs -> b.rs"], "{text}");
        }
    }

    #[test]
    fn tests_comments_and_visibility_are_no_arrows() {
        for text in [
            "// use crate::b::B;\n/// [`crate::b::B`]\nfn f() -> &'static str { \"crate::b::B\" }",
            "#[cfg(test)] mod tests { use crate::b::B; }",
            "#[cfg(all(test, unix))] use crate::b::B;",
            "struct S; impl S { #[cfg(test)] fn f() { crate::b::f() } }",
            "pub(in crate::a) fn b() { b::f() }",
            "#[cfg(test)] mod a_tests;",
        ] {
            let found = arrows(&[("lib.rs", "mod a; mod b;"), ("a.rs", text), ("b.rs", "")]);
            assert_eq!(found, [""; 0], "{text}");
        }
        let found = arrows(&[("lib.rs", "mod a; #[cfg(not(test))] use a::A;"), ("a.rs", "")]);
        assert_eq!(found, ["lib.rs -> a.rs"]);
    }

    #[test]
    fn reexported_items_belong_to_the_file_that_defines_them() {
        let root = ("lib.rs", "mod a; mod b;");
        let b = [("b/mod.rs", "mod c; pub use c::{C, D as E}; pub use c::*; pub enum B {}")];
        let c = [("b/c.rs", "pub struct C; pub struct D; pub const F: u8 = 1;")];
        let found = |text: &str| {
            let found = arrows(&[&[root, ("a.rs", text)], &b[..], &c[..]].concat());
            found.into_iter().filter(|arrow| arrow.starts_with('a')).collect::<Vec<_>>()
        };
        for text in ["use crate::b::C;", "use crate::b::E;", "use crate::b::F;"] {
            assert_eq!(found(text), ["a.rs -> b/c.rs"], "{text}");
        }
        for text in ["use crate::b::B;", "use crate::b::*;", "use crate::b::by_macro;"] {
            assert_eq!(found(text), ["a.rs -> b/mod.rs"], "{text}");
        }
        assert_eq!(found("use a::a; use a; use std::b::C; use self::a::*;"), [""; 0]);
    }
}
