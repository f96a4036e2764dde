//! Pods that control other pods, as the driver of a Spark application controls its executors: all
//! of them are one run. `CeilingIndex` calls this for each change of a pod.
//!
//! A tenant may name any pod as the controller of thousands. So an event of a pod costs the same,
//! no matter how many siblings the pod has. The pods of a driver are checked only when the driver's
//! own controller or scheduling changes.

use crate::{Uid, cluster::ClusterObjects, deadlines::Deadlines, owners::Controller, times::Milliseconds};

/// The controller and the scheduling of a pod that is kept, and whether the pod hides that
/// scheduling.
type ControllerFacts = (Option<Controller>, Option<Milliseconds>, bool);

/// Returns the facts about a pod that matter to the pods that it controls. None: the pod isn't
/// kept.
pub fn facts(deadlines: &Deadlines, uid: Uid) -> Option<ControllerFacts> {
    deadlines.get(uid).map(|pod| (pod.controller, pod.started, pod.hides_start))
}

/// Updates the runs around a pod that has changed: the pod belongs to the run of the pod that
/// controls it, and the pods that it controls belong to its own. Pods whose end or evidence may
/// change are marked. `before`: the pod's facts before the change.
pub fn drive(
    objects: &mut ClusterObjects,
    deadlines: &mut Deadlines,
    uid: Uid,
    before: Option<ControllerFacts>,
) {
    let now = facts(deadlines, uid);
    let controller = |of: Option<ControllerFacts>| Some(of?.0?.uid);
    let is_driven = deadlines.get(uid).is_some_and(|pod| deadlines.driver(pod).is_some());
    if let Some(driver) = controller(now).filter(|_| is_driven) {
        record(objects, deadlines, driver);
        objects.moved.pods.extend(deadlines.count_with_driver(uid).then_some(uid));
    }
    if now != before {
        follow(objects, deadlines, uid);
    }
    for of in controller(before).filter(|of| controller(now) != Some(*of)).into_iter().chain([uid]) {
        forget(objects, deadlines, of);
    }
}

/// Marks the pods that a driver controls, or did control, where their end or evidence may have
/// changed.
fn follow(objects: &mut ClusterObjects, deadlines: &mut Deadlines, driver: Uid) {
    if deadlines.controlled_by(driver).any(|(_, pod)| deadlines.driver(pod).is_some()) {
        record(objects, deadlines, driver);
    }
    let below: Vec<Uid> = deadlines.controlled_by(driver).map(|(below, _)| below).collect();
    let moved = below.into_iter().filter(|below| deadlines.count_with_driver(*below));
    objects.moved.pods.extend(moved);
}

/// Records a driver as an owner, so that the owners above the driver count for its pods, too.
fn record(objects: &mut ClusterObjects, deadlines: &Deadlines, driver: Uid) {
    let Some(pod) = deadlines.get(driver) else { return };
    if objects.owners.drive(driver, pod.controller) {
        objects.moved.owners.insert(driver);
    }
}

/// Forgets a driver as an owner, once the driver and its pods are gone. Until then the driver links
/// its pods to the owners above.
fn forget(objects: &mut ClusterObjects, deadlines: &Deadlines, driver: Uid) {
    let is_used = || deadlines.get(driver).is_some() || deadlines.controlled_by(driver).next().is_some();
    if objects.owners.drives(driver) && !is_used() && objects.owners.replace(driver, None) {
        objects.moved.owners.insert(driver);
    }
}

#[cfg(test)]
mod tests;
