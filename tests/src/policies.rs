//! An administrator's rules beside Tenure: refusals by the API server's own admission policies, and
//! rights by roles. Each helper returns when the API server acts by the rule.

use k8s_openapi::api::{authorization::v1::SubjectAccessReview, rbac::v1::ClusterRole};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tenure_testbed::{RELEASE_NAMESPACE, eventually};

use crate::{DEADLINE, World, workloads::Namespace};

/// Returns the keeper's user.
pub fn keeper_user() -> String {
    format!("system:serviceaccount:{RELEASE_NAMESPACE}:tenure-keeper")
}

/// Refuses requests in one namespace, until it is lifted. Its drop lifts nothing.
pub struct Refusal {
    policy: Value,
    binding: Value,
    /// An object that is refused as long as the refusal is in force.
    probe: Value,
}

impl Refusal {
    /// Refuses requests for which the CEL expression `unless` is false, and returns when the
    /// refusal is in force.
    pub async fn start(world: &World, namespace: &Namespace, unless: &str) -> Self {
        Self::with_reason(world, namespace, unless, "Invalid").await
    }

    /// Refuses like [`Self::start`], but with the reason `Forbidden`: as if the caller lacked the
    /// right, or a quota were exhausted.
    pub async fn forbidding(world: &World, namespace: &Namespace, unless: &str) -> Self {
        Self::with_reason(world, namespace, unless, "Forbidden").await
    }

    /// Refuses requests with a reason, and waits until the probe is refused.
    async fn with_reason(world: &World, namespace: &Namespace, unless: &str, reason: &str) -> Self {
        let name = format!("refusal-{}", namespace.name());
        let probe = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace.name()},
        });
        let everything =
            json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]});
        let is_probe = format!("request.resource.resource == 'configmaps' && request.name == '{name}'");
        let constraints = json!({
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name()}},
            "resourceRules": [everything],
        });
        let expression = format!("!({is_probe}) && ({unless})");
        let validation = json!({"expression": expression, "message": "refused", "reason": reason});
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {"matchConstraints": constraints, "validations": [validation]},
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        let refusal = Self { policy, binding, probe };
        for object in [&refusal.policy, &refusal.binding] {
            world.apply(object).await;
        }
        refusal.await_probe(world, false).await;
        refusal
    }

    /// Refuses the garbage collector every deletion and every change: dependents outlive their
    /// owners.
    pub async fn of_garbage_collection(world: &World, namespace: &Namespace) -> Self {
        let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
        Self::start(world, namespace, &format!("request.userInfo.username != '{collector}'")).await
    }

    /// Ends the refusal, and returns when it is no longer in force.
    pub async fn lift(self, world: &World) {
        let admin = Namespace::of(world, "");
        for object in [&self.binding, &self.policy] {
            admin.delete(&serde_json::from_value(object.clone()).unwrap()).await;
        }
        self.await_probe(world, true).await;
    }

    /// Waits until the probe passes, or is refused.
    async fn await_probe(&self, world: &World, passes: bool) {
        let admin = Namespace::of(world, "");
        let what = format!("a probe to {}", if passes { "pass" } else { "be refused" });
        eventually(&what, DEADLINE, async || {
            Ok((admin.try_dry_run(&self.probe).await.is_ok() == passes).then_some(()))
        })
        .await
        .unwrap();
    }
}

/// Grants the keeper verbs on resources of a group. `name` is that of a new cluster role and its
/// binding.
pub async fn grant(world: &World, name: &str, group: &str, resources: &[&str], verbs: &[&str]) {
    let admin = Namespace::of(world, "");
    admin
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs}],
        }))
        .await;
    let subject = json!({"kind": "ServiceAccount", "name": "tenure-keeper", "namespace": RELEASE_NAMESPACE});
    admin
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        }))
        .await;
    let (resource, verb) = (resources.first().expect("a resource"), verbs.first().expect("a verb"));
    await_right(world, verb, group, resource, true).await;
}

/// Takes verbs on a resource from the keeper's role.
pub async fn revoke(world: &World, group: &str, resource: &str, verbs: &[&str]) {
    let api: Api<ClusterRole> = Api::all(world.cluster.client().unwrap());
    let mut role = json!(api.get("tenure-keeper").await.unwrap());
    let rules = role["rules"].as_array_mut().unwrap();
    let contains = |list: &Value, text: &str| list.as_array().unwrap().iter().any(|item| item == text);
    let without = |list: &Value, texts: &[&str]| {
        let rest = list.as_array().unwrap().iter().filter(|item| !texts.iter().any(|text| *item == text));
        json!(rest.collect::<Vec<_>>())
    };
    let place = rules
        .iter()
        .position(|rule| contains(&rule["apiGroups"], group) && contains(&rule["resources"], resource))
        .expect("the keeper has a right to it");
    let mut alone = rules[place].clone();
    rules[place]["resources"] = without(&rules[place]["resources"], &[resource]);
    alone["resources"] = json!([resource]);
    alone["verbs"] = without(&alone["verbs"], verbs);
    rules.push(alone);
    rules.retain(|rule| rule["resources"] != json!([]) && rule["verbs"] != json!([]));
    let role = serde_json::from_value(role).unwrap();
    api.replace("tenure-keeper", &PostParams::default(), &role).await.unwrap();
    await_right(world, verbs.first().expect("a verb"), group, resource, false).await;
}

/// Waits until the authorizer knows whether the keeper has a right, a little after the change.
/// `resource` may have a subresource, such as `pods/status`.
async fn await_right(world: &World, verb: &str, group: &str, resource: &str, granted: bool) {
    let reviews: Api<SubjectAccessReview> = Api::all(world.cluster.client().unwrap());
    let (of, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = json!({"verb": verb, "group": group, "resource": of, "subresource": subresource});
    let review = json!({"metadata": {}, "spec": {"user": keeper_user(), "resourceAttributes": attributes}});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    eventually(&format!("the right to {verb} {resource}.{group} to be {granted}"), DEADLINE, async || {
        let answer = reviews.create(&PostParams::default(), &review).await?.status;
        Ok(answer.filter(|status| status.allowed == granted).map(drop))
    })
    .await
    .unwrap();
}
