//! Pods that control other pods, such as the driver of a Spark application its executors: all of them are one run.

use crate::{Uid, cluster::Objects, deadlines::Deadlines};

/// Takes a pod as a part of the run of the pod that controls it, and the pods that it controls as parts of its own.
pub fn drive(objects: &mut Objects, deadlines: &mut Deadlines, uid: Uid) {
    let Some(pod) = deadlines.get(uid) else { return };
    let is_here = |of: &Uid| deadlines.get(*of).is_some_and(|driver| driver.namespace == pod.namespace);
    let above = pod.controller.map(|of| of.uid).filter(is_here);
    let drives = deadlines.controlled_by(uid).any(|(_, below)| below.namespace == pod.namespace);
    for driver in above.into_iter().chain(drives.then_some(uid)) {
        if objects.owners.drive(driver, deadlines.get(driver).and_then(|pod| pod.controller)) {
            objects.moved.owners.insert(driver);
        }
        objects.moved.pods.extend(deadlines.count_below(driver));
    }
}

/// Forgets a pod that controlled others, once it and those are gone. Until then these have it above them.
pub fn stop_driving(objects: &mut Objects, deadlines: &Deadlines, uid: Uid) {
    if deadlines.get(uid).is_some() {
        return;
    }
    let below: Vec<Uid> = deadlines.controlled_by(uid).map(|(below, _)| below).collect();
    if below.is_empty() && objects.owners.drives(uid) && objects.owners.replace(uid, None) {
        objects.moved.owners.insert(uid);
    }
    // the objects of the cluster don't show its start any more
    objects.moved.pods.extend(below);
}

#[cfg(test)]
mod tests;
