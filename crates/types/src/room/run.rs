//! The resources that a run has been given by its node, not those that it requests by a later
//! resize.
//!
//! The keeper's ledger of usage counts them, and so does the simulation of the command line.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    ContainerStatus, PodWithRoom, Resources, Spec, Status,
    amounts::{AllocatedRequests, ResizeCounting, ResourceList, amounts},
    without_room,
};
use crate::projection::Pod;

/// The requests of a run, in the units of [`super::ResourceDemand`]. A user may request any amount
/// by a resize. The kubelet writes the amounts that it has given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRequests {
    /// The amounts that the node shows as given, and the requests that no resize can change.
    pub given: BTreeMap<String, i64>,
    /// Like `given`, with the requests of containers of which the node shows nothing. None: the
    /// node shows all.
    pub asked: Option<BTreeMap<String, i64>>,
}

impl RunRequests {
    /// Reads the requests of a run.
    fn of(spec: &Spec, status: &Status) -> Self {
        let asked = (!spec.is_shown(status)).then(|| spec.requests(status, ResizeCounting::Asked));
        Self { given: spec.requests(status, ResizeCounting::Given), asked }
    }

    /// Returns the requests of a run that wasn't seen before: as far as is known, it was bound with
    /// these.
    pub fn first(&self) -> &BTreeMap<String, i64> {
        self.asked.as_ref().unwrap_or(&self.given)
    }
}

impl PodWithRoom {
    /// Splits this into the pod, its requests, and the time at which the last of its containers
    /// stopped. None: a container may still run.
    pub fn split_run(self) -> (Pod, RunRequests, Option<Timestamp>) {
        let (requests, stopped) =
            (RunRequests::of(&self.spec, &self.status), self.status.stopped_at(&self.spec));
        let Self { metadata, spec, status } = self;
        (without_room(metadata, spec, status), requests, stopped)
    }
}

impl Spec {
    /// True if the node shows the given amounts of all containers that can be resized, and of the
    /// pod if it has requests of its own.
    fn is_shown(&self, status: &Status) -> bool {
        let sidecars = self.init_containers.iter().filter(|init| init.is_sidecar());
        let mut containers = sidecars.chain(&self.containers);
        let shown = status.by_container();
        let is_shown = |name: &str| shown.get(name).copied().and_then(ContainerStatus::held).is_some();
        containers.all(|container| is_shown(&container.name))
            && (self.resources.is_none() || status.held().is_some())
    }
}

impl Status {
    /// Returns the time at which the last container or sidecar stopped. None: one may still run, or
    /// none is known.
    fn stopped_at(&self, spec: &Spec) -> Option<Timestamp> {
        let stopped =
            |of: &ContainerStatus| of.state.terminated.as_ref()?.finished_at.as_deref()?.parse().ok();
        let shown = self.by_container();
        let sidecars = spec.init_containers.iter().filter(|init| init.is_sidecar());
        let sidecars = sidecars.map(|sidecar| stopped(shown.get(sidecar.name.as_str())?));
        let last: Option<Vec<Timestamp>> =
            self.container_statuses.iter().map(stopped).chain(sidecars).collect();
        last?.into_iter().max()
    }

    /// Returns the amounts that the kubelet shows for the pod as a whole.
    pub(super) fn held(&self) -> Option<AllocatedRequests> {
        held(self.resources.as_ref(), &self.allocated_resources)
    }
}

impl ContainerStatus {
    /// Returns the amounts that the kubelet shows for the container.
    pub(super) fn held(&self) -> Option<AllocatedRequests> {
        held(self.resources.as_ref(), &self.allocated_resources)
    }
}

/// Returns the requests that the kubelet shows as actuated and as allocated. None: it shows
/// neither.
fn held(actual: Option<&Resources>, allocated: &ResourceList) -> Option<AllocatedRequests> {
    let is_shown = actual.is_some() || !allocated.is_empty();
    let actual = actual.map(|of| amounts(&of.requests).collect()).unwrap_or_default();
    is_shown.then(|| [actual, amounts(allocated).collect()])
}
