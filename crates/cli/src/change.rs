//! Writes to workloads, one after the other: the common part of `resume`, `activate`, `deactivate` and `requeue`.

mod below;
mod bulk;
mod hand_back;
mod subject;
#[cfg(test)]
pub mod testing;

use std::{io, time::Duration};

use anyhow::{Error, Result, anyhow, bail, ensure};
use clap::Args;
use kube::{
    api::{Patch, PatchParams, PostParams},
    core::Request,
};
use serde_json::Value;
use tenure_policy::{
    kueue::{self, Lookup},
    owners::OwnerTable,
    pause::{self, OwnerObject},
};
use tenure_types::projection::{Owner, WholeObject};

use crate::{
    cluster::{ClusterReader, ConnectArgs, ResourceKind, explain, is_forbidden, targets},
    print::{Reported, complain, print, tell},
};
pub use bulk::BulkArgs;
pub use subject::{ChangeSubject, ObjectChange, ObjectName, PauseState, not_below, shown};

/// The most times that an object is read, if other writers keep changing it.
const TRIES: u32 = 6;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

const IN_NAMESPACE: &str = " in namespace ";

/// Name under which writes are recorded in `managedFields`.
pub const FIELD_MANAGER: &str = pause::PLUGIN_MANAGER;

// The workloads, and the flag for a dry run. No doc comment: help shows that of the command.
#[derive(Clone, Debug, Args)]
pub struct ChangeArgs<C: Args> {
    /// KIND/NAME..., or one KIND and its NAMEs. A kind as kubectl takes it: deploy, deployments, deployment.apps
    #[arg(value_name = "OBJECT", required = true)]
    objects: Vec<String>,

    /// Send the change to the API server as a dry run, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    command: C,
}

pub trait Command {
    /// The verb of the command, as in "to resume takes the rights to …".
    const VERB: &'static str;

    /// True if the command pauses running workloads; false if it changes paused ones.
    const PAUSES: bool = false;

    /// The flags that select workloads, for a command that takes these in place of names.
    fn bulk(&self) -> Option<&BulkArgs> {
        None
    }

    /// Decides on the change by the state of the object.
    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange>;
}

impl<C: Args + Command> ChangeArgs<C> {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let Self { objects, dry_run, command } = self;
        if objects.is_empty() {
            return bulk::run(command, connect, dry_run).await;
        }
        let targets = targets(&objects)?;
        let (cluster, table) = (connect.connect().await?, OwnerTable::default());
        let changer = Changer { command, cluster, table, dry_run, in_bulk: false, namespaces: false };
        let objects = targets.iter().map(|(kind, name)| {
            let kind = changer.cluster.kinds.resolve(kind, &changer.table)?;
            Ok(ObjectName { kind, name, namespace: &changer.cluster.namespace })
        });
        let (_, refused) = changer.change_all(objects).await?;
        ensure!(refused == 0, Reported);
        Ok(())
    }
}

struct Changer<C> {
    command: C,
    cluster: ClusterReader,
    table: OwnerTable,
    dry_run: bool,
    /// True to leave out notes, which would be repeated for each object.
    in_bulk: bool,
    /// True to name the namespace of each object.
    namespaces: bool,
}

impl<C: Command> Changer<C> {
    /// Changes objects in turn, and returns how many were changed and how many refused. A refusal is printed, and doesn't
    /// stop the others.
    async fn change_all<'o>(
        &self,
        objects: impl Iterator<Item = Result<ObjectName<'o>>>,
    ) -> Result<(usize, usize)> {
        let (mut done, mut refused) = (0usize, 0usize);
        for object in objects {
            let change = async { self.change(object?).await };
            let count = match change.await {
                Ok(()) => &mut done,
                // standard output is closed
                Err(error) if error.is::<io::Error>() => return Err(error),
                Err(error) => {
                    complain(&error);
                    &mut refused
                }
            };
            *count = count.saturating_add(1);
        }
        Ok((done, refused))
    }

    /// Changes an object. What was paused below it, since it didn't obey its own pause, is resumed with it.
    async fn change(&self, object: ObjectName<'_>) -> Result<()> {
        // a selection in bulk has what is below as entries of its own
        let names_all = C::PAUSES || self.in_bulk;
        let (has_record, below) =
            if names_all { (true, Vec::new()) } else { self.paused_below(object).await? };
        let workloads = self.workloads(object).await?;
        if has_record || below.is_empty() || workloads.is_some() {
            let judge = |subject: ChangeSubject<'_>| self.command.judge(subject);
            if let Some((kind, names, _)) = &workloads {
                for name in names {
                    let paused = ObjectName { kind, name, namespace: object.namespace };
                    self.change_one(paused, &format!(", by which Kueue runs {object},"), judge).await?;
                }
            }
            // both were paused if the first pause didn't help
            if !workloads.is_some_and(|(.., is_alone)| is_alone) {
                self.change_one(object, "", judge).await?;
            }
        }
        let resume =
            |subject: ChangeSubject<'_>| Ok(subject.resumption(subject.paused(&[])?, "resumed", None));
        for (kind, name) in &below {
            let paused = ObjectName { kind, name, namespace: object.namespace };
            self.change_one(paused, &format!(", paused below {object},"), resume).await?;
        }
        Ok(())
    }

    /// The kind and the names of the Workloads of Kueue's that are to be changed in place of an object, and whether the
    /// object has no record of a pause itself. None if there are none: to take a pause back, they must have the record of one.
    async fn workloads(&self, object: ObjectName<'_>) -> Result<Option<(&ResourceKind, Vec<String>, bool)>> {
        let of = object.kind.reference(object.name);
        // whether it is asked for depends on its kind alone
        let is_run = kueue::of_owner(&of, &self.table).is_some() && self.table.knows(&of);
        let kind = self.cluster.kinds.find(kueue::GROUP, kueue::WORKLOAD).filter(|_| is_run);
        let Some(kind) = kind else { return Ok(None) };
        let api = object.kind.api::<Owner>(&self.cluster.client, Some(object.namespace));
        let found = api.get_opt(object.name).await.map_err(|error| refused::<C>(object, error))?;
        let Some(found) = found else { return Ok(None) };
        let has_record = pause::record_on(&found.metadata).is_some();
        let uid = found.metadata.uid.unwrap_or_default();
        let found = self.cluster.workloads(object.namespace, Lookup::Labelled(&uid)).await?;
        // an elastic job has one for each of its slices, and Kueue would go on with the next
        let pauses = |of: &OwnerObject<'_>| C::PAUSES && !has_record && kueue::is_active(*of);
        let is_meant = |of: &OwnerObject<'_>| of.record().is_some() || pauses(of);
        let workloads = kueue::owned(&found, &uid).into_iter().map(OwnerObject).filter(is_meant);
        let names: Vec<_> = workloads.map(|workload| kueue::refer_to(workload).name).collect();
        Ok((!names.is_empty()).then_some((kind, names, !has_record)))
    }

    async fn change_one(
        &self,
        object: ObjectName<'_>,
        of: &str,
        judge: impl Fn(ChangeSubject<'_>) -> Result<ObjectChange>,
    ) -> Result<()> {
        let (change, now) = self.write(object, judge).await?;
        let told = (change.told)(&now)?;
        let place = if self.namespaces { object.place(IN_NAMESPACE) } else { String::new() };
        let dry_run = if self.dry_run { " (server dry run)" } else { "" };
        print(&format!("{object}{of}{place} {told}{dry_run}\n"))?;
        if let Some(note) = change.note.as_ref().filter(|_| !self.dry_run && !self.in_bulk) {
            tell(note);
        }
        Ok(())
    }

    /// Returns the change that was decided, and the object after it.
    async fn write(
        &self,
        object: ObjectName<'_>,
        judge: impl Fn(ChangeSubject<'_>) -> Result<ObjectChange>,
    ) -> Result<(ObjectChange, Value)> {
        let api = object.kind.api::<WholeObject>(&self.cluster.client, Some(object.namespace));
        let how = PatchParams {
            dry_run: self.dry_run,
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default().validation_strict()
        };
        for _ in 0..TRIES {
            let found = api.get(object.name).await.map_err(|error| refused::<C>(object, error))?;
            let metadata = &found.metadata;
            let (found, table, clock) = (OwnerObject(&found.value), &self.table, self.cluster.clock);
            let change = judge(ChangeSubject { object, found, metadata, table, clock, verb: C::VERB })?;
            self.send(object, change.before.as_ref(), self.dry_run).await?;
            // a Command that is refused leaves no record behind
            self.send(object, change.after.as_ref(), true).await?;
            let mut written = api.patch(object.name, &how, &Patch::Merge(&change.patch)).await;
            for patch in &change.otherwise {
                if written.as_ref().is_err_and(is_unknown_field) {
                    written = api.patch(object.name, &how, &Patch::Merge(patch)).await;
                }
            }
            match written {
                Ok(now) => {
                    self.send(object, change.after.as_ref(), self.dry_run).await?;
                    self.hand_back(object, &api, now.value.clone()).await;
                    return Ok((change, now.value));
                }
                Err(error) if is_stale(&error) => tokio::time::sleep(BETWEEN_TRIES).await,
                Err(error) => return Err(refused::<C>(object, error)),
            }
        }
        bail!("{object} changes all the time: {TRIES} tries have failed")
    }

    /// Sends a Command of Volcano, if there is one. The same one may be there already.
    async fn send(&self, object: ObjectName<'_>, command: Option<&Value>, dry_run: bool) -> Result<()> {
        let Some(command) = command else { return Ok(()) };
        let how = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.into()) };
        let request = Request::new(pause::commands_path(object.namespace));
        let request = request.create(&how, command.to_string().into_bytes())?;
        match self.cluster.client.request_text(request).await {
            Err(error) if is_forbidden(&error) => {
                let (error, verb, place) = (explain(error), C::VERB, object.place(IN_NAMESPACE));
                bail!("{error}\nTo {verb} {object} takes the right to create commands.bus.volcano.sh{place}")
            }
            Err(error) if !is_stale(&error) => Err(explain(error)),
            _ => Ok(()),
        }
    }
}

/// True if the object was changed, or replaced by a namesake, since it was read. Another uid in a patch draws 409, or
/// 422 if it is taken for an attempt to change the uid.
fn is_stale(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    // messages begin with the object's name, which may read like a field
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 || (status.code == 422 && causes.any(|cause| cause.field == "metadata.uid"))
}

/// The served schema has no such field.
fn is_unknown_field(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    matches!(status.code, 400 | 422) && status.message.contains("unknown field")
}

/// Returns an error with the reason of a refusal by the API server, and the rights that the command needs.
fn refused<C: Command>(object: ObjectName<'_>, error: kube::Error) -> Error {
    if !is_forbidden(&error) {
        return explain(error);
    }
    let (error, verb, kinds) = (explain(error), C::VERB, object.kind.plural());
    anyhow!("{error}\nTo {verb} takes the rights to get and to patch {kinds}{}", object.place(IN_NAMESPACE))
}
