//! What the API server lets the expressions of a policy cost. A policy beyond that refuses every write of an object, also
//! those of kubelets and of the keeper.

use std::collections::BTreeSet;

use http::{Request, header::CONTENT_TYPE};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World, fixtures,
    policies::keeper_user,
    queues::send,
    workloads::{Namespace, workload},
};

use crate::{
    access::{LABEL, RUNAI, await_refusal, seen_by, select, world},
    references::pod,
};

/// The number of references to owners that a pod can have besides its own. A search among so many costs more than the API server
/// allows an expression.
const CROWD: usize = 84_600;

/// The most references that a patch brings: a merge patch has at most 3 MiB, a JSON patch 10,000 operations.
const MERGED: usize = 55_000;
const ADDED: usize = 10_000;

/// The objects that an API server takes and that policies search longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worst {
    /// Tens of thousands of owner references.
    OwnedPod,
    OwnedJob,
    /// As many annotations as policy bound-pods allows.
    AnnotatedPod,
    /// Tens of thousands of annotations.
    AnnotatedJob,
    /// A queue with a name of a megabyte.
    Group,
    T9kJob,
    /// Any object: the policy reads fields alone that its definition bounds.
    Any,
}

/// The policies for objects of tenants, each with its worst object.
const WORST: [(&str, Worst); 16] = [
    ("tenure-accounts", Worst::AnnotatedJob),
    ("tenure-bound-pods", Worst::AnnotatedPod),
    ("tenure-exemptions", Worst::OwnedPod),
    ("tenure-extensions", Worst::Any),
    ("tenure-extensions-approval", Worst::Any),
    ("tenure-forced-deletions", Worst::Any),
    ("tenure-grace-periods", Worst::OwnedJob),
    ("tenure-owner-references", Worst::OwnedPod),
    ("tenure-podgroup-queues", Worst::Group),
    ("tenure-queue-labels", Worst::OwnedJob),
    ("tenure-require-queue", Worst::AnnotatedPod),
    ("tenure-use-podgroups", Worst::Group),
    ("tenure-use-queues", Worst::OwnedPod),
    ("tenure-use-t9k-fields", Worst::T9kJob),
    ("tenure-use-t9k-queues", Worst::OwnedPod),
    ("tenure-use-templates", Worst::OwnedJob),
];

/// Writes of users with all rights in a namespace.
struct Writes<'w> {
    world: &'w World,
    admin: Namespace,
}

impl Writes<'_> {
    /// The path of an object, or of all of its kind, such as `api/v1` and `pods/name`.
    fn path(&self, version: &str, object: &str) -> String {
        format!("/{version}/namespaces/{}/{object}", self.admin.name())
    }

    /// Has a user create an object or write a patch, and returns the refusal. Neither that nor a warning may be about a cost.
    async fn write(&self, user: &str, method: &str, path: &str, body: &Value) -> Result<(), String> {
        let client = self.world.cluster.client().unwrap();
        let format = match method {
            "POST" => "application/json",
            _ if body.is_array() => "application/json-patch+json",
            _ => "application/merge-patch+json",
        };
        // a busy machine takes longer for such objects than the API server allows a request
        let answer = eventually("an answer in time", 3 * DEADLINE, async || {
            let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, format);
            let request =
                request.header("Impersonate-User", user).header("Impersonate-Group", "system:masters");
            let (warnings, answer) = Box::pin(send(&client, request, body)).await;
            let is_late = |refusal: &String| refusal.contains("did not complete within requested timeout");
            Ok((!answer.as_ref().is_err_and(is_late)).then_some((warnings, answer.map(drop))))
        });
        let (warnings, answer) = answer.await.unwrap();
        let mut texts = warnings.iter().chain(answer.as_ref().err());
        assert!(!texts.any(|text| text.contains("cost")), "{user} {path}: {warnings:?} {answer:?}");
        answer
    }

    /// Has a user patch an object, or a subresource of it.
    async fn patch(&self, user: &str, path: &str, change: &Value) {
        let answer = self.write(user, "PATCH", path, change).await;
        assert!(answer.is_ok(), "{user} {path}: {answer:?}");
    }

    /// Has those write a pod or a Job who write one: its tenant, the keeper, and the kubelet of a pod.
    async fn patch_all(&self, path: &str, by_tenant: &Value) {
        self.patch("person", path, by_tenant).await;
        let noted = json!({"metadata": {"annotations": {"tenure.dev/acts": "a"}}});
        self.patch(&keeper_user(), path, &noted).await;
        if path.contains("/pods/") {
            let status = json!({"status": {"message": "a"}});
            self.patch("kubelet", &format!("{path}/status"), &status).await;
        }
    }

    /// Creates an object, and writes it as clients do.
    async fn try_out(&self, worst: Worst) {
        let Self { world, admin } = self;
        let long = "x".repeat(1_000_000);
        match worst {
            Worst::OwnedPod => {
                let pod = admin.create(&with_owner(in_queue(pod(admin.name(), "owned")), true)).await;
                crowd(admin, &pod, CROWD).await;
                let path = self.path("api/v1", "pods/owned");
                self.patch_all(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
                let uid = format!("/metadata/ownerReferences/{CROWD}/uid");
                for user in ["person", "system:serviceaccount:kube-system:replicaset-controller"] {
                    // another one each time: the policy ends early for a controller that stays
                    let adopted = json!([{"op": "replace", "path": uid, "value": user}]);
                    self.patch(user, &path, &adopted).await;
                }
            }
            Worst::OwnedJob => {
                let job = admin.create(&with_owner(in_queue(suspended(admin.name(), "owned")), false)).await;
                // with more, the API server takes half a minute for a patch of a Job
                crowd(admin, &job, 9_000).await;
                let path = self.path("apis/batch/v1", "jobs/owned");
                self.patch_all(&path, &json!({"spec": {"parallelism": 2}})).await;
            }
            Worst::AnnotatedPod => {
                let mut pod = in_queue(pod(admin.name(), "annotated"));
                // with the one of the patch, and with room for that
                pod["metadata"]["annotations"] = annotations(9_998, &"x".repeat(20));
                admin.create(&pod).await;
                let path = self.path("api/v1", "pods/annotated");
                self.patch_all(&path, &json!({"metadata": {"annotations": {"a": "b"}}})).await;
                // the keys of a Binding are searched, which may be as long in all
                let keys = (0..10_000).map(|number| (format!("{number:024}"), json!("")));
                let metadata = json!({"name": "absent", "annotations": Value::Object(keys.collect())});
                let target = json!({"kind": "Node", "name": "node-1"});
                let binding =
                    json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
                let path = self.path("api/v1", "pods/absent/binding");
                let missing = self.write("person", "POST", &path, &binding).await.unwrap_err();
                assert!(missing.contains("not found"), "{missing}");
            }
            Worst::AnnotatedJob => {
                let job = admin.create(&suspended(admin.name(), "annotated")).await;
                // managed fields would be longer than the annotations
                let annotated = json!({"managedFields": [{}], "annotations": annotations(50_000, "")});
                admin.patch(&job, &json!({"metadata": annotated})).await;
                let path = self.path("apis/batch/v1", "jobs/annotated");
                self.patch_all(&path, &json!({"spec": {"parallelism": 2}})).await;
            }
            Worst::Group => {
                let (version, spec) = (format!("{RUNAI}/v2alpha2"), json!({"queue": long, "minMember": 1}));
                let group = fixtures::object(&version, "PodGroup", admin.name(), "long", &spec);
                let path = self.path(&format!("apis/{version}"), "podgroups?fieldValidation=Strict");
                let refused = self.write("person", "POST", &path, &group).await.unwrap_err();
                assert!(refused.contains("spec.queue: Too long"), "{refused}");
            }
            Worst::T9kJob => {
                fixtures::install(world, fixtures::definitions("batch.tensorstack.dev")).await;
                let spec = json!({"scheduler": {"t9kScheduler": {"queue": long}}});
                let version = "batch.tensorstack.dev/v1beta1";
                let job = fixtures::object(version, "GenericJob", admin.name(), "long", &spec);
                let path = self.path(&format!("apis/{version}"), "genericjobs?fieldValidation=Strict");
                self.write("person", "POST", &path, &job).await.unwrap();
            }
            Worst::Any => {}
        }
    }
}

/// A Job that makes no pods.
fn suspended(namespace: &str, name: &str) -> Value {
    let mut job = workload("Job", namespace, name, &json!({}), &Value::Null);
    job["spec"]["suspend"] = json!(true);
    job
}

fn in_queue(mut object: Value) -> Value {
    object["metadata"]["labels"][LABEL] = json!("q");
    object
}

fn with_owner(mut object: Value, controls: bool) -> Value {
    let owner = json!({"apiVersion": "a/b", "kind": "C", "name": "c", "uid": "c", "controller": controls});
    object["metadata"]["ownerReferences"] = json!([owner]);
    object
}

/// Adds references to so many owners, before an object's own: a search for the controller ends there. The API server removes
/// references that are equal to others.
async fn crowd(namespace: &Namespace, object: &DynamicObject, owners: usize) {
    let owner = |number: usize| json!({"apiVersion": "a", "kind": "b", "name": "c", "uid": short(number)});
    let own = object.owner_references().iter().map(|own| json!(own));
    let owners: Vec<Value> = (0..owners).map(owner).chain(own).collect();
    let (merged, added) = owners.split_at(owners.len().min(MERGED));
    // managed fields would be longer than the references: the API server keeps none once they are reset
    let merged = json!({"metadata": {"managedFields": [{}], "ownerReferences": merged}});
    let mut crowded = namespace.patch(object, &merged).await;
    for part in added.chunks(ADDED) {
        let add = |owner: &Value| json!({"op": "add", "path": "/metadata/ownerReferences/-", "value": owner});
        let operations: Value = part.iter().map(add).collect();
        crowded = namespace.try_json_patch(object, &operations).await.unwrap();
    }
    assert_eq!(crowded.owner_references().len(), owners.len());
}

/// Returns a text of three characters, the fewest for so many texts.
fn short(number: usize) -> String {
    let characters: Vec<char> = ('a'..='z').chain('A'..='Z').chain('0'..='9').collect();
    let most = characters.len();
    let places = [number / most / most, number / most, number];
    places.map(|place| characters[place % most]).iter().collect()
}

/// Annotations with keys of three characters.
fn annotations(count: usize, value: &str) -> Value {
    Value::Object((0..count).map(|number| (short(number), json!(value))).collect())
}

#[tokio::test]
async fn no_object_of_a_tenant_has_a_policy_cost_more_than_the_api_server_allows() {
    let world = world().await;
    let listed = [
        "get",
        "validatingadmissionpolicies",
        "--selector=app.kubernetes.io/part-of=tenure",
        "--output=jsonpath={.items[*].metadata.name}",
    ];
    let listed = world.cluster.kubectl(&listed).await.unwrap().success().unwrap();
    let policies: BTreeSet<&str> = listed.split_whitespace().collect();
    let known: BTreeSet<&str> = WORST.iter().map(|(policy, _)| *policy).collect();
    assert_eq!(policies, known, "each policy has a row");

    let writes = Writes { world, admin: Namespace::new(world).await };
    let name = writes.admin.name();
    let person = seen_by(name, "person").await;
    select(name, "person").await;
    world.label_namespace(name, "queue", "required").await;
    await_refusal(&person, &pod(name, "probe"), "must name a queue").await;
    let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
    let path = writes.path("api/v1", "configmaps?dryRun=All");
    eventually("the policy of the accounts to be enforced", DEADLINE, async || {
        let refused = writes.write(&keeper_user(), "POST", &path, &probe).await.err();
        Ok(refused.filter(|refusal| refusal.contains("doesn't do that")).map(drop))
    })
    .await
    .unwrap();
    for worst in WORST.iter().map(|(_, worst)| *worst).collect::<BTreeSet<_>>() {
        Box::pin(writes.try_out(worst)).await;
    }
}
