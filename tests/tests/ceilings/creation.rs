//! Answers to the creation of workloads that ask for a longer run than the ceiling of their queue.

use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures,
    keeper::Metrics,
    tenant::Tenant,
    workloads::{
        Namespace, bare_pod, controller, in_queue, in_runai_queue, owned, queue, runai_queue, workload,
    },
};

use crate::world;

const OWN: &str = "tenure.dev/max-duration";

/// A Job that asks for `seconds`.
fn job(namespace: &Namespace, name: &str, queue: &str, seconds: i64) -> Value {
    let mut job = workload("Job", namespace.name(), name, &in_runai_queue(queue), &Value::Null);
    job["spec"]["activeDeadlineSeconds"] = json!(seconds);
    // its pods don't matter
    job["spec"]["suspend"] = json!(true);
    job
}

/// A queue that ends runs after an hour, with more fields.
fn hour(name: &str, more: &Value) -> Value {
    let mut queue = runai_queue(name, "", "1h");
    for (field, value) in more.as_object().into_iter().flatten() {
        queue["spec"][field] = value.clone();
    }
    queue
}

/// The answer to a tenant who creates an object in a dry run. Empty: it is accepted without a warning.
async fn tried(tenant: &Tenant<'_>, object: &Value) -> String {
    let (mut said, answer) = tenant.dry_run(object).await;
    said.extend(answer.err().map(|refusal| format!("refused: {refusal}")));
    said.join("\n")
}

/// Waits until the creation of an object is answered so: the webhook knows a queue a little after it was created.
async fn await_answer(tenant: &Tenant<'_>, object: &Value, expected: &str) -> String {
    eventually(&format!("{expected:?}"), DEADLINE, async || {
        Ok(Some(tried(tenant, object).await).filter(|said| said.contains(expected)))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_queue_label_that_no_pod_has_gets_a_warning_and_counts_as_no_ceiling() {
    let tenant = Tenant::new(world().await).await;
    tenant.as_admin().apply(&hour("unread", &json!({}))).await;
    let mut labelled = job(&tenant, "labelled", "unread", 7200);
    // once the webhook knows the queue
    await_answer(&tenant, &labelled, "Queue unread ends a run after 1h").await;
    labelled["metadata"]["labels"] = labelled["spec"]["template"]["metadata"]["labels"].take();
    let warning = "metadata.labels[kai.scheduler/queue]: the pods of this workload have no queue, so no ceiling applies to them: write the label to spec.template.metadata.labels";
    let said = await_answer(&tenant, &labelled, warning).await;
    assert!(!said.contains("ends a run after"), "{said}");
    // KAI-Scheduler's podgrouper reads it
    labelled["spec"]["template"]["spec"]["schedulerName"] = json!("kai-scheduler");
    let said = await_answer(&tenant, &labelled, "Queue unread ends a run after 1h").await;
    assert!(!said.contains(warning), "{said}");
}

#[tokio::test]
async fn a_queue_that_does_not_exist_gets_a_warning_at_the_creation_and_refuses_nothing() {
    let tenant = Tenant::new(world().await).await;
    tenant.as_admin().apply(&hour("existing", &json!({}))).await;
    let unbounded = |queue: &str| {
        let mut job = job(&tenant, "unbounded", queue, 60);
        job["spec"].as_object_mut().unwrap().remove("activeDeadlineSeconds");
        job
    };
    assert_eq!(tried(&tenant, &unbounded("existing")).await, "", "also before the watch shows it");
    let warning =
        "queue \"existng\", which the pods of this workload name, doesn't exist: no ceiling applies to them";
    assert_eq!(await_answer(&tenant, &unbounded("existng"), warning).await, warning);
}

#[tokio::test]
async fn a_grace_period_that_is_longer_than_the_keepers_bound_gets_a_warning() {
    let tenant = Tenant::new(world().await).await;
    let grace = |seconds: i64| json!({"terminationGracePeriodSeconds": seconds});
    let of = |kind: &str, seconds: i64| {
        workload(kind, tenant.name(), "grace", &in_runai_queue("any"), &grace(seconds))
    };
    let warning = |path: &str| {
        format!(
            "{path}spec.terminationGracePeriodSeconds: 86400 is longer than 10m, the time that a pod has to terminate once it has reached its ceiling: write checkpoints within that time"
        )
    };
    let pod = |seconds: i64, labels: &Value| bare_pod(tenant.name(), "grace", labels, &grace(seconds));
    await_answer(&tenant, &pod(86_400, &in_runai_queue("any")), &warning("")).await;
    for kind in ["Deployment", "Job"] {
        await_answer(&tenant, &of(kind, 86_400), &warning("spec.template.")).await;
        let said = tried(&tenant, &of(kind, 600)).await;
        assert!(!said.contains("is longer than"), "{said}");
    }
    let said = tried(&tenant, &pod(86_400, &json!({}))).await;
    assert!(!said.contains("is longer than"), "it is in no queue: {said}");
}

#[tokio::test]
async fn kubectl_shows_a_warning_with_the_number_of_the_queue_and_how_to_ask_for_more() {
    let tenant = Tenant::new(world().await).await;
    let extensions = json!({"extensions": {"maxTotal": "8h"}});
    tenant.as_admin().apply(&hour("warns", &extensions)).await;
    let training = job(&tenant, "training", "warns", 7200);
    let command = format!("kubectl tenure extend job.batch/training -n {} 1h", tenant.name());
    let warning = format!(
        "spec.activeDeadlineSeconds: 7200 is too long: Queue warns ends a run after 1h: set at most 3600; for more time, ask while it runs: {command}"
    );
    await_answer(&tenant, &training, &warning).await;
    let created = tenant.kubectl(&["create", "-f", "-"], &training.to_string()).await;
    assert!(created.stderr.contains(&format!("Warning: {warning}")), "{}", created.stderr);
    assert_eq!(created.success().unwrap(), "job.batch/training created\n");

    assert_eq!(tried(&tenant, &job(&tenant, "enough", "warns", 3600)).await, "");

    let mut server = workload("Deployment", tenant.name(), "server", &in_runai_queue("warns"), &Value::Null);
    server["metadata"]["annotations"] = json!({OWN: "1d"});
    let own = "metadata.annotations[tenure.dev/max-duration]: \"1d\" is too long: Queue warns ends a run after 1h: set at most 1h; ";
    let said = await_answer(&tenant, &server, own).await;
    assert!(!said.contains("refused"), "{said}");
}

#[tokio::test]
async fn each_way_to_ask_for_a_time_is_answered() {
    let tenant = Tenant::new(world().await).await;
    tenant.as_admin().apply(&hour("ways", &json!({}))).await;
    let template = job(&tenant, "unused", "ways", 0)["spec"]["template"].clone();
    let labelled = json!({"kueue.x-k8s.io/max-exec-time-seconds": "7200"});
    let of_kueue = "labels[kueue.x-k8s.io/max-exec-time-seconds]";
    let mut by_label = job(&tenant, "by-label", "ways", 3600);
    by_label["metadata"]["labels"] = labelled.clone();
    let mut by_pods = job(&tenant, "by-pods", "ways", 3600);
    by_pods["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("7200");
    let spec = json!({"schedule": "0 1 * * *", "jobTemplate": {"metadata": {"labels": labelled}, "spec": {"template": template}}});
    let nightly = fixtures::object("batch/v1", "CronJob", tenant.name(), "nightly", &spec);
    await_answer(&tenant, &by_label, &format!("metadata.{of_kueue}: 7200 is too long: Queue ways ends"))
        .await;
    let deadline = "spec.activeDeadlineSeconds".to_owned();
    let asking = |version: &str, kind: &str, mut spec: Value| {
        spec["activeDeadlineSeconds"] = json!(7200);
        (fixtures::object(version, kind, tenant.name(), "asking", &spec), deadline.clone())
    };
    let replicated = json!({"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]});
    for (object, field) in [
        (by_pods, format!("spec.template.metadata.{of_kueue}")),
        (nightly, format!("spec.jobTemplate.metadata.{of_kueue}")),
        asking("jobset.x-k8s.io/v1alpha2", "JobSet", replicated),
        asking("ray.io/v1", "RayJob", json!({"rayClusterSpec": {"headGroupSpec": {"template": template}}})),
        asking("argoproj.io/v1alpha1", "Workflow", json!({"podMetadata": template["metadata"]})),
    ] {
        let expected = format!("{field}: 7200 is too long: Queue ways ends a run after 1h: set at most 3600");
        await_answer(&tenant, &object, &expected).await;
    }
}

#[tokio::test]
async fn where_the_queue_says_so_it_is_refused_and_only_for_what_it_asks_itself() {
    let tenant = Tenant::new(world().await).await;
    let admin = tenant.as_admin();
    admin.apply(&hour("refusing", &json!({}))).await;
    let mut below = runai_queue("refusing-below", "refusing", "2d");
    below["spec"]["overCeiling"] = json!("Refuse");
    admin.apply(&below).await;

    let long = job(&tenant, "long", "refusing-below", 7200);
    let text = "is invalid: spec.activeDeadlineSeconds: Invalid value: 7200: must be at most 3600: Queue refusing ends a run after 1h";
    await_answer(&tenant, &long, text).await;
    let shown = tenant.kubectl(&["create", "-f", "-"], &long.to_string()).await;
    assert!(shown.stderr.contains(&format!("The Job \"long\" {text}")), "{}", shown.stderr);
    let refused = tenant.try_create(&long).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"), "{refused:?}");
    assert!(refused.message.contains(&format!("Job.batch \"long\" {text}")), "{refused:?}");

    let stored = tenant.create(&job(&tenant, "short", "refusing-below", 3600)).await;
    tenant.patch(&stored, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    let refused = tenant.try_patch(&stored, &json!({"spec": {"activeDeadlineSeconds": 9000}})).await;
    assert!(refused.unwrap_err().message.contains("Invalid value: 9000: must be at most 3600"));

    // one that is there already, and would be refused today
    admin.apply(&hour("turning", &json!({}))).await;
    let stored = tenant.create(&job(&tenant, "stored", "turning", 7200)).await;
    admin.apply(&hour("turning", &json!({"overCeiling": "Refuse"}))).await;
    await_answer(&tenant, &job(&tenant, "new", "turning", 7200), "must be at most 3600").await;
    tenant.patch(&stored, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    tenant.patch(&stored, &json!({"metadata": {"annotations": {OWN: "30m"}}})).await;
    tenant.patch(&stored, &json!({"spec": {"activeDeadlineSeconds": null}})).await;
}

#[tokio::test]
async fn a_job_set_is_answered_by_the_strictest_of_its_templates_and_a_cron_job_by_that_of_its_jobs() {
    let tenant = Tenant::new(world().await).await;
    let admin = tenant.as_admin();
    let refuse = json!({"overCeiling": "Refuse"});
    admin.apply(&hour("loose", &refuse)).await;
    let mut strict = hour("strict", &refuse);
    strict["spec"]["maxDuration"] = json!("10m");
    admin.apply(&strict).await;
    let replicated = |queue: &str| {
        let job = job(&tenant, "unused", queue, 1200);
        json!({"name": queue, "template": {"spec": job["spec"]}})
    };
    let jobs = json!({"replicatedJobs": [replicated("loose"), replicated("strict")]});
    let set = fixtures::object("jobset.x-k8s.io/v1alpha2", "JobSet", tenant.name(), "set", &jobs);
    let text = "spec.replicatedJobs[0].template.spec.activeDeadlineSeconds: Invalid value: 1200: must be at most 600: Queue strict ends a run after 10m";
    await_answer(&tenant, &set, text).await;
    let jobs = json!({"replicatedJobs": [replicated("loose")]});
    let set = fixtures::object("jobset.x-k8s.io/v1alpha2", "JobSet", tenant.name(), "set", &jobs);
    assert_eq!(tried(&tenant, &set).await, "");

    let template = job(&tenant, "unused", "strict", 1200);
    let nightly =
        json!({"schedule": "0 1 * * *", "suspend": true, "jobTemplate": {"spec": template["spec"]}});
    let nightly = fixtures::object("batch/v1", "CronJob", tenant.name(), "nightly", &nightly);
    await_answer(&tenant, &nightly, "spec.jobTemplate.spec.activeDeadlineSeconds: Invalid value: 1200").await;
}

#[tokio::test]
async fn the_queue_of_a_pod_group_comes_first_and_one_of_t9k_only_warns() {
    let tenant = Tenant::new(world().await).await;
    let admin = tenant.as_admin();
    admin.apply(&hour("grouped", &json!({"overCeiling": "Refuse"}))).await;
    admin.apply(&runai_queue("ungrouped", "", "1d")).await;
    let group = json!({"queue": "grouped", "minMember": 1});
    tenant
        .create(&fixtures::object("scheduling.run.ai/v2alpha2", "PodGroup", tenant.name(), "gang", &group))
        .await;
    let mut member = job(&tenant, "member", "ungrouped", 7200);
    member["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    await_answer(&tenant, &member, "Queue grouped ends a run after 1h").await;
    member["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "none"});
    assert_eq!(tried(&tenant, &member).await, "", "there is no such group");
    member["spec"]["template"]["metadata"]["annotations"] = Value::Null;
    assert_eq!(tried(&tenant, &member).await, "", "by its label alone");

    // a path to the group, seen from a neighbour's namespace
    let neighbour = Tenant::new(world().await).await;
    let mut member = job(&neighbour, "member", "ungrouped", 7200);
    let path = format!("../../{}/podgroups/gang", tenant.name());
    member["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": path});
    assert_eq!(tried(&neighbour, &member).await, "");

    admin.apply(&queue("of-t9k", "30m")).await;
    let mut of_t9k = workload("Job", tenant.name(), "of-t9k", &in_queue("of-t9k"), &Value::Null);
    of_t9k["spec"]["activeDeadlineSeconds"] = json!(7200);
    let warning =
        "spec.activeDeadlineSeconds: 7200 is too long: Queue of-t9k ends a run after 30m: set at most 1800";
    let said = await_answer(&tenant, &of_t9k, warning).await;
    assert!(!said.contains("refused"), "{said}");
}

/// How many owners the webhook was asked about.
async fn asked(world: &World) -> u64 {
    let [webhook, _] = world.tenure.admin_urls();
    Metrics::of(webhook).await.count("tenure_webhook_owner_answers_total", &[])
}

#[tokio::test]
async fn the_webhook_is_asked_of_new_owners_that_name_a_queue_and_of_what_owners_newly_ask_for() {
    let world = Box::pin(World::installed_alone("creation-asked", &[])).await.unwrap();
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    let namespace = Namespace::new(&world).await;
    namespace.apply(&hour("research", &json!({}))).await;
    let asking = namespace.create(&job(&namespace, "asking", "research", 7200)).await;
    // a configuration is in force a little after it was created
    eventually("the webhook to be asked", DEADLINE, async || {
        let again = job(&namespace, "again", "research", 7200);
        namespace.try_dry_run(&again).await.unwrap();
        Ok((asked(&world).await > 0).then_some(()))
    })
    .await
    .unwrap();

    let before = asked(&world).await;
    let labels = in_runai_queue("research");
    let mut without_queue = job(&namespace, "without-queue", "", 7200);
    without_queue["spec"]["template"]["metadata"]["labels"] = Value::Null;
    let mut daemons = workload("DaemonSet", namespace.name(), "daemons", &labels, &Value::Null);
    daemons["metadata"]["annotations"] = json!({OWN: "9h"});
    let controlled = owned(job(&namespace, "controlled", "research", 7200), &[controller(&asking)]);
    let pod = bare_pod(namespace.name(), "pod", &labels, &json!({"activeDeadlineSeconds": 7200}));
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config", "namespace": namespace.name()},
    });
    for object in [without_queue, daemons, controlled, pod, config] {
        namespace.create(&object).await;
    }
    namespace.patch(&asking, &json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})).await;
    namespace.patch(&asking, &json!({"spec": {"backoffLimit": 3}})).await;
    namespace.patch_status(&asking, &json!({"ready": 0})).await;
    assert_eq!(asked(&world).await, before);

    namespace.patch(&asking, &json!({"spec": {"activeDeadlineSeconds": 9000}})).await;
    assert_eq!(asked(&world).await, before + 1);
    namespace.patch(&asking, &json!({"metadata": {"annotations": {OWN: "2h"}}})).await;
    assert_eq!(asked(&world).await, before + 2);
    let server = workload("Deployment", namespace.name(), "server", &labels, &Value::Null);
    let server = namespace.create(&server).await;
    assert_eq!(asked(&world).await, before + 3, "its queue may not exist");
    namespace.patch(&server, &json!({"spec": {"replicas": 1}})).await;
    assert_eq!(asked(&world).await, before + 3, "it asks for nothing");
    assert_eq!(namespace.try_find(&asking).await.map(|asking| asking.name_any()).as_deref(), Some("asking"));

    // no workload waits for a webhook that is down
    namespace.apply(&hour("research", &json!({"overCeiling": "Refuse"}))).await;
    world.tenure.stop_webhook().await.unwrap();
    namespace.create(&job(&namespace, "meanwhile", "research", 7200)).await;
}
