//! The pages of `docs/acceptance` and `docs/kai.md` name tests that exist, and a test for each item.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Each page, with its name.
fn pages() -> Vec<(String, String)> {
    let listed = fs::read_dir(workspace().join("docs/acceptance")).unwrap();
    let paths = listed.map(|entry| entry.unwrap().path()).chain([workspace().join("docs/kai.md")]);
    paths.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// The texts between backticks: every second part.
fn names(row: &str) -> impl Iterator<Item = (&str, &str)> {
    row.split('`').skip(1).step_by(2).filter_map(|name| name.split_once("::"))
}

#[test]
fn every_test_that_a_page_names_exists() {
    let mut files = HashMap::new();
    let pages = pages();
    let rows = pages.iter().flat_map(|(_, page)| page.lines()).filter(|line| line.starts_with('|'));
    for (file, test) in rows.flat_map(names) {
        let text = files.entry(file).or_insert_with(|| text_of(file));
        assert!(is_test(text, test), "{file}::{test}");
    }
    assert!(!files.is_empty());
}

/// True if a function has this name, and an attribute that makes it a test. None of them has more than three.
fn is_test(text: &str, name: &str) -> bool {
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    before.lines().rev().take(4).any(|line| line.contains("test]") || line.contains("::test("))
}

/// The files that a name may mean: an end-to-end test, or one of a crate, beside its code or apart.
fn text_of(file: &str) -> String {
    let (of_crate, module) = file.split_once('/').unwrap_or((file, ""));
    let paths = [
        format!("tests/tests/{file}.rs"),
        format!("tests/{file}.rs"),
        format!("crates/{of_crate}/src/{module}.rs"),
        format!("crates/{of_crate}/{module}.rs"),
    ];
    paths.iter().filter_map(|path| fs::read_to_string(workspace().join(path)).ok()).collect()
}

#[test]
fn every_item_names_a_test() {
    let mut items = 0;
    for (path, page) in pages() {
        let mut expects_tests = false;
        let mut before = "";
        for line in page.lines() {
            if !before.starts_with('|') {
                // the first row of a table has its headings
                expects_tests = line.starts_with('|') && line.contains(" tests |");
            } else if expects_tests && line.starts_with('|') && !line.starts_with("| ---") {
                assert!(names(line).next().is_some(), "no test in {path}: {line}");
                items += 1;
            }
            before = line;
        }
    }
    assert!(items > 100, "{items}");
}
