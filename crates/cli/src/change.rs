//! Writes to workloads, one after the other: the common part of `resume`, `activate`, `deactivate`
//! and `requeue`.
//!
//! A [`ChangeCommand`] judges the present state of an object and returns the patch. This module reads,
//! writes and reports. Each patch has the object's uid and `resourceVersion` as preconditions:
//! after a conflict the command judges the object again.

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
    owner_table::OwnerTable,
    pause::{self, OwnerObject},
};
use tenure_types::projection::{Owner, WholeObject};

use crate::{
    cluster::{ClusterReader, ConnectArgs, ResourceKind, explain, is_forbidden, targets},
    print::{AlreadyReported, complain, print, print_message},
};
pub use bulk::BulkArgs;
pub use subject::{ChangeSubject, ObjectChange, ObjectName, PauseState, not_below, shown};

/// The largest number of times that an object is read, if other writers keep changing it.
const TRIES: u32 = 6;
/// The pause before the next try.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Stands before a namespace in messages.
const IN_NAMESPACE: &str = " in namespace ";

/// The name under which writes are recorded in `managedFields`.
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

/// A command that changes workloads. Implemented by each command's own module.
pub trait ChangeCommand {
    /// The verb of the command, as in messages: "to resume requires the rights to …".
    const VERB: &'static str;

    /// True if the command pauses running workloads. False if it changes paused workloads.
    const PAUSES: bool = false;

    /// Returns the flags that select workloads in place of names. None: the command takes names
    /// alone.
    fn bulk(&self) -> Option<&BulkArgs> {
        None
    }

    /// Decides on the change by the present state of the object. The error is a refusal, and is
    /// printed as it is.
    fn judge(&self, subject: ChangeSubject<'_>) -> Result<ObjectChange>;
}

impl<C: Args + ChangeCommand> ChangeArgs<C> {
    /// Runs the command on the named objects, or on those that flags select. Each refusal is
    /// printed. The error then says only that one was.
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
        ensure!(refused == 0, AlreadyReported);
        Ok(())
    }
}

/// A command with all that its writes need.
struct Changer<C> {
    command: C,
    cluster: ClusterReader,
    table: OwnerTable,
    dry_run: bool,
    /// True if flags select the objects. Notes, which would be repeated for each object, are left
    /// out.
    in_bulk: bool,
    /// True if messages name the namespace of each object.
    namespaces: bool,
}

impl<C: ChangeCommand> Changer<C> {
    /// Changes objects in turn, and returns the numbers of changed and of refused objects. A
    /// refusal is printed, and doesn't stop the others.
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

    /// Changes an object. Objects that were paused below it, because it didn't obey its own pause,
    /// are resumed with it.
    async fn change(&self, object: ObjectName<'_>) -> Result<()> {
        // a selection by flags has objects below as entries of its own
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
            // job and Workload were both paused if the first pause had no effect
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

    /// Returns the kind and the names of Kueue's Workloads that are to be changed in place of an
    /// object, and true if the object itself has no record of a pause. None: there is no such
    /// Workload. A command that undoes a pause takes Workloads with the record of a pause alone. A
    /// command that pauses takes no Workload of a running object if Kueue has admitted none: tenants
    /// may write Workloads with any label and owner, but not their status.
    async fn workloads(&self, object: ObjectName<'_>) -> Result<Option<(&ResourceKind, Vec<String>, bool)>> {
        let of = object.kind.reference(object.name);
        // whether Kueue is asked depends on the object's kind alone
        let is_run = kueue::of_owner(&of, &self.table).is_some() && self.table.knows(&of);
        let kind = self.cluster.kinds.find(kueue::GROUP, kueue::WORKLOAD).filter(|_| is_run);
        let Some(kind) = kind else { return Ok(None) };
        let api = object.kind.api::<Owner>(&self.cluster.client, Some(object.namespace));
        let found = api.get_opt(object.name).await.map_err(|error| refused::<C>(object, error))?;
        let Some(found) = found else { return Ok(None) };
        let has_record = pause::record_on(&found.metadata).is_some();
        let uid = found.metadata.uid.unwrap_or_default();
        let found = self.cluster.workloads(object.namespace, Lookup::Labelled(&uid)).await?;
        if C::PAUSES && kueue::chosen(&found, &uid).is_none() && !self.is_paused(object).await? {
            return Ok(None);
        }
        // an elastic job has a Workload for each of its slices, and Kueue would go on with the next
        // slice
        let pauses = |of: &OwnerObject<'_>| C::PAUSES && kueue::is_active(*of);
        let is_meant = |of: &OwnerObject<'_>| of.record().is_some() || pauses(of);
        let workloads = kueue::owned(&found, &uid).into_iter().map(OwnerObject).filter(is_meant);
        let names: Vec<_> = workloads.map(|workload| kueue::refer_to(workload).name).collect();
        Ok((!names.is_empty()).then_some((kind, names, !has_record)))
    }

    /// True if an object is paused by a field of its own, no matter who has set the field.
    async fn is_paused(&self, object: ObjectName<'_>) -> Result<bool> {
        let api = object.kind.api::<WholeObject>(&self.cluster.client, Some(object.namespace));
        let found = api.get(object.name).await.map_err(|error| refused::<C>(object, error))?;
        let of = object.kind.reference(object.name);
        Ok(self.table.rules(&of).any(|rule| OwnerObject(&found.value).is_paused(rule)))
    }

    /// Changes one object, and prints a line about it. `of` stands behind its name.
    async fn change_one(
        &self,
        object: ObjectName<'_>,
        of: &str,
        judge: impl Fn(ChangeSubject<'_>) -> Result<ObjectChange>,
    ) -> Result<()> {
        let (change, now) = self.write(object, judge).await?;
        let message = (change.message)(&now)?;
        let place = if self.namespaces { object.place(IN_NAMESPACE) } else { String::new() };
        let dry_run = if self.dry_run { " (server dry run)" } else { "" };
        print(&format!("{object}{of}{place} {message}{dry_run}\n"))?;
        if let Some(note) = change.note.as_ref().filter(|_| !self.dry_run && !self.in_bulk) {
            print_message(note);
        }
        Ok(())
    }

    /// Reads an object, sends the change, and returns it with the object after it. Tries again, up
    /// to `TRIES` times, if another writer was faster.
    ///
    /// A Command of Volcano is sent before or after the patch, as the change says. The patches of
    /// `otherwise` follow in turn while the served schema lacks a field.
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
            // a Command that the API server refuses leaves no record behind
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
        bail!("{object} changes all the time: {TRIES} tries have failed: try again later")
    }

    /// Sends a Command of Volcano, if there is one. A Command of the same name may already exist.
    /// Tries again, up to `TRIES` times, if another request changes the count of a quota.
    async fn send(&self, object: ObjectName<'_>, command: Option<&Value>, dry_run: bool) -> Result<()> {
        let Some(command) = command else { return Ok(()) };
        let how = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.into()) };
        for _ in 0..TRIES {
            let request = Request::new(pause::commands_path(object.namespace));
            let request = request.create(&how, command.to_string().into_bytes())?;
            match self.cluster.client.request_text(request).await {
                Err(error) if is_forbidden(&error) => {
                    let (error, verb, place) = (explain(error), C::VERB, object.place(IN_NAMESPACE));
                    bail!(
                        "{error}\nTo {verb} {object} requires the right to create commands.bus.volcano.sh{place}"
                    )
                }
                Err(error) if already_exists(&error) => return Ok(()),
                Err(error) if is_stale(&error) => tokio::time::sleep(BETWEEN_TRIES).await,
                sent => return sent.map(drop).map_err(explain),
            }
        }
        bail!(
            "a ResourceQuota changed at each of {TRIES} tries to create a Command for {object}: try again later"
        )
    }
}

/// True if an object wasn't created because an object of its name exists.
fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// True if the object was changed, or replaced by another of the same name, since it was read. The
/// API server answers another uid in a patch with 409, or with 422 if it takes the patch for an
/// attempt to change the uid.
fn is_stale(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    // messages begin with the object's name, which may read like a field
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 || (status.code == 422 && causes.any(|cause| cause.field == "metadata.uid"))
}

/// True if the served schema has no such field, which strict validation reports.
fn is_unknown_field(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    matches!(status.code, 400 | 422) && status.message.contains("unknown field")
}

/// Returns an error with the API server's reason for a refusal, and the rights that the command
/// needs.
fn refused<C: ChangeCommand>(object: ObjectName<'_>, error: kube::Error) -> Error {
    if !is_forbidden(&error) {
        return explain(error);
    }
    let (error, verb, kinds) = (explain(error), C::VERB, object.kind.plural());
    anyhow!(
        "{error}\nTo {verb} requires the rights to get and to patch {kinds}{}",
        object.place(IN_NAMESPACE)
    )
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_that_conflicts_with_the_count_of_a_quota_was_not_created() {
        let error = |reason: &str| {
            let status = json!({"status": "Failure", "code": 409, "reason": reason, "message": "no"});
            kube::Error::Api(serde_json::from_value::<Status>(status).unwrap().boxed())
        };
        assert!(already_exists(&error("AlreadyExists")));
        let conflict = error("Conflict");
        assert!(!already_exists(&conflict) && is_stale(&conflict));
    }
}
