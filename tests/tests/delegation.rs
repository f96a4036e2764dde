//! Attempts of users who administer a part of the tree, and their bounds: users with exactly a delegate's rights, on a
//! real API server.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use anyhow::Result;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output, eventually};
use tenure_tests::{
    DEADLINE, World,
    queues::{self, Answer, said},
    workloads::Namespace,
};
use tokio::{join, sync::OnceCell};

const V3: &str = "queues.v3alpha1.scheduling.run.ai";
const V2: &str = "queues.v2.scheduling.run.ai";

/// Webhook and keeper run.
async fn up() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || {
        let cluster = Cluster::start("delegation").await?;
        let world = Box::pin(World::installed_on(cluster, VALUES, &[])).await?;
        let world = Box::pin(started(world)).await?;
        world.tenure.start_webhook(&world.cluster).await?;
        world.tenure.start_keeper().await?;
        Ok::<_, anyhow::Error>(world)
    };
    WORLD.get_or_try_init(start).await.unwrap()
}

/// No program runs, and no controller of Kubernetes: the API server judges alone.
async fn down() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let start = async || Box::pin(started(World::installed_alone("delegation-down", VALUES).await?)).await;
    WORLD.get_or_try_init(start).await.unwrap()
}

/// Queues that values of the chart name, and that don't exist.
const NAMED: [&str; 4] = ["named-default", "named-kueue", "named-grant", "named-bound"];

/// Those of the example, a bound for the queues of other tests, and values that name the queues of [`NAMED`].
const VALUES: &[&str] = &[
    // queues are made while no webhook answers
    "webhook.failurePolicy=Ignore",
    "delegation.enabled=true",
    "crds.serveV2=true",
    "delegation.bounds[0].queue=research",
    "delegation.bounds[0].preemptMinRuntime=2h",
    "delegation.bounds[0].reclaimMinRuntime=30m",
    "delegation.bounds[1].queue=bounded",
    "delegation.bounds[1].preemptMinRuntime=2h",
    "delegation.bounds[1].reclaimMinRuntime=30m",
    "delegation.bounds[2].queue=named-bound",
    "delegation.bounds[2].preemptMinRuntime=10h",
    "tenancy.defaultQueue.runai=named-default",
    "tenancy.queueAccess.grants[0].queue=named-grant",
    "tenancy.queueAccess.grants[0].namespaces[0]=default",
    "kueue.queues[0].localQueue=main",
    "kueue.queues[0].queue=named-kueue",
];

/// Waits until the policies judge, and creates queues of others.
async fn started(world: World) -> Result<World> {
    await_policies(&world).await?;
    apply_all(&world, &["bounded", "sales"].map(|name| queue(name, &json!({})))).await;
    Ok(world)
}

/// Waits until both policies judge. Until the API server knows the kind of the second one's parameters, that policy
/// refuses the creations of all users.
async fn await_policies(world: &World) -> Result<()> {
    let prober = &User::with_queues(world, "prober", &["probes"]).await;
    let orphan = queue("probe-orphan", &below("probe-missing"));
    eventually("the policies to be enforced", DEADLINE, async || {
        // it may be there already
        let _ = Namespace::of(world, "").try_create(&orphan).await;
        let judges = prober.refusal("probe", &json!({})).await.contains("spec.parentQueue: Required value")
            && prober.refusal("probe-missing", &below("probes")).await.contains("names it as its parent");
        Ok(judges.then_some(()))
    })
    .await
}

/// With the webhook, and while it is down.
async fn in_both(test: impl AsyncFn(&'static World)) {
    let (up, down) = join!(Box::pin(up()), Box::pin(down()));
    join!(Box::pin(test(up)), Box::pin(test(down)));
}

fn queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

fn below(parent: &str) -> Value {
    json!({"parentQueue": parent})
}

/// Applies objects, one after the other.
async fn apply_all(world: &World, items: &[Value]) {
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items})).await;
}

/// A user, by their kubeconfig.
struct User<'w> {
    world: &'w World,
    name: String,
    kubeconfig: PathBuf,
}

impl<'w> User<'w> {
    fn new(world: &'w World, name: &str, group: Option<&str>) -> Self {
        let kubeconfig = world.cluster.user_kubeconfig(name, group).unwrap();
        Self { world, name: name.to_owned(), kubeconfig }
    }

    /// A user who may see and create all queues, and change these.
    async fn with_queues(world: &'w World, name: &str, queues: &[&str]) -> Self {
        let of = |verbs: &[&str], names: &[&str]| json!({"apiGroups": ["scheduling.run.ai"], "resources": ["queues"], "verbs": verbs, "resourceNames": names});
        let rules =
            [of(&["get", "list", "watch", "create"], &[]), of(&["update", "patch", "delete"], queues)];
        let group = "rbac.authorization.k8s.io";
        let role = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
        });
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
        });
        apply_all(world, &[role, binding]).await;
        let user = Self::new(world, name, None);
        // the authorizer sees a role as a whole
        user.await_right("update", queues[0]).await;
        user
    }

    async fn kubectl(&self, arguments: &[&str], stdin: &str) -> Output {
        self.world.cluster.kubectl_as(&self.kubeconfig, arguments, stdin).await.unwrap()
    }

    async fn write(&self, arguments: &[&str], object: &Value) -> Output {
        self.kubectl(&[arguments, &["-f", "-"]].concat(), &object.to_string()).await
    }

    async fn client(&self) -> Client {
        self.world.cluster.client_of(&self.kubeconfig).await.unwrap()
    }

    async fn create(&self, name: &str, spec: &Value) -> Answer {
        queues::write(&self.client().await, &queue(name, spec)).await
    }

    /// The message with which a creation is refused in a dry run. Empty: it is accepted.
    async fn refusal(&self, name: &str, spec: &Value) -> String {
        let seen = Namespace::seen_by(self.client().await, "");
        seen.try_dry_run(&queue(name, spec)).await.err().unwrap_or_default()
    }

    /// Waits until the creation is refused: the API server sees the queues below a missing one a moment later.
    async fn await_refusal_to_create(&self, name: &str, spec: &Value, words: &str) {
        eventually(&format!("the creation of {name} to be refused"), DEADLINE, async || {
            Ok(self.refusal(name, spec).await.contains(words).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn patch(&self, resource: &str, name: &str, spec: &Value) -> Answer {
        queues::patch(&self.client().await, resource, name, &json!({"spec": spec})).await
    }

    /// The authorizer sees roles a little later.
    async fn await_right(&self, verb: &str, name: &str) {
        let attributes =
            json!({"verb": verb, "group": "scheduling.run.ai", "resource": "queues", "name": name});
        let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
        let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client().await);
        eventually(&format!("the right of {} to {verb} queue {name}", self.name), DEADLINE, async || {
            let status = reviews.create(&PostParams::default(), &review).await?.status;
            Ok(status.filter(|status| status.allowed).map(drop))
        })
        .await
        .unwrap();
    }
}

/// A part of the tree: a queue below `bounded`, and two below that. The delegate may update these three.
struct Part<'w> {
    delegate: User<'w>,
    top: String,
    left: String,
    right: String,
}

impl<'w> std::ops::Deref for Part<'w> {
    type Target = User<'w>;

    fn deref(&self) -> &User<'w> {
        &self.delegate
    }
}

impl<'w> Part<'w> {
    async fn new(world: &'w World) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let top = format!("part-{}", NEXT.fetch_add(1, Relaxed));
        let [left, right] = ["left", "right"].map(|side| format!("{top}-{side}"));
        let parents = [(&top, "bounded"), (&left, &top), (&right, &top)];
        apply_all(world, &parents.map(|(name, parent)| queue(name, &below(parent)))).await;
        let delegate = User::with_queues(world, &format!("admin-of-{top}"), &[&top, &left, &right]).await;
        Self { delegate, top, left, right }
    }

    /// Waits until the webhook has seen the part: before that, the least of all bounds holds there.
    async fn await_bound(&self) {
        eventually("the webhook to have seen the part", DEADLINE, async || {
            let (_, patched) = self.patch(V3, &self.left, &json!({"preemptMinRuntime": "1000h"})).await;
            Ok(patched.err().filter(|refusal| refusal.contains("limits queue \"bounded\"")).map(drop))
        })
        .await
        .unwrap();
    }

    /// A name that no queue has.
    fn other(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.top)
    }
}

fn assert_accepted((_, result): Answer) {
    result.unwrap();
}

fn assert_refused((_, result): &Answer, words: &str) {
    let refusal = result.as_ref().expect_err(words);
    assert!(refusal.contains(words), "{refusal} should contain {words}");
}

#[tokio::test]
async fn delegate_creates_queues_below_own_queues_and_nowhere_else() {
    in_both(async |world| {
        let (part, neighbour) = &join!(Part::new(world), Part::new(world));
        let name = &part.other("new");
        for parent in [&part.top, &part.left] {
            assert_accepted(part.create(&format!("{name}-of-{parent}"), &below(parent)).await);
        }
        let user = &part.name;
        for spec in [json!({}), below("")] {
            assert_refused(&part.create(name, &spec).await, &format!(
                "spec.parentQueue: Required value: only users who may update all queues may create queues at the top or move queues there, which user \"{user}\" may not: name a parent that this user may update"
            ));
        }
        for parent in ["sales", "bounded", &neighbour.top, "missing"] {
            assert_refused(&part.create(name, &below(parent)).await, &format!(
                "spec.parentQueue: Invalid value: \"{parent}\": only users who may update queue \"{parent}\" may create queues below it or move queues there, which user \"{user}\" may not: name another parent, or have the right granted"
            ));
        }
    })
    .await;
}

/// As the test does that helm runs.
#[tokio::test]
async fn user_who_may_update_a_missing_queue_alone_creates_queues_below_it() {
    in_both(async |world| {
        let user = User::with_queues(world, "helm-test", &["helm-test-parent"]).await;
        assert_eq!(user.refusal("helm-test", &below("helm-test-parent")).await, "");
    })
    .await;
}

#[tokio::test]
async fn delegate_moves_queues_within_their_part_and_neither_in_nor_out() {
    in_both(async |world| {
        let (part, neighbour) = &join!(Part::new(world), Part::new(world));
        assert_accepted(part.patch(V3, &part.left, &below(&part.right)).await);
        for parent in ["sales", "bounded", &neighbour.left] {
            assert_refused(
                &part.patch(V3, &part.left, &below(parent)).await,
                &format!("spec.parentQueue: Invalid value: \"{parent}\": only users who may update queue \"{parent}\" may create queues below it"),
            );
        }
        for top in [json!(null), json!("")] {
            let refused = part.patch(V3, &part.left, &json!({"parentQueue": top})).await;
            assert_refused(&refused, "spec.parentQueue: Required value: only users who may update all queues may create queues at the top");
        }
        // the parent of the top of the part is the administrators'
        let refused = part.patch(V3, &part.top, &below("sales")).await;
        assert_refused(&refused, "spec.parentQueue: Invalid value: \"sales\"");
        // both have it: the right to update the queue that it comes from is missing alone
        let own = part.other("own");
        let (role, binding) = (grant(&part.name, &own), bind(&part.name, &own));
        apply_all(world, &[queue(&own, &below("sales")), role, binding]).await;
        part.await_right("update", &own).await;
        assert_refused(
            &part.patch(V3, &own, &below(&part.top)).await,
            &format!("spec.parentQueue: Invalid value: \"{}\": must stay \"sales\": only users who may update queue \"sales\" may move queues away from it, which user \"{}\" may not", part.top, part.name),
        );
        world.apply(&queue(&own, &json!({"parentQueue": ""}))).await;
        let refused = part.patch(V3, &own, &below(&part.top)).await;
        assert_refused(&refused, "must stay empty: only users who may update all queues may move a queue away from the top");
    })
    .await;
}

fn grant(user: &str, queue: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{user}-{queue}")},
        "rules": [{"apiGroups": ["scheduling.run.ai"], "resources": ["queues"], "verbs": ["update", "patch"], "resourceNames": [queue]}],
    })
}

fn bind(user: &str, queue: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let name = format!("{user}-{queue}");
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    })
}

#[tokio::test]
async fn administrators_create_and_move_queues_anywhere() {
    in_both(async |world| {
        let part = &Part::new(world).await;
        let name = &part.other("admins");
        // with the right to update all queues, and no other that counts
        let admin = User::new(world, &format!("admin-of-all-{}", part.top), None);
        let mut role = grant(&admin.name, "all");
        role["rules"][0]["resourceNames"] = json!([]);
        role["rules"][0]["verbs"] = json!(["get", "create", "update", "patch", "delete"]);
        apply_all(world, &[role, bind(&admin.name, "all")]).await;
        admin.await_right("update", "any").await;
        assert_accepted(admin.create(name, &json!({})).await);
        for parent in ["sales", &part.left, ""] {
            assert_accepted(admin.patch(V3, name, &below(parent)).await);
        }
        assert_accepted(said(admin.kubectl(&["delete", V3, name], "").await));
    })
    .await;
}

#[tokio::test]
async fn delegate_changes_own_queues_up_to_the_bound_in_both_versions() {
    let world = up().await;
    let part = &Part::new(world).await;
    part.await_bound().await;
    assert_accepted(part.patch(V3, &part.top, &json!({"maxDuration": "8h", "displayName": "Ours"})).await);
    assert_refused(&part.patch(V3, "sales", &json!({"displayName": "Ours"})).await, "cannot patch resource");
    for (resource, name) in [(V3, &part.left), (V2, &part.right)] {
        assert_accepted(
            part.patch(resource, name, &json!({"preemptMinRuntime": "2h", "reclaimMinRuntime": "30m"})).await,
        );
        for (field, floor, limit) in
            [("preemptMinRuntime", "1000h", "2h"), ("reclaimMinRuntime", "31m", "30m")]
        {
            assert_refused(
                &part.patch(resource, name, &json!({field: floor})).await,
                &format!(
                    "spec.{field}: Invalid value: \"{floor}\": must be at most {limit}: delegation.bounds of Tenure's configuration limits queue \"bounded\" and those below it"
                ),
            );
        }
        assert_accepted(part.patch(resource, name, &json!({"preemptMinRuntime": "5m"})).await);
    }
    let beyond = json!({"parentQueue": part.left, "preemptMinRuntime": "1000h"});
    for version in ["v3alpha1", "v2"] {
        let mut object = queue(&part.other("new"), &beyond);
        object["apiVersion"] = json!(format!("scheduling.run.ai/{version}"));
        assert_refused(
            &queues::write(&part.client().await, &object).await,
            "spec.preemptMinRuntime: Invalid value: \"1000h\": must be at most 2h",
        );
    }
}

/// Users who may write a queue may keep it in deletion.
#[tokio::test]
async fn queue_that_a_finalizer_keeps_in_deletion_has_no_longer_floor_and_closes_no_cycle() {
    let world = up().await;
    let part = &Part::new(world).await;
    part.await_bound().await;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/stays"]}});
    assert_accepted(queues::patch(&part.client().await, V3, &part.left, &finalizer).await);
    assert_accepted(said(part.kubectl(&["delete", V3, &part.left, "--wait=false"], "").await));
    let refused = part.patch(V3, &part.left, &json!({"preemptMinRuntime": "1000h"})).await;
    assert_refused(&refused, "must be at most 2h");
    assert_accepted(part.patch(V3, &part.right, &below(&part.left)).await);
    let moved = json!({"spec": below(&part.right)}).to_string();
    let move_it = ["patch", V3, &part.left, "--type=merge", "-p", &moved, "--dry-run=server"];
    eventually("the webhook to have seen the queue below", DEADLINE, async || {
        let moved = part.kubectl(&move_it, "").await;
        Ok(moved.stderr.contains("a queue can't be its own ancestor").then_some(()))
    })
    .await
    .unwrap();
    let none = json!({"metadata": {"finalizers": null}});
    assert_accepted(queues::patch(&part.client().await, V3, &part.left, &none).await);
}

#[tokio::test]
async fn queue_that_an_administrator_moves_below_a_bound_keeps_to_it_with_all_below_it() {
    let world = up().await;
    let part = &Part::new(world).await;
    let admin = User { world, name: "admin".into(), kubeconfig: world.cluster.kubeconfig().to_owned() };
    let [outer, inner] = ["outer", "inner"].map(|name| part.other(name));
    assert_accepted(admin.create(&outer, &below("sales")).await);
    // until the webhook has seen the parent, each bound may hold
    eventually("the parent to be seen", DEADLINE, async || {
        let spec = json!({"parentQueue": outer, "preemptMinRuntime": "10h"});
        let (_, created) = admin.create(&inner, &spec).await;
        Ok(created.ok().map(drop))
    })
    .await
    .unwrap();
    let words = format!(
        "spec.parentQueue: Invalid value: \"{}\": queue \"{inner}\" below it has preemptMinRuntime 10h: must be at most 2h",
        part.top
    );
    eventually("the queue below to be seen", DEADLINE, async || {
        let moved = admin.write(&["apply", "--dry-run=server"], &queue(&outer, &below(&part.top))).await;
        Ok(moved.stderr.contains(&words).then_some(()))
    })
    .await
    .unwrap();
    assert_refused(
        &admin.patch(V3, &inner, &below(&part.top)).await,
        "spec.preemptMinRuntime: Invalid value: \"10h\"",
    );
    assert_accepted(
        admin.patch(V3, &inner, &json!({"parentQueue": part.top, "preemptMinRuntime": "1h"})).await,
    );
}

/// Without it, the queues below it would be at the top.
#[tokio::test]
async fn delegate_deletes_no_queue_that_has_others_below_it() {
    in_both(async |world| {
        let part = &Part::new(world).await;
        let delete = ["delete", V3, &part.top, "--dry-run=server"];
        eventually("the queues below to be seen", DEADLINE, async || {
            Ok((!part.kubectl(&delete, "").await.status.success()).then_some(()))
        })
        .await
        .unwrap();
        let refused = said(part.kubectl(&["delete", V3, &part.top], "").await);
        assert_refused(
            &refused,
            &format!("metadata.name: Invalid value: \"{}\": queue \"{}-", part.top, part.top),
        );
        assert_refused(
            &refused,
            "\" is below it, and would become a top-level queue: delete that queue first",
        );
        for leaf in [&part.left, &part.right] {
            assert_accepted(said(part.kubectl(&["delete", V3, leaf], "").await));
        }
        eventually("the queues below to be gone", DEADLINE, async || {
            Ok(part.kubectl(&["delete", V3, &part.top], "").await.status.success().then_some(()))
        })
        .await
        .unwrap();
    })
    .await;
}

/// Otherwise the queues of others would be below the delegate's. The parent is missing while an administrator replaces it,
/// or if queues are applied before their parents.
#[tokio::test]
async fn delegate_creates_no_missing_queue_that_others_name_as_their_parent() {
    in_both(async |world| {
        let (part, neighbour) = &join!(Part::new(world), Part::new(world));
        let (orphan, missing) = (part.other("orphan"), part.other("missing"));
        world.apply(&queue(&orphan, &below(&missing))).await;
        let refusal = |user: &User<'_>, name: &str, child: &str| format!(
            "metadata.name: Invalid value: \"{name}\": queue \"{child}\" names it as its parent, so only users who may update all queues may create it, which user \"{}\" may not: use another name",
            user.name
        );
        for user in [part, neighbour] {
            let words = refusal(user, &missing, &orphan);
            user.await_refusal_to_create(&missing, &below(&user.top), &words).await;
            assert_refused(&user.create(&missing, &below(&user.top)).await, &words);
        }
        // as between the two halves of `kubectl replace --force`
        world.cluster.kubectl(&["delete", V3, &part.left]).await.unwrap().success().unwrap();
        world.cluster.kubectl(&["delete", V3, &part.top]).await.unwrap().success().unwrap();
        let words = refusal(neighbour, &part.top, &part.right);
        neighbour.await_refusal_to_create(&part.top, &below(&neighbour.top), &words).await;
        assert_refused(&neighbour.create(&part.top, &below(&neighbour.top)).await, &words);
        let parents = [(&part.top, "bounded"), (&part.left, &*part.top), (&missing, &*part.top)];
        apply_all(world, &parents.map(|(name, parent)| queue(name, &below(parent)))).await;
    })
    .await;
    // which the webhook converts
    let part = &Part::new(up().await).await;
    let (orphan, missing) = (part.other("orphan"), part.other("missing"));
    part.world.apply(&queue(&orphan, &below(&missing))).await;
    part.await_refusal_to_create(&missing, &below(&part.top), "names it as its parent").await;
    let mut new = queue(&missing, &below(&part.top));
    new["apiVersion"] = json!("scheduling.run.ai/v2");
    let refused = queues::write(&part.client().await, &new).await;
    assert_refused(&refused, "names it as its parent");
}

/// Otherwise the delegate would get the workloads that the configuration puts there.
#[tokio::test]
async fn delegate_creates_no_missing_queue_that_values_of_the_chart_name() {
    in_both(async |world| {
        let part = &Part::new(world).await;
        for name in NAMED {
            assert_refused(&part.create(name, &below(&part.top)).await, &format!(
                "metadata.name: Invalid value: \"{name}\": values of Tenure's chart name this queue, so only users who may update all queues may create it, which user \"{}\" may not: use another name",
                part.name
            ));
            let create = ["create", "--dry-run=server", "-f", "-"];
            let new = queue(name, &below(&part.top)).to_string();
            assert_accepted(said(world.cluster.kubectl_with_input(&create, &new).await.unwrap()));
        }
    })
    .await;
}

/// The garbage collector deletes a queue whose owners are gone, with all its rights.
#[tokio::test]
async fn delegate_sets_changes_and_removes_no_owner_of_a_queue() {
    let with_owner =
        |owners: &Value| json!({"metadata": {"ownerReferences": owners}, "spec": {"displayName": "Ours"}});
    let owner =
        |name: &str, uid: &str| json!([{"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid}]);
    let gone = &owner("gone", "4f7f5a0c-0000-4000-8000-000000000000");
    let refuses = async |part: &Part<'_>, resource: &str, owners: &Value| {
        let refused = queues::patch(&part.client().await, resource, &part.left, &with_owner(owners)).await;
        assert_refused(
            &refused,
            &format!(
                "metadata.ownerReferences: Forbidden: a queue is deleted once its owners are gone, so owners are set and changed by users who may update all queues, which user \"{}\" may not: leave the references as they are",
                part.name
            ),
        );
    };
    let creates_none = async |part: &Part<'_>, version: &str| {
        let mut new = queue(&part.other("new"), &below(&part.top));
        new["apiVersion"] = json!(format!("scheduling.run.ai/{version}"));
        new["metadata"]["ownerReferences"] = gone.clone();
        let answer = queues::write(&part.client().await, &new).await;
        assert_refused(&answer, "metadata.ownerReferences: Forbidden");
    };
    in_both(async |world| {
        let part = &Part::new(world).await;
        creates_none(part, "v3alpha1").await;
        refuses(part, V3, gone).await;
        // of an administrator
        let get = ["get", "namespace", "default", "-o=jsonpath={.metadata.uid}"];
        let uid = world.cluster.kubectl(&get).await.unwrap().success().unwrap();
        let patch = with_owner(&owner("default", &uid)).to_string();
        let set = ["patch", V3, &part.left, "--type=merge", "-p", &patch];
        world.cluster.kubectl(&set).await.unwrap().success().unwrap();
        assert_accepted(part.patch(V3, &part.left, &json!({"displayName": "Still ours"})).await);
        for owners in [gone, &json!(null)] {
            refuses(part, V3, owners).await;
        }
    })
    .await;
    // which the webhook converts
    let part = &Part::new(up().await).await;
    creates_none(part, "v2").await;
    refuses(part, V2, gone).await;
}

#[tokio::test]
async fn bound_that_comes_while_the_webhook_runs_keeps_floors_from_growing() {
    let world = up().await;
    let part = &Part::new(world).await;
    let name = part.other("later");
    let floor = |floor: &str| json!({"preemptMinRuntime": floor});
    world.apply(&queue(&name, &floor("10h"))).await;
    let file = world.tenure.config_file();
    let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let bounds = config["delegation"]["bounds"].as_array_mut().unwrap();
    bounds.push(json!({"queue": name, "preemptMinRuntime": "1h"}));
    fs::write(file, config.to_string()).unwrap();
    let admin = User { world, name: "admin".into(), kubeconfig: world.cluster.kubeconfig().to_owned() };
    let patch = json!({"spec": floor("11h")}).to_string();
    eventually("the bound to hold", DEADLINE, async || {
        let longer =
            admin.kubectl(&["patch", V3, &name, "--dry-run=server", "--type=merge", "-p", &patch], "").await;
        Ok(longer.stderr.contains("must be at most 1h").then_some(()))
    })
    .await
    .unwrap();
    for spec in [json!({"displayName": "Later"}), floor("9h"), floor("1h")] {
        assert_accepted(admin.patch(V3, &name, &spec).await);
    }
    assert_refused(&admin.patch(V3, &name, &floor("9h")).await, "must be at most 1h");
}

#[tokio::test]
async fn roles_of_the_example_do_what_its_comment_says() {
    let world = up().await;
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/subtree-roles.yaml"))
            .unwrap();
    assert_accepted(said(world.cluster.kubectl_with_input(&["apply", "-f", "-"], &text).await.unwrap()));
    let member = User::new(world, "mary", Some("research-admins"));
    member.await_right("update", "research-vision").await;
    assert_accepted(
        member.patch(V3, "research", &json!({"preemptMinRuntime": "2h", "maxDuration": "12h"})).await,
    );
    assert_refused(
        &member.patch(V3, "research", &json!({"preemptMinRuntime": "3h"})).await,
        "must be at most 2h",
    );
    assert_refused(
        &member.patch(V3, "science", &json!({"maxDuration": "2d"})).await,
        "cannot patch resource",
    );
    assert_accepted(member.create("research-vision-labs", &below("research-vision")).await);
    assert_refused(&member.create("research-2", &json!({})).await, "spec.parentQueue: Required value");
    assert_refused(
        &member.create("research-2", &below("science")).await,
        "spec.parentQueue: Invalid value: \"science\"",
    );
}
