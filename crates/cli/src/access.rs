//! The right to use a queue, which `tenancy.queueAccess` of the chart asks for.
//!
//! Called by `explain`, for a pod and for a workload's template. [`grants`] is called by `queue`,
//! and [`you_may`] by `ui`. The API server decides: the plugin asks it by access reviews, and
//! changes nothing.

pub mod grants;

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
        SubjectAccessReviewSpec,
    },
    core::v1::Pod,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};
use serde::Serialize;
use serde_json::Value;
use tenure_policy::expiry::Family;

use crate::{
    cluster::{ClusterReader, OURS, explain, is_forbidden},
    snapshot::NamespacedName,
};

/// The verb of the right, on the resource `queues`.
pub const USE: &str = "use";

/// The end of the name of the chart's policy for queues of the run.ai family, and of its binding.
/// The chart has another policy for queues of T9k.
const POLICY: &str = "-use-queues";

/// The binding of a release with the usual name. The chart lets every user get this binding, but
/// not list all bindings.
const USUAL_BINDING: &str = "tenure-use-queues";

/// The service account of pods whose spec names none.
const DEFAULT_ACCOUNT: &str = "default";

/// `tenancy.queueAccess.mode`, as the cluster's binding has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum AccessMode {
    /// The policy refuses pods without the right.
    Deny,
    /// The policy only reports them.
    Audit,
}

/// The right to use one queue that a pod's label names: whether the service account has it, and the
/// user of the plugin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueAccess {
    queue: String,
    namespace: String,
    mode: AccessMode,
    account: AccountAccess,
    /// True if the user of the plugin has the right.
    you: bool,
}

/// The service account of the pod, and its right.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AccountAccess {
    name: String,
    /// Null: the user may not create `SubjectAccessReview`s.
    may_use: Option<bool>,
}

impl QueueAccess {
    /// Asks for the rights to use the queues that these labels name, for a service account of the
    /// namespace. Empty: the labels name no queue, or queues take no right.
    async fn ask(
        cluster: &ClusterReader,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        account: &str,
    ) -> Result<Vec<Self>> {
        let named = Family::ALL.into_iter().filter_map(|family| {
            let queue = labels.get(family.row().queue_label).filter(|queue| !queue.is_empty())?;
            Some((family, queue.as_str()))
        });
        let named: Vec<(Family, &str)> = named.collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let Some(mode) = mode(cluster).await? else { return Ok(Vec::new()) };
        let mut answers = Vec::new();
        for (family, queue) in named {
            let may_use = account_may_use(cluster, namespace, account, (family, queue)).await?;
            let account = AccountAccess { name: account.to_owned(), may_use };
            let you = you_may_use(cluster, namespace, (family, queue)).await?;
            answers.push(Self { queue: queue.into(), namespace: namespace.into(), mode, account, you });
        }
        Ok(answers)
    }

    /// Asks for the rights to use the queues that a pod's labels name. Empty if the pod doesn't
    /// exist.
    pub async fn of_pod(cluster: &ClusterReader, (namespace, name): &NamespacedName) -> Result<Vec<Self>> {
        let pod = cluster.api::<Pod>(Some(namespace)).get_opt(name).await.map_err(explain)?;
        let Some(Pod { metadata, spec, status: _ }) = pod else { return Ok(Vec::new()) };
        let account = spec.and_then(|spec| spec.service_account_name);
        let account = account.as_deref().unwrap_or(DEFAULT_ACCOUNT);
        Self::ask(cluster, namespace, &metadata.labels.unwrap_or_default(), account).await
    }

    /// Asks for the rights to use the queues that a workload's pod template names in
    /// `spec.template`.
    pub async fn of_template(
        cluster: &ClusterReader,
        namespace: &str,
        workload: &Value,
    ) -> Result<Vec<Self>> {
        let labels = workload.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        let labels = serde_json::from_value(labels).unwrap_or_default();
        let account = workload.pointer("/spec/template/spec/serviceAccountName").and_then(Value::as_str);
        Self::ask(cluster, namespace, &labels, account.unwrap_or(DEFAULT_ACCOUNT)).await
    }

    /// Returns the answer as a sentence of an explanation.
    pub fn sentence(&self) -> String {
        let Self { queue, namespace, mode, account: AccountAccess { name, may_use }, you } = self;
        let account = match may_use {
            Some(true) => format!("service account {name:?} has the right"),
            Some(false) => format!("service account {name:?} doesn't have the right"),
            None => format!(
                "whether service account {name:?} has the right isn't known, because you may not create subjectaccessreviews.authorization.k8s.io"
            ),
        };
        let you = if *you { "you have it" } else { "you don't have it" };
        format!(
            "it takes a right to use queue {queue:?} in namespace {namespace:?} (tenancy.queueAccess.mode is {mode:?}): {account}, {you}"
        )
    }
}

/// Returns the mode of the chart's policy for queues. `None`: there is no policy, or the user may
/// not read its binding.
async fn mode(cluster: &ClusterReader) -> Result<Option<AccessMode>> {
    let kind = ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding");
    if cluster.kinds.find(kind.0, kind.1).is_none() {
        return Ok(None);
    }
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let found = match bindings.list(&ListParams::default().labels(OURS)).await {
        Ok(found) => found.items,
        Err(error) if is_forbidden(&error) => match bindings.get_opt(USUAL_BINDING).await {
            Ok(found) => found.into_iter().collect(),
            Err(error) if is_forbidden(&error) => Vec::new(),
            Err(error) => return Err(explain(error)),
        },
        Err(error) => return Err(explain(error)),
    };
    let mut about_queues = found.into_iter().filter(|binding| binding.name_any().ends_with(POLICY));
    Ok(about_queues.next().map(|binding| {
        let denies = binding.spec.validation_actions.iter().any(|action| action == "Deny");
        if denies { AccessMode::Deny } else { AccessMode::Audit }
    }))
}

/// Returns the right to use a queue, as access reviews take it.
fn right(namespace: &str, (family, queue): (Family, &str)) -> ResourceAttributes {
    ResourceAttributes {
        group: Some(family.row().group.into()),
        resource: Some("queues".into()),
        name: Some(queue.into()),
        namespace: Some(namespace.into()),
        verb: Some(USE.into()),
        ..ResourceAttributes::default()
    }
}

/// True if the user of the plugin may use a queue.
async fn you_may_use(cluster: &ClusterReader, namespace: &str, queue: (Family, &str)) -> Result<bool> {
    you_may(&cluster.client, right(namespace, queue)).await
}

/// True if the user of the plugin has this right.
pub async fn you_may(client: &Client, right: ResourceAttributes) -> Result<bool> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(right),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await;
    Ok(answer.map_err(explain)?.status.is_some_and(|status| status.allowed))
}

/// Returns true if a service account may use a queue, with the groups that each service account is
/// in. `None`: the user may not create access reviews.
async fn account_may_use(
    cluster: &ClusterReader,
    namespace: &str,
    account: &str,
    queue: (Family, &str),
) -> Result<Option<bool>> {
    let all = "system:serviceaccounts";
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{account}")),
        groups: Some(vec![all.into(), format!("{all}:{namespace}"), "system:authenticated".into()]),
        resource_attributes: Some(right(namespace, queue)),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    match Api::all(cluster.client.clone()).create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(Some(answer.status.is_some_and(|status| status.allowed))),
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(explain(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_who_has_the_right_or_which_right_it_takes_to_know() {
        let said = |may_use| {
            let account = AccountAccess { name: "default".into(), may_use };
            let (queue, namespace) = ("q".into(), "team".into());
            QueueAccess { queue, namespace, mode: AccessMode::Deny, account, you: false }.sentence()
        };
        assert_eq!(
            said(Some(true)),
            "it takes a right to use queue \"q\" in namespace \"team\" (tenancy.queueAccess.mode is Deny): service account \"default\" has the right, you don't have it"
        );
        assert!(said(Some(false)).contains("\"default\" doesn't have the right, "));
        assert!(
            said(None).contains("because you may not create subjectaccessreviews.authorization.k8s.io, you")
        );
    }
}
