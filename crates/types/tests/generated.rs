//! Checks that the generated files are committed.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{fs, path::Path, process::Command};

#[test]
fn the_charts_definitions_are_those_of_the_types() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/tenure/files/crds");
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crds");
    // of an earlier run
    let _ = fs::remove_dir_all(&fresh);
    let status = Command::new(env!("CARGO_BIN_EXE_crdgen")).arg(&fresh).status().unwrap();
    assert!(status.success());
    let names = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(&fresh), names(&committed), "run `make crds`");
    for name in names(&fresh) {
        let read = |directory: &Path| fs::read_to_string(directory.join(&name)).unwrap();
        assert_eq!(read(&fresh), read(&committed), "{} is stale: run `make crds`", name.display());
    }
}
