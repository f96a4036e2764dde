//! Pods that control other pods, such as the driver of a Spark application its executors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{Uid, cluster::Objects, deadlines::Deadlines, owners::Controller};

/// Records the pods that a pod controls, and the pod that controls it.
pub fn drive(objects: &mut Objects, deadlines: &Deadlines, uid: Uid, controller: Option<&OwnerReference>) {
    let Some(controller) = controller.map(|owner| Controller::read(owner, &objects.interner.kinds)) else {
        return;
    };
    let below = deadlines.controlled_by(uid).map(|(below, _)| (below, uid, controller));
    let driver = deadlines.get(controller.uid).and_then(|driver| driver.controller);
    let own = driver.map(|above| (uid, controller.uid, above));
    for (pod, driver, above) in below.chain(own) {
        objects.moved.pods.extend(objects.owners.drive(pod, driver, above));
    }
}

#[cfg(test)]
mod tests;
