//! Finds the owner that is paused for a pod.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_index::{DuePod, Task, Uid};
use tenure_policy::{
    climb::{self, Action, Climb, OwnerLookup},
    config::Config,
    naming::describe,
    owners::OwnerTable,
    pause::Alone,
};
use tenure_service::call::ApiError;
use tenure_types::projection::Pod;
use tracing::warn;

use super::{EXEMPT_PODS, Failure, Pauser, READING_TRIES, TRIES, Target, exempt::PausableOwners, is_last};

impl Pauser {
    pub(super) async fn target(
        &self,
        task: Task,
        due: &DuePod,
        pod: &Pod,
        config: &Arc<Config>,
    ) -> Result<Target, Failure> {
        let climb = self.climb(due, pod, &config.table).await?;
        let mut owners = climb.pausable().to_vec();
        Ok(match climb.action() {
            Action::Exempt => Target::Exempt,
            Action::DeletePod => match self.workload_of_pod(task, due, pod, &config.table).await? {
                Some(workload) => Target::Owners(vec![workload]),
                None => Target::Pod(Alone::NoOwner),
            },
            Action::AwaitDeletion(_) if !is_last(task, due) => Target::Nothing("an owner is being deleted"),
            Action::Forbidden(owner) if !is_last(task, due) => return Err(Failure::ForbiddenOwner(owner)),
            Action::Forbidden(owner) => Target::Pod(Alone::Outlives(describe(&owner))),
            Action::AwaitDeletion(owner) => {
                owners.push(owner);
                Target::Owners(owners)
            }
            Action::Pause(topmost) => {
                if self.has_an_exempt_pod(due, &topmost, config).await? {
                    return Ok(Target::Pod(Alone::Spared(describe(&topmost))));
                }
                owners.extend(self.workload_of_owner(task, due, &topmost, &config.table).await?);
                Target::Owners(owners)
            }
        })
    }

    async fn climb<'t>(&self, due: &DuePod, pod: &Pod, table: &'t OwnerTable) -> Result<Climb<'t>, Failure> {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let mut climb = Climb::from(climb::controller(pod), table);
        while let Some(owner) = climb.next() {
            let tries = if table.knows(owner) { TRIES } else { READING_TRIES };
            let answer = match self.objects.look_up(&due.namespace, owner, labels).await {
                Ok(answer) => answer,
                // the pod could be read just now: it is this owner that can't be
                Err(source) if due.attempts < tries => {
                    return Err(Failure::Unreadable { owner: owner.clone(), source });
                }
                Err(_) => OwnerLookup::Absent,
            };
            climb.answer(answer);
        }
        Ok(climb)
    }

    /// True if a live pod that is exempt by priority is below this owner: then the owner isn't paused.
    pub(super) async fn has_an_exempt_pod(
        &self,
        due: &DuePod,
        owner: &OwnerReference,
        config: &Arc<Config>,
    ) -> Result<bool, Failure> {
        let namespace = &due.namespace;
        let exempt = self.cluster.with(|index| index.exempt_pods(namespace, Uid::of(&owner.uid)));
        for pod in exempt.into_iter().take(EXEMPT_PODS) {
            if self.owners_of_exempt(due, &pod, config).await?.0.contains(&owner.uid) {
                let owner = describe(owner);
                warn!(%namespace, owner, pod, "Not paused, for it has a pod that is exempt by priority");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The owners of an exempt pod, as they were a moment ago.
    async fn owners_of_exempt(
        &self,
        due: &DuePod,
        name: &str,
        config: &Arc<Config>,
    ) -> Result<PausableOwners, Failure> {
        let key = (due.namespace.clone(), name.to_owned());
        let known = self.exempt_owners.lock().get(&key, config);
        if let Some(owners) = known {
            return Ok(owners);
        }
        let pod = match self.objects.pod(&due.namespace, name).await {
            Err(ApiError::NotFound) => return Ok(PausableOwners::default()),
            pod => pod?,
        };
        let climb = self.climb(due, &pod, &config.table).await?;
        let owners = PausableOwners(climb.pausable().iter().map(|owner| owner.uid.clone()).collect());
        self.exempt_owners.lock().insert(key, owners.clone(), config);
        Ok(owners)
    }
}
