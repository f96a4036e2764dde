//! The order of all checks, and how they find the objects of the chart.

use std::{collections::BTreeSet, fmt::Debug};

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{
    Api, Resource,
    api::ListParams,
    core::{ClusterResourceScope, NamespaceResourceScope},
};
use serde::de::DeserializeOwned;
use tenure_policy::expiry::Family;

use super::{Check, Fault, Finding};
use crate::cluster::ClusterReader;

/// Labels that the chart gives its objects.
const OURS: &str = "app.kubernetes.io/part-of=tenure";

/// A cluster, and where Tenure is looked for.
pub struct Inspector {
    pub cluster: ClusterReader,
    pub tenure_namespace: Option<String>,
    pub t9k_system_namespace: String,
}

impl Inspector {
    /// Every check, one after the other.
    pub async fn checks(&self) -> Vec<Check> {
        let all = |name, checks: Result<_, Fault>| {
            checks.unwrap_or_else(|fault| vec![Check::new(name, Err(fault))])
        };
        let mut checks = vec![Check::new("definitions", self.definitions())];
        checks.extend(all("keeper", self.keepers().await));
        checks.extend(all("webhook", self.webhooks().await));
        checks.extend(self.admission().await.map(|finding| Check::new("admission", finding)));
        checks.extend(all("queues", self.queues_and_pods().await));
        checks.push(Check::new("refusals", self.refusals().await));
        checks
    }

    /// The definitions of queues, with the versions in which they are served.
    fn definitions(&self) -> Finding {
        let served =
            Family::ALL.map(|family| (family.group(), self.cluster.kinds.versions(family.group(), "Queue")));
        let shown = served.iter().filter(|(_, versions)| !versions.is_empty());
        let shown: Vec<String> =
            shown.map(|(group, versions)| format!("queues.{group} ({})", versions.join(", "))).collect();
        if shown.is_empty() {
            let remedy =
                "install the chart with crds.install=true, or KAI-Scheduler, which has queues of its own";
            return Err(Fault::problem("the cluster has no queues of any family", remedy));
        }
        Ok(shown.join(", "))
    }

    /// Objects of the chart for a component, in the namespaces of Tenure.
    pub async fn ours<K>(&self, component: &str) -> Result<Vec<K>, Fault>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let mut found = Vec::new();
        for namespace in self.namespaces(component).await? {
            let list = self.cluster.api::<K>(Some(&namespace)).list(&of_component(component)).await;
            let list = list.map_err(|error| {
                let (plural, group) = (K::plural(&()), K::group(&()));
                let dot = if group.is_empty() { "" } else { "." };
                Fault::unread(error, &format!("list {plural}{dot}{group} in namespace {namespace}"))
            })?;
            found.extend(list.items);
        }
        Ok(found)
    }

    /// The namespaces in which a component runs: the one that the user names, or those of its service accounts.
    ///
    /// `ClusterRoleBinding`s tell the latter: no tenant can write one, and any tenant may label a Deployment.
    async fn namespaces(&self, component: &str) -> Result<BTreeSet<String>, Fault> {
        if let Some(namespace) = &self.tenure_namespace {
            return Ok([namespace.clone()].into());
        }
        let bindings: Api<ClusterRoleBinding> = Api::all(self.cluster.client.clone());
        let bindings = bindings.list(&of_component(component)).await.map_err(|error| {
            let unread = Fault::unread(error, "list clusterrolebindings.rbac.authorization.k8s.io");
            let remedy = format!("name Tenure's namespace with --tenure-namespace, or {}", unread.remedy);
            Fault { remedy, ..unread }
        })?;
        let subjects = bindings.items.into_iter().flat_map(|binding| binding.subjects.unwrap_or_default());
        Ok(subjects.filter_map(|subject| subject.namespace).collect())
    }

    /// Objects of the chart that are in no namespace.
    pub async fn ours_everywhere<K>(&self) -> Result<Vec<K>, Fault>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let list = Api::<K>::all(self.cluster.client.clone()).list(&ListParams::default().labels(OURS)).await;
        let right = format!("list {}.{}", K::plural(&()), K::group(&()));
        Ok(list.map_err(|error| Fault::unread(error, &right))?.items)
    }

    /// The place where objects of Tenure are looked for, as the end of a sentence.
    pub fn place(&self) -> String {
        match &self.tenure_namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in this cluster".to_owned(),
        }
    }
}

fn of_component(component: &str) -> ListParams {
    ListParams::default().labels(&format!("{OURS},app.kubernetes.io/component={component}"))
}
