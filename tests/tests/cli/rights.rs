//! A user with role `edit` in one namespace and no other right: each command works, or says which right is missing and who
//! gives it.

use std::collections::BTreeSet;

use clap::CommandFactory;
use tenure_cli::Cli;

use super::{
    requeue::{queue_with_backoff, stuck},
    users::with_role,
    *,
};

/// The commands of the plugin, as clap has them: `list`, `config check`, `explain`, `explain pod`.
fn commands() -> BTreeSet<String> {
    let (mut names, mut next) = (BTreeSet::new(), vec![(String::new(), Cli::command())]);
    while let Some((path, command)) = next.pop() {
        if !path.is_empty() && !command.is_subcommand_required_set() {
            names.insert(path.clone());
        }
        for below in command.get_subcommands().filter(|of| of.get_name() != "help") {
            next.push((format!("{path} {}", below.get_name()).trim().to_owned(), below.clone()));
        }
    }
    names
}

/// Who gives the rights that no role in a namespace has.
const QUEUES: &str = ": an administrator of Tenure gives this right, by users.seeQueues of the chart";
const USAGE: &str = ": an administrator of Tenure gives this right, by usage.readers of the chart";
const APPROVAL: &str =
    ": an administrator of the namespace gives these rights, by a RoleBinding to ClusterRole tenure-approve";
const CLUSTER: &str = ": an administrator of the cluster gives this right, by a ClusterRoleBinding";

#[tokio::test]
async fn with_role_edit_alone_each_command_works_or_says_which_right_is_missing_and_who_gives_it() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    queue_with_backoff(world, "cli-edit", 600, 10).await;
    stuck(&namespace, "stuck", "cli-edit").await;
    await_state(world, name, "Requeueing").await;
    paused(&namespace, &deployment(&namespace, "paused"), "spec.replicas", &json!(0), &json!(1)).await;
    namespace.create(&deployment(&namespace, "stopped")).await;
    let mut open = runai_queue("cli-open", "", "1d");
    open["spec"]["extensions"] = json!({"maxTotal": "4h"});
    world.apply(&open).await;
    namespace.create(&workload("Deployment", name, "runs", &in_runai_queue("cli-open"), &NOTHING)).await;
    for pod in ["alone", "other"] {
        namespace.create(&bare_pod(name, pod, &in_runai_queue("cli-open"), &NOTHING)).await;
    }
    // of a user with more rights
    let asked = in_namespace(world, name, &["extend", "pod/alone", "1h"]).await;
    let request = asked.stdout.split([' ', '/']).nth(1).unwrap_or_default().to_owned();
    assert!(asked.code == Some(0) && !request.is_empty(), "{asked:?}");
    let user = with_role(world, name, "edit").await;
    eventually("the role to count", DEADLINE, async || {
        let list = ["extensions", "-n", name];
        Ok((Said::of(tenure(&world.cluster, &user, &list).await).await.code == Some(0)).then_some(()))
    })
    .await
    .unwrap();

    let config = world.cluster.directory().join("edit-tenure.yaml");
    std::fs::write(&config, "defaultPreemptMinRuntime: 10m\n").unwrap();
    let config = config.display().to_string();
    let exported = world.cluster.directory().join("edit-runs.html").display().to_string();
    let queues = format!("{}/../examples/ceiling.yaml", env!("CARGO_MANIFEST_DIR"));
    let (works, pods, other) = ("", format!("{name}/alone"), format!("{name}/other"));
    let rows: &[(&str, &[&str], &str)] = &[
        ("list", &[], works),
        ("list", &["-A"], CLUSTER),
        ("queue", &["cli-edit"], works),
        ("resume", &["deployment/paused"], works),
        ("resume", &["--all", "--dry-run"], works),
        ("requeue", &["job/stuck", "--dry-run"], works),
        ("deactivate", &["deployment/stopped"], works),
        ("activate", &["deployment/stopped"], works),
        ("extend", &["deployment/runs", "1h"], works),
        ("extensions", &[], works),
        ("approve", &[&request], APPROVAL),
        ("deny", &[&request], APPROVAL),
        ("config check", &[&config], works),
        ("matrix", &[], QUEUES),
        ("matrix", &["-f", &queues], works),
        ("explain", &["deployment/runs"], works),
        ("explain pod", &[&pods], works),
        ("explain preemption", &["--preemptor", &pods, "--victim", &other], QUEUES),
        ("status", &[], works),
        ("usage", &[], USAGE),
        ("requeue-schedule", &[], works),
        ("requeue-schedule", &["--queue", "cli-edit"], QUEUES),
        ("validate", &["-f", &queues], works),
        ("completion", &["bash"], works),
        ("version", &[], works),
        ("simulate", &["--generate", "--max-duration", "1d"], works),
        ("simulate", &["--from-cluster", "--max-duration", "1d"], works),
        ("ui", &["--export", &exported], works),
        ("forecast", &[], works),
    ];
    let in_rows: BTreeSet<String> = rows.iter().map(|(command, ..)| (*command).to_owned()).collect();
    assert_eq!(in_rows, commands(), "a row for each command");
    for (command, arguments, lacks) in rows {
        let line: Vec<&str> = command.split(' ').chain(arguments.iter().copied()).collect();
        let said = Said::of(tenure(&world.cluster, &user, &[&line[..], &["-n", name]].concat()).await).await;
        if lacks.is_empty() {
            assert_eq!(said.code, Some(0), "{command}: {said:?}");
            continue;
        }
        let output = said.bad();
        let last = output.lines().last().unwrap_or_default();
        let is_error = last.starts_with("error: ") || last.starts_with("Error from server (Forbidden): ");
        assert!(is_error && last.contains(lacks), "{command}: {output}");
    }
    let explain = ["explain", "pod", &pods, "-n", name];
    let explained = Said::of(tenure(&world.cluster, &user, &explain).await).await.stdout;
    assert!(explained.contains("its floors aren't known: you may not read queues"), "{explained}");
    assert!(!explained.contains("not protected"), "no verdict rather than a wrong one: {explained}");
    // the rest of what status finds, for want of a right
    let status = Said::of(tenure(&world.cluster, &user, &["status"]).await).await.stdout;
    assert!(status.contains("UNKNOWN") && status.contains("-> ask an admin for the right to "), "{status}");
}
