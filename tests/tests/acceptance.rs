//! `docs/acceptance.md` and `docs/floors.md` name tests that there are.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{fs, path::Path};

#[test]
fn every_test_that_a_list_names_exists() {
    for list in ["docs/acceptance.md", "docs/floors.md"] {
        assert_all_exist(list);
    }
}

fn assert_all_exist(list: &str) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = fs::read_to_string(workspace.join(list)).unwrap();
    // code is between backticks: every second part
    let names =
        list.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2));
    let mut tests = names.filter_map(|name| name.split_once("::")).peekable();
    assert!(tests.peek().is_some());
    for (file, test) in tests {
        let (of_crate, module) = file.split_once('/').unwrap_or((file, ""));
        let files = [format!("tests/tests/{file}.rs"), format!("crates/{of_crate}/src/{module}.rs")];
        let found = files.iter().filter_map(|file| fs::read_to_string(workspace.join(file)).ok());
        let declared = |text: String| text.contains(&format!("fn {test}()"));
        assert!(found.into_iter().any(declared), "{file}::{test}");
    }
}
