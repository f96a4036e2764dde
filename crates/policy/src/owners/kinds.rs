//! The table of the kinds that can be paused. All that Tenure knows of a kind is in its row: `make docs` writes the chart's
//! `files/owners.yaml` and the table of `docs/owners.md` from it.

use serde_json::{Value, json};

use super::shape::OwnerShape;
use crate::naming::group_of;

/// Kinds of one API group that are alike.
#[derive(Clone, Copy, Debug)]
pub struct PausableKinds {
    /// API group.
    pub group: &'static str,
    /// The versions of the group that the webhook reviews.
    pub versions: &'static [&'static str],
    /// The kinds.
    pub kinds: &'static [&'static str],
    /// The fields that pause, in the order in which they are tried: the first that the served schema has counts.
    pub pauses: &'static [(&'static str, PausingValue)],
    /// The way in which an object shows that it has ended.
    pub ended: EndedWhen,
    /// The places of its pod templates and deadlines.
    pub shape: OwnerShape,
}

/// A value that pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausingValue {
    /// A number of replicas: 0.
    Zero,
    /// A switch.
    Switch(bool),
    /// A mode.
    Mode(&'static str),
}

/// The way in which an object shows that it has ended.
///
/// A tenant may write the status of most kinds. To claim an end gains nothing: at its ceiling, Tenure pauses the next owner
/// below in place of one that has ended, or deletes the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedWhen {
    /// Its kind runs until it is paused or deleted.
    Never,
    /// A condition of one of these types is true.
    Condition(&'static [&'static str]),
    /// The text at this path is one of these.
    Text(&'static str, &'static [&'static str]),
}

use EndedWhen::{Condition, Never, Text};
use PausingValue::{Mode, Switch, Zero};

const SUSPEND: (&str, PausingValue) = ("spec.suspend", Switch(true));
const REPLICAS: (&str, PausingValue) = ("spec.replicas", Zero);
const RUN_MODE: (&str, PausingValue) = ("spec.runMode", Mode("paused"));

/// All kinds that can be paused.
pub const KINDS: &[PausableKinds] = &[
    PausableKinds {
        group: "apps",
        versions: &["v1"],
        kinds: &["Deployment", "StatefulSet", "ReplicaSet"],
        pauses: &[REPLICAS],
        ended: Never,
        shape: OwnerShape::TEMPLATE,
    },
    PausableKinds {
        group: "batch",
        versions: &["v1"],
        kinds: &["Job"],
        pauses: &[SUSPEND],
        ended: Condition(&["Complete", "Failed"]),
        shape: OwnerShape { jobs: &[&["spec"]], ..OwnerShape::NONE },
    },
    PausableKinds {
        group: "batch.tensorstack.dev",
        versions: &["v1beta1"],
        kinds: &[
            "MPIJob",
            "ColossalAIJob",
            "DeepSpeedJob",
            "GenericJob",
            "PyTorchTrainingJob",
            "TensorFlowTrainingJob",
            "XGBoostTrainingJob",
        ],
        pauses: &[("spec.runMode.pause.enabled", Switch(true))],
        ended: Text("status.phase", &["Succeeded", "Failed"]),
        shape: OwnerShape::T9K_JOB,
    },
    // T9k's documentation writes Tensorboard for the kind that its clusters serve as TensorBoard. These have a switch in place
    // of the mode since January 2024, in the same version of their group
    PausableKinds {
        group: "tensorstack.dev",
        versions: &["v1beta1"],
        kinds: &["Notebook", "TensorBoard", "Tensorboard"],
        pauses: &[RUN_MODE, SUSPEND],
        ended: Never,
        shape: OwnerShape::T9K_SERVICE,
    },
    PausableKinds {
        group: "tensorstack.dev",
        versions: &["v1beta1"],
        kinds: &["MLService"],
        pauses: &[RUN_MODE],
        ended: Never,
        shape: OwnerShape::T9K_SERVICE,
    },
    PausableKinds {
        group: "tensorstack.dev",
        versions: &["v1beta1"],
        kinds: &["SimpleMLService"],
        pauses: &[REPLICAS],
        ended: Never,
        shape: OwnerShape::T9K_SERVICE,
    },
    PausableKinds {
        group: "jobset.x-k8s.io",
        versions: &["v1alpha2"],
        kinds: &["JobSet"],
        pauses: &[SUSPEND],
        ended: Condition(&["Completed", "Failed"]),
        shape: OwnerShape {
            jobs: &[&["spec", "replicatedJobs", "*", "template", "spec"]],
            ..OwnerShape::NONE
        },
    },
    PausableKinds {
        group: "kubeflow.org",
        versions: &["v1", "v2beta1"],
        kinds: &["PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"],
        pauses: &[("spec.runPolicy.suspend", Switch(true))],
        ended: Condition(&["Succeeded", "Failed"]),
        shape: OwnerShape {
            templates: &[&["spec", "*ReplicaSpecs", "*", "template"]],
            deadlines: &[&["spec", "runPolicy", "activeDeadlineSeconds"]],
            ..OwnerShape::NONE
        },
    },
    PausableKinds {
        group: "leaderworkerset.x-k8s.io",
        versions: &["v1"],
        kinds: &["LeaderWorkerSet"],
        pauses: &[REPLICAS],
        ended: Never,
        shape: OwnerShape {
            templates: &[
                &["spec", "leaderWorkerTemplate", "leaderTemplate"],
                &["spec", "leaderWorkerTemplate", "workerTemplate"],
            ],
            ..OwnerShape::NONE
        },
    },
    PausableKinds {
        group: "ray.io",
        versions: &["v1"],
        kinds: &["RayCluster"],
        pauses: &[SUSPEND],
        ended: Never,
        shape: OwnerShape {
            templates: &[
                &["spec", "headGroupSpec", "template"],
                &["spec", "workerGroupSpecs", "*", "template"],
            ],
            ..OwnerShape::NONE
        },
    },
    // its jobStatus alone may be that of a try which is followed by another
    PausableKinds {
        group: "ray.io",
        versions: &["v1"],
        kinds: &["RayJob"],
        pauses: &[SUSPEND],
        ended: Text("status.jobDeploymentStatus", &["Complete", "Failed"]),
        shape: OwnerShape {
            templates: &[
                &["spec", "rayClusterSpec", "headGroupSpec", "template"],
                &["spec", "rayClusterSpec", "workerGroupSpecs", "*", "template"],
            ],
            deadlines: &[&["spec", "activeDeadlineSeconds"]],
            ..OwnerShape::NONE
        },
    },
    PausableKinds {
        group: "sparkoperator.k8s.io",
        versions: &["v1beta2"],
        kinds: &["SparkApplication"],
        pauses: &[SUSPEND],
        ended: Text("status.applicationState.state", &["COMPLETED", "FAILED"]),
        shape: OwnerShape { metadata: &[&["spec", "driver"], &["spec", "executor"]], ..OwnerShape::NONE },
    },
    PausableKinds {
        group: "trainer.kubeflow.org",
        versions: &["v1alpha1"],
        kinds: &["TrainJob"],
        pauses: &[SUSPEND],
        ended: Condition(&["Complete", "Failed"]),
        shape: OwnerShape::OTHER,
    },
    PausableKinds {
        group: "workload.codeflare.dev",
        versions: &["v1beta2"],
        kinds: &["AppWrapper"],
        pauses: &[SUSPEND],
        ended: Text("status.phase", &["Succeeded", "Failed"]),
        shape: OwnerShape::OTHER,
    },
    // the field that Kueue itself sets to stop a workload
    PausableKinds {
        group: "kueue.x-k8s.io",
        versions: &["v1beta1", "v1beta2"],
        kinds: &["Workload"],
        pauses: &[("spec.active", Switch(false))],
        ended: Condition(&["Finished"]),
        shape: OwnerShape::NONE,
    },
];

impl PausableKinds {
    /// Returns the row of a kind.
    pub fn of(group: &str, kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|row| row.group == group && row.kinds.contains(&kind))
    }

    /// Returns the row of an object's kind.
    pub fn of_object(object: &Value) -> Option<&'static Self> {
        Self::of(group_of(object.get("apiVersion")?.as_str()?), object.get("kind")?.as_str()?)
    }

    /// Returns the plural of a kind: its name in small letters with an s. A test compares it with definitions.
    pub fn resource(kind: &str) -> String {
        format!("{}s", kind.to_lowercase())
    }
}

impl PausingValue {
    /// Returns the value.
    pub fn json(self) -> Value {
        match self {
            Self::Zero => json!(0),
            Self::Switch(on) => json!(on),
            Self::Mode(mode) => json!(mode),
        }
    }
}
