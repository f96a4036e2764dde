//! `kubectl tenure status`: checks that Tenure works in a cluster, and prints remedies for
//! problems.
//!
//! Each check is independent: one that fails, or lacks a right, doesn't stop the others.
//! [`runs_dry`] is called by the commands that show ends of runs. Nothing is stored: the one write
//! is a dry run.

mod certificate;
mod config;
mod keeper;
mod queues;
mod webhook;

pub use keeper::runs_dry;

use std::{collections::BTreeSet, fmt::Debug};

use anyhow::{Result, ensure};
use clap::Args;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use tenure_policy::expiry::Family;

use crate::{
    cluster::{ClusterReader, ConnectArgs, OURS, T9kArgs, explain, is_forbidden, qualified},
    print::{AlreadyReported, OutputArgs, Table, with_causes},
};

/// Check whether Tenure works: keeper, webhook, certificates, queues
///
/// Each line is OK, PROBLEM or UNKNOWN, with a remedy. UNKNOWN means that you may not read an object: the line names the
/// missing right. The webhook is checked by a dry run of a Queue, which isn't stored. The exit code is 1 if there is a
/// problem.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure status
  kubectl tenure status --tenure-namespace tenure-system   # with rights in that namespace alone
  kubectl tenure status -o json | jq -r '.[] | select(.status != \"OK\") | .message'")]
pub struct StatusArgs {
    /// The namespace in which Tenure is installed; without it, those in the bindings of its cluster roles
    #[arg(long, value_name = "NAMESPACE")]
    tenure_namespace: Option<String>,

    #[command(flatten)]
    t9k: T9kArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum CheckStatus {
    Ok,
    Problem,
    /// The user may not read an object that the check needs.
    Unknown,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    #[serde(rename = "check")]
    name: &'static str,
    status: CheckStatus,
    message: String,
    /// The remedy. None: the status is OK.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    /// Returns the line of a check with this name.
    fn new(name: &'static str, finding: CheckResult) -> Self {
        let (status, message, remedy) = match finding {
            Ok(message) => (CheckStatus::Ok, message, None),
            Err(CheckFailure { status, message, remedy }) => (status, message, Some(remedy)),
        };
        Self { name, status, message, remedy }
    }
}

/// The result of a check: a message, if all is well.
type CheckResult = Result<String, CheckFailure>;

/// The reason why something doesn't work or can't be checked, with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckFailure {
    status: CheckStatus,
    message: String,
    remedy: String,
}

impl CheckFailure {
    /// Returns a problem, which makes the exit code 1.
    fn problem(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: CheckStatus::Problem, message: message.into(), remedy: remedy.into() }
    }

    /// Returns the reason why a check isn't possible. It alone doesn't make the exit code 1.
    fn unknown(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: CheckStatus::Unknown, message: message.into(), remedy: remedy.into() }
    }

    /// Returns the reason that the user lacks a right, such as `list pods`.
    fn forbidden(right: &str) -> Self {
        Self::unknown(format!("you may not {right}"), format!("ask an admin for the right to {right}"))
    }

    /// Returns the reason why a read failed: this right is missing, or the API server didn't
    /// answer.
    fn unread(error: kube::Error, right: &str) -> Self {
        if is_forbidden(&error) {
            return Self::forbidden(right);
        }
        let error = with_causes(&explain(error));
        Self::problem(format!("can't {right}: {error}"), "see whether the API server works")
    }
}

impl StatusArgs {
    /// Makes all checks and prints them.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { tenure_namespace, t9k, output } = self;
        let t9k_system_namespace = t9k.system_namespace;
        let cluster = connect.connect().await?;
        let checks = Inspector { cluster: &cluster, tenure_namespace, t9k_system_namespace }.checks().await;
        output.show(&checks, || text(&checks))?;
        ensure!(checks.iter().all(|check| check.status != CheckStatus::Problem), AlreadyReported);
        Ok(())
    }
}

/// Returns the checks as lines, each with its remedy in the next line.
fn text(checks: &[Check]) -> String {
    let row = |check: &Check| {
        let remedy = check.remedy.iter().map(|remedy| [String::new(), String::new(), format!("-> {remedy}")]);
        let status = format!("{:?}", check.status).to_uppercase();
        let line = [status, check.name.to_owned(), check.message.clone()];
        std::iter::once(line).chain(remedy).map(Vec::from).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = checks.iter().flat_map(row).collect();
    let table = Table::fitting(&rows);
    rows.iter().map(|row| table.line(row)).collect()
}

/// A cluster, and the namespaces that the checks look at.
struct Inspector<'c> {
    cluster: &'c ClusterReader,
    tenure_namespace: Option<String>,
    t9k_system_namespace: String,
}

impl Inspector<'_> {
    /// Makes all checks, in the order of the answer.
    async fn checks(&self) -> Vec<Check> {
        let all = |name, checks: Result<_, CheckFailure>| {
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

    /// Checks that the cluster has queues, and returns the versions in which they are served.
    fn definitions(&self) -> CheckResult {
        let shown = Family::ALL.into_iter().filter_map(|family| {
            let group = family.row().group;
            let versions = self.cluster.kinds.versions(group, "Queue");
            (!versions.is_empty()).then(|| format!("queues.{group} ({})", versions.join(", ")))
        });
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() {
            let remedy =
                "install the chart with crds.install=true, or KAI-Scheduler, which has queues of its own";
            return Err(CheckFailure::problem("the cluster has no queues of any family", remedy));
        }
        Ok(shown.join(", "))
    }

    /// Lists the chart's objects for a component, in the namespaces of Tenure.
    async fn ours<K>(&self, component: &str) -> Result<Vec<K>, CheckFailure>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let mut found = Vec::new();
        for namespace in self.namespaces(component).await? {
            let (api, place) = (self.cluster.api(Some(&namespace)), format!(" in namespace {namespace}"));
            found.extend(list(api, &of_component(component), &place).await?);
        }
        Ok(found)
    }

    /// Returns the namespaces in which a component runs: the one that the user names, or those of
    /// its service accounts.
    ///
    /// The latter are read from `ClusterRoleBinding`s: no tenant can write one, but any tenant may
    /// label a Deployment.
    async fn namespaces(&self, component: &str) -> Result<BTreeSet<String>, CheckFailure> {
        if let Some(namespace) = &self.tenure_namespace {
            return Ok([namespace.clone()].into());
        }
        let bindings: Api<ClusterRoleBinding> = Api::all(self.cluster.client.clone());
        let bindings = list(bindings, &of_component(component), "").await.map_err(|unread| {
            let remedy = format!("name Tenure's namespace with --tenure-namespace, or {}", unread.remedy);
            CheckFailure { remedy, ..unread }
        })?;
        let subjects = bindings.into_iter().flat_map(|binding| binding.subjects.unwrap_or_default());
        Ok(subjects.filter_map(|subject| subject.namespace).collect())
    }
}

/// Returns the label selector of a component's objects.
fn of_component(component: &str) -> String {
    format!("{OURS},app.kubernetes.io/component={component}")
}

/// Lists objects that have these labels. `place` stands behind the kind in the name of the right.
async fn list<K>(api: Api<K>, labels: &str, place: &str) -> Result<Vec<K>, CheckFailure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let listed = api.list(&ListParams::default().labels(labels)).await;
    let kinds = qualified(&K::plural(&()), &K::group(&()));
    Ok(listed.map_err(|error| CheckFailure::unread(error, &format!("list {kinds}{place}")))?.items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_helps() {
        let checks = [
            Check::new("leader", Ok("keeper-0 leads".into())),
            Check::new("webhook", Err(CheckFailure::problem("no endpoint is ready", "kubectl get pods"))),
        ];
        let expected = "\
OK        leader    keeper-0 leads
PROBLEM   webhook   no endpoint is ready
                    -> kubectl get pods
";
        assert_eq!(text(&checks), expected);
        let json = serde_json::to_value(&checks).unwrap();
        assert_eq!((&json[0]["status"], &json[1]["remedy"]), (&"OK".into(), &"kubectl get pods".into()));
    }
}
