//! Who may use a queue, and an exemption from ceilings: users with exactly given rights, while neither webhook nor keeper runs.

use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures,
    workloads::{Namespace, bare_pod, distinct, owned, workload},
};
use tokio::sync::OnceCell;

use crate::{
    owners::claim,
    references::{ALL, Rule, allow, pod},
};

pub const RUNAI: &str = "scheduling.run.ai";
const T9K: &str = "scheduler.tensorstack.dev";
pub const LABEL: &str = "kai.scheduler/queue";
const T9K_LABEL: &str = "scheduler.tensorstack.dev/queue";

/// What users of these tests may write: they may use nothing.
const WRITES: [Rule<'_>; 5] = [
    ("", &["pods", "configmaps"], ALL),
    ("apps", &["deployments", "daemonsets"], &["create", "get", "patch", "update"]),
    ("batch", &["jobs", "cronjobs"], &["create", "get", "patch"]),
    (RUNAI, &["podgroups"], ALL),
    (T9K, &["podgroups"], ALL),
];

/// Queues take a right, and so do exemptions in namespaces with label `tenants`. Each policy for objects of tenants is there.
pub async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let values = [
            "tenancy.queueAccess.mode=Deny",
            "webhook.failurePolicy=Ignore",
            "tenancy.queueAccess.podGroupWriters[0]=podgrouper",
            "tenancy.queueAccess.grants[0].queue=granted",
            "tenancy.queueAccess.grants[0].namespaces[0]=default",
            "tenancy.queueAccess.grants[0].users[0]=alice",
            "tenancy.namespaces.matchLabels.tenants=yes",
            "tenancy.requireQueue.matchLabels.queue=required",
            "keeper.schedulers[0]=default-scheduler",
        ];
        let world = Box::pin(World::installed("tenancy-access", &values)).await?;
        for file in [RUNAI, T9K] {
            fixtures::install(&world, fixtures::definitions(file)).await;
        }
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// Lets subjects use objects of a name in a namespace.
pub async fn let_use(namespace: &str, (group, resource, name): (&str, &str, &str), subject: Value) {
    let of = "rbac.authorization.k8s.io";
    let version = format!("{of}/v1");
    let metadata = json!({"name": format!("use-{resource}-{name}"), "namespace": namespace});
    let rule =
        json!({"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": ["use"]});
    let world = world().await;
    world.apply(&json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]})).await;
    world
        .apply(&json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": of, "kind": "Role", "name": metadata["name"]}, "subjects": [subject],
        }))
        .await;
}

pub fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

pub fn accounts_of(namespace: &str) -> Value {
    let name = format!("system:serviceaccounts:{namespace}");
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name})
}

/// A namespace as seen by a user who may write workloads, once policies and rights are in force.
pub async fn seen_by(namespace: &str, user: &str) -> Namespace {
    let world = world().await;
    allow(world, namespace, user, &WRITES).await;
    let kubeconfig = world.cluster.user_kubeconfig(user, None).unwrap();
    let seen = Namespace::seen_by(world.cluster.client_of(&kubeconfig).await.unwrap(), namespace);
    let probe = in_queue(namespace, "probe", LABEL, "probe");
    await_refusal(&seen, &probe, "requires the right to use queues").await;
    seen
}

/// Waits until the creation of an object is refused with these words: policies and rights are in force a little late.
pub async fn await_refusal(seen: &Namespace, object: &Value, words: &str) {
    eventually(&format!("a refusal with {words:?}"), DEADLINE, async || {
        let refused = seen.try_dry_run(object).await.err();
        Ok(refused.filter(|refusal| refusal.contains(words)).map(drop))
    })
    .await
    .unwrap();
}

/// A pod that waits, with a label of a queue.
pub fn in_queue(namespace: &str, name: &str, label: &str, queue: &str) -> Value {
    let mut pod = pod(namespace, name);
    pod["metadata"]["labels"][label] = json!(queue);
    pod
}

fn group(api_version: &str, namespace: &str, name: &str, queue: &str) -> Value {
    fixtures::object(api_version, "PodGroup", namespace, name, &json!({"queue": queue, "minMember": 1}))
}

/// A group without the field that names its queue.
fn unnamed(api_version: &str, namespace: &str, name: &str) -> Value {
    fixtures::object(api_version, "PodGroup", namespace, name, &json!({"minMember": 1}))
}

async fn assert_refused(seen: &Namespace, object: &Value, words: &str) {
    let refused = seen.try_create(object).await.map(|_| ()).expect_err(&object.to_string());
    assert!(refused.message.contains(words), "{object}: {}", refused.message);
}

#[tokio::test]
async fn a_user_names_no_queue_that_neither_the_user_nor_the_account_may_use() {
    let name = &world().await.namespace().await;
    let poor = &seen_by(name, "poor").await;
    let refused = poor.try_create(&in_queue(name, "other", LABEL, "other")).await.unwrap_err();
    let expected = format!(
        "metadata.labels[kai.scheduler/queue]: Forbidden: queue \"other\" requires the right to use queues of group scheduling.run.ai in namespace \"{name}\", which service account \"default\" and user \"poor\" don't have: name another, or have the right granted by tenancy.queueAccess.grants of Tenure's chart or a RoleBinding"
    );
    assert!(refused.message.ends_with(&expected), "{}", refused.message);
    assert_refused(
        poor,
        &in_queue(name, "other", T9K_LABEL, "other"),
        "queues of group scheduler.tensorstack.dev",
    )
    .await;
    let mut job = workload("Job", name, "labelled", &json!({}), &Value::Null);
    job["metadata"]["labels"] = json!({LABEL: "other"});
    assert_refused(poor, &job, "metadata.labels[kai.scheduler/queue]: Forbidden").await;
    for kind in ["scheduling.run.ai/v2alpha2", "scheduler.tensorstack.dev/v1beta1"] {
        assert_refused(poor, &group(kind, name, "gang", "other"), "spec.queue: Forbidden: queue \"other\"")
            .await;
    }
    // which KAI-Scheduler's podgrouper would copy from a PodGroup that owns a pod
    let mut labelled = unnamed("scheduling.run.ai/v2alpha2", name, "labelled");
    labelled["metadata"]["labels"] = json!({LABEL: "other"});
    assert_refused(poor, &labelled, "metadata.labels[kai.scheduler/queue]: Forbidden").await;
    // later
    let free = poor.create(&pod(name, "free")).await;
    let label = json!({"metadata": {"labels": {LABEL: "other"}}});
    let refused = poor.try_patch(&free, &label).await.unwrap_err();
    assert!(refused.message.contains("Forbidden: queue \"other\""), "{}", refused.message);
    // what the keeper alone notes
    let mut noted = pod(name, "noted");
    noted["metadata"]["annotations"] =
        json!({"tenure.dev/evidence": "{\"queues\":{\"scheduling.run.ai\":\"other\"}}"});
    assert_refused(poor, &noted, "only Tenure's keeper writes it").await;
    let evidence = json!({"metadata": {"annotations": {"tenure.dev/evidence": "{}"}}});
    assert!(poor.try_patch(&free, &evidence).await.is_err());
    // an account of an operator, which may do everything, asks for nothing of its own
    let operator = format!("{name}-operator");
    let everything = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": operator},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [user("system:serviceaccount:operators:operator")],
    });
    world().await.apply(&everything).await;
    let operator = seen_by(name, "system:serviceaccount:operators:operator").await;
    // once the binding counts
    let deputy = in_queue(name, "deputy", LABEL, "other");
    await_refusal(&operator, &deputy, "service account \"default\" doesn't have").await;
}

#[tokio::test]
async fn a_right_of_the_user_or_of_the_account_lets_a_pod_name_a_queue() {
    let name = &world().await.namespace().await;
    let_use(name, (RUNAI, "queues", "own"), user("rich")).await;
    let_use(name, (RUNAI, "queues", "ours"), accounts_of(name)).await;
    let_use(name, (T9K, "queues", "t9k"), user("rich")).await;
    let rich = &seen_by(name, "rich").await;
    let create = async |object: Value| {
        let created = async || Ok(rich.try_create(&object).await.ok());
        eventually(&format!("{object} to be created"), DEADLINE, created).await.unwrap()
    };
    create(in_queue(name, "own", LABEL, "own")).await;
    create(in_queue(name, "t9k", T9K_LABEL, "t9k")).await;
    create(group("scheduling.run.ai/v2alpha2", name, "own", "own")).await;
    create(in_queue(name, "ours", LABEL, "ours")).await;
    let operator = &seen_by(name, "system:serviceaccount:operators:operator").await;
    operator.create(&in_queue(name, "of-an-operator", LABEL, "ours")).await;
    assert_refused(
        operator,
        &in_queue(name, "as-itself", LABEL, "own"),
        "service account \"default\" doesn't have",
    )
    .await;
    // a podgrouper copies what was asked about
    let podgrouper = &seen_by(name, "podgrouper").await;
    podgrouper.create(&group("scheduling.run.ai/v2alpha2", name, "copied", "any")).await;
}

#[tokio::test]
async fn a_pod_group_of_t9k_that_names_no_queue_takes_the_right_to_queue_default() {
    let name = &world().await.namespace().await;
    let (runai, t9k) = ("scheduling.run.ai/v2alpha2", "scheduler.tensorstack.dev/v1beta1");
    let maker = &seen_by(name, "maker").await;
    let groups = |kind: &str, of: &str| {
        [group(kind, name, &format!("{of}-empty"), ""), unnamed(kind, name, &format!("{of}-absent"))]
    };
    for object in &groups(t9k, "t9k") {
        let words = "spec.queue: Forbidden: queue \"default\" requires the right to use queues of group scheduler.tensorstack.dev";
        assert_refused(maker, object, words).await;
    }
    // in no queue
    for object in &groups(runai, "runai") {
        maker.create(object).await;
    }
    let podgrouper = &seen_by(name, "podgrouper").await;
    podgrouper.create(&group(t9k, name, "copied", "")).await;
    let_use(name, (T9K, "queues", "default"), user("maker")).await;
    for object in &groups(t9k, "t9k") {
        let created = async || Ok(maker.try_create(object).await.ok());
        eventually(&format!("{object} to be created"), DEADLINE, created).await.unwrap();
    }
}

#[tokio::test]
async fn a_controllers_pods_need_the_account_and_its_user_is_warned_when_the_controller_is_created() {
    let world = world().await;
    let name = &world.namespace().await;
    let_use(name, (RUNAI, "queues", "own"), user("builder")).await;
    let_use(name, (RUNAI, "queues", "ours"), accounts_of(name)).await;
    let builder = &seen_by(name, "builder").await;
    let kubeconfig = world.cluster.user_kubeconfig("builder", None).unwrap();
    let run = async |arguments: &[&str], kind: &str, queue: &str| {
        let object = distinct(workload(kind, name, queue, &json!({LABEL: queue}), &Value::Null), queue);
        world.cluster.kubectl_as(&kubeconfig, arguments, &object.to_string()).await.unwrap()
    };
    let create = async |kind: &str, queue: &str| run(&["create", "-f", "-"], kind, queue).await;
    let text = "pods of this workload will be refused: metadata.labels[kai.scheduler/queue]: queue \"other\"";
    eventually("the policy to be enforced", DEADLINE, async || {
        let probe = run(&["create", "--dry-run=server", "-f", "-"], "Deployment", "other").await;
        Ok(probe.stderr.contains(text).then_some(()))
    })
    .await
    .unwrap();
    for kind in ["Deployment", "DaemonSet"] {
        let output = create(kind, "other").await;
        assert!(output.stderr.contains(text) && output.status.success(), "{kind}: {}", output.stderr);
    }
    // the API server copies the labels of its template to a Job that has none
    let output = create("Job", "other").await;
    let refused = "metadata.labels[kai.scheduler/queue]: Forbidden: queue \"other\"";
    assert!(output.stderr.contains(refused), "{}", output.stderr);
    let output = create("Deployment", "ours").await;
    assert!(!output.stderr.contains("will be refused"), "{}", output.stderr);
    // the user may, and the controller's account may not
    create("Job", "own").await.success().unwrap();
    let admin = &Namespace::of(world, name);
    let made = async || {
        let pods = admin.pod_names().await;
        Ok(pods.iter().any(|pod| pod.starts_with("ours-")).then_some(pods))
    };
    eventually("the pods of a queue that the account may use", DEADLINE, made).await.unwrap();
    let output = async |of: &[&str]| world.cluster.kubectl(&[of, &["-n", name]].concat()).await?.success();
    let refused = async || {
        let events = output(&[
            "get",
            "events",
            "--field-selector=reason=FailedCreate",
            "-o=jsonpath={.items[*].message}",
        ])
        .await?;
        // a ReplicaSet has the labels of its template
        let conditions =
            output(&["get", "deployment", "other", "-o=jsonpath={.status.conditions[*].message}"]).await?;
        Ok((events.contains("queue \"own\"") && conditions.contains("queue \"other\"")).then_some(()))
    };
    eventually("the refusals to be told", DEADLINE, refused).await.unwrap();
    assert!(builder.pod_names().await.iter().all(|pod| pod.starts_with("ours-")));
}

#[tokio::test]
async fn pods_of_controllers_use_the_queue_of_their_own_account_alone() {
    let world = world().await;
    let namespace = &Namespace::new(world).await;
    let name = namespace.name();
    seen_by(name, "watcher").await;
    let trainer = json!({"kind": "ServiceAccount", "name": "trainer", "namespace": name});
    let_use(name, (RUNAI, "queues", "trained"), trainer).await;
    world
        .cluster
        .kubectl(&["create", "serviceaccount", "trainer", "-n", name])
        .await
        .unwrap()
        .success()
        .unwrap();
    for kind in ["Deployment", "StatefulSet", "Job"] {
        let spec = json!({"serviceAccountName": "trainer"});
        namespace
            .create(&distinct(workload(kind, name, "train", &json!({LABEL: "trained"}), &spec), kind))
            .await;
    }
    namespace.await_running(5).await;
}

#[tokio::test]
async fn the_charts_grants_let_accounts_and_named_users_of_their_namespaces_use_a_queue() {
    let alice = &seen_by("default", "alice").await;
    let kept: DynamicObject = alice.create(&in_queue("default", "granted", LABEL, "granted")).await;
    let elsewhere = &world().await.namespace().await;
    let alice = &seen_by(elsewhere, "alice").await;
    assert_refused(alice, &in_queue(elsewhere, "granted", LABEL, "granted"), "user \"alice\" don't have")
        .await;
    let operator = &seen_by("default", "system:serviceaccount:operators:operator").await;
    operator.create(&in_queue("default", "by-an-operator", LABEL, "granted")).await;
    Namespace::of(world().await, "default").delete(&kept).await;
    assert_eq!(kept.name_any(), "granted");
}

/// Makes a namespace one of tenants, and returns once a user's pods without a ceiling are refused there.
pub async fn select(name: &str, user: &str) {
    let world = world().await;
    world.label_namespace(name, "tenants", "yes").await;
    let kubeconfig = world.cluster.user_kubeconfig(user, None).unwrap();
    let seen = Namespace::seen_by(world.cluster.client_of(&kubeconfig).await.unwrap(), name);
    let spec = json!({"priorityClassName": "system-cluster-critical"});
    await_refusal(&seen, &bare_pod(name, "probe", &json!({}), &spec), "have no ceiling").await;
}

#[tokio::test]
async fn in_namespaces_of_tenants_an_exemption_takes_the_right_to_use_it() {
    let world = world().await;
    let name = &world.namespace().await;
    let tenant = &seen_by(name, "exempt").await;
    let with = |name: &str, spec: Value| distinct(bare_pod(tenant.name(), name, &json!({}), &spec), name);
    let critical = |name: &str| with(name, json!({"priorityClassName": "system-cluster-critical"}));
    let elsewhere = |name: &str| with(name, json!({"schedulerName": "own-scheduler"}));
    let daemons =
        |called: &str| distinct(workload("DaemonSet", name, called, &json!({}), &Value::Null), called);
    // not a tenant's namespace yet
    tenant.create(&critical("before")).await;
    select(name, "exempt").await;
    let refused = tenant.try_create(&critical("critical")).await.unwrap_err();
    let expected = format!(
        "spec.priorityClassName: Forbidden: pods of PriorityClass \"system-cluster-critical\" have no ceiling: this class requires the right to use priorityclasses of group scheduling.k8s.io in namespace \"{name}\", which service account \"default\" and user \"exempt\" don't have: name another, or have the right granted by a RoleBinding"
    );
    assert!(refused.message.ends_with(&expected), "{}", refused.message);
    assert_refused(
        tenant,
        &with("node-critical", json!({"priorityClassName": "system-node-critical"})),
        "have no ceiling",
    )
    .await;
    assert_refused(
        tenant,
        &elsewhere("elsewhere"),
        "spec.schedulerName: Forbidden: pods of scheduler \"own-scheduler\"",
    )
    .await;
    assert_refused(tenant, &daemons("daemons"), "kind: Forbidden: pods of a DaemonSet have no ceiling").await;
    tenant.create(&with("ordinary", json!({}))).await;
    let_use(name, ("scheduling.k8s.io", "priorityclasses", "system-cluster-critical"), accounts_of(name))
        .await;
    let_use(name, ("tenure.dev", "schedulers", "own-scheduler"), user("exempt")).await;
    let_use(name, ("apps", "daemonsets", "daemons"), user("exempt")).await;
    for object in [critical("critical"), elsewhere("elsewhere"), daemons("daemons")] {
        let created = async || Ok(tenant.try_create(&object).await.ok());
        eventually(&format!("{object} to be created"), DEADLINE, created).await.unwrap();
    }
    assert_refused(tenant, &daemons("others"), "kind: Forbidden").await;
    // of an administrator
    let theirs = Namespace::of(world, name).create(&daemons("theirs")).await;
    let image = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    let refused = tenant.try_patch(&theirs, &image).await.unwrap_err();
    assert!(refused.message.contains("kind: Forbidden"), "{}", refused.message);
}

#[tokio::test]
async fn a_pod_has_a_daemon_set_as_its_controller_by_the_right_to_use_it() {
    let world = world().await;
    let name = &world.namespace().await;
    let tenant = &seen_by(name, "claimant").await;
    let controller = &seen_by(name, "system:serviceaccount:kube-system:daemon-set-controller").await;
    select(name, "claimant").await;
    let daemons = claim("apps/v1", "DaemonSet", "daemons", "u");
    let of_daemons = |called: &str| owned(pod(name, called), std::slice::from_ref(&daemons));
    let words = |user: &str| {
        format!(
            "metadata.ownerReferences: Forbidden: pods of a DaemonSet have no ceiling: to name DaemonSet \"daemons\" as the controller requires the right to use daemonsets of group apps in namespace \"{name}\", which user \"{user}\" doesn't have: have it granted by a RoleBinding, or leave the reference out"
        )
    };
    assert_refused(tenant, &of_daemons("claims"), &words("claimant")).await;
    // later, and by adoption: anybody may have made a pod with the labels that the DaemonSet selects
    let free = tenant.create(&pod(name, "free")).await;
    let claims = json!({"metadata": {"ownerReferences": [daemons]}});
    for (seen, user) in
        [(tenant, "claimant"), (controller, "system:serviceaccount:kube-system:daemon-set-controller")]
    {
        let refused = seen.try_patch(&free, &claims).await.unwrap_err();
        assert!(refused.message.ends_with(&words(user)), "{}", refused.message);
    }
    tenant
        .create(&owned(
            pod(name, "elsewhere"),
            &[claim("apps.kruise.io/v1alpha1", "DaemonSet", "daemons", "u")],
        ))
        .await;
    controller.create(&of_daemons("by-the-controller")).await;
    // of an administrator
    let theirs = distinct(workload("DaemonSet", name, "theirs", &json!({}), &Value::Null), "theirs");
    Namespace::of(world, name).create(&theirs).await;
    let made = async || Ok(tenant.pod_names().await.into_iter().find(|pod| pod.starts_with("theirs-")));
    let made = eventually("a pod of the DaemonSet", DEADLINE, made).await.unwrap();
    let kubeconfig = world.cluster.user_kubeconfig("claimant", None).unwrap();
    let note = ["label", "pod", &*made, "note=a", "-n", name];
    world.cluster.kubectl_as(&kubeconfig, &note, "").await.unwrap().success().unwrap();
    let_use(name, ("apps", "daemonsets", "daemons"), user("claimant")).await;
    let created = async || Ok(tenant.try_create(&of_daemons("rightful")).await.ok());
    eventually("the right to count", DEADLINE, created).await.unwrap();
}
