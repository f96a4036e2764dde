//! After a pause, a field belongs to the field manager again that it had before.

use std::{fs, path::PathBuf};

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::*;

const HAND_BACK: &str = "tenure.dev/hand-back";

/// A Deployment in a namespace with a queue of its name, in which runs end after a second until [`Scene::give_time`].
struct Scene {
    namespace: Namespace,
}

impl Scene {
    async fn new(spec: &Value) -> Self {
        let namespace = Namespace::new(world().await).await;
        let mut queue = runai_queue(namespace.name(), "", "1s");
        for (key, value) in spec.as_object().into_iter().flatten() {
            queue["spec"][key] = value.clone();
        }
        namespace.apply(&queue).await;
        Self { namespace }
    }

    /// A Deployment of this many replicas.
    fn web(&self, replicas: u32) -> Value {
        let name = self.namespace.name();
        let mut web = workload("Deployment", name, "web", &in_runai_queue(name), &NOTHING);
        web["spec"]["replicas"] = json!(replicas);
        web
    }

    /// `kubectl apply` of the Deployment with this many replicas. An error is the refusal.
    async fn apply(&self, replicas: u32, flags: &[&str]) -> Result<(), String> {
        let arguments = [&["apply", "-f", "-"], flags].concat();
        let web = self.web(replicas).to_string();
        let said = world().await.cluster.kubectl_with_input(&arguments, &web).await.unwrap();
        if said.status.success() { Ok(()) } else { Err(said.stderr) }
    }

    async fn deployment(&self) -> DynamicObject {
        self.namespace.find(&serde_json::from_value(self.web(0)).unwrap()).await
    }

    async fn replicas(&self) -> Value {
        self.namespace.field(&self.deployment().await, "spec.replicas").await
    }

    /// The managers of the number of replicas: `helm Apply`.
    async fn managers(&self) -> Vec<String> {
        let entries = self.deployment().await.metadata.managed_fields.unwrap_or_default();
        let has = |fields: &Value| fields.pointer("/f:spec/f:replicas").is_some();
        let entries =
            entries.into_iter().filter(|entry| entry.fields_v1.as_ref().is_some_and(|of| has(&of.0)));
        let lines = entries
            .map(|of| format!("{} {}", of.manager.unwrap_or_default(), of.operation.unwrap_or_default()));
        lines.collect()
    }

    async fn await_managers(&self, expected: &[&str]) {
        let as_expected = async || match self.managers().await {
            managers if managers == expected => Ok(Some(())),
            managers => anyhow::bail!("{managers:?}"),
        };
        eventually(&format!("managers {expected:?}"), DEADLINE, as_expected).await.unwrap();
        let annotations = self.deployment().await.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get(HAND_BACK), None);
    }

    async fn await_pause(&self) {
        self.namespace.await_pause_of(&self.deployment().await, "spec.replicas", &json!(0)).await;
    }

    async fn give_time(&self) {
        self.namespace.apply(&runai_queue(self.namespace.name(), "", "1h")).await;
    }

    async fn tenure(&self, verb: &str) {
        let output = in_namespace(world().await, self.namespace.name(), &[verb, "deploy/web"]).await;
        assert_eq!(output.stdout, format!("deployment.apps/web {verb}d (spec.replicas: 2)\n"), "{output:?}");
    }

    /// Patches the Deployment as a client of this name.
    async fn patch_as(&self, manager: &str, patch: &Value) {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let client = world().await.cluster.client().unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client, self.namespace.name(), &kind);
        api.patch("web", &PatchParams::apply(manager), &Patch::Merge(patch)).await.unwrap();
    }
}

const CI: [&str; 2] = ["--server-side", "--field-manager=ci"];

/// A chart of the Deployment.
fn chart(world: &World, web: &Value) -> PathBuf {
    let chart = world.cluster.directory().join("web-chart");
    fs::create_dir_all(chart.join("templates")).unwrap();
    fs::write(chart.join("Chart.yaml"), "{apiVersion: v2, name: web, version: 0.1.0}").unwrap();
    fs::write(chart.join("values.yaml"), "{replicas: 2, image: one}").unwrap();
    let mut web = web.clone();
    web["metadata"].as_object_mut().unwrap().remove("namespace");
    web["spec"]["replicas"] = json!("REPLICAS");
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("{{ .Values.image }}");
    let web = web.to_string().replace("\"REPLICAS\"", "{{ .Values.replicas }}");
    fs::write(chart.join("templates/web.yaml"), web).unwrap();
    chart
}

#[tokio::test]
async fn helm_upgrades_after_the_return_from_a_time_slice_as_before_it() {
    let world = world().await;
    let scene = Scene::new(&json!({"maxDurationAction": "Requeue", "requeueDelay": "1h"})).await;
    let chart = chart(world, &scene.web(2));
    let helm = async |verb: &str, values: &str| {
        let place = ["-n", scene.namespace.name(), "--set", values];
        world.cluster.helm(&[&[verb, "web", chart.to_str().unwrap()], &place[..]].concat()).await.unwrap()
    };
    helm("install", "image=one").await.success().unwrap();
    scene.await_pause().await;
    assert_eq!(scene.managers().await, ["tenure-keeper Update"], "it protects the pause");
    let refused = helm("upgrade", "image=two").await;
    assert!(refused.stderr.contains("conflict with \"tenure-keeper\""), "{refused:?}");
    helm("upgrade", "image=two,replicas=0").await.success().unwrap();
    assert!(scene.namespace.pause("Deployment", "web").await.is_some(), "it stays paused");

    scene.give_time().await;
    let back = json!({"requeueAt": Timestamp::now()}).to_string();
    scene
        .patch_as("kubectl", &json!({"metadata": {"annotations": {"tenure.dev/requeue-state": back}}}))
        .await;
    scene.await_managers(&["helm Apply"]).await;
    assert_eq!(scene.replicas().await, 2);
    helm("upgrade", "image=two,replicas=3").await.success().unwrap();
    assert_eq!(scene.replicas().await, 3);
}

#[tokio::test]
async fn server_side_apply_has_its_field_at_once_after_the_plugin_has_resumed_a_workload() {
    let scene = Scene::new(&NOTHING).await;
    scene.apply(2, &CI).await.unwrap();
    scene.await_pause().await;
    let refused = scene.apply(4, &CI).await.unwrap_err();
    assert!(refused.contains("conflict with \"tenure-keeper\""), "{refused}");
    scene.give_time().await;
    scene.tenure("resume").await;
    assert_eq!(scene.managers().await, ["ci Apply"]);
    scene.apply(4, &CI).await.unwrap();

    // an own pause of the plugin
    scene.apply(2, &CI).await.unwrap();
    in_namespace(world().await, scene.namespace.name(), &["deactivate", "deploy/web"]).await;
    let refused = scene.apply(4, &CI).await.unwrap_err();
    assert!(refused.contains("conflict with \"kubectl-tenure\""), "{refused}");
    scene.tenure("activate").await;
    assert_eq!(scene.managers().await, ["ci Apply"]);
    scene.apply(4, &CI).await.unwrap();
}

#[tokio::test]
async fn client_side_apply_has_its_field_after_a_workload_is_requeued_and_may_move_to_the_server() {
    let scene = Scene::new(&json!({"maxDurationAction": "Requeue", "requeueDelay": "1h"})).await;
    scene.apply(2, &[]).await.unwrap();
    scene.await_pause().await;
    scene.give_time().await;
    scene.tenure("requeue").await;
    assert_eq!(scene.managers().await, ["kubectl-client-side-apply Update"]);
    scene.apply(3, &[]).await.unwrap();
    scene.apply(4, &["--server-side"]).await.unwrap();
    assert_eq!(
        (scene.replicas().await, scene.managers().await),
        (json!(4), vec!["kubectl Apply".to_owned()])
    );
}

#[tokio::test]
async fn the_keeper_hands_back_what_a_plugin_that_was_killed_has_only_set_back() {
    let scene = Scene::new(&NOTHING).await;
    scene.give_time().await;
    scene.apply(2, &CI).await.unwrap();
    let uid = scene.deployment().await.metadata.uid.unwrap();
    let ci = json!({"manager": "ci", "operation": "Apply"});
    let note = json!({"uid": uid, "fields": {"spec.replicas": [ci]}}).to_string();
    scene.patch_as("kubectl-tenure", &json!({"spec": {"replicas": 0}})).await;
    assert_eq!(scene.managers().await, ["kubectl-tenure Update"]);
    let resumed = json!({"spec": {"replicas": 2}, "metadata": {"annotations": {HAND_BACK: note}}});
    scene.patch_as("kubectl-tenure", &resumed).await;
    scene.await_managers(&["ci Apply"]).await;
    assert_eq!(scene.replicas().await, 2);
}

#[tokio::test]
async fn a_start_by_another_writer_is_no_resumption_and_keeps_the_field() {
    let scene = Scene::new(&NOTHING).await;
    scene.apply(2, &CI).await.unwrap();
    scene.await_pause().await;
    scene.give_time().await;
    let _no_pods = without_new_pods(&scene.namespace).await;
    let scale = ["scale", "deploy/web", "--replicas=3", "-n", scene.namespace.name()];
    world().await.cluster.kubectl(&scale).await.unwrap().success().unwrap();
    let output = in_namespace(world().await, scene.namespace.name(), &["resume", "deploy/web"]).await;
    assert!(output.stdout.contains("which was set after the pause"), "{output:?}");
    assert_eq!(scene.managers().await, ["kubectl Update"]);
    assert_eq!(scene.deployment().await.metadata.annotations.unwrap_or_default().get(HAND_BACK), None);
}

#[tokio::test]
async fn a_manager_that_a_tenant_has_forged_in_the_record_does_no_harm() {
    let scene = Scene::new(&json!({"maxDurationAction": "Requeue", "requeueDelay": "1h"})).await;
    scene.apply(2, &CI).await.unwrap();
    scene.await_pause().await;
    let mut record = scene.namespace.pause("Deployment", "web").await.unwrap();
    let named = |name: &str| json!({"manager": name, "operation": "Update"});
    let mut forged =
        vec![named("kubectl-tenure"), named(&"x".repeat(10_000)), named("system:x"), named("a\nb")];
    forged.push(json!({"manager": "a", "operation": "Delete", "subresource": "scale"}));
    record["managers"] = json!({"spec.replicas": forged, "spec.template": [named("other")], "metadata": []});
    scene.give_time().await;
    let annotations = json!({
        "tenure.dev/paused": record.to_string(),
        "tenure.dev/requeue-state": json!({"requeueAt": Timestamp::now()}).to_string(),
    });
    // any client may call itself so; of another, the keeper takes the field for set since
    scene.patch_as("tenure-keeper", &json!({"metadata": {"annotations": annotations}})).await;
    scene.await_managers(&["system:x Update"]).await;
    assert_eq!(scene.replicas().await, 2);
}
