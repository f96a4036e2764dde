//! What is granted, by whom, and what is denied.

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE,
    workloads::{Namespace, runai_queue},
};

use super::{announced, await_end, await_state, decision, extension, is_waiting, job, queue};
use crate::world;

const ADMIN: &str = "admin";

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

#[tokio::test]
async fn a_run_is_extended_up_to_a_total_at_once_and_up_to_another_by_approval() {
    let namespace = Namespace::new(world().await).await;
    let allowed = json!({"autoApprove": "1h", "maxTotal": "4h", "maxCount": 3});
    let mut of = queue("extended", "1h", allowed);
    of["spec"]["expiryNotice"] = json!("2d");
    namespace.apply(&of).await;
    let job = namespace.create(&job(&namespace, "train", "extended")).await;
    namespace.await_running(1).await;
    let shown = async || Ok(announced(&namespace, &job).await);
    let end = eventually("the end of the run to be announced", DEADLINE, shown).await.unwrap();

    let (asked, first) = (Timestamp::now(), extension(&job, "first", "1h"));
    let first = namespace.create(&first).await;
    await_end(&namespace, &job, end + hours(1)).await;
    let took = Timestamp::now().duration_since(asked);
    println!("from the request to the new deadline: {took:#}");
    let status = await_state(&namespace, &first, "Granted").await;
    assert_eq!((&status["granted"], &status["by"]), (&json!("1h"), &json!("tenure-keeper")));
    assert_eq!(namespace.field(&first, "spec.requestedBy").await, ADMIN);

    let second = namespace.create(&extension(&job, "second", "2h")).await;
    let status = await_state(&namespace, &second, "Pending").await;
    assert_eq!(
        status["message"],
        "Waits for approval: without it, a run gets at most 1h in all (autoApprove)"
    );
    let approved =
        namespace.try_patch_subresource(&second, "status", &decision(ADMIN, "Granted", "2h")).await;
    approved.unwrap();
    await_end(&namespace, &job, end + hours(3)).await;
    let wait = ["wait", "--for=condition=Granted", "--timeout=60s", "extensions.tenure.dev", "--namespace"];
    let wait = [&wait[..], &[namespace.name(), "first", "second"]].concat();
    world().await.cluster.kubectl(&wait).await.unwrap().success().unwrap();

    let third = namespace.create(&extension(&job, "third", "3h")).await;
    let status = await_state(&namespace, &third, "Denied").await;
    let why =
        "A run gets at most 4h in all (maxTotal of Queue extended), and it has had 3h: ask for at most 1h";
    assert_eq!(status["message"], why);

    let fourth = namespace.create(&extension(&job, "fourth", "1h")).await;
    await_state(&namespace, &fourth, "Pending").await;
    let denied = namespace.try_patch_subresource(&fourth, "status", &decision(ADMIN, "Denied", "0s")).await;
    denied.unwrap();
    let events = namespace.await_events_of("ExtensionDenied", 2).await;
    let expected = [
        "Job/train: Extension fourth: 1h more was denied by admin: as discussed".to_owned(),
        format!("Job/train: Extension third: 3h more was denied by tenure-keeper: {why}"),
    ];
    assert_eq!(events, expected);

    let fifth = namespace.create(&extension(&job, "fifth", "30m")).await;
    await_state(&namespace, &fifth, "Pending").await;
    let more = decision(ADMIN, "Granted", "1000h");
    namespace.try_patch_subresource(&fifth, "status", &more).await.unwrap();
    await_end(&namespace, &job, end + hours(3) + SignedDuration::from_mins(30)).await;
    let sixth = namespace.create(&extension(&job, "sixth", "1m")).await;
    let status = await_state(&namespace, &sixth, "Denied").await;
    assert_eq!(status["message"], "Its run has had 3 extensions, of at most 3 (maxCount)");

    let granted = namespace.await_events_of("ExtensionGranted", 3).await;
    let first = "Job/train: Extension first: tenure-keeper has granted 1h more for this run";
    assert!(granted.iter().any(|event| event == first), "{granted:?}");
    assert_eq!(namespace.await_events_of("ExtensionRequested", 6).await.len(), 6);

    // what the queue allows now counts, and not what it allowed when it was granted
    of["spec"]["extensions"] = json!({"maxTotal": "2h"});
    namespace.apply(&of).await;
    await_end(&namespace, &job, end + hours(2)).await;
    namespace.delete(&second).await;
    await_end(&namespace, &job, end + hours(1) + SignedDuration::from_mins(30)).await;
}

#[tokio::test]
async fn of_several_requests_at_once_no_more_is_granted_without_approval_than_of_one_after_the_other() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&queue("at-once", "1h", json!({"autoApprove": "2h", "maxTotal": "9h"}))).await;
    let job = namespace.create(&job(&namespace, "train", "at-once")).await;
    namespace.await_running(1).await;
    let requests: Vec<_> = (0..6).map(|number| extension(&job, &format!("of-{number}"), "1h")).collect();
    let requests = join_all(requests.iter().map(|request| namespace.create(request))).await;
    let decided = async || {
        let states = join_all(requests.iter().map(|request| namespace.field(request, "status"))).await;
        let of = |state: &str| states.iter().filter(|status| status["state"] == state).count();
        let waiting = states.iter().filter(|status| is_waiting(status, "Pending")).count();
        Ok((of("Granted") + waiting == requests.len()).then(|| of("Granted")))
    };
    let granted = eventually("all requests to be decided", DEADLINE, decided).await.unwrap();
    assert_eq!(granted, 2);
}

#[tokio::test]
async fn no_extension_is_granted_below_a_queue_that_has_a_ceiling_and_allows_none() {
    let namespace = Namespace::new(world().await).await;
    namespace.apply(&runai_queue("extended-root", "", "10h")).await;
    let mut leaf = queue("extended-leaf", "1h", json!({"autoApprove": "1h", "maxTotal": "4h"}));
    leaf["spec"]["parentQueue"] = json!("extended-root");
    namespace.apply(&leaf).await;
    let job = namespace.create(&job(&namespace, "train", "extended-leaf")).await;
    namespace.await_running(1).await;
    let denied = namespace.create(&extension(&job, "denied", "1h")).await;
    let status = await_state(&namespace, &denied, "Denied").await;
    assert_eq!(status["message"], "Queue extended-root allows no extensions (spec.extensions)");
    let root = queue("extended-root", "10h", json!({"autoApprove": "30m", "maxTotal": "2h"}));
    namespace.apply(&root).await;
    // the keeper may see the queue later than the request
    let granted = async || {
        let name = format!("asked-{}", Timestamp::now().as_millisecond());
        let asked = namespace.create(&extension(&job, &name, "30m")).await;
        let decided = async || {
            let state = namespace.field(&asked, "status.state").await;
            Ok(["Granted", "Denied"].iter().find(|known| state == **known))
        };
        let state = eventually("a decision", DEADLINE, decided).await?;
        Ok((*state == "Granted").then_some(()))
    };
    eventually("a grant", DEADLINE, granted).await.unwrap();
    let pending = namespace.create(&extension(&job, "pending", "1m")).await;
    await_state(&namespace, &pending, "Pending").await;
}
