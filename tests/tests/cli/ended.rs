//! `list --ended`: what Tenure has paused or deleted, though nothing of it may be left.

use serde_json::Value;
use tenure_tests::workloads::{Namespace, bare_pod, in_runai_queue, runai_queue, workload};

use super::{NOTHING, Said, in_namespace, tenure, users::with_role, world};

#[tokio::test]
async fn what_was_paused_or_deleted_is_listed_though_it_is_gone() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let name = namespace.name();
    let none = in_namespace(world, name, &["list", "--ended"]).await;
    let nothing = format!("Tenure has paused or deleted nothing in the last hour in {name} namespace.\n");
    assert_eq!((none.code, none.stdout.as_str(), none.stderr), (Some(0), "", nothing));

    world.apply(&runai_queue("cli-ended", "", "2s")).await;
    let labels = in_runai_queue("cli-ended");
    namespace.create(&bare_pod(name, "alone", &labels, &NOTHING)).await;
    namespace.create(&workload("Job", name, "train", &labels, &NOTHING)).await;
    namespace.await_pods(&[]).await;
    namespace.await_events_of("RunEnded", 2).await;
    // the rights of a user
    let user = with_role(world, name, "view").await;
    let list = async |arguments: &[&str]| {
        let arguments = [&["list", "--ended", "-n", name], arguments].concat();
        Said::of(tenure(&world.cluster, &user, &arguments).await).await.good()
    };
    let rows: Vec<Value> = serde_json::from_str(&list(&["cli-ended", "-o", "json"]).await).unwrap();
    let mut ended: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {} {}", row["workload"], row["action"], row["queue"], row["ceiling"]))
        .collect();
    ended.sort();
    let expected = ["\"job/train\" \"Paused\"", "\"pod/alone\" \"Deleted\""];
    assert_eq!(ended, expected.map(|of| format!("{of} \"cli-ended\" \"2s\"")));
    let wide = list(&["-o", "wide"]).await;
    assert!(wide.contains("pod/alone") && wide.contains("create it again"), "{wide}");
    let other = in_namespace(world, name, &["list", "--ended", "cli-ended-other", "-o", "json"]).await;
    assert_eq!((other.code, other.stdout.as_str()), (Some(0), "[]\n"));

    // an explanation of what is gone says so as well
    let pod = format!("{name}/alone");
    for arguments in [["explain", "pod", &pod].as_slice(), &["explain", "pod/alone"]] {
        let gone = in_namespace(world, name, arguments).await.bad();
        let (first, second) = gone.split_once('\n').unwrap();
        assert_eq!(first, "Error from server (NotFound): pods \"alone\" not found");
        assert!(second.starts_with("Deleted at 20") && second.contains("the ceiling of 2s"), "{gone}");
    }
}
