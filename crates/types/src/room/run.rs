//! What a run has of its node: not what it asks for after its binding, but what its node gives it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    ContainerStatus, PodWithRoom, Resources, Spec, Status,
    amounts::{Amounts, Counting, Held, amounts},
    without_room,
};
use crate::projection::Pod;

/// The requests of a run. A user may ask for any amount by a resize. The kubelet writes what it has given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRequests {
    /// What its node shows that it gives, and requests that no resize can change.
    pub given: BTreeMap<String, i64>,
    /// The same, with what containers ask for of which the node shows nothing; none if it shows all.
    pub asked: Option<BTreeMap<String, i64>>,
}

impl RunRequests {
    fn of(spec: &Spec, status: &Status) -> Self {
        let asked = (!spec.is_shown(status)).then(|| spec.requests(status, Counting::Asked));
        Self { given: spec.requests(status, Counting::Given), asked }
    }

    /// The requests of a run that wasn't seen before: it was bound with them, as far as is known.
    pub fn first(&self) -> &BTreeMap<String, i64> {
        self.asked.as_ref().unwrap_or(&self.given)
    }
}

impl PodWithRoom {
    /// Splits this into the pod, its requests, and the time at which the last of its containers stopped, if all have.
    pub fn split_run(self) -> (Pod, RunRequests, Option<Timestamp>) {
        let (requests, stopped) =
            (RunRequests::of(&self.spec, &self.status), self.status.stopped_at(&self.spec));
        let Self { metadata, spec, status } = self;
        (without_room(metadata, spec, status), requests, stopped)
    }
}

impl Spec {
    /// True if the node shows what it gives of all that can be resized.
    fn is_shown(&self, status: &Status) -> bool {
        let sidecars = self.init_containers.iter().filter(|init| init.is_sidecar());
        let mut containers = sidecars.chain(&self.containers);
        let is_shown = |name: &str| status.of_container(name).and_then(ContainerStatus::held).is_some();
        containers.all(|container| is_shown(&container.name))
            && (self.resources.is_none() || status.held().is_some())
    }
}

impl Status {
    /// The time at which the last container, sidecars included, stopped; none if one may run, or none is known.
    fn stopped_at(&self, spec: &Spec) -> Option<Timestamp> {
        let stopped =
            |of: &ContainerStatus| of.state.terminated.as_ref()?.finished_at.as_deref()?.parse().ok();
        let of = |name: &str| self.init_container_statuses.iter().find(|of| of.name == name);
        let sidecars = spec.init_containers.iter().filter(|init| init.is_sidecar());
        let sidecars = sidecars.map(|sidecar| of(&sidecar.name).and_then(stopped));
        let last: Option<Vec<Timestamp>> =
            self.container_statuses.iter().map(stopped).chain(sidecars).collect();
        last?.into_iter().max()
    }

    pub(super) fn held(&self) -> Option<Held> {
        held(self.resources.as_ref(), &self.allocated_resources)
    }
}

impl ContainerStatus {
    pub(super) fn held(&self) -> Option<Held> {
        held(self.resources.as_ref(), &self.allocated_resources)
    }
}

/// Returns the requests that the kubelet shows as actuated and as allocated; none if it shows neither.
fn held(actual: Option<&Resources>, allocated: &Amounts) -> Option<Held> {
    let is_shown = actual.is_some() || !allocated.is_empty();
    let actual = actual.map(|of| amounts(&of.requests).collect()).unwrap_or_default();
    is_shown.then(|| [actual, amounts(allocated).collect()])
}
