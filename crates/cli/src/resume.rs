//! `kubectl tenure resume`: lets go on what Tenure has paused.

mod judge;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Error, Result, anyhow, bail};
use clap::Args;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde_json::Value;
use tenure_policy::owners::OwnerTable;

use crate::{
    connect::{ConnectArgs, Connection},
    kinds::{Kind, Kinds, Unresolved},
    server::{code, explain},
    target::{self, Target},
    tell::{complain, tell},
};
use judge::{Object, Resumption, judge};

/// How often an object that changes under our hands is read anew.
const TRIES: u32 = 6;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Name under which the write is recorded in `managedFields`.
const FIELD_MANAGER: &str = "kubectl-tenure";

/// Let workloads go on that Tenure has paused
///
/// Sets the field that the pause has set back to what it held before, and removes the record of the pause (annotation
/// tenure.dev/paused), in one write. If the field was set to something else since, it stays as it is and only the record
/// goes. New pods get a full ceiling of their queue.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ResumeArgs {
    /// KIND/NAME..., or one KIND and its NAMEs. A kind as kubectl takes it: deploy, deployments, deployment.apps
    #[arg(value_name = "OBJECT", required = true)]
    objects: Vec<String>,

    /// Ask the API server what would become of it, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// A field that may be restored although Tenure itself wouldn't set it for this kind: that of a row which an admin
    /// has added to the keeper's table
    #[arg(long = "field", value_name = "PATH")]
    fields: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure resume deployment/test
  kubectl tenure resume job training-1 training-2 -n research
  kubectl tenure resume pytorchjobs.kubeflow.org/bert deploy/web --dry-run
  kubectl tenure resume rollout/web --field spec.replicas    # of a kind that your admin has added";

impl ResumeArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<ExitCode> {
        let Self { objects, dry_run, fields } = self;
        let targets = target::parse(&objects)?;
        let connection = connect.connect().await?;
        let kinds = Kinds::discover(&connection.client).await.map_err(explain)?;
        let resumer = Resumer { connection, kinds, table: OwnerTable::default(), fields, dry_run };
        let mut code = ExitCode::SUCCESS;
        for target in targets {
            if let Err(error) = resumer.resume(&target).await {
                if error.is::<io::Error>() {
                    return Err(error);
                }
                complain(&error);
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

struct Resumer {
    connection: Connection,
    kinds: Kinds,
    table: OwnerTable,
    fields: Vec<String>,
    dry_run: bool,
}

impl Resumer {
    async fn resume(&self, target: &Target) -> Result<()> {
        let kind = self.kind(&target.kind)?;
        let object = Object { kind, name: &target.name, namespace: &self.connection.namespace };
        let (resumption, now) = self.write(object).await?;
        self.report(object, &resumption, &now)
    }

    fn kind(&self, word: &str) -> Result<&Kind> {
        self.kinds.resolve(word, &self.table).map_err(|unresolved| match unresolved {
            Unresolved::Unknown => anyhow!("the server doesn't have a resource type {word:?}"),
            Unresolved::Ambiguous(names) => anyhow!("{word:?} may be any of {}: say which", names.join(", ")),
        })
    }

    /// Returns what was decided, and what became of the object.
    async fn write(&self, object: Object<'_>) -> Result<(Resumption, Value)> {
        let api = object.kind.api(&self.connection.client, Some(&self.connection.namespace));
        for _ in 0..TRIES {
            let found = api.get(object.name).await.map_err(|error| refused(object, error))?;
            let found = serde_json::to_value(found)?;
            let resumption = judge(object, &found, &self.table, &self.fields)?;
            match self.patch(&api, object.name, &resumption.patch).await {
                Ok(now) => return Ok((resumption, serde_json::to_value(now)?)),
                Err(error) if is_stale(&error) => tokio::time::sleep(BETWEEN_TRIES).await,
                Err(error) => return Err(refused(object, error)),
            }
        }
        bail!("{object} changes all the time: {TRIES} tries have failed")
    }

    async fn patch(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        patch: &Value,
    ) -> kube::Result<DynamicObject> {
        let how = PatchParams {
            dry_run: self.dry_run,
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default().validation_strict()
        };
        api.patch(name, &how, &Patch::Merge(patch)).await
    }

    fn report(&self, object: Object<'_>, resumption: &Resumption, now: &Value) -> Result<()> {
        let told = resumption.told(object, now)?;
        let dry_run = if self.dry_run { " (server dry run)" } else { "" };
        writeln!(io::stdout(), "{object} {told}{dry_run}")?;
        if resumption.restores && !self.dry_run {
            tell(&format!("New pods of {object} get a full ceiling of queue {}.", resumption.record.queue));
        }
        Ok(())
    }
}

/// It was changed, or replaced by a namesake, since it was read. Another uid in a patch is 409 or, where it is taken for
/// an attempt to change it, 422.
fn is_stale(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            status.code == 409 || (status.code == 422 && status.message.contains("metadata.uid"))
        }
        _ => false,
    }
}

/// Why the API server refused, and which rights it takes.
fn refused(object: Object<'_>, error: kube::Error) -> Error {
    let forbidden = code(&error) == Some(403);
    let error = explain(error);
    if !forbidden {
        return error;
    }
    let place = object.namespaced().map_or_else(String::new, |name| format!(" in namespace {name}"));
    anyhow!("{error}\nTo resume takes the rights to get and to patch {}{place}", object.kind.plural())
}
