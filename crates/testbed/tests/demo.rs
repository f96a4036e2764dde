//! The output of `make demo`.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::process::Command;

#[test]
fn the_demo_shows_a_ceiling_a_floor_and_a_requeue() {
    let demo =
        Command::new(env!("CARGO_BIN_EXE_testbed")).arg("demo").env_remove("KUBECONFIG").output().unwrap();
    let [output, errors] = [demo.stdout, demo.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(demo.status.success(), "{output}\n{errors}");
    // it fails by itself if they don't come in time
    for line in [
        "event MaxDurationExceeded on Deployment test: ",
        "Deployment test is at 0/0",
        "$ kubectl tenure explain deployment/test",
        "deployment.apps/test resumed",
        "pod urgent runs on node-1",
        "event Requeued on Job fragile: ",
        "event DeactivatedDueToRequeuingLimitExceeded on Job fragile: ",
    ] {
        assert!(output.contains(line), "{line:?} isn't in\n{output}");
    }
}
