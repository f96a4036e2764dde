//! The lock file of the fuzzer, which is a workspace of its own.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const REMEDY: &str = "`cargo metadata --manifest-path fuzz/Cargo.toml` writes fuzz/Cargo.lock again";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names in the table `[dependencies]` of a manifest. Optional ones are of features, which the fuzzer leaves off.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let (_, table) = manifest.split_once("\n[dependencies]\n").expect("[dependencies]");
    let lines = table
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.contains("optional = true"));
    lines
        .filter_map(|line| line.split(['.', ' ']).next())
        .filter(|name| !name.is_empty() && *name != "#")
        .collect()
}

#[test]
fn the_fuzzers_lock_file_has_all_that_the_crates_depend_on() {
    let lock = read("fuzz/Cargo.lock");
    let own = lock.split("[[package]]\n").skip(1).filter(|package| !package.contains("\nsource = "));
    let mut checked = 0;
    for package in own {
        let name = package.lines().next().unwrap().trim_start_matches("name = ").trim_matches('"');
        let manifest = match name {
            "tenure-fuzz" => "fuzz/Cargo.toml".into(),
            "tenure-inputs" => "tests/inputs/Cargo.toml".into(),
            "tenure-certs" => "certs/Cargo.toml".into(),
            name => format!("crates/{}/Cargo.toml", name.trim_start_matches("tenure-")),
        };
        // a version follows a name that several versions have
        let locked: BTreeSet<&str> =
            package.lines().filter_map(|line| line.strip_prefix(" \"")?.split([' ', '"']).next()).collect();
        let manifest = read(&manifest);
        let missing: Vec<_> = dependencies(&manifest).difference(&locked).copied().collect();
        assert!(missing.is_empty(), "{name} depends on {missing:?}: {REMEDY}");
        checked += 1;
    }
    assert!(checked > 5, "{checked}");
}
