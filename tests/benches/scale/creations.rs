//! What the chart's policies add to the creation of a pod: dry runs by a tenant's user, by turns in three namespaces. The bindings of
//! the chart select one, and the binding of a policy that allows all, the least that any policy costs, another.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicyBinding, core::v1::Pod};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Tenure, eventually};
use tenure_tests::{
    DEADLINE, World,
    scale::{Progress, full_or_short, line, load::Latencies, namespace},
    workloads::{bare_pod, in_runai_queue, owned},
};

/// The namespaces: the chart's bindings select the first, and that of the policy that allows all the second.
const NAMESPACES: [&str; 3] = ["selected", "control", "free"];
const LABEL: &str = "policies";
const USER: &str = "tenant";
const QUEUE: &str = "research";

/// Every policy that looks at a new pod.
const VALUES: [&str; 5] = [
    "tenancy.requireQueue.matchLabels.policies=yes",
    "tenancy.namespaces.matchLabels.policies=yes",
    "tenancy.ownerReferences=Deny",
    "tenancy.queueAccess.mode=Deny",
    "keeper.schedulers[0]=default-scheduler",
];

/// A percentile, its name, and the most that the policies may add to it, in milliseconds.
const GOALS: [(usize, &str, f64); 2] = [(50, "p50", 0.5), (99, "p99", 1.0)];

pub async fn run() -> Result<()> {
    let count = full_or_short(10_000, 20);
    println!("creations: {count} pods of a Job, in dry runs by a user with rights in the namespace alone");
    let cluster = Cluster::start_api_server_alone("creations").await?;
    let tenure = Tenure::install_with(&cluster, &VALUES, &[]).await?;
    let world = World { cluster, tenure };
    for name in NAMESPACES {
        namespace(&world, name).await;
        rights(&world, name).await;
    }
    let [selected, control, _] = NAMESPACES;
    let label = ["label", "namespace", selected, &format!("{LABEL}=yes")];
    world.cluster.kubectl(&label).await?.success()?;
    select(&world.cluster.client()?).await?;
    allow_all(&world, control).await;
    let kubeconfig = world.cluster.user_kubeconfig(USER, None)?;
    let pods = NAMESPACES.map(|name| (name, world.cluster.client_of(&kubeconfig)));
    let mut apis = Vec::new();
    for (name, client) in pods {
        apis.push((name, Api::<Pod>::namespaced(client.await?, name)));
    }
    await_policies(&apis).await?;
    let [selected, control, free] = measure(&apis, count).await?;
    for (percent, name, goal) in GOALS {
        let [with, least, without] =
            [&selected, &control, &free].map(|latencies| latencies.percentile(percent));
        line(&format!("{name} of a creation that no policy looks at"), format!("{without:.3} ms"), "");
        line(&format!("{name} of a creation with one policy that allows all"), format!("{least:.3} ms"), "");
        line(&format!("{name} of a creation with all policies"), format!("{with:.3} ms"), "");
        line(&format!("{name}: added"), format!("{:.3} ms", with - without), format!("at most {goal} ms"));
    }
    Ok(())
}

/// The rights of the user: pods, the owner's finalizers, and the queue.
async fn rights(world: &World, namespace: &str) {
    let of = "rbac.authorization.k8s.io";
    let (version, metadata) = (format!("{of}/v1"), json!({"name": USER, "namespace": namespace}));
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
        {"apiGroups": ["batch"], "resources": ["jobs/finalizers"], "verbs": ["update"]},
        {"apiGroups": ["scheduling.run.ai"], "resources": ["queues"], "resourceNames": [QUEUE], "verbs": ["use"]},
    ]);
    world.apply(&json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules})).await;
    world
        .apply(&json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": of, "kind": "Role", "name": USER},
            "subjects": [{"apiGroup": of, "kind": "User", "name": USER}],
        }))
        .await;
}

/// Has all bindings of the chart select one of the namespaces.
async fn select(client: &Client) -> Result<()> {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let of_chart = ListParams::default().labels("app.kubernetes.io/part-of=tenure");
    let found = bindings.list(&of_chart).await?.items;
    ensure!(found.len() > 5, "there are {} bindings", found.len());
    let selector =
        json!({"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {LABEL: "yes"}}}}});
    for name in found.into_iter().filter_map(|binding| binding.metadata.name) {
        bindings.patch(&name, &PatchParams::default(), &Patch::Merge(&selector)).await?;
    }
    Ok(())
}

/// A policy that allows all pods of a namespace.
async fn allow_all(world: &World, namespace: &str) {
    let (version, metadata) = ("admissionregistration.k8s.io/v1", json!({"name": "allow-all"}));
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]});
    let spec =
        json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
    let kind = "ValidatingAdmissionPolicy";
    world.apply(&json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})).await;
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let spec = json!({
        "policyName": "allow-all", "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    });
    let kind = "ValidatingAdmissionPolicyBinding";
    world.apply(&json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})).await;
}

fn pod(namespace: &str, queue: &str) -> Result<Pod> {
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "controller": true,
    });
    let pod = bare_pod(namespace, "train-0", &in_runai_queue(queue), &Value::Null);
    Ok(serde_json::from_value(owned(pod, &[serde_json::from_value(owner)?]))?)
}

/// Waits until the policies are in force in one namespace, and not in the others.
async fn await_policies(apis: &[(&str, Api<Pod>)]) -> Result<()> {
    eventually("policies in one of the namespaces", DEADLINE, async || {
        let mut refused = Vec::new();
        for (name, api) in apis {
            refused.push(api.create(&dry_run(), &pod(name, "other")?).await.is_err());
            api.create(&dry_run(), &pod(name, QUEUE)?).await?;
        }
        Ok((refused == [true, false, false]).then_some(()))
    })
    .await
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// Creates `count` pods in each namespace, one pod at a time, in turns.
async fn measure(apis: &[(&str, Api<Pod>)], count: usize) -> Result<[Latencies; 3]> {
    let progress = Progress::new("creations", count);
    let mut took: [Vec<Duration>; 3] = Default::default();
    for number in 0..count {
        let mut turns: Vec<_> = apis.iter().zip(&mut took).collect();
        // none is the first more often than another
        turns.rotate_left(number % NAMESPACES.len());
        for ((name, api), took) in turns {
            let (pod, begun) = (pod(name, QUEUE)?, Instant::now());
            api.create(&dry_run(), &pod).await?;
            took.push(begun.elapsed());
        }
        progress.one_more();
    }
    progress.end();
    Ok(took.map(Latencies::of))
}
