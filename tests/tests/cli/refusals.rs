//! Each way in which a cluster refuses, with the plugin's exact words and exit code: users without rights, clusters without
//! queues, queues that don't exist. Clusters that don't answer are in `crates/cli/tests/refusals.rs`.

use std::path::Path;

use tenure_testbed::Cluster;

use super::{Said, run, tenure, world};

/// Acts as a user without any role.
const AS_JANE: [&str; 2] = ["--as", "jane"];

#[tokio::test]
async fn flags_name_the_server_its_authority_and_a_token_as_for_kubectl() {
    let world = world().await;
    let kubectl = async |arguments: &[&str]| {
        world.cluster.kubectl(arguments).await.unwrap().success().unwrap().trim().to_owned()
    };
    let view = async |path: &str| {
        let output = format!("jsonpath={{.clusters[0].cluster.{path}}}");
        kubectl(&["config", "view", "--raw", "--minify", "-o", &output]).await
    };
    let (server, authority) = (view("server").await, view("certificate-authority").await);
    let token = kubectl(&["create", "token", "default", "-n", "default"]).await;
    let nowhere = Path::new("/nonexistent");
    let list = async |flags: &[&str]| {
        let arguments = [&["list", "-A", "--server", &server, "--token", &token][..], flags].concat();
        Said::of(tenure(&world.cluster, nowhere, &arguments).await).await
    };
    let forbidden = "User \"system:serviceaccount:default:default\" cannot list resource \"pods\"";
    let said = list(&["--certificate-authority", &authority]).await;
    assert!(said.stderr.contains(forbidden), "{said:?}");
    let said = list(&["--insecure-skip-tls-verify", "-v", "6"]).await;
    assert!(said.stderr.contains(forbidden) && said.stderr.contains("/api/v1/pods"), "{said:?}");
    let said = list(&[]).await;
    assert!(said.stderr.contains("certificate") && !said.stderr.contains(forbidden), "{said:?}");
    for output in [said.stderr, said.stdout] {
        assert!(!output.contains(&token));
    }
}

#[tokio::test]
async fn a_user_without_rights_is_shown_what_is_forbidden() {
    let world = world().await;
    let of_namespace =
        ": an administrator of the namespace gives this right, by a RoleBinding to ClusterRole view or edit";
    let of_cluster = ": an administrator of the cluster gives this right, by a ClusterRoleBinding";
    let pods = "Error from server (Forbidden): pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\"";
    let pod = |namespace: &str| {
        format!(
            "Error from server (Forbidden): pods \"a\" is forbidden: User \"jane\" cannot get resource \"pods\" in API group \"\" in the namespace \"{namespace}\"{of_namespace}"
        )
    };
    let everywhere = format!("{pods} at the cluster scope{of_cluster}");
    let queues = "error: can't list queues.scheduling.run.ai: Error from server (Forbidden): queues.scheduling.run.ai is forbidden: User \"jane\" cannot list resource \"queues\" in API group \"scheduling.run.ai\" at the cluster scope: an administrator of Tenure gives this right, by users.seeQueues of the chart";
    for (command, complaint) in [
        (&["list"][..], format!("{pods} in the namespace \"default\"{of_namespace}")),
        (&["list", "-A"], everywhere.clone()),
        (&["queue", "a"], everywhere),
        (
            &["resume", "--all"],
            format!(
                "error: can't list deployments.apps: Error from server (Forbidden): deployments.apps is forbidden: User \"jane\" cannot list resource \"deployments\" in API group \"apps\" in the namespace \"default\"{of_namespace}"
            ),
        ),
        (&["explain", "pod", "a"], pod("default")),
        (&["explain", "preemption", "--preemptor", "ns/a", "--victim", "ns/b"], pod("ns")),
        (&["matrix"], queues.into()),
        (&["requeue-schedule", "--queue", "a"], queues.into()),
    ] {
        let said = run(world, &[command, &AS_JANE].concat()).await.bad();
        let mut lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.pop(), Some(complaint.as_str()), "{command:?}");
        // which kinds there are depends on what else was installed
        let left_out = |line: &&str| line.starts_with("Warning: you may not list queues.scheduling.run.ai, ");
        assert!(lines.len() <= 1 && lines.iter().all(left_out), "{command:?}: {said}");
    }
    for verb in ["resume", "requeue", "activate", "deactivate"] {
        let said = run(world, &[&[verb, "job/a"][..], &AS_JANE].concat()).await.bad();
        let expected = format!(
            "Error from server (Forbidden): jobs.batch \"a\" is forbidden: User \"jane\" cannot get resource \"jobs\" in API group \"batch\" in the namespace \"default\"{of_namespace}\nTo {verb} requires the rights to get and to patch jobs.batch in namespace default\n"
        );
        assert_eq!(said, expected);
    }
    let said =
        run(world, &["matrix", "--as", "jane", "--as-group", "team", "--as-group", "system:masters"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
}

const NO_QUEUES: &str = "Warning: the cluster has no queues.scheduling.run.ai: pods that name one have no ceiling\nWarning: the cluster has no queues.scheduler.tensorstack.dev: pods that name one have no ceiling\n";
const NO_TREE: &str = "Warning: the cluster has no queues.scheduling.run.ai\n";

#[tokio::test]
async fn a_cluster_without_queues_has_no_workloads_in_one() {
    let cluster = Cluster::start_api_server_alone("cli-bare").await.unwrap();
    for (command, code, stdout, complaint) in [
        (&["list"][..], 0, "", format!("{NO_QUEUES}No workloads in a queue found in default namespace.\n")),
        (&["list", "-A", "-o", "json"], 0, "[]\n", format!("{NO_QUEUES}No workloads in a queue found.\n")),
        (
            &["list", "a"],
            1,
            "",
            format!("{NO_QUEUES}error: there is no queue \"a\", as far as you may see\n"),
        ),
        (
            &["queue", "a"],
            1,
            "",
            format!("{NO_QUEUES}error: there is no queue \"a\", as far as you may see\n"),
        ),
        (
            &["resume", "deployment/a"],
            1,
            "",
            "Error from server (NotFound): deployments.apps \"a\" not found\n".into(),
        ),
        (&["resume", "--all"], 0, "", "No paused workloads to resume found in default namespace.\n".into()),
        (
            &["resume", "nonsense/a"],
            1,
            "",
            "error: the server doesn't have a resource type \"nonsense\": kubectl api-resources lists the types\n".into(),
        ),
        (&["explain", "pod", "a"], 1, "", "Error from server (NotFound): pods \"a\" not found\n".into()),
        (
            &["matrix"],
            0,
            "QUEUE   PREEMPT FLOOR   FROM   CEILING   FROM\n",
            format!("{NO_TREE}No queues of group scheduling.run.ai found.\n"),
        ),
        (
            &["requeue-schedule", "--queue", "a"],
            1,
            "",
            format!("{NO_TREE}error: there is no queue \"a\" of group scheduling.run.ai: kubectl tenure matrix lists the queues\n"),
        ),
    ] {
        let said = Said::of(tenure(&cluster, cluster.kubeconfig(), command).await).await;
        assert_eq!(
            (said.code, said.stdout.as_str(), said.stderr),
            (Some(code), stdout, complaint),
            "{command:?}"
        );
    }
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_the_same_to_each_command() {
    let world = world().await;
    for command in [&["list", "nosuch"][..], &["queue", "nosuch"], &["list", "nosuch", "--watch"]] {
        let said = run(world, command).await.bad();
        assert_eq!(said, "error: there is no queue \"nosuch\", as far as you may see\n", "{command:?}");
    }
}

#[tokio::test]
async fn a_file_of_the_list_in_kubeconfig_that_does_not_exist_is_skipped_and_a_flags_is_not() {
    let cluster = &world().await.cluster;
    let good = cluster.kubeconfig().display().to_string();
    let missing = cluster.directory().join("no-such-file").display().to_string();
    for list in [format!("{missing}:{good}"), format!("{good}:{missing}"), format!(":{good}"), good] {
        let said = Said::of(tenure(cluster, Path::new(&list), &["list", "-n", "kube-public"]).await).await;
        assert_eq!(said.code, Some(0), "{list}: {said:?}");
    }
    let flag = ["list", "--kubeconfig", &missing];
    let said = Said::of(tenure(cluster, cluster.kubeconfig(), &flag).await).await.bad();
    assert!(said.contains("no-such-file"), "{said}");
}
