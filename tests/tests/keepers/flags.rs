//! The keeper's command line, as T9k's manual has it.

use std::process::{Command, Output};

use tenure_testbed::RELEASE_NAMESPACE;
use tenure_tests::keeper::keeper_program;
use tokio::task::spawn_blocking;

use crate::world;

/// Runs the keeper to its end, without a cluster to be found.
async fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(keeper_program().await);
    command.args(arguments);
    for variable in ["KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"] {
        command.env_remove(variable);
    }
    spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

const MANUAL: &str = r#"  -kube-path string
    	The path of kube config
  -log-level string
    	log level can be "debug", "info", "warn" or "error" (default "info")
  -metrics-addr string
    	listening address for metric (default ":8080")
  -priority-class-threshold string
    	name of an existing PriorityClass, duration-keeper will not evict pods whose priority is larger than or equal to the threshold, defaults to 'system-cluster-critical' whose priority is 2000000000 if not specified
  -t9kSystemNamespace string
    	Namespace of t9k system, default is t9k-system (default "t9k-system")
  -threadiness int
    	number of threadiness to deal with expired pods, default is 1 (default 1)
"#;

#[tokio::test]
async fn help_prints_the_block_of_the_manual() {
    let output = run(&["-h"]).await;
    assert!(output.status.success(), "{output:?}");
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    assert!(said.contains(MANUAL), "{said}");
}

/// Asserts that flags are understood: only then is the missing kubeconfig reported.
async fn assert_understood(arguments: &[&str]) {
    let arguments = [arguments, &["-kube-path", "/not-there"]].concat();
    let output = run(&arguments).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    assert!(said.contains("/not-there"), "{arguments:?}: {said}");
}

#[tokio::test]
async fn flags_are_understood_in_each_form_that_go_takes() {
    for arguments in [
        &["-log-level", "debug"][..],
        &["-log-level=debug"],
        &["--log-level", "debug"],
        &["--log-level=debug"],
        &["-t9kSystemNamespace", "a", "-threadiness=4", "--metrics-addr", ":9090"],
        &["-priority-class-threshold", ""],
        &["-schedulers", "t9k-scheduler"],
        &["-dry-run"],
        &["-dry-run=false"],
    ] {
        assert_understood(arguments).await;
    }
}

#[tokio::test]
async fn bad_flags_end_with_2_and_say_what_would_be_right() {
    for (arguments, complaint) in [
        (&["-no-such-flag"][..], "no-such-flag"),
        (&["-log-level", "verbose"], "verbose"),
        (&["-threadiness", "0"], "threadiness"),
        (&["-threadiness", "-1"], "threadiness"),
        (&["-threadiness", "many"], "many"),
        (&["-metrics-addr", "nonsense"], "nonsense"),
        (&["-writes-per-second", "0"], "writes-per-second"),
    ] {
        let output = run(arguments).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(complaint), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn a_bad_configuration_file_is_refused_by_its_name() {
    let directory = std::env::temp_dir().join(format!("tenure-flags-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("keeper.yaml");
    std::fs::write(&file, "owners: [{group: a.b, kind: Thing, path: status.x, value: 0}]").unwrap();
    let path = file.display().to_string();
    let output = run(&["-config", &path]).await;
    std::fs::remove_dir_all(&directory).unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&path) && said.contains("status.x"), "{said}");
}

#[tokio::test]
async fn a_named_priority_class_must_exist_and_the_log_begins_as_in_the_manual() {
    let cluster = &world().await.cluster;
    let kubeconfig = cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-keeper").await.unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    let missing =
        ["-kube-path", &kubeconfig, "-priority-class-threshold", "missing", "-metrics-addr", "127.0.0.1:0"];
    let output = run(&missing).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--priority-class-threshold missing: there is no such PriorityClass"), "{said}");
    let first = [text(&output.stdout), said].concat();
    let first = first.lines().next().unwrap();
    let (begin, end) = ("level=info time=20", "Z Start=\"Run Duration Keeper\"");
    assert!(first.starts_with(begin) && first.ends_with(end), "{first}");
}
