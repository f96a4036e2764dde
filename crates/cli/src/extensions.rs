//! `kubectl tenure extensions`, `approve` and `deny`: requests for more time, and decisions about
//! them.
//!
//! A decision is a patch of the request's status, with the user's own rights. A policy of the chart
//! asks for the right to update `extensions/approval`. [`decided`] and [`explain_extension`] are
//! also called by `extend`.

use std::cmp::Reverse;

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Args;
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tenure_policy::{extension, naming::is_segment, pause::whole_millisecond};
use tenure_types::{
    ExtendedDuration,
    extension::{Extension, ExtensionState},
    tolerant::Tolerant,
};

use crate::{
    change::FIELD_MANAGER,
    cluster::{ConnectArgs, explain, explain_given_by, is_forbidden, objects, readable},
    floors::duration,
    print::{Column, Format, ListRow, Printer, cell, human, print, print_message, printable},
};

/// List requests for more time: pending ones first, then the latest
///
/// STATE is Pending (not decided), Granted (the run ends later), Denied, Used (the run that got the time has ended) or
/// Expired (the run had ended before a decision).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure extensions -A -o wide   # with reasons, and who has decided
  kubectl tenure extensions -o json")]
pub struct ExtensionsArgs {
    /// Requests of all namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// The form of the answer, if not a table
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Approve requests for more time
///
/// Requires the rights to approve extensions and to patch extensions/status. No more counts than the queue of the
/// workload allows.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure approve training-x7k2p -n team
  kubectl tenure approve training-x7k2p --duration 1h")]
pub struct ApproveArgs {
    /// The names of the requests
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// Grant this time, in place of all that was asked for
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    duration: Option<ExtendedDuration>,

    /// A message for the user who asks
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// Deny requests for more time, or revoke grants
///
/// Requires the rights to approve extensions and to patch extensions/status.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure deny training-x7k2p -n team --message \"maintenance begins at noon\"")]
pub struct DenyArgs {
    /// The names of the requests
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// The reason, for the user who asks
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

impl ExtensionsArgs {
    /// Lists requests and prints them.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { all_namespaces, output } = self;
        let cluster = connect.connect().await?;
        let namespace = (!all_namespaces).then_some(cluster.namespace.as_str());
        let found = objects(cluster.api(namespace), None).try_concat().await.map_err(explain_extension)?;
        let mut found: Vec<Extension> = readable("extension", found);
        sort(&mut found);
        if found.is_empty() {
            let place = namespace.map_or_else(String::new, |name| format!(" in {name} namespace"));
            print_message(&format!("No extensions found{place}."));
        }
        print(&Printer::new(output, all_namespaces, true).all(&found, cluster.clock.now())?)
    }
}

/// Sorts pending requests before others, and within each the latest first.
fn sort(extensions: &mut [Extension]) {
    extensions.sort_by_key(|of| (of.state() != ExtensionState::Pending, Reverse(created(of))));
}

impl ListRow for Extension {
    const NAMESPACE: Column<Self> = ("NAMESPACE", |of, _| of.namespace().unwrap_or_default());
    const NARROW: &'static [Column<Self>] = &[
        ("NAME", |of, _| of.name_any()),
        ("WORKLOAD", |of, _| workload(of)),
        ("DURATION", |of, _| of.spec.duration.as_str().to_owned()),
        ("STATE", |of, _| of.state().name().to_owned()),
        ("GRANTED", |of, _| cell(of.status.as_ref().and_then(|of| Some(of.granted.as_ref()?.as_str())))),
        ("REQUESTED BY", |of, _| cell(of.spec.requested_by.as_deref())),
        ("AGE", |of, now| cell(created(of).zip(now).map(|(at, now)| human(now.duration_since(at))))),
    ];
    const WIDE: &'static [Column<Self>] = &[
        ("DECIDED BY", |of, _| cell(of.status.as_ref().and_then(|of| of.by.as_deref()))),
        ("REASON", |of, _| cell(of.spec.reason.as_deref())),
        ("MESSAGE", |of, _| cell(of.status.as_ref().and_then(|of| of.message.as_deref()))),
    ];

    fn name(&self) -> String {
        format!("extension.tenure.dev/{}", self.name_any())
    }
}

/// Returns the time of the request's creation.
fn created(extension: &Extension) -> Option<Timestamp> {
    extension.metadata.creation_timestamp.as_ref().map(|at| at.0)
}

/// Returns kind and name of the workload.
fn workload(extension: &Extension) -> String {
    let target = &extension.spec.target;
    format!("{}/{}", target.kind.to_lowercase(), target.name)
}

/// Returns the workload, the requester and the reason of a request. A user may replace a listed
/// request by another one of the same name: the text shows which one was decided.
fn request(extension: &Extension) -> String {
    let user = extension.spec.requested_by.as_ref();
    let user = user.map_or_else(String::new, |user| format!(", requested by {user}"));
    let reason = extension.spec.reason.as_ref().map_or_else(String::new, |of| format!(" ({of})"));
    printable(&format!("{}{user}{reason}", workload(extension)))
}

impl ApproveArgs {
    /// Approves the requests, one after the other. The first refusal ends the command.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { names, duration, message } = self;
        ReviewerDecision { is_approval: true, duration, message }.about(&names, connect).await
    }
}

impl DenyArgs {
    /// Denies the requests, one after the other. The first refusal ends the command.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { names, message } = self;
        ReviewerDecision { is_approval: false, duration: None, message }.about(&names, connect).await
    }
}

/// A decision about requests, as the command line has it.
struct ReviewerDecision {
    is_approval: bool,
    /// The time to grant. None: all that was asked for.
    duration: Option<ExtendedDuration>,
    message: Option<String>,
}

impl ReviewerDecision {
    /// Writes the decision on each request of these names. Stops at the first error.
    async fn about(&self, names: &[String], connect: ConnectArgs) -> Result<()> {
        let cluster = connect.connect().await?;
        let user = user(&cluster.client).await?;
        let extensions = cluster.api::<Tolerant<Extension>>(Some(&cluster.namespace));
        let how = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
        for name in names {
            ensure!(
                is_segment(name),
                "{name:?} can't be the name of an Extension: kubectl tenure extensions lists them"
            );
            let found = extensions.get(name).await.map_err(explain_extension)?.read()?;
            self.check(&found)?;
            let asked = found.spec.duration.as_str();
            let granted = self.duration.map_or_else(|| asked.to_owned(), |duration| duration.to_string());
            let (state, decision) = if self.is_approval {
                (ExtensionState::Granted, format!("approved: {granted} for"))
            } else {
                (ExtensionState::Denied, "denied:".into())
            };
            let at = whole_millisecond(cluster.clock.now());
            let status = json!({
                "state": state, "by": user, "at": at, "message": self.message,
                "granted": self.is_approval.then_some(&granted),
            });
            let metadata =
                json!({"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
            let written = extensions.patch_status(name, &how, &patch).await;
            written.map_err(|error| self.explain(error, &cluster.namespace))?;
            print(&format!("extension.tenure.dev/{name} {decision} {}\n", request(&found)))?;
        }
        Ok(())
    }

    /// Returns an error of the write, with the rights that it takes.
    fn explain(&self, error: kube::Error, namespace: &str) -> Error {
        if !is_forbidden(&error) {
            return explain_extension(error);
        }
        let verb = if self.is_approval { "approve" } else { "deny" };
        explain_given_by(error, "").context(format!(
            "to {verb} requires the rights to approve extensions and to patch extensions/status: an administrator of the namespace gives these rights, by a RoleBinding to ClusterRole tenure-approve in namespace {namespace}"
        ))
    }

    /// Refuses a request that is decided already, or that asks for less than is to be granted. A
    /// granted one may still be denied.
    fn check(&self, found: &Extension) -> Result<()> {
        let (state, name) = (found.state(), found.name_any());
        let is_open =
            state == ExtensionState::Pending || !self.is_approval && state == ExtensionState::Granted;
        if !is_open {
            let why = decided(found).unwrap_or_default();
            bail!("extension.tenure.dev/{name} is {}: {why}", state.name());
        }
        let asked: ExtendedDuration = found.spec.duration.parse().context("spec.duration can't be read")?;
        if let Some(duration) = self.duration.filter(|duration| *duration > asked) {
            bail!("extension.tenure.dev/{name} asks for {asked}: --duration {duration} is more");
        }
        Ok(())
    }
}

/// Returns the name of the user, as the API server authenticates the plugin.
async fn user(client: &Client) -> Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review =
        reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.map_err(explain)?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.context("the API server doesn't say who you are")
}

/// Returns a sentence about the state of a request. None: there is nothing to say yet.
pub fn decided(extension: &Extension) -> Option<String> {
    extension::event(extension).map(|(_, text)| printable(&text))
}

/// Returns an error of a call about extensions. If the cluster has no such kind, the error says so.
pub fn explain_extension(error: kube::Error) -> Error {
    let is_missing = matches!(&error, kube::Error::Api(status) if status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty()));
    let error = explain(error);
    let why = "the cluster may have no extensions.tenure.dev: the chart installs it (crds.extensions)";
    if is_missing { error.context(why) } else { error }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn extension(name: &str, created: &str, status: &Value) -> Extension {
        let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"});
        let metadata = json!({"name": name, "namespace": "team", "creationTimestamp": created});
        let spec =
            json!({"target": target, "duration": "2h", "reason": "nearly\ndone", "requestedBy": "eva"});
        let object = json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension", "metadata": metadata, "spec": spec,
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn pending_requests_come_first_and_then_the_latest() {
        let mut all = [
            extension("old", "2026-01-01T00:00:00Z", &json!({"state": "Used", "granted": "1h", "by": "ada"})),
            extension("pending", "2026-01-01T01:00:00Z", &json!(null)),
            extension("new", "2026-01-01T02:00:00Z", &json!({"state": "Denied", "message": "no"})),
        ];
        sort(&mut all);
        assert_eq!(all.each_ref().map(ResourceExt::name_any), ["pending", "new", "old"]);
        let now = "2026-01-01T03:00:00Z".parse().unwrap();
        let rows = |format, namespaces| Printer::new(format, namespaces, true).all(&all, now).unwrap();
        let shown = rows(None, false);
        let expected = "\
NAME      WORKLOAD    DURATION   STATE     GRANTED   REQUESTED BY   AGE
pending   job/train   2h         Pending   <none>    eva            120m
new       job/train   2h         Denied    <none>    eva            60m
old       job/train   2h         Used      1h        eva            3h
";
        assert_eq!(shown, expected);
        let wide = rows(Some(Format::Wide), true);
        assert!(wide.starts_with("NAMESPACE   NAME"), "{wide}");
        assert!(wide.contains("nearly\u{fffd}done") && wide.contains("ada"), "{wide}");
    }

    #[test]
    fn a_decision_names_workload_requester_and_reason() {
        let mut found = extension("a", "2026-01-01T00:00:00Z", &json!(null));
        assert_eq!(request(&found), "job/train, requested by eva (nearly\u{fffd}done)");
        (found.spec.requested_by, found.spec.reason) = (None, None);
        assert_eq!(request(&found), "job/train");
    }

    #[test]
    fn a_decision_is_about_what_is_open_and_grants_no_more_than_was_asked_for() {
        let refusal = |is_approval, state: &str, duration: Option<&str>| {
            let duration = duration.map(|text| text.parse().unwrap());
            let decision = ReviewerDecision { is_approval, duration, message: None };
            let found = extension("a", "2026-01-01T00:00:00Z", &json!({"state": state}));
            decision.check(&found).err().map(|error| error.to_string())
        };
        assert_eq!((refusal(true, "Pending", None), refusal(true, "Pending", Some("2h"))), (None, None));
        assert_eq!((refusal(false, "Pending", None), refusal(false, "Granted", None)), (None, None));
        for (is_approval, state) in [(true, "Granted"), (true, "Denied"), (false, "Used"), (false, "Expired")]
        {
            assert!(refusal(is_approval, state, None).unwrap().contains(state));
        }
        let more = refusal(true, "Pending", Some("3h")).unwrap();
        assert_eq!(more, "extension.tenure.dev/a asks for 2h: --duration 3h is more");
    }
}
