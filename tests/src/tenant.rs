//! A tenant: a user with all rights in one namespace, and none in others. Tests of tenancy show by
//! it what a tenant can't do to others.

use std::{ops::Deref, path::PathBuf};

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tenure_policy::owner_table::KINDS;
use tenure_testbed::{Output, eventually};

use crate::{DEADLINE, World, workloads::Namespace};

/// The kinds that a tenant may write besides those of the built-in role `admin` and those that
/// Tenure pauses: `PodGroup`s of all kinds with their status, and the workloads of other
/// controllers.
const EXTENSIONS: [(&str, &[&str]); 12] = [
    ("scheduling.run.ai", PODGROUPS),
    ("scheduler.tensorstack.dev", PODGROUPS),
    ("scheduling.x-k8s.io", PODGROUPS),
    ("scheduling.volcano.sh", PODGROUPS),
    ("scheduling.k8s.io", &["podgroups", "podgroups/status", "workloads", "workloads/status"]),
    ("argoproj.io", ALL),
    ("batch.volcano.sh", ALL),
    ("example.com", ALL),
    ("serving.knative.dev", ALL),
    ("serving.kserve.io", ALL),
    ("tensorboard.kubeflow.org", ALL),
    ("tenure.dev", &["extensions", "extensions/status"]),
];

/// API groups that aren't granted as a whole: the built-in role `admin` has the workloads of the
/// first two, and an admin grants Kueue's.
const NOT_OF_TENANTS: [&str; 3] = ["apps", "batch", "kueue.x-k8s.io"];

const PODGROUPS: &[&str] = &["podgroups", "podgroups/status"];
const ALL: &[&str] = &["*"];

/// The verbs of objects. `*` would include others, such as `approve`.
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The cluster role with the rights beside `admin`.
const ROLE: &str = "tenure-tests-tenant";

/// A user with a tenant's rights in one namespace: the built-in role `admin`, [`EXTENSIONS`] and
/// the kinds that Tenure pauses. No queues, no nodes, no classes, no `pods/status`, no
/// `pods/binding`.
///
/// It is a [`Namespace`] that acts as this user: `tenant.create(…)`, `tenant.try_patch(…)`.
pub struct Tenant<'w> {
    world: &'w World,
    namespace: Namespace,
    user: String,
    kubeconfig: PathBuf,
}

impl<'w> Tenant<'w> {
    /// Returns a tenant of a new namespace.
    pub async fn new(world: &'w World) -> Self {
        Self::of(world, &world.namespace().await).await
    }

    /// Returns a tenant of a namespace, once the authorizer knows its rights. All tenants of one
    /// namespace are the same user.
    pub async fn of(world: &'w World, namespace: &str) -> Self {
        let user = format!("tenant-of-{namespace}");
        let admin = Namespace::of(world, namespace);
        // tests apply the role at the same time, and all but one would fail to create it
        admin.apply(&role()).await;
        for role in ["admin", ROLE] {
            admin.apply(&binding(namespace, role, &user)).await;
        }
        let kubeconfig = world.cluster.user_kubeconfig(&user, None).expect("a kubeconfig");
        let client = world.cluster.client_of(&kubeconfig).await.expect("a client");
        for (group, resource, subresource) in
            [("", "pods", ""), ("apps", "deployments", "scale"), ("scheduling.run.ai", "podgroups", "status")]
        {
            await_right(
                &client,
                namespace,
                &json!({"group": group, "resource": resource, "subresource": subresource}),
            )
            .await;
        }
        Self { world, namespace: Namespace::seen_by(client, namespace), user, kubeconfig }
    }

    /// Returns the user's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the same namespace, seen by an administrator.
    pub fn as_admin(&self) -> Namespace {
        Namespace::of(self.world, self.namespace.name())
    }

    /// Runs kubectl as the tenant, in the tenant's namespace, with a text on its standard input.
    pub async fn kubectl(&self, arguments: &[&str], stdin: &str) -> Output {
        let arguments = [arguments, &["--namespace", self.namespace.name()]].concat();
        self.world.cluster.kubectl_as(&self.kubeconfig, &arguments, stdin).await.expect("kubectl runs")
    }
}

impl Deref for Tenant<'_> {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

/// Returns the cluster role.
fn role() -> Value {
    let rule = |(group, resources): (&str, &[&str])| json!({"apiGroups": [group], "resources": resources, "verbs": VERBS});
    let groups = KINDS.iter().map(|row| row.group).filter(|group| !NOT_OF_TENANTS.contains(group));
    let rules: Vec<Value> =
        EXTENSIONS.into_iter().chain(groups.map(|group| (group, ALL))).map(rule).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": ROLE},
        "rules": rules,
    })
}

/// Returns the binding of a role to a user in a namespace.
fn binding(namespace: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": format!("tenant-{role}"), "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// Waits until the tenant may patch a resource. The authorizer sees a binding a little later, and
/// role `admin` gets its rules from a controller.
async fn await_right(client: &Client, namespace: &str, of: &Value) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut attributes = of.clone();
    attributes["namespace"] = json!(namespace);
    attributes["verb"] = json!("patch");
    let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
    let review: SelfSubjectAccessReview = serde_json::from_value(review).expect("a review");
    eventually(&format!("the tenant's right to {of}"), DEADLINE, async || {
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        Ok(status.filter(|status| status.allowed).map(drop))
    })
    .await
    .expect("the tenant has the right");
}
