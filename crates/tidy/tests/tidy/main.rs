//! Checks of the sources against CONTRIBUTING.md. A finding names the file, the line and the rule.
//!
//! The checks read the files, not the repository, so they also work in a source tarball.

mod arrows;
mod circles;
mod impls;
mod language;
mod mask;
mod modules;
mod properties;
mod rules;
mod tree;

use tree::Tree;

fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

fn findings(rule: impl Fn(&tree::Source) -> Vec<String>) -> Vec<String> {
    Tree::read().sources.iter().flat_map(rule).collect()
}

#[test]
fn no_line_is_wider_than_100_columns() {
    assert_none(&findings(rules::wide_lines));
}

#[test]
fn property_tests_draw_from_a_seed_that_is_set() {
    let seed = std::env::var("PROPTEST_RNG_SEED");
    assert!(seed.is_ok(), ".cargo/config.toml is not in effect: run the tests with cargo");
}

#[test]
fn long_runs_reach_every_property_test() {
    let tree = Tree::read();
    assert_none(&findings(|source| properties::left_out(&tree.long, source)));
    assert_none(&findings(properties::fixed_cases));
}

#[test]
fn no_function_is_longer_than_70_lines() {
    assert_none(&findings(rules::long_functions));
}

#[test]
fn no_test_has_a_name_longer_than_60_characters() {
    assert_none(&findings(rules::long_test_names));
}

#[test]
fn no_file_has_more_than_500_lines_of_production_code() {
    assert_none(&findings(rules::long_files));
}

#[test]
fn no_file_is_named_after_nothing() {
    assert_none(&findings(rules::empty_names));
}

#[test]
fn summary_lines_begin_with_a_verb_or_a_noun() {
    assert_none(&findings(language::summaries));
}

#[test]
fn comments_use_the_words_of_the_field() {
    assert_none(&findings(language::homemade_words));
}

#[test]
fn nothing_is_left_unfinished_or_ignored() {
    assert_none(&findings(rules::leftovers));
}

#[test]
fn crates_import_only_what_the_arrows_allow() {
    let tree = Tree::read();
    let mut found = arrows::between_manifests(tree);
    found.extend(tree.sources.iter().flat_map(arrows::in_source));
    assert_none(&found);
}

#[test]
fn files_of_a_folder_do_not_import_each_other_in_a_circle() {
    assert_none(&circles::circles(&Tree::read().sources));
}

#[test]
fn no_type_has_inherent_impls_in_more_than_three_files() {
    assert_none(&impls::slices(&Tree::read().sources));
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    assert_none(&arrows::missing_lints(Tree::read()));
}

#[test]
fn the_whole_tree_is_read() {
    let tree = Tree::read();
    for path in ["crates/proto/src/engine.rs", "crates/tidy/tests/tidy/main.rs"] {
        assert!(tree.sources.iter().any(|source| source.path == path), "{path} was not read");
    }
    assert!(tree.manifests.iter().any(|manifest| manifest.path == "crates/proto/Cargo.toml"));
}
