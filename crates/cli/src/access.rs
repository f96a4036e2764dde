//! Who may use a queue, where `tenancy.queueAccess` of the chart asks for a right.

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

/// The verb of the right, on `queues`.
const USE: &str = "use";

/// The end of the name of the chart's policy for queues of the run.ai family, and of its binding. It has a sibling for those of T9k.
const POLICY: &str = "-use-queues";

/// The binding of a release with the usual name. The chart lets every user get it, and lets none list all bindings.
const USUAL_BINDING: &str = "tenure-use-queues";

/// The service account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// `tenancy.queueAccess.mode`, as the policies of the cluster have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Mode {
    Deny,
    Audit,
}

/// Whether those whose right counts for the queue of a pod's label have it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueAccess {
    queue: String,
    namespace: String,
    mode: Mode,
    account: AccountAccess,
    /// True if the user of the plugin has the right.
    you: bool,
}

/// The service account of the pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AccountAccess {
    name: String,
    /// Null if the user may not ask.
    may_use: Option<bool>,
}

impl QueueAccess {
    /// Asks about the queues that labels name, for pods with this service account.
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

    /// Asks about the queues that a pod's labels name.
    pub async fn of_pod(cluster: &ClusterReader, (namespace, name): &NamespacedName) -> Result<Vec<Self>> {
        let pod = cluster.api::<Pod>(Some(namespace)).get_opt(name).await.map_err(explain)?;
        let Some(Pod { metadata, spec, status: _ }) = pod else { return Ok(Vec::new()) };
        let account = spec.and_then(|spec| spec.service_account_name);
        let account = account.as_deref().unwrap_or(DEFAULT_ACCOUNT);
        Self::ask(cluster, namespace, &metadata.labels.unwrap_or_default(), account).await
    }

    /// Asks about the queues that the template of a workload's pods names.
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

/// Returns the mode of the chart's policies about queues. `None`: there are none, as far as the user may see.
async fn mode(cluster: &ClusterReader) -> Result<Option<Mode>> {
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
        if denies { Mode::Deny } else { Mode::Audit }
    }))
}

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

/// Returns whether a service account may use a queue. `None`: the user may not ask.
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
            QueueAccess { queue, namespace, mode: Mode::Deny, account, you: false }.sentence()
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
