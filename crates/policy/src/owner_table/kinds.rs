//! The table of the kinds that can be paused. All that Tenure knows of a kind is in its row:
//! `make docs` writes the chart's `files/owners.yaml` and the table of `docs/owners.md` from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::{PauseCommand, TIME, shape::OwnerShape};
use crate::naming::group_of;

/// A row of the table: kinds of one API group that are alike.
#[derive(Clone, Copy, Debug)]
pub struct PausableKinds {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The versions of the group that the webhook reviews.
    pub versions: &'static [&'static str],
    /// The names of the kinds.
    pub kinds: &'static [&'static str],
    /// The paths of the fields that pause and their pausing values, in the order in which they are
    /// tried: the first field that the served schema has counts.
    pub pauses: &'static [(&'static str, PausingValue)],
    /// The way in which an object of these kinds shows that it has ended.
    pub ended: EndedWhen,
    /// The places of pod templates and deadlines in an object of these kinds.
    pub shape: OwnerShape,
    /// The way in which the controller of these kinds obeys a pause.
    pub obeys: Obedience,
}

/// The way in which the controller of a kind obeys a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obedience {
    /// The controller ends the pods, in all versions of the kind.
    Always,
    /// The controller ends the pods, in versions whose schema has the field. In older versions the
    /// next owner below is paused instead.
    Newer,
    /// The controller only stops making pods. The keeper deletes the existing ones.
    FurtherPods,
}

/// A value that pauses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PausingValue {
    /// A number of replicas of 0.
    Zero,
    /// A boolean: this value pauses.
    Switch(bool),
    /// A text that names a mode: this one pauses.
    Mode(&'static str),
    /// The time of the pause, in RFC 3339.
    Time,
    /// A text that the status shows once a `Command` of Volcano was obeyed: the text, the action
    /// that pauses, and the action that resumes.
    Command(&'static str, &'static str, &'static str),
}

/// The way in which an object shows that it has ended.
///
/// A tenant may write the status of most kinds. A false claim of an end gains nothing: at its
/// ceiling, Tenure pauses the next owner below in place of an ended one, or deletes the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedWhen {
    /// Objects of the kind never end: they run until they are paused or deleted.
    Never,
    /// The status has a true condition of one of these types.
    Condition(&'static [&'static str]),
    /// The text at this path is one of these texts.
    Text(&'static str, &'static [&'static str]),
}

use EndedWhen::{Condition, Never, Text};
use PausingValue::{Command, Mode, Switch, Time, Zero};

const SUSPEND: (&str, PausingValue) = ("spec.suspend", Switch(true));
const REPLICAS: (&str, PausingValue) = ("spec.replicas", Zero);
const RUN_MODE: (&str, PausingValue) = ("spec.runMode", Mode("paused"));

/// Returns a row of kinds that run until they are paused or deleted, and of which only the metadata
/// is read.
///
/// `pauses` has the fields that pause, in the order in which they are tried. The methods below
/// change the row for other kinds.
const fn kinds(
    group: &'static str,
    versions: &'static [&'static str],
    kinds: &'static [&'static str],
    pauses: &'static [(&'static str, PausingValue)],
) -> PausableKinds {
    let (ended, shape, obeys) = (Never, OwnerShape::NONE, Obedience::Always);
    PausableKinds { group, versions, kinds, pauses, ended, shape, obeys }
}

/// All kinds that can be paused. A kind that is added here needs the chart's files written again by
/// `make docs`.
pub const KINDS: &[PausableKinds] = &[
    kinds("apps", &["v1"], &["Deployment", "StatefulSet", "ReplicaSet"], &[REPLICAS])
        .shaped(OwnerShape::TEMPLATE),
    kinds("argoproj.io", &["v1alpha1"], &["Workflow"], &[SUSPEND])
        .obeying(Obedience::FurtherPods)
        .ended(Text("status.phase", &["Succeeded", "Failed", "Error"]))
        .shaped(OwnerShape {
            metadata: &[&["spec", "podMetadata"], &["spec", "templates", "*", "metadata"]],
            deadlines: &[&["spec", "activeDeadlineSeconds"]],
            ..OwnerShape::NONE
        }),
    kinds("batch", &["v1"], &["Job"], &[SUSPEND])
        .ended(Condition(&["Complete", "Failed"]))
        .shaped(OwnerShape { jobs: &[&["spec"]], ..OwnerShape::NONE }),
    kinds(
        "batch.tensorstack.dev",
        &["v1beta1"],
        &[
            "MPIJob",
            "ColossalAIJob",
            "DeepSpeedJob",
            "GenericJob",
            "PyTorchTrainingJob",
            "TensorFlowTrainingJob",
            "XGBoostTrainingJob",
        ],
        &[("spec.runMode.pause.enabled", Switch(true))],
    )
    .ended(Text("status.phase", &["Succeeded", "Failed"]))
    .shaped(OwnerShape::T9K_JOB),
    kinds(
        "batch.volcano.sh",
        &["v1alpha1"],
        &["Job"],
        &[("status.state.phase", Command("Aborted", "AbortJob", "ResumeJob"))],
    )
    .ended(Text("status.state.phase", &["Completed", "Failed", "Terminated"]))
    .shaped(OwnerShape { templates: &[&["spec", "tasks", "*", "template"]], ..OwnerShape::NONE }),
    // T9k's documentation writes Tensorboard for the kind that its clusters serve as TensorBoard.
    // In the same version of their group, these kinds have had a switch in place of the mode since
    // January 2024
    kinds("tensorstack.dev", &["v1beta1"], &["Notebook", "TensorBoard", "Tensorboard"], &[RUN_MODE, SUSPEND])
        .shaped(OwnerShape::T9K_SERVICE),
    kinds("tensorstack.dev", &["v1beta1"], &["MLService"], &[RUN_MODE]).shaped(OwnerShape::T9K_SERVICE),
    kinds("tensorstack.dev", &["v1beta1"], &["SimpleMLService"], &[REPLICAS]).shaped(OwnerShape::T9K_SERVICE),
    kinds("jobset.x-k8s.io", &["v1alpha2", "v1"], &["JobSet"], &[SUSPEND])
        .ended(Condition(&["Completed", "Failed"]))
        .shaped(OwnerShape {
            jobs: &[&["spec", "replicatedJobs", "*", "template", "spec"]],
            deadlines: &[&["spec", "activeDeadlineSeconds"]],
            ..OwnerShape::NONE
        }),
    kinds(
        "kubeflow.org",
        &["v1", "v2beta1"],
        &["PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"],
        &[("spec.runPolicy.suspend", Switch(true))],
    )
    .ended(Condition(&["Succeeded", "Failed"]))
    .shaped(OwnerShape {
        templates: &[&["spec", "*ReplicaSpecs", "*", "template"]],
        deadlines: &[&["spec", "runPolicy", "activeDeadlineSeconds"]],
        ..OwnerShape::NONE
    }),
    kinds(
        "kubeflow.org",
        &["v1", "v1beta1", "v1alpha1"],
        &["Notebook"],
        &[("metadata.annotations.kubeflow-resource-stopped", Time)],
    )
    .shaped(OwnerShape::KUBEFLOW_NOTEBOOK),
    kinds("leaderworkerset.x-k8s.io", &["v1"], &["LeaderWorkerSet"], &[REPLICAS]).shaped(OwnerShape {
        templates: &[
            &["spec", "leaderWorkerTemplate", "leaderTemplate"],
            &["spec", "leaderWorkerTemplate", "workerTemplate"],
        ],
        ..OwnerShape::NONE
    }),
    kinds("ray.io", &["v1"], &["RayCluster"], &[SUSPEND]).shaped(OwnerShape {
        templates: &[&["spec", "headGroupSpec", "template"], &["spec", "workerGroupSpecs", "*", "template"]],
        ..OwnerShape::NONE
    }),
    // status.jobStatus may be that of a failed try which another try follows
    kinds("ray.io", &["v1"], &["RayJob"], &[SUSPEND])
        .ended(Text("status.jobDeploymentStatus", &["Complete", "Failed"]))
        .shaped(OwnerShape {
            templates: &[
                &["spec", "rayClusterSpec", "headGroupSpec", "template"],
                &["spec", "rayClusterSpec", "workerGroupSpecs", "*", "template"],
            ],
            deadlines: &[&["spec", "activeDeadlineSeconds"]],
            ..OwnerShape::NONE
        }),
    kinds("ray.io", &["v1"], &["RayService"], &[SUSPEND]).obeying(Obedience::Newer).shaped(OwnerShape {
        templates: &[
            &["spec", "rayClusterConfig", "headGroupSpec", "template"],
            &["spec", "rayClusterConfig", "workerGroupSpecs", "*", "template"],
        ],
        ..OwnerShape::NONE
    }),
    kinds("sparkoperator.k8s.io", &["v1beta2"], &["SparkApplication"], &[SUSPEND])
        .ended(Text("status.applicationState.state", &["COMPLETED", "FAILED"]))
        .shaped(OwnerShape { metadata: &[&["spec", "driver"], &["spec", "executor"]], ..OwnerShape::NONE }),
    kinds("trainer.kubeflow.org", &["v1alpha1", "v1beta1"], &["TrainJob"], &[SUSPEND])
        .ended(Condition(&["Complete", "Failed"]))
        .shaped(OwnerShape::OTHER),
    kinds("workload.codeflare.dev", &["v1beta2"], &["AppWrapper"], &[SUSPEND])
        .ended(Text("status.phase", &["Succeeded", "Failed"]))
        .shaped(OwnerShape::OTHER),
    // the field that Kueue itself sets to stop a workload
    kinds("kueue.x-k8s.io", &["v1beta1", "v1beta2"], &["Workload"], &[("spec.active", Switch(false))])
        .ended(Condition(&["Finished"])),
];

impl PausableKinds {
    const fn ended(self, ended: EndedWhen) -> Self {
        Self { ended, ..self }
    }

    const fn obeying(self, obeys: Obedience) -> Self {
        Self { obeys, ..self }
    }

    const fn shaped(self, shape: OwnerShape) -> Self {
        Self { shape, ..self }
    }

    /// Returns the row of a kind. None: the kind isn't built in.
    pub fn of(group: &str, kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|row| row.group == group && row.kinds.contains(&kind))
    }

    /// Returns the way in which the controller of an owner obeys a pause. Kinds that aren't built
    /// in are expected to end their pods.
    pub fn obedience(owner: &OwnerReference) -> Obedience {
        Self::of(group_of(&owner.api_version), &owner.kind).map_or(Obedience::Always, |row| row.obeys)
    }

    /// Returns the row of an object's kind, by its `apiVersion` and `kind`. None: the kind isn't
    /// built in.
    pub fn of_object(object: &Value) -> Option<&'static Self> {
        Self::of(group_of(object.get("apiVersion")?.as_str()?), object.get("kind")?.as_str()?)
    }

    /// Returns the plural of a kind: its name in small letters, with an s. A test compares it with
    /// definitions.
    pub fn resource(kind: &str) -> String {
        format!("{}s", kind.to_lowercase())
    }
}

impl PausingValue {
    /// Returns the value as a rule has it.
    pub fn json(self) -> Value {
        match self {
            Self::Zero => json!(0),
            Self::Switch(on) => json!(on),
            Self::Mode(mode) => json!(mode),
            Self::Time => json!(TIME),
            Self::Command(shown, ..) => json!(shown),
        }
    }

    /// Returns the Command that pauses. None: the pause writes the value itself.
    pub fn command(self) -> Option<PauseCommand> {
        let Self::Command(_, pause, resume) = self else { return None };
        Some(PauseCommand { pause: pause.into(), resume: resume.into() })
    }
}
