//! `kubectl tenure extend`: asks for more time for the current run of a workload.
//!
//! Creates an Extension, about which the keeper or an approver decides. The checks made here only
//! spare the user a useless request.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ObjectMeta, PostParams};
use tenure_policy::{extension, naming::group_of, owner_table::OwnerTable, pause::OwnerObject};
use tenure_types::{
    ExtendedDuration, Written,
    extension::{Extension, ExtensionSpec, ExtensionState, ExtensionTarget},
    projection::{WholeObject, controller},
    tolerant::Tolerant,
};

use crate::{
    change::{ObjectName, not_below},
    cluster::{BUILT_IN, ClusterReader, ConnectArgs, explain, targets},
    extensions::{decided, explain_extension},
    floors::duration,
    print::{print, print_message, printable},
};

/// The time between two reads of a request whose decision is awaited.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The time after which a keeper should have answered: a keeper that works takes less than a
/// second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ask for more time for the current run of a workload
///
/// Creates an Extension for the topmost owner that Tenure would pause, or a pod that has none. Its queue says how much is
/// granted at once, and how much a person can approve (spec.extensions). The time counts for the run that goes on now: once
/// the workload was paused, resume lets it run again.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure extend job/training 2h --reason \"the last epoch\"
  kubectl tenure extend job/training 30m --wait
  kubectl tenure extensions                       # what was asked for, and what is decided")]
pub struct ExtendArgs {
    /// KIND/NAME, a kind as kubectl takes it: deploy, deployments, deployment.apps
    #[arg(value_name = "OBJECT")]
    object: String,

    /// The time beyond the end of its run, such as 90m, 2h or 1d
    #[arg(value_name = "DURATION", value_parser = duration)]
    duration: ExtendedDuration,

    /// The reason, for the person who approves
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Wait until it is decided; exit code 1 if it isn't granted
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,

    /// Send the request to the API server as a dry run, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ExtendArgs {
    /// Creates the request, and awaits its decision with `--wait`.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { object, duration, reason, wait, dry_run } = self;
        let (word, name) = targets(&[object])?.remove(0);
        let cluster = connect.connect().await?;
        let table = OwnerTable::default();
        let kind = cluster.kinds.resolve(&word, &table)?;
        let object = ObjectName { kind, name: &name, namespace: &cluster.namespace };
        ensure!(kind.namespaced, "{object} is in no namespace: only workloads of a namespace have a run");
        let found = kind.api(&cluster.client, Some(&cluster.namespace)).get(&name).await.map_err(explain)?;
        check(object, &found, &table)?;
        let request = request(object, &found, &duration.to_string(), reason)?;
        let extensions = cluster.api::<Extension>(Some(&cluster.namespace));
        let how = PostParams { dry_run, ..PostParams::default() };
        let created = extensions.create(&how, &request).await.map_err(explain_extension)?;
        let extension = created.metadata.name.unwrap_or_default();
        let note = if dry_run { " (server dry run)" } else { "" };
        let shown = printable(&extension);
        print(&format!("extension.tenure.dev/{shown} created for {object}: {duration} more{note}\n"))?;
        if wait {
            return await_decision(&cluster, &extension).await;
        }
        if !dry_run {
            print_message(&format!(
                "kubectl tenure extensions -n {} shows what is decided",
                cluster.namespace
            ));
        }
        Ok(())
    }
}

/// Refuses a workload that has no run, is paused or has ended, or that belongs to an owner that
/// Tenure pauses.
fn check(object: ObjectName<'_>, found: &WholeObject, table: &OwnerTable) -> Result<()> {
    not_below(controller(&found.metadata).filter(|above| table.knows(above)), object, "extend")?;
    let reference = object.kind.reference(object.name);
    let group = group_of(&reference.api_version);
    // an admin may have added kinds of other groups to keeper.owners
    let has_run = reference.kind == "Pod" || table.knows(&reference) || !BUILT_IN.contains(&group);
    ensure!(has_run, "{object} has no run: {}", extension::not_paused(&reference.kind));
    let is_paused = table.rules(&reference).any(|rule| OwnerObject(&found.value).is_paused(rule));
    ensure!(
        !is_paused,
        "{object} is paused, and has no run that could be extended. To let it run again: {}",
        object.command("resume")
    );
    ensure!(!OwnerObject(&found.value).is_finished(), "{object} has ended: there is nothing to extend");
    Ok(())
}

/// Returns the request. The workload owns it.
fn request(
    object: ObjectName<'_>,
    found: &WholeObject,
    duration: &str,
    reason: Option<String>,
) -> Result<Extension> {
    let uid = found.metadata.uid.clone().context("the API server has shown no uid of the workload")?;
    let owner = OwnerReference { uid, ..object.kind.reference(object.name) };
    let OwnerReference { api_version, kind, name, uid, .. } = owner.clone();
    let target = ExtensionTarget { api_version, kind, name, uid };
    let spec = ExtensionSpec { target, duration: Written::from(duration), reason, requested_by: None };
    let metadata = ObjectMeta {
        generate_name: Some(format!("{}-", object.name)),
        namespace: Some(object.namespace.to_owned()),
        // the request is deleted with the workload
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(Extension { metadata, spec, status: None })
}

/// Waits until a request is decided. There is no time limit. An error: it isn't granted.
async fn await_decision(cluster: &ClusterReader, name: &str) -> Result<()> {
    let extensions = cluster.api::<Tolerant<Extension>>(Some(&cluster.namespace));
    let mut printed = None;
    let (begun, mut is_patient) = (Instant::now(), true);
    loop {
        let extension = extensions.get(name).await.map_err(explain_extension)?.read()?;
        let text = decided(&extension);
        match extension.state() {
            ExtensionState::Pending => {
                if text.is_some() && text != printed {
                    print_message(text.as_deref().unwrap_or_default());
                    printed = text;
                } else if text.is_none() && is_patient && begun.elapsed() > PATIENCE {
                    is_patient = false;
                    print_message(
                        "no keeper has answered yet: it may be in dry-run mode, or none leads (kubectl tenure status)",
                    );
                }
            }
            ExtensionState::Granted => return print(&format!("{}\n", text.unwrap_or_default())),
            _ => bail!("{}", text.unwrap_or_default()),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
