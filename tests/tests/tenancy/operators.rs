//! Operators make what they make, as accounts of the tenant's own namespace: with the rights that their own projects give them.

use serde_json::{Value, json};
use tenure_tests::{
    fixtures,
    workloads::{owned, workload},
};

use crate::{
    owners::claim,
    references::{ALL, Rule, UPDATE, off, pod, seen_by},
};

/// The verbs that a generated role has on the kinds of its project.
const MANAGE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ: &[&str] = &["get", "list", "watch"];

/// An operator: its name; the rules of its manifest about what it makes, and about what owns that; and what it makes, with its
/// controller.
struct Operator {
    name: &'static str,
    rules: &'static [Rule<'static>],
    /// Version and kind of the object, version and kind of the controller.
    makes: &'static [[&'static str; 4]],
}

const OPERATORS: &[Operator] = &[
    // kubernetes-sigs/jobset, config/components/rbac/role.yaml
    Operator {
        name: "jobset",
        rules: &[
            ("batch", &["jobs"], MANAGE),
            ("jobset.x-k8s.io", &["jobsets"], MANAGE),
            ("jobset.x-k8s.io", &["jobsets/finalizers"], UPDATE),
        ],
        makes: &[["batch/v1", "Job", "jobset.x-k8s.io/v1alpha2", "JobSet"]],
    },
    // kubernetes-sigs/lws, config/rbac/role.yaml
    Operator {
        name: "lws",
        rules: &[
            ("", &["pods"], MANAGE),
            ("", &["pods/finalizers"], UPDATE),
            ("apps", &["controllerrevisions", "statefulsets"], MANAGE),
            ("apps", &["controllerrevisions/finalizers", "statefulsets/finalizers"], UPDATE),
            ("leaderworkerset.x-k8s.io", &["leaderworkersets"], MANAGE),
            ("leaderworkerset.x-k8s.io", &["leaderworkersets/finalizers"], UPDATE),
        ],
        makes: &[
            ["apps/v1", "StatefulSet", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"],
            ["apps/v1", "StatefulSet", "v1", "Pod"],
        ],
    },
    // ray-project/kuberay, ray-operator/config/rbac/role.yaml
    Operator {
        name: "kuberay",
        rules: &[
            ("", &["pods"], MANAGE),
            ("", &["pods"], &["deletecollection"]),
            ("batch", &["jobs"], MANAGE),
            ("ray.io", &["rayclusters", "raycronjobs", "rayjobs", "rayservices"], MANAGE),
            (
                "ray.io",
                &[
                    "rayclusters/finalizers",
                    "raycronjobs/finalizers",
                    "rayjobs/finalizers",
                    "rayservices/finalizers",
                ],
                UPDATE,
            ),
        ],
        makes: &[
            ["v1", "Pod", "ray.io/v1", "RayCluster"],
            ["batch/v1", "Job", "ray.io/v1", "RayJob"],
            ["ray.io/v1", "RayCluster", "ray.io/v1", "RayJob"],
            ["ray.io/v1", "RayCluster", "ray.io/v1", "RayService"],
            ["ray.io/v1", "RayJob", "ray.io/v1", "RayCronJob"],
        ],
    },
    // kubeflow/training-operator, manifests/base/rbac/role.yaml
    Operator {
        name: "training-operator",
        rules: &[
            ("", &["pods"], MANAGE),
            (
                "kubeflow.org",
                &["mpijobs", "mxjobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"],
                MANAGE,
            ),
            (
                "kubeflow.org",
                &[
                    "mpijobs/finalizers",
                    "mxjobs/finalizers",
                    "paddlejobs/finalizers",
                    "pytorchjobs/finalizers",
                    "tfjobs/finalizers",
                    "xgboostjobs/finalizers",
                ],
                UPDATE,
            ),
        ],
        makes: &[
            ["v1", "Pod", "kubeflow.org/v1", "MPIJob"],
            ["v1", "Pod", "kubeflow.org/v1", "PaddleJob"],
            ["v1", "Pod", "kubeflow.org/v1", "PyTorchJob"],
            ["v1", "Pod", "kubeflow.org/v1", "TFJob"],
            ["v1", "Pod", "kubeflow.org/v1", "XGBoostJob"],
        ],
    },
    // the same, manifests/base/cluster-role.yaml of its first versions: no right on finalizers
    Operator {
        name: "old-training-operator",
        rules: &[
            ("", &["pods"], ALL),
            ("kubeflow.org", &["tfjobs", "mxjobs", "pytorchjobs", "xgboostjobs"], MANAGE),
        ],
        makes: &[
            ["v1", "Pod", "kubeflow.org/v1", "PyTorchJob"],
            ["v1", "Pod", "kubeflow.org/v1", "TFJob"],
            ["v1", "Pod", "kubeflow.org/v1", "XGBoostJob"],
        ],
    },
    // kubeflow/trainer, manifests/base/rbac/role.yaml
    Operator {
        name: "trainer",
        rules: &[
            ("jobset.x-k8s.io", &["jobsets"], &["create", "get", "list", "patch", "update", "watch"]),
            ("trainer.kubeflow.org", &["trainjobs"], &["get", "list", "patch", "update", "watch"]),
            ("trainer.kubeflow.org", &["trainjobs/finalizers"], &["get", "patch", "update"]),
        ],
        makes: &[["jobset.x-k8s.io/v1alpha2", "JobSet", "trainer.kubeflow.org/v1alpha1", "TrainJob"]],
    },
    // kubeflow/kubeflow, components/notebook-controller/config/rbac/role.yaml
    Operator {
        name: "notebook-controller",
        rules: &[
            ("apps", &["statefulsets"], ALL),
            ("", &["pods"], READ),
            ("kubeflow.org", &["notebooks", "notebooks/finalizers", "notebooks/status"], ALL),
        ],
        makes: &[["apps/v1", "StatefulSet", "kubeflow.org/v1", "Notebook"]],
    },
    // argoproj/argo-workflows, manifests/cluster-install/workflow-controller-rbac/workflow-controller-clusterrole.yaml
    Operator {
        name: "workflow-controller",
        rules: &[
            ("", &["pods", "pods/exec"], MANAGE),
            ("argoproj.io", &["workflows", "workflows/finalizers"], MANAGE),
        ],
        makes: &[["v1", "Pod", "argoproj.io/v1alpha1", "Workflow"]],
    },
    // kubeflow/spark-operator, charts/spark-operator-chart/templates/controller/_helpers.tpl: it may update the finalizers of
    // what it owns for, and not the object
    Operator {
        name: "spark-operator",
        rules: &[
            ("", &["pods"], &["get", "list", "watch", "create", "update", "delete"]),
            ("sparkoperator.k8s.io", &["sparkapplications"], &["get", "list", "watch", "create", "delete"]),
            ("sparkoperator.k8s.io", &["scheduledsparkapplications", "sparkconnects"], READ),
            (
                "sparkoperator.k8s.io",
                &[
                    "sparkapplications/finalizers",
                    "scheduledsparkapplications/finalizers",
                    "sparkconnects/finalizers",
                ],
                UPDATE,
            ),
        ],
        makes: &[
            ["v1", "Pod", "sparkoperator.k8s.io/v1beta2", "SparkApplication"],
            ["v1", "Pod", "sparkoperator.k8s.io/v1alpha1", "SparkConnect"],
        ],
    },
    // the same, templates/spark/rbac.yaml: the driver may not update the finalizers of pods
    Operator {
        name: "spark-driver",
        rules: &[("", &["pods"], MANAGE), ("", &["pods"], &["deletecollection"])],
        makes: &[["v1", "Pod", "v1", "Pod"]],
    },
    // NVIDIA/KAI-Scheduler, deployments/kai-scheduler/templates/rbac/podgrouper.yaml: it may read owners, and update their
    // finalizers alone
    Operator {
        name: "podgrouper",
        rules: &[
            ("", &["pods"], &["create", "get", "list", "patch", "update", "watch"]),
            ("", &["pods/finalizers"], &["create", "patch", "update"]),
            ("apps", &["deployments", "replicasets", "statefulsets"], READ),
            (
                "apps",
                &["deployments/finalizers", "replicasets/finalizers", "statefulsets/finalizers"],
                &["create", "patch", "update"],
            ),
            ("batch", &["cronjobs", "jobs"], READ),
            ("batch", &["cronjobs/finalizers", "jobs/finalizers"], &["create", "patch", "update"]),
            (
                "kubeflow.org",
                &["mpijobs/finalizers", "pytorchjobs/finalizers"],
                &["create", "patch", "update"],
            ),
            (
                "ray.io",
                &["rayclusters/finalizers", "rayjobs/finalizers", "rayservices/finalizers"],
                &["create", "patch", "update"],
            ),
            ("scheduling.run.ai", &["podgroups"], &["create", "get", "list", "patch", "update", "watch"]),
        ],
        makes: &[
            ["scheduling.run.ai/v2alpha2", "PodGroup", "apps/v1", "Deployment"],
            ["scheduling.run.ai/v2alpha2", "PodGroup", "apps/v1", "StatefulSet"],
            ["scheduling.run.ai/v2alpha2", "PodGroup", "batch/v1", "Job"],
            ["scheduling.run.ai/v2alpha2", "PodGroup", "kubeflow.org/v1", "PyTorchJob"],
            ["scheduling.run.ai/v2alpha2", "PodGroup", "ray.io/v1", "RayCluster"],
            ["scheduling.run.ai/v2alpha2", "PodGroup", "v1", "Pod"],
        ],
    },
];

#[tokio::test]
async fn operators_with_the_rights_of_their_manifests_make_what_they_make_as_accounts_of_the_namespace_itself()
 {
    let world = off().await;
    let name = &world.namespace().await;
    for Operator { name: operator, rules, makes } in OPERATORS {
        let account = format!("system:serviceaccount:{name}:{operator}");
        let account = seen_by(world, name, &account, rules).await;
        for (number, [version, kind, owner_version, owner]) in makes.iter().enumerate() {
            let name = format!("{operator}-{number}");
            let object = match *kind {
                "Pod" => pod(account.name(), &name),
                "Job" | "StatefulSet" => workload(kind, account.name(), &name, &json!({}), &Value::Null),
                _ => fixtures::object(version, kind, account.name(), &name, &json!({})),
            };
            let object = owned(object, &[claim(owner_version, owner, "theirs", "u")]);
            let made = account.try_create(&object).await;
            made.unwrap_or_else(|refused| panic!("{operator} {kind} {owner}: {}", refused.message));
        }
    }
}
