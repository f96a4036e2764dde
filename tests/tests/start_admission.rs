//! The right to set the start times of `PodGroup`s, on a real API server with the webhook up, and while it is down.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::fs;

use http::{Request, header::CONTENT_TYPE, request::Builder};
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output, eventually};
use tenure_tests::{
    DEADLINE, World, fixtures,
    queues::{self, Answer, said},
};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard};

const STAMP: &str = "kai.scheduler/last-start-timestamp";
const PAST: &str = "2026-01-02T03:04:05Z";
const OTHER: &str = "2026-01-01T00:00:00Z";
const FUTURE: &str = "2099-01-01T00:00:00Z";

const TENANT: &str = "tenant";
const SCHEDULER: &str = "system:serviceaccount:kai-scheduler:scheduler";
const PODGROUPER: &str = "system:serviceaccount:kai-scheduler:podgrouper";
const KEEPER: &str = "system:serviceaccount:tenure-system:tenure-keeper";

/// The API group and version of each kind of `PodGroup`.
const KINDS: [(&str, &str); 5] = [
    ("scheduling.run.ai", "v2alpha2"),
    ("scheduler.tensorstack.dev", "v1beta1"),
    ("scheduling.x-k8s.io", "v1alpha1"),
    ("scheduling.volcano.sh", "v1beta1"),
    (NATIVE, "v1beta1"),
];

/// Kubernetes' own kind, which is built in.
const NATIVE: &str = "scheduling.k8s.io";

const RUNAI: &str = KINDS[0].0;

/// The webhook runs, and no keeper does: all messages here are the webhook's.
async fn world() -> RwLockReadGuard<'static, World> {
    let world = installed().await.read().await;
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world
}

/// The cluster of all tests. Who writes it may stop the webhook.
async fn installed() -> &'static RwLock<World> {
    static WORLD: OnceCell<RwLock<World>> = OnceCell::const_new();
    WORLD.get_or_try_init(async || Box::pin(start()).await.map(RwLock::new)).await.unwrap()
}

async fn start() -> anyhow::Result<World> {
    let flags =
        [("feature-gates", "GenericWorkload=true"), ("runtime-config", "scheduling.k8s.io/v1beta1=true")];
    let cluster = Cluster::start_api_server_with_flags("start-admission", &flags).await?;
    let trusted = format!("startTime.trustedWriters[0]={SCHEDULER}");
    let world = World::installed_on(cluster, &[&trusted], &[]).await?;
    for (group, _) in KINDS.into_iter().filter(|(group, _)| *group != NATIVE) {
        fixtures::install(&world, fixtures::definitions(group)).await;
    }
    world.tenure.start_webhook(&world.cluster).await?;
    eventually("the API server to ask about PodGroups", DEADLINE, async || {
        let create = ["create", "--dry-run=server", "-f", "-"];
        let probe = group(RUNAI, "probe", Some(FUTURE)).to_string();
        let output = world.cluster.kubectl_with_input(&create, &probe).await?;
        Ok(output.stderr.contains("Warning: ").then_some(()))
    })
    .await?;
    Ok(world)
}

/// A group of the kind of this API group.
fn group(kind: &str, name: &str, stamp: Option<&str>) -> Value {
    let (_, version) = KINDS.into_iter().find(|(group, _)| *group == kind).unwrap();
    let spec = match kind {
        // the priority that the API server gives it, which no replacement may leave out
        NATIVE => json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 0}),
        _ => json!({"minMember": 2}),
    };
    let mut group = fixtures::object(&format!("{kind}/{version}"), "PodGroup", "default", name, &spec);
    if let Some(stamp) = stamp {
        group["metadata"]["annotations"] = json!({STAMP: stamp});
    }
    group
}

fn resource(kind: &str) -> String {
    format!("podgroups.{kind}")
}

/// kubectl with all rights, but in this name.
async fn kubectl(world: &World, user: &str, arguments: &[&str], object: &Value) -> Output {
    let (user, stdin) = (format!("--as={user}"), object.to_string());
    let arguments = [arguments, &["--as-group=system:masters", &user]].concat();
    world.cluster.kubectl_with_input(&arguments, &stdin).await.unwrap()
}

/// Sends a request with all rights, but in this name: kubectl would take far more processor time.
async fn send(world: &World, user: &str, request: Builder, body: &Value) -> Answer {
    let request = request.header("Impersonate-User", user).header("Impersonate-Group", "system:masters");
    queues::send(&world.cluster.client().unwrap(), request, body).await
}

/// The path of the groups of the kind of this API group.
fn path(kind: &str) -> String {
    let (_, version) = KINDS.into_iter().find(|(group, _)| *group == kind).unwrap();
    format!("/apis/{kind}/{version}/namespaces/default/podgroups")
}

async fn create(world: &World, user: &str, group: &Value) -> Answer {
    let (kind, _) = group["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let request = Request::post(format!("{}?fieldValidation=Strict", path(kind)));
    send(world, user, request.header(CONTENT_TYPE, "application/json"), group).await
}

async fn delete(world: &World, kind: &str, name: &str) -> Answer {
    let request = Request::delete(format!("{}/{name}", path(kind)));
    send(world, TENANT, request.header(CONTENT_TYPE, "application/json"), &json!({})).await
}

/// Creates a group that its scheduler has stamped.
async fn stamped(world: &World, kind: &str, name: &str) {
    silent(create(world, SCHEDULER, &group(kind, name, Some(PAST))).await);
    assert_eq!(stamp(world, kind, name).await.as_deref(), Some(PAST));
}

/// Sets an annotation, `key=value`, or removes it, `key-`.
async fn annotate(world: &World, user: &str, kind: &str, name: &str, annotation: &str) -> Answer {
    let removed = (annotation.trim_end_matches('-'), Value::Null);
    let (key, value) = annotation.split_once('=').map_or(removed, |(key, value)| (key, json!(value)));
    patch(world, user, kind, name, &json!({"metadata": {"annotations": {key: value}}})).await
}

/// Patches a group, or with `/status` after its name the status.
async fn patch(world: &World, user: &str, kind: &str, name: &str, patch: &Value) -> Answer {
    let type_ = if patch.is_array() { "application/json-patch+json" } else { "application/merge-patch+json" };
    let request = Request::patch(format!("{}/{name}", path(kind)));
    send(world, user, request.header(CONTENT_TYPE, type_), patch).await
}

async fn stamp(world: &World, kind: &str, name: &str) -> Option<String> {
    let request = Request::get(format!("{}/{name}", path(kind))).body(Vec::new()).unwrap();
    let group: Value = world.cluster.client().unwrap().request(request).await.unwrap();
    group["metadata"]["annotations"].get(STAMP).map(|stamp| stamp.as_str().unwrap().to_owned())
}

fn silent((warnings, result): Answer) {
    assert_eq!(warnings, [""; 0]);
    result.unwrap();
}

/// Asserts that a write succeeded, with this warning about the stamp.
fn warned((warnings, result): Answer, expected: &str) {
    let expected = format!("tenure: metadata.annotations[{STAMP}]: {expected}");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings.iter().all(|said| said.starts_with(&expected)), "{warnings:?} should be {expected:?}");
    result.unwrap();
}

/// Asserts that a stamp is at most a minute old, and not in the future.
fn assert_now(stamp: Option<String>) {
    let age = Timestamp::now().duration_since(stamp.unwrap().parse().unwrap());
    assert!((0..60).contains(&age.as_secs()) && !age.is_negative(), "{age}");
}

#[tokio::test]
async fn a_tenant_creates_no_stamp() {
    let world = &*world().await;
    for (kind, _) in KINDS {
        for (number, user) in [TENANT, PODGROUPER].into_iter().enumerate() {
            for (text, of) in [(FUTURE, "future"), (PAST, "past"), ("soon", "garbage")] {
                let name = format!("created-{number}-{of}");
                let output = create(world, user, &group(kind, &name, Some(text))).await;
                warned(output, &format!("\"{text}\" was dropped: only trusted writers may set it"));
                assert_eq!(stamp(world, kind, &name).await, None);
            }
        }
        silent(create(world, TENANT, &group(kind, "plain", None)).await);
    }
}

#[tokio::test]
async fn what_a_tenant_changes_or_removes_is_put_back() {
    let world = &*world().await;
    for (kind, _) in KINDS {
        stamped(world, kind, "changed").await;
        for changed in [FUTURE, OTHER, "soon"] {
            let output = annotate(world, TENANT, kind, "changed", &format!("{STAMP}={changed}")).await;
            warned(
                output,
                &format!("\"{changed}\" was set back to \"{PAST}\": only trusted writers may set it"),
            );
            assert_eq!(stamp(world, kind, "changed").await.as_deref(), Some(PAST));
        }
        let output = annotate(world, TENANT, kind, "changed", &format!("{STAMP}-")).await;
        warned(output, &format!("was set back to \"{PAST}\": only trusted writers may remove it"));
        let replaced = kubectl(world, TENANT, &["replace", "-f", "-"], &group(kind, "changed", None)).await;
        warned(said(replaced), &format!("was set back to \"{PAST}\""));
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let applied = kubectl(world, TENANT, &apply, &group(kind, "changed", Some(FUTURE))).await;
        warned(said(applied), &format!("\"{FUTURE}\" was set back to \"{PAST}\""));
        let path = "/metadata/annotations";
        for value in [json!(null), json!({}), json!({STAMP: FUTURE}), json!({"note": "mine"})] {
            let replaced = json!([{"op": "replace", "path": path, "value": value}]);
            let (warnings, _) = patch(world, TENANT, kind, "changed", &replaced).await;
            let set_back = format!("was set back to \"{PAST}\"");
            assert!(warnings.iter().any(|said| said.contains(&set_back)), "{warnings:?}");
        }
        let removed = patch(world, TENANT, kind, "changed", &json!([{"op": "remove", "path": path}])).await;
        warned(removed, &format!("was set back to \"{PAST}\""));
        assert_eq!(stamp(world, kind, "changed").await.as_deref(), Some(PAST));
        // the rest is the tenant's
        silent(annotate(world, TENANT, kind, "changed", "note=mine").await);
    }
}

#[tokio::test]
async fn a_write_of_an_older_state_is_refused_and_counts_as_no_reverted_start_time() {
    let world = &*world().await;
    stamped(world, RUNAI, "stale").await;
    let output = world.cluster.kubectl(&["get", &resource(RUNAI), "stale", "-o", "json"]).await.unwrap();
    let mut stale: Value = serde_json::from_str(&output.success().unwrap()).unwrap();
    silent(annotate(world, SCHEDULER, RUNAI, "stale", "note=changed").await);
    stale["metadata"]["annotations"][STAMP] = json!(FUTURE);
    let refused = kubectl(world, TENANT, &["replace", "-f", "-"], &stale).await;
    assert!(refused.stderr.contains("the object has been modified"), "{}", refused.stderr);
    assert_eq!(stamp(world, RUNAI, "stale").await.as_deref(), Some(PAST));
    let [webhook, _] = world.tenure.admin_urls();
    let metrics = ["get", "--raw=/metrics", &format!("--server={webhook}")];
    let metrics = world.cluster.kubectl(&metrics).await.unwrap().success().unwrap();
    let expected = format!(r#"mutations_total{{group="{RUNAI}",kind="PodGroup",result="Conflict"}}"#);
    assert!(metrics.contains(&expected), "{metrics}");
    // the log has a line by now for what is written after it and is set back
    let (_, stored) = annotate(world, TENANT, RUNAI, "stale", &format!("{STAMP}={OTHER}")).await;
    stored.unwrap();
    let log = fs::read_to_string(world.cluster.directory().join("tenure-webhook.log")).unwrap();
    let lines =
        log.lines().filter(|line| line.contains("Set a start time back") && line.contains("name=stale"));
    assert_eq!(lines.count(), 1, "{log}");
}

#[tokio::test]
async fn the_stamp_of_a_trusted_writer_stands() {
    let world = &*world().await;
    for (kind, _) in KINDS {
        stamped(world, kind, "trusted").await;
        for (user, stamp_text) in [(SCHEDULER, OTHER), (KEEPER, PAST)] {
            silent(annotate(world, user, kind, "trusted", &format!("{STAMP}={stamp_text}")).await);
            assert_eq!(stamp(world, kind, "trusted").await.as_deref(), Some(stamp_text));
        }
        silent(annotate(world, SCHEDULER, kind, "trusted", &format!("{STAMP}-")).await);
        assert_eq!(stamp(world, kind, "trusted").await, None);
    }
}

#[tokio::test]
async fn no_writer_may_set_a_start_in_the_future_or_one_that_cannot_be_read() {
    let world = &*world().await;
    for (kind, _) in KINDS {
        let output = create(world, SCHEDULER, &group(kind, "future", Some(FUTURE))).await;
        warned(output, &format!("\"{FUTURE}\" was set back to \"2"));
        assert_now(stamp(world, kind, "future").await);
        let output = annotate(world, KEEPER, kind, "future", &format!("{STAMP}=soon")).await;
        warned(output, "\"soon\" was dropped: it must be a time such as 2026-01-02T03:04:05Z");
        assert_eq!(stamp(world, kind, "future").await, None);
    }
}

#[tokio::test]
async fn a_dry_run_reports_the_same_and_changes_nothing() {
    let world = &*world().await;
    let dry = "--dry-run=server";
    let (kind, name) = (RUNAI, "dry");
    let output =
        kubectl(world, TENANT, &["create", dry, "-o", "json", "-f", "-"], &group(kind, name, Some(FUTURE)))
            .await;
    assert!(!output.stdout.contains(STAMP), "{}", output.stdout);
    warned(said(output), &format!("\"{FUTURE}\" was dropped"));
    stamped(world, kind, name).await;
    let output = kubectl(
        world,
        TENANT,
        &["annotate", dry, "--overwrite", &resource(kind), name, &format!("{STAMP}={FUTURE}")],
        &Value::Null,
    )
    .await;
    warned(said(output), &format!("\"{FUTURE}\" was set back to \"{PAST}\""));
    assert_eq!(stamp(world, kind, name).await.as_deref(), Some(PAST));
}

#[tokio::test]
async fn what_its_status_shows_as_started_is_stamped_when_it_is_written() {
    let world = &*world().await;
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": PAST});
    for (kind, status, since) in [
        (RUNAI, json!({"resourcesStatus": {"allocated": {"cpu": "1"}}}), None),
        ("scheduler.tensorstack.dev", json!({"conditions": [condition("GroupScheduled")]}), Some(PAST)),
        ("scheduling.x-k8s.io", json!({"phase": "Running"}), None),
        (
            "scheduling.volcano.sh",
            json!({"phase": "Running", "conditions": [condition("Scheduled")]}),
            Some(PAST),
        ),
    ] {
        let mut created = group(kind, "created-started", None);
        created["status"] = status.clone();
        // deleted and created again, it shows no more
        for _ in 0..2 {
            silent(create(world, TENANT, &created).await);
            assert_eq!(stamp(world, kind, "created-started").await, None, "no pod of it has run");
            silent(delete(world, kind, "created-started").await);
        }

        silent(create(world, TENANT, &group(kind, "started", None)).await);
        let mut claims = group(kind, "started", None);
        claims["status"] = status.clone();
        silent(said(kubectl(world, TENANT, &["replace", "-f", "-"], &claims).await));
        assert_eq!(
            stamp(world, kind, "started").await,
            None,
            "what an update says of the status isn't stored"
        );

        silent(patch(world, TENANT, kind, "started/status", &json!({"status": status})).await);
        assert_eq!(stamp(world, kind, "started").await, None, "a status can't be written with annotations");
        silent(annotate(world, TENANT, kind, "started", "note=1").await);
        let stamped = stamp(world, kind, "started").await;
        match since {
            Some(_) => assert_eq!(stamped.as_deref(), since),
            None => assert_now(stamped.clone()),
        }
        silent(annotate(world, TENANT, kind, "started", "note=2").await);
        assert_eq!(stamp(world, kind, "started").await, stamped);
    }
}

#[tokio::test]
async fn a_group_that_goes_is_let_go_and_its_stamp_is_safe_until_then() {
    let world = &*world().await;
    let name = "going";
    for (kind, _) in KINDS {
        let mut finalized = group(kind, name, Some(PAST));
        finalized["metadata"]["finalizers"] = json!(["example.com/a"]);
        silent(create(world, SCHEDULER, &finalized).await);
        silent(delete(world, kind, name).await);
        // its pods may well run on
        let output = annotate(world, TENANT, kind, name, &format!("{STAMP}={FUTURE}")).await;
        warned(output, &format!("\"{FUTURE}\" was set back to \"{PAST}\""));
        assert_eq!(stamp(world, kind, name).await.as_deref(), Some(PAST));
        silent(patch(world, TENANT, kind, name, &json!({"metadata": {"finalizers": null}})).await);
        let gone = ["wait", "--for=delete", &*resource(kind), name];
        world.cluster.kubectl(&gone).await.unwrap().success().unwrap();
    }
}

#[tokio::test]
async fn nothing_passes_unseen_behind_a_status_too_large_to_read() {
    let world = &*world().await;
    // less than the API server's limit, and six times as large when it passes that on
    let padding = "<".repeat(1_400_000);
    for (kind, _) in KINDS {
        let mut large = group(kind, "large", Some(FUTURE));
        large["status"] = match kind {
            "scheduling.x-k8s.io" => json!({"phase": padding}),
            _ => {
                json!({"conditions": [{
                    "type": "Any", "status": "True", "reason": "Any", "lastTransitionTime": PAST, "message": padding,
                }]})
            }
        };
        let path = format!("{}?dryRun=All", path(kind));
        // on a busy machine it may take longer than the API server waits
        eventually("what is too large to be refused", DEADLINE, async || {
            let output = kubectl(world, TENANT, &["create", "--raw", &path, "-f", "-"], &large).await;
            let is_refused = output.stderr.contains("the object is too large to be reviewed");
            Ok(is_refused.then_some(()))
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn who_is_trusted_can_be_changed_while_the_webhook_runs() {
    let world = &*world().await;
    let (kind, name, writer) = (RUNAI, "writers", "system:serviceaccount:a:scheduler");
    warned(create(world, writer, &group(kind, name, Some(PAST))).await, &format!("\"{PAST}\" was dropped"));
    let file = world.tenure.config_file();
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(&format!("- {KEEPER}")), "{text}");
    fs::write(file, text + &format!("- {writer}\n")).unwrap();
    eventually("the writer to be trusted", DEADLINE, async || {
        let (_, stored) = annotate(world, writer, kind, name, &format!("{STAMP}={PAST}")).await;
        stored.map_err(anyhow::Error::msg)?;
        Ok((stamp(world, kind, name).await.as_deref() == Some(PAST)).then_some(()))
    })
    .await
    .unwrap();
    // the others as before
    silent(annotate(world, SCHEDULER, kind, name, &format!("{STAMP}={OTHER}")).await);
    warned(annotate(world, TENANT, kind, name, &format!("{STAMP}-")).await, "was set back to");
}

#[tokio::test]
async fn no_pod_group_waits_for_a_webhook_that_is_down() {
    let world = &*installed().await.write().await;
    world.tenure.stop_webhook().await.unwrap();
    for (kind, _) in KINDS {
        silent(create(world, TENANT, &group(kind, "a", Some(FUTURE))).await);
        silent(annotate(world, TENANT, kind, "a", &format!("{STAMP}={PAST}")).await);
        assert_eq!(stamp(world, kind, "a").await.as_deref(), Some(PAST));
        silent(delete(world, kind, "a").await);
    }
}
