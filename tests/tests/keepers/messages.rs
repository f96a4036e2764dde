//! The keeper posts messages to receivers outside of the cluster. Bad ones are in the way of nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_certs::Authority;
use tenure_testbed::{UNREADY, eventually, free_port};
use tenure_tests::{
    DEADLINE, World,
    inbox::{Inbox, InboxAnswer},
    keeper::Metrics,
    policies::Refusal,
    workloads::{Namespace, bare_pod, in_queue, in_runai_queue, queue, runai_queue, workload},
};

use crate::{with_keeper, world};

/// A message comes after a backoff.
const FOR_MESSAGES: Duration = Duration::from_mins(3);

/// Secrets that must not be seen: the path of a URL, and a token.
const SECRETS: [&str; 2] = ["secret-path", "secret-token"];

/// Replaces the receivers of a keeper that runs, and waits until it has taken them up.
async fn configure(world: &World, receivers: &str) {
    const TAKEN_UP: &str = "tenure_keeper_config_last_reload_success_timestamp_seconds";
    let taken_up = async || Metrics::of_world(world).await.gauge(TAKEN_UP);
    let before = taken_up().await;
    fs::write(world.tenure.config_file(), format!("receivers:\n{receivers}")).unwrap();
    eventually("the keeper to take up its receivers", DEADLINE, async || {
        Ok((taken_up().await > before).then_some(()))
    })
    .await
    .unwrap();
}

/// Waits for a message of a reason in a namespace, and returns it.
async fn await_event(inbox: &Inbox, namespace: &Namespace, reason: &str) -> Value {
    let what = format!("{reason} of namespace {}", namespace.name());
    eventually(&what, FOR_MESSAGES, async || {
        let mut bodies = inbox.posted().into_iter().map(|posted| posted.body);
        Ok(bodies.find(|body| {
            let data = &body["data"];
            data["reason"] == reason && data["namespace"] == namespace.name()
        }))
    })
    .await
    .unwrap()
}

/// Waits for a text that begins so.
async fn await_text(inbox: &Inbox, beginning: &str) -> String {
    eventually(beginning, FOR_MESSAGES, async || {
        let texts = inbox.posted().into_iter();
        let mut texts = texts.filter_map(|posted| posted.body["text"].as_str().map(str::to_owned));
        Ok(texts.find(|text| text.starts_with(beginning)))
    })
    .await
    .unwrap()
}

/// The number of messages to a receiver with this result.
async fn counted(world: &World, receiver: &str, result: &str) -> u64 {
    let labels = [("receiver", receiver), ("result", result)];
    Metrics::of_world(world).await.count("tenure_keeper_messages_total", &labels)
}

async fn waiting(world: &World, receiver: &str) -> u64 {
    Metrics::of_world(world).await.count("tenure_keeper_waiting_messages", &[("receiver", receiver)])
}

/// A directory for the files of receivers.
fn files(world: &World) -> PathBuf {
    let directory = world.cluster.directory().join("receivers");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// An inbox of https with an authority of its own.
async fn inbox_with_tls(directory: &Path) -> Inbox {
    let authority = Authority::new("receivers").unwrap();
    fs::write(directory.join("ca.crt"), authority.certificate_pem()).unwrap();
    fs::write(directory.join("token"), format!("{}\n", SECRETS[1])).unwrap();
    Inbox::with_certificate(&authority.server(&["127.0.0.1".into()]).unwrap()).await
}

/// A workload gets a notice and is paused, while its namespace refuses events.
async fn pause(world: &World, events: &Inbox) -> (Namespace, Refusal) {
    let namespace = Namespace::new(world).await;
    let refusal = Refusal::forbidding(world, &namespace, "request.resource.resource != 'events'").await;
    let mut queue = queue("told-outside", "6s");
    queue["spec"]["expiryNotice"] = json!("4s");
    namespace.apply(&queue).await;
    let labels = in_queue("told-outside");
    let deployment = workload("Deployment", namespace.name(), "test", &labels, &Value::Null);
    let deployment = namespace.create(&deployment).await;

    let notice = await_event(events, &namespace, "MaxDurationApproaching").await;
    let note = notice["data"]["note"].as_str().unwrap();
    let deadline: Timestamp = notice["data"]["deadline"].as_str().unwrap().parse().unwrap();
    assert!(note.contains(&deadline.strftime(", at %H:%M:%S UTC: ").to_string()), "{notice}");
    let ended = await_event(events, &namespace, "RunEnded").await;
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "test", "uid": deployment.uid(),
    });
    let data = &ended["data"];
    assert_eq!((&data["owner"], &data["queue"]), (&expected, &json!("told-outside")));
    assert!(data["pod"].as_str().unwrap().starts_with("test-"), "{ended}");
    assert!(data["note"].as_str().unwrap().starts_with("Its run in Queue told-outside has reached"));
    assert_eq!((&ended["type"], &ended["specversion"]), (&json!("dev.tenure.RunEnded"), &json!("1.0")));
    assert_eq!(ended["source"], "/clusters/test");
    assert_eq!(namespace.events_of("RunEnded").await, [""; 0], "they are refused");
    (namespace, refusal)
}

/// A user asks for more time than the queue allows.
async fn extension(world: &World, events: &Inbox) -> Namespace {
    let namespace = Namespace::new(world).await;
    let mut queue = runai_queue("told-of-extensions", "", "1h");
    queue["spec"]["extensions"] = json!({"maxTotal": "1h"});
    namespace.apply(&queue).await;
    let labels = in_runai_queue("told-of-extensions");
    let job = workload("Job", namespace.name(), "train", &labels, &Value::Null);
    let job = namespace.create(&job).await;
    namespace.await_running(1).await;
    let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job.uid()});
    let asked = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": "more", "namespace": namespace.name()},
        "spec": {"target": target, "duration": "2h", "reason": "`<!channel> & <https://evil.example|here>"},
    });
    namespace.create(&asked).await;
    for reason in ["ExtensionRequested", "ExtensionDenied"] {
        let event = await_event(events, &namespace, reason).await;
        assert_eq!(event["data"]["owner"]["name"], "train", "{event}");
    }
    namespace
}

/// A Job whose pods don't get ready may not come back.
async fn deactivation(world: &World, events: &Inbox) {
    let namespace = Namespace::new(world).await;
    let strategy = json!({"backoffLimitCount": 0});
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "told-unready"},
        "spec": {"waitForPodsReady": {"timeout": "1s", "requeuingStrategy": strategy}},
    });
    namespace.create(&queue).await;
    let labels = json!({"kai.scheduler/queue": "told-unready", UNREADY: "true"});
    namespace.create(&workload("Job", namespace.name(), "unready", &labels, &Value::Null)).await;
    await_event(events, &namespace, "DeactivatedDueToRequeuingLimitExceeded").await;
}

#[tokio::test]
async fn each_act_is_sent_in_both_forms_and_a_missing_file_keeps_nothing_from_starting() {
    let world = &*world().await;
    let directory = files(world);
    let path = |file: &str| directory.join(file).display().to_string();
    let (events, ops) = (inbox_with_tls(&directory).await, Inbox::start(InboxAnswer::Takes).await);
    let receivers = format!(
        "- {{name: events, format: CloudEvents, url: '{}/{}', tokenFile: {}, caFile: {}, source: /clusters/test}}\n- {{name: ops, format: Slack, urlFile: {}}}\n",
        events.url(),
        SECRETS[0],
        path("token"),
        path("ca.crt"),
        path("url")
    );
    // the file with the URL isn't there
    fs::write(world.tenure.config_file(), format!("receivers:\n{receivers}")).unwrap();
    world.tenure.start_keeper().await.unwrap();
    let ((paused, refusal), extended, ()) =
        tokio::join!(pause(world, &events), extension(world, &events), deactivation(world, &events));
    for posted in events.posted() {
        let header = |name: &str| posted.headers[name].to_str().unwrap().to_owned();
        assert_eq!(posted.path, format!("/{}", SECRETS[0]));
        assert_eq!(header("authorization"), format!("Bearer {}", SECRETS[1]));
        assert!(header("content-type").starts_with("application/cloudevents+json"));
    }
    let recorded = events.posted();
    let ids: BTreeSet<&str> = recorded.iter().map(|posted| posted.body["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), recorded.len(), "each once");
    assert!(waiting(world, "ops").await > 0);

    fs::write(path("url"), format!("{}/{}", ops.url(), SECRETS[0])).unwrap();
    let text =
        await_text(&ops, &format!("*RunEnded* `Deployment test` in namespace `{}`", paused.name())).await;
    let expected = ", queue `told-outside`:\n`Its run in Queue told-outside has reached the ceiling of 6s";
    assert!(text.contains(expected) && text.ends_with('`'), "{text}");
    let text =
        await_text(&ops, &format!("*ExtensionRequested* `Job train` in namespace `{}`", extended.name()))
            .await;
    let escaped = "('&lt;!channel&gt; &amp; &lt;https://evil.example|here&gt;)";
    assert!(text.contains(escaped) && !text.contains("<!"), "{text}");
    await_text(&ops, "*DeactivatedDueToRequeuingLimitExceeded* `Job unready`").await;
    assert_eq!(counted(world, "ops", "Dropped").await, 0);

    let log = fs::read_to_string(world.tenure.keeper_log()).unwrap();
    let is_about = |line: &&str| line.contains("Failed to send a message") && line.contains("receiver=ops ");
    let complaint = log.lines().find(is_about).unwrap();
    assert!(complaint.contains("urlFile: can't be read"), "{complaint}");
    assert!(SECRETS.iter().all(|secret| !log.contains(secret)));
    // or a later keeper would try to write these events without an end
    refusal.lift(world).await;
    configure(world, "").await;
}

/// Pods reach their ceiling; returns how late they were deleted, on the average.
async fn lateness(world: &World, name: &str) -> (Namespace, f64) {
    const PODS: u32 = 12;
    let read = async || {
        let metrics = Metrics::of_world(world).await;
        let of = |part: &str| metrics.gauge(&format!("tenure_keeper_lateness_seconds_{part}")).unwrap();
        (of("sum"), of("count"))
    };
    let namespace = Namespace::new(world).await;
    namespace.apply(&queue(name, "2s")).await;
    let before = read().await;
    for number in 0..PODS {
        let pod = bare_pod(namespace.name(), &format!("pod-{number}"), &in_queue(name), &Value::Null);
        namespace.create(&pod).await;
    }
    namespace.await_pods(&[]).await;
    let all = async || {
        let (sum, count) = read().await;
        Ok((count >= before.1 + f64::from(PODS)).then_some((sum - before.0) / (count - before.1)))
    };
    let mean = eventually("all pods to be counted", DEADLINE, all).await.unwrap();
    (namespace, mean)
}

/// The names of the pods of a namespace whose end an inbox was told of.
fn reported_pods(inbox: &Inbox, namespace: &Namespace) -> BTreeSet<String> {
    let bodies = inbox.posted().into_iter().map(|posted| posted.body["data"].clone());
    let of = |data: &Value| data["reason"] == "RunEnded" && data["namespace"] == namespace.name();
    bodies.filter(of).filter_map(|data| data["owner"]["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn receivers_that_hang_refuse_or_are_gone_make_no_pause_later_and_take_nothing_from_a_good_one() {
    let world = &*with_keeper().await;
    let (_, calm) = lateness(world, "calm").await;
    let good = Inbox::start(InboxAnswer::Takes).await;
    let hangs = Inbox::start(InboxAnswer::Hangs).await;
    let fails = Inbox::start(InboxAnswer::Status(500)).await;
    let refuses = Inbox::start(InboxAnswer::Status(400)).await;
    let gone = format!("http://127.0.0.1:{}", free_port().unwrap());
    let receivers = [
        ("fails", fails.url()),
        ("gone", &gone),
        ("good", good.url()),
        ("hangs", hangs.url()),
        ("refuses", refuses.url()),
    ];
    let row = |(name, url)| format!("- {{name: {name}, format: CloudEvents, url: '{url}'}}\n");
    configure(world, &receivers.map(row).concat()).await;
    let (_, first) = lateness(world, "first").await;
    // each has been tried by now, or is
    let (namespace, second) = lateness(world, "second").await;
    println!("seconds too late: {calm} without receivers, {first} and {second} with bad ones");
    // had the keeper waited for one that hangs, each message would have taken ten seconds; the machine may be busy once
    let best = first.min(second);
    assert!(best <= 3.0f64.mul_add(calm, 8.0), "{best} seconds too late, and {calm} without receivers");
    let expected: BTreeSet<String> = (0..12).map(|number| format!("pod-{number}")).collect();
    eventually("the good one to be told of all", FOR_MESSAGES, async || {
        Ok((reported_pods(&good, &namespace) == expected).then_some(()))
    })
    .await
    .unwrap();
    eventually("each bad one to be tried", FOR_MESSAGES, async || {
        let is_tried = [&hangs, &fails, &refuses].iter().all(|inbox| inbox.connections() > 0);
        Ok((is_tried && counted(world, "refuses", "Refused").await > 0).then_some(()))
    })
    .await
    .unwrap();
    for receiver in ["fails", "gone", "hangs"] {
        assert!(waiting(world, receiver).await > 0, "{receiver}");
    }
    for receiver in ["fails", "gone", "hangs", "refuses"] {
        assert_eq!(counted(world, receiver, "Sent").await, 0, "{receiver}");
    }
    // a receiver that goes takes its messages with it, and they are counted
    configure(world, "").await;
    eventually("the messages to be dropped", DEADLINE, async || {
        Ok((counted(world, "hangs", "Dropped").await >= 24).then_some(()))
    })
    .await
    .unwrap();
}
