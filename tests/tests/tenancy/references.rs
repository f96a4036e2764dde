//! Who names an owner must be allowed to own: references to controllers, by users with exactly given rights.

use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{DynamicObject, Status},
};
use serde_json::{Value, json};
use tenure_policy::owner_table::OwnerTable;
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures, scale,
    workloads::{Namespace, bare_pod, controller, distinct, owned, reference, workload},
};
use tokio::{join, sync::OnceCell};

use crate::{
    access::{self, await_refusal},
    owners::claim,
    up,
};

/// API group, resources and verbs.
pub type Rule<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

pub const ALL: &[&str] = &["*"];
pub const UPDATE: &[&str] = &["update"];

/// Neither webhook nor keeper runs, nor a controller of Kubernetes. 60 kinds are added to the table, and usage is on.
pub async fn off() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let row = |row: usize| {
            let fields = [
                format!("group=g{row}.example.com"),
                format!("kind=Kind{row}"),
                format!("resource=kind{row}s"),
                "path=spec.suspend".to_owned(),
                "value=true".to_owned(),
            ];
            fields.map(|field| format!("keeper.owners[{row}].{field}"))
        };
        let values: Vec<String> = (0..60).flat_map(row).chain(["usage.enabled=true".to_owned()]).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        let world = Box::pin(World::installed_alone("tenancy-off", &values)).await?;
        // pods need its service account
        scale::namespace(&world, "kube-system").await;
        for file in ["scheduling.run.ai", "jobset.x-k8s.io", "ray.io", "kubeflow.org", "batch.volcano.sh"] {
            fixtures::install(&world, fixtures::definitions(file)).await;
        }
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// While webhook and keeper run, and while neither does.
async fn in_both(test: impl AsyncFn(&'static World)) {
    let (up, off) = join!(up(), off());
    join!(test(up), test(off));
}

/// A namespace as seen by a user with these rights in it, when they are known and the policy is enforced.
pub async fn seen_by(world: &World, name: &str, user: &str, rules: &[Rule<'_>]) -> Namespace {
    allow(world, name, user, rules).await;
    let kubeconfig = world.cluster.user_kubeconfig(user, None).unwrap();
    let seen = Namespace::seen_by(world.cluster.client_of(&kubeconfig).await.unwrap(), name);
    Box::pin(await_policy(world, name, user)).await;
    seen
}

pub async fn allow(world: &World, namespace: &str, user: &str, rules: &[Rule<'_>]) {
    let rules = rules.iter().map(
        |(group, resources, verbs)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}),
    );
    let metadata = json!({"name": user.replace(':', "-"), "namespace": namespace});
    let of = "rbac.authorization.k8s.io";
    let version = format!("{of}/v1");
    let rules: Vec<Value> = rules.collect();
    world.apply(&json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules})).await;
    world
        .apply(&json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": of, "kind": "Role", "name": metadata["name"]},
            "subjects": [{"apiGroup": of, "kind": "User", "name": user}],
        }))
        .await;
}

/// Waits until the API server enforces the policy, and knows the rights that a user has been given: it sees roles and
/// bindings in their order, and those of the probe are the last.
async fn await_policy(world: &World, name: &str, user: &str) {
    let probe = &format!("probe-of-{user}");
    allow(world, name, probe, &[("", &["pods"], ALL)]).await;
    let kubeconfig = world.cluster.user_kubeconfig(probe, None).unwrap();
    let seen = Namespace::seen_by(world.cluster.client_of(&kubeconfig).await.unwrap(), name);
    let pod = owned(pod(name, "probe"), &[claim("batch/v1", "Job", "theirs", "u")]);
    await_refusal(&seen, &pod, "requires the right to update jobs/finalizers").await;
}

/// A pod that waits, so that nothing but the test changes it.
pub fn pod(namespace: &str, name: &str) -> Value {
    let gated = json!({"schedulingGates": [{"name": "example.com/wait"}]});
    distinct(bare_pod(namespace, name, &json!({}), &gated), name)
}

fn assert_refused(result: Result<DynamicObject, Box<Status>>, what: &str) {
    let refused = result.expect_err(what);
    let words = "the controller requires the right to update ";
    assert!(refused.message.contains(words), "{what}: {}", refused.message);
}

/// The kinds above pods, each with its group: those of the table, and those of Kubernetes itself.
fn kinds() -> Vec<(String, String)> {
    let table = OwnerTable::default();
    let known = table.ancestors().map(|(group, kind, _)| (group.to_owned(), kind.to_owned()));
    let native = [("", "ReplicationController"), ("apps", "DaemonSet"), ("batch", "CronJob")];
    let added = [("g0.example.com", "Kind0"), ("g59.example.com", "Kind59")];
    known.chain(native.into_iter().chain(added).map(|(group, kind)| (group.into(), kind.into()))).collect()
}

#[tokio::test]
async fn user_with_rights_on_pods_alone_claims_no_workload_of_a_neighbour() {
    in_both(async |world| {
        let name = &world.namespace().await;
        let user = &seen_by(world, name, "poor", &[("", &["pods"], ALL)]).await;
        for (number, (group, kind)) in kinds().into_iter().enumerate() {
            let is_added = group.starts_with('g') && group.ends_with(".example.com");
            if is_added && !std::ptr::eq(world, off().await) {
                continue;
            }
            let version = if group.is_empty() { "v1".into() } else { format!("{group}/v7") };
            let claimed = owned(pod(name, &format!("claims-{number}")), &[claim(&version, &kind, "theirs", "u")]);
            assert_refused(user.try_create(&claimed).await, &kind);
        }
        // an account of the namespace isn't a controller's
        let account = format!("system:serviceaccount:{name}:default");
        let account = &seen_by(world, name, &account, &[("", &["pods"], ALL)]).await;
        let claimed = owned(pod(name, "claims"), &[claim("ray.io/v1", "RayJob", "theirs", "u")]);
        let refused = account.try_create(&claimed).await.unwrap_err();
        let expected = format!(
            "metadata.ownerReferences: Forbidden: RayJob \"theirs\" as the controller requires the right to update rayjobs/finalizers or rayjobs of group ray.io in namespace \"{name}\", which user \"system:serviceaccount:{name}:default\" doesn't have: have it granted, leave the reference out, or have the user added to tenancy.trustedWriters of Tenure's chart"
        );
        assert!(refused.message.ends_with(&expected), "{}", refused.message);
        for (name, owner) in [
            ("of-an-unknown-kind", claim("example.com/v1", "Widget", "w", "u")),
            ("of-another-group", claim("example.com/v1", "RayJob", "w", "u")),
        ] {
            user.create(&owned(pod(user.name(), name), &[owner])).await;
        }
        user.create(&pod(name, "of-no-owner")).await;
    })
    .await;
}

#[tokio::test]
async fn reference_that_is_added_or_changed_later_is_asked_about_and_one_that_stays_is_not() {
    in_both(async |world| {
        let name = &world.namespace().await;
        let rules: [Rule<'_>; 2] =
            [("", &["pods"], ALL), ("apps", &["replicasets", "replicasets/status"], ALL)];
        let user = &seen_by(world, name, "poor", &rules).await;
        let admin = &Namespace::of(world, name);
        let mut job = workload("Job", name, "theirs", &json!({}), &Value::Null);
        job["spec"]["suspend"] = json!(true);
        let job = admin.create(&job).await;
        let owners = |owners: &[OwnerReference]| json!({"metadata": {"ownerReferences": owners}});

        let free = user.create(&pod(name, "free")).await;
        assert_refused(user.try_patch(&free, &owners(&[controller(&job)])).await, "added");
        let merely = user.create(&owned(pod(name, "merely"), &[reference(&job)])).await;
        assert_refused(user.try_patch(&merely, &owners(&[controller(&job)])).await, "made the controller");
        let uid = controller(&job).uid;
        let widget = claim("invented.example.org/v1", "Widget", "theirs", &uid);
        let disguised = user.create(&owned(pod(name, "disguised"), &[widget])).await;
        assert_refused(user.try_patch(&disguised, &owners(&[controller(&job)])).await, "another kind");
        let note = json!({"metadata": {"labels": {"note": "a"}}});
        let theirs = admin.create(&owned(pod(name, "theirs"), &[controller(&job)])).await;
        user.patch(&theirs, &note).await;

        let deployment = claim("apps/v1", "Deployment", "theirs", "u");
        let set = workload(
            "ReplicaSet",
            name,
            "set",
            &json!({}),
            &json!({"schedulingGates": [{"name": "example.com/wait"}]}),
        );
        let set = user.create(&distinct(set, "set")).await;
        assert_refused(user.try_patch(&set, &owners(std::slice::from_ref(&deployment))).await, "between");
        let by_status = user.try_patch_subresource(&set, "status", &owners(&[deployment])).await;
        assert_refused(by_status, "by the status");
    })
    .await;
}

#[tokio::test]
async fn who_may_update_an_owner_or_its_finalizers_may_name_it() {
    let world = off().await;
    let name = &world.namespace().await;
    let of_job = |pod_name: &str| owned(pod(name, pod_name), &[claim("batch/v1", "Job", "theirs", "u")]);
    let pods: Rule<'_> = ("", &["pods"], ALL);
    for (user, resources) in [("by-finalizers", &["jobs/finalizers"]), ("by-object", &["jobs"])] {
        let user = seen_by(world, name, user, &[pods, ("batch", resources, UPDATE)]).await;
        user.create(&of_job(&resources.concat().replace('/', "-"))).await;
    }
    let foreign = seen_by(world, name, "system:serviceaccount:operators:operator", &[pods]).await;
    foreign.create(&of_job("foreign")).await;
    let manager = seen_by(world, name, "system:kube-controller-manager", &[pods]).await;
    manager.create(&of_job("manager")).await;
}

/// True if one of these objects has an owner of this kind, with a name that begins so.
fn has_owner(objects: &[impl ResourceExt], owner: &str) -> bool {
    let mut owners = objects.iter().flat_map(ResourceExt::owner_references);
    owners.any(|of| format!("{} {}", of.kind, of.name).starts_with(owner))
}

#[tokio::test]
async fn controllers_of_kubernetes_make_their_pods() {
    let world = access::world().await;
    let namespace = &Namespace::new(world).await;
    await_policy(world, namespace.name(), "nobody").await;
    let template =
        |kind: &str| distinct(workload(kind, namespace.name(), "real", &json!({}), &Value::Null), kind);
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "Job"] {
        namespace.create(&template(kind)).await;
    }
    let job = template("Job");
    namespace
        .create(&json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron", "namespace": namespace.name()},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}},
        }))
        .await;
    let mut set = template("ReplicaSet");
    (set["apiVersion"], set["kind"]) = (json!("v1"), json!("ReplicationController"));
    set["spec"]["selector"] = json!({"app": "controller"});
    set["spec"]["template"]["metadata"]["labels"]["app"] = json!("controller");
    namespace.create(&set).await;
    let client = world.cluster.client().unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace.name());
    let jobs: Api<Job> = Api::namespaced(client, namespace.name());
    let expected = [
        "ReplicaSet real-",
        "StatefulSet real",
        "DaemonSet real",
        "Job real",
        "Job cron-",
        "ReplicationController real",
    ];
    let all = async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        let jobs = jobs.list(&ListParams::default()).await?.items;
        let are_made = expected.iter().all(|owner| has_owner(&pods, owner));
        Ok((are_made && has_owner(&jobs, "CronJob cron")).then_some(()))
    };
    // a CronJob acts once a minute
    eventually("pods of each controller", 3 * DEADLINE, all).await.unwrap();
}
