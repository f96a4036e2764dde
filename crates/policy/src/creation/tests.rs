use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json, value::to_raw_value};
use tenure_types::podgroup::PodField;

use super::*;
use crate::{
    kueue::KueueQueue,
    owner_table::{OwnerShape, OwnerTable},
    queue::RunaiQueue,
};

const OWN: &str = "tenure.dev/max-duration";

/// `research` ends a run after an hour, and `short` below it after half of one.
fn tree(research: &Value) -> QueueTree {
    let mut spec = json!({"maxDuration": "1h"});
    spec.as_object_mut().unwrap().extend(research.as_object().unwrap().clone());
    let queues = [
        ("research", spec),
        ("short", json!({"parentQueue": "research", "maxDuration": "30m"})),
        ("lenient", json!({"parentQueue": "research", "overCeiling": "Warn"})),
        ("long", json!({"maxDuration": "100d"})),
        ("free", json!({})),
    ];
    queues
        .into_iter()
        .map(|(name, spec)| (name, RunaiQueue::read(&serde_json::from_value(spec).unwrap()).0))
        .collect()
}

fn template(queue: &str, more: &Value) -> Value {
    let mut template = json!({"metadata": {"labels": {"kai.scheduler/queue": queue}}, "spec": {}});
    template["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    template
}

fn job(seconds: i64, queue: &str) -> Value {
    json!({"metadata": {"name": "train"}, "spec": {"activeDeadlineSeconds": seconds, "template": template(queue, &json!({}))}})
}

fn read(kind: &str, new: &Value, old: Option<&Value>) -> Option<AskingOwner> {
    let (group, kind) = kind.split_once('/').unwrap();
    let shape = OwnerShape::of(group, kind, &OwnerTable::default()).unwrap();
    let raw = |value: &Value| to_raw_value(value).unwrap();
    let old = old.map(raw);
    AskingOwner::read(shape, &raw(new), old.as_deref())
}

fn queues(owner: &AskingOwner) -> BTreeSet<FamilyQueue> {
    owner.queues("team", &KueueQueues::default(), &HashMap::new())
}

fn train() -> ObjectReference {
    let text = |text: &str| Some(text.to_owned());
    ObjectReference {
        api_version: text("batch/v1"),
        kind: text("Job"),
        name: text("train"),
        namespace: text("team"),
        ..ObjectReference::default()
    }
}

/// The errors and the warnings of an owner that is created, with queues of T9k besides.
fn answered(research: &Value, kind: &str, new: &Value) -> (Vec<String>, Vec<String>) {
    let Some(owner) = read(kind, new, None) else { return Default::default() };
    let ceiling = "10m".parse().ok();
    let t9k = [("demo", RunaiQueue { ceiling, ..RunaiQueue::default() })].into_iter().collect();
    let (tree, floors) = (tree(research), Floors::default());
    let known = CeilingSources { trees: PerFamily { tensorstack: &t9k, runai: &tree }, floors: &floors };
    let (queues, absent) = (queues(&owner), BTreeSet::new());
    let Findings { errors, warnings, .. } = answer(&owner, Some(&train()), &queues, &absent, &known);
    (errors.iter().map(ToString::to_string).collect(), warnings)
}

fn warned(kind: &str, new: &Value) -> Vec<String> {
    let (errors, warnings) = answered(&json!({}), kind, new);
    assert_eq!(errors, [""; 0]);
    warnings
}

#[test]
fn the_keys_that_are_read_are_those_that_name_a_queue() {
    let labels = place::LABELS.into_iter().filter(|key| !keys::KUEUE_QUEUE_LABELS.contains(key));
    let annotations = place::ANNOTATIONS.into_iter().map(PodField::Annotation);
    let found: BTreeSet<_> = labels.map(PodField::Label).chain(annotations).collect();
    assert_eq!(found, PodField::of_queues());
    assert!(keys::KUEUE_QUEUE_LABELS.iter().all(|key| place::LABELS.contains(key)));
}

#[test]
fn more_than_the_ceiling_gets_a_warning_with_the_number_and_as_much_gets_none() {
    let warning =
        "spec.activeDeadlineSeconds: 7200 is too long: Queue research ends a run after 1h: set at most 3600";
    assert_eq!(warned("batch/Job", &job(7200, "research")), [warning]);
    assert_eq!(warned("batch/Job", &job(3601, "research")).len(), 1);
    for (seconds, queue) in [(3600, "research"), (7200, "free"), (7200, "none"), (1, "short"), (0, "short")] {
        assert_eq!(warned("batch/Job", &job(seconds, queue)), [""; 0], "{seconds} {queue}");
    }
    let warning =
        "spec.activeDeadlineSeconds: 1801 is too long: Queue short ends a run after 30m: set at most 1800";
    assert_eq!(warned("batch/Job", &job(1801, "short")), [warning], "the least on the path");
    let warning = "spec.activeDeadlineSeconds: 9223372036854775807 is too long: Queue long ends a run after 100d: set at most 8640000";
    assert_eq!(warned("batch/Job", &job(i64::MAX, "long")), [warning]);
}

#[test]
fn the_time_that_kueue_is_asked_for_is_compared_wherever_it_stands() {
    let key = keys::KUEUE_MAX_EXEC_TIME_LABEL;
    let labelled = |seconds: &str| {
        let mut job = job(0, "research");
        job["metadata"]["labels"] = json!({key: seconds});
        job
    };
    let warning = |at: &str| {
        [format!(
            "{at}.labels[{key}]: 7200 is too long: Queue research ends a run after 1h: set at most 3600"
        )]
    };
    assert_eq!(warned("batch/Job", &labelled("7200")), warning("metadata"));
    for seconds in ["3600", "0", "-1", "2h", "", "99999999999999999999"] {
        assert_eq!(warned("batch/Job", &labelled(seconds)), [""; 0], "{seconds}");
    }
    let mut in_template = job(0, "research");
    in_template["spec"]["template"]["metadata"]["labels"][key] = json!("7200");
    assert_eq!(warned("batch/Job", &in_template), warning("spec.template.metadata"));
    let stored = labelled("7200");
    assert!(read("batch/Job", &stored, Some(&stored)).is_none(), "it asked for that before");
}

#[test]
fn a_notebook_of_kubeflow_asks_by_its_own_metadata_once_and_names_its_queue_there() {
    let mut notebook = json!({"metadata": {"labels": {"kai.scheduler/queue": "research"}}, "spec": {"template": {"spec": {}}}});
    notebook["metadata"]["annotations"] = json!({OWN: "2h"});
    let warning = format!(
        "metadata.annotations[{OWN}]: \"2h\" is too long: Queue research ends a run after 1h: set at most 1h"
    );
    assert_eq!(warned("kubeflow.org/Notebook", &notebook), [warning]);
}

#[test]
fn the_queue_decides_whether_it_is_refused_or_warned_of() {
    let refuse = json!({"overCeiling": "Refuse"});
    let (errors, warnings) = answered(&refuse, "batch/Job", &job(7200, "research"));
    let refused = "spec.activeDeadlineSeconds: Invalid value: 7200: must be at most 3600: Queue research ends a run after 1h";
    assert_eq!((errors.as_slice(), warnings.len()), (&[refused.to_owned()][..], 0));
    let (errors, warnings) = answered(&refuse, "batch/Job", &job(7200, "short"));
    assert_eq!((errors.len(), warnings.len()), (1, 0), "inherited");
    let (errors, warnings) = answered(&refuse, "batch/Job", &job(7200, "lenient"));
    assert_eq!((errors.len(), warnings.len()), (0, 1), "the nearest value counts");
    assert_eq!(answered(&refuse, "batch/Job", &job(60, "research")), (vec![], vec![]));
}

#[test]
fn the_way_to_more_time_is_named_where_queues_allow_some() {
    let extensions = json!({"extensions": {"maxTotal": "2h"}});
    let more = |seconds, extensions: &Value| {
        let warning = answered(extensions, "batch/Job", &job(seconds, "research")).1.remove(0);
        warning.split_once("; ").map(|(_, more)| more.to_owned())
    };
    let ask = |time: &str| {
        Some(format!(
            "for more time, ask while it runs: kubectl tenure extend job.batch/train -n team {time}"
        ))
    };
    assert_eq!(more(7200, &extensions), ask("1h"));
    assert_eq!(more(9000, &extensions), ask("1h30m"));
    assert_eq!(more(3690, &extensions), ask("1m30s"));
    assert_eq!(more(100_000, &extensions), ask("2h"), "no more than the queue allows");
    assert_eq!(more(7200, &json!({})), None);
    assert_eq!(more(7200, &json!({"extensions": {"maxTotal": "2h", "maxCount": 0}})), None);
}

#[test]
fn a_time_slice_is_described_as_one() {
    let slices = |delay: &str| {
        let slices = json!({"maxDurationAction": "Requeue", "requeueDelay": delay});
        answered(&slices, "batch/Job", &job(7200, "research")).1.remove(0)
    };
    assert!(slices("10m").contains("pauses a run after 1h, and starts the next one 10m later: set"));
    assert!(slices("0s").contains("pauses a run after 1h, and then starts the next one: set"));
}

#[test]
fn own_ceilings_of_an_owner_and_of_its_pods_ask_as_well() {
    let mut deployment = json!({
        "metadata": {"annotations": {OWN: "2h30m", "other": "9h"}},
        "spec": {"template": template("research", &json!({}))},
    });
    let warning = "metadata.annotations[tenure.dev/max-duration]: \"2h30m\" is too long: Queue research ends a run after 1h: set at most 1h";
    assert_eq!(warned("apps/Deployment", &deployment), [warning]);
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({OWN: "3h"});
    deployment["metadata"]["annotations"] = json!({OWN: "20m"});
    let warnings = warned("apps/Deployment", &deployment);
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("spec.template.metadata.annotations["),
        "{warnings:?}"
    );
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({OWN: "soon"});
    let warnings = warned("apps/Deployment", &deployment);
    assert!(warnings.len() == 1 && warnings[0].ends_with(": it has no effect"), "{warnings:?}");
}

#[test]
fn deadlines_of_pods_count_and_those_of_jobs_whose_pods_run_one_after_the_other_do_not() {
    let mut of_pods = job(60, "research");
    of_pods["spec"]["template"]["spec"]["activeDeadlineSeconds"] = json!(4000);
    let warnings = warned("batch/Job", &of_pods);
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("spec.template.spec.activeDeadlineSeconds: 4000 "),
        "{warnings:?}"
    );
    for (completions, parallelism, count) in [
        (json!(10), json!(1), 0),
        (json!(10), json!(10), 1),
        (json!(2), Value::Null, 0),
        (Value::Null, json!(4), 1),
        (json!(1), json!(0), 1),
    ] {
        let mut job = job(7200, "research");
        job["spec"]["completions"] = completions;
        job["spec"]["parallelism"] = parallelism;
        assert_eq!(warned("batch/Job", &job).len(), count, "{job}");
    }
}

#[test]
fn every_kind_is_read_where_its_pods_and_its_deadline_are() {
    let of = template("research", &json!({}));
    let jobs = json!([{"name": "a", "template": {"spec": {"template": of}}}, {"name": "b", "template": {"spec": {"activeDeadlineSeconds": 7200}}}]);
    for (kind, spec, field) in [
        (
            "jobset.x-k8s.io/JobSet",
            json!({"replicatedJobs": jobs}),
            "spec.replicatedJobs[1].template.spec.activeDeadlineSeconds",
        ),
        (
            "batch/CronJob",
            json!({"jobTemplate": {"spec": {"activeDeadlineSeconds": 7200, "template": of}}}),
            "spec.jobTemplate.spec.activeDeadlineSeconds",
        ),
        (
            "batch/CronJob",
            json!({"jobTemplate": {"metadata": {"annotations": {OWN: "2h"}}, "spec": {"template": of}}}),
            "spec.jobTemplate.metadata.annotations[tenure.dev/max-duration]",
        ),
        (
            "ray.io/RayJob",
            json!({"activeDeadlineSeconds": 7200, "rayClusterSpec": {"workerGroupSpecs": [{"template": of}]}}),
            "spec.activeDeadlineSeconds",
        ),
        (
            "ray.io/RayCluster",
            json!({"headGroupSpec": {"template": template("research", &json!({"activeDeadlineSeconds": 7200}))}}),
            "spec.headGroupSpec.template.spec.activeDeadlineSeconds",
        ),
        (
            "kubeflow.org/PyTorchJob",
            json!({"runPolicy": {"activeDeadlineSeconds": 7200}, "pytorchReplicaSpecs": {"Worker": {"template": of}}}),
            "spec.runPolicy.activeDeadlineSeconds",
        ),
        (
            "leaderworkerset.x-k8s.io/LeaderWorkerSet",
            json!({"leaderWorkerTemplate": {"workerTemplate": template("research", &json!({"activeDeadlineSeconds": 7200}))}}),
            "spec.leaderWorkerTemplate.workerTemplate.spec.activeDeadlineSeconds",
        ),
        (
            "sparkoperator.k8s.io/SparkApplication",
            json!({"driver": {"labels": {"kai.scheduler/queue": "research"}, "annotations": {OWN: "2h"}}}),
            "spec.driver.annotations[tenure.dev/max-duration]",
        ),
        (
            "batch.tensorstack.dev/PyTorchTrainingJob",
            json!({"replicaSpecs": [{"template": template("research", &json!({"activeDeadlineSeconds": 7200}))}]}),
            "spec.replicaSpecs[0].template.spec.activeDeadlineSeconds",
        ),
    ] {
        let all = warned(kind, &json!({"metadata": {"name": "train"}, "spec": spec}));
        assert!(all.len() == 1 && all[0].starts_with(&format!("{field}: ")), "{kind} {all:?}");
    }
}

#[test]
fn the_own_label_of_an_owner_counts_where_another_scheduler_may_read_it_and_no_template_names_a_queue() {
    let mut labelled = job(7200, "");
    assert_eq!(warned("batch/Job", &labelled), [""; 0], "none");
    labelled["metadata"]["labels"] = json!({"kai.scheduler/queue": "research"});
    assert_eq!(warned("batch/Job", &labelled), [""; 0], "kube-scheduler reads no label of a Job");
    labelled["spec"]["template"]["spec"]["schedulerName"] = json!("kai-scheduler");
    assert_eq!(warned("batch/Job", &labelled).len(), 1);
    labelled["spec"]["template"] = template("free", &json!({}));
    assert_eq!(warned("batch/Job", &labelled), [""; 0], "that of its template comes first");
    let notebook = json!({
        "metadata": {"annotations": {OWN: "1h"}}, "spec": {"scheduler": {"t9kScheduler": {"queue": "demo"}}},
    });
    let warning = "metadata.annotations[tenure.dev/max-duration]: \"1h\" is too long: Queue demo ends a run after 10m: set at most 10m";
    assert_eq!(warned("tensorstack.dev/Notebook", &notebook), [warning]);
}

#[test]
fn of_several_templates_the_strictest_ceiling_counts_and_one_queue_that_refuses_is_enough() {
    let jobset = |queues: &[&str]| {
        let jobs: Vec<_> = queues
            .iter()
            .map(|queue| json!({"template": {"spec": {"template": template(queue, &json!({}))}}}))
            .collect();
        json!({"metadata": {"annotations": {OWN: "2h"}}, "spec": {"replicatedJobs": jobs}})
    };
    let all = warned("jobset.x-k8s.io/JobSet", &jobset(&["research", "short", "free"]));
    assert!(all.len() == 1 && all[0].contains("Queue short ends a run after 30m"), "{all:?}");
    let refuse = json!({"overCeiling": "Refuse"});
    let mut in_both = jobset(&["research"]);
    in_both["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["labels"]["scheduler.tensorstack.dev/queue"] =
        json!("demo");
    let (errors, warnings) = answered(&refuse, "jobset.x-k8s.io/JobSet", &in_both);
    assert!(errors.len() == 1 && errors[0].contains("Queue research ends"), "{errors:?}");
    assert_eq!(warnings, [""; 0], "a queue of T9k has no say in it");
}

#[test]
fn ten_thousand_templates_are_read_in_little_memory() {
    let jobs: Vec<_> = (0..10_000)
        .map(|n| {
            let spec = json!({"activeDeadlineSeconds": 7200 + n, "template": template(&format!("queue-{n}"), &json!({}))});
            json!({"name": format!("job-{n}"), "template": {"spec": spec}})
        })
        .collect();
    let jobset = json!({"metadata": {}, "spec": {"replicatedJobs": jobs}});
    let owner = read("jobset.x-k8s.io/JobSet", &jobset, None).unwrap();
    assert_eq!((owner.asks.len(), owner.places.len()), (1, 64));
    assert_eq!(
        owner.asks.values().next().unwrap().field,
        "spec.replicatedJobs[9999].template.spec.activeDeadlineSeconds"
    );
}

#[test]
fn a_change_is_answered_for_what_it_asks_that_was_not_asked_before() {
    let old = job(7200, "research");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        read("batch/Job", &new, Some(&old)).map(|owner| owner.asks.values().next().unwrap().value.clone())
    };
    assert_eq!(changed(&|_| {}), None);
    assert_eq!(changed(&|new| new["metadata"]["labels"] = json!({"a": "b"})), None);
    assert_eq!(changed(&|new| new["spec"]["suspend"] = json!(true)), None);
    assert_eq!(changed(&|new| new["spec"]["activeDeadlineSeconds"] = Value::Null), None);
    assert_eq!(changed(&|new| new["spec"]["activeDeadlineSeconds"] = json!(9000)), Some(json!(9000)));
    assert_eq!(changed(&|new| new["metadata"]["annotations"] = json!({OWN: "3h"})), Some(json!("3h")));
    // the same values, in another order
    let jobs = |names: [i64; 2]| {
        let jobs = names.map(|n| json!({"template": {"spec": {"activeDeadlineSeconds": n}}}));
        json!({"metadata": {}, "spec": {"replicatedJobs": jobs}})
    };
    assert!(read("jobset.x-k8s.io/JobSet", &jobs([1, 2]), Some(&jobs([2, 1]))).is_none());
}

#[test]
fn what_another_owner_controls_and_what_is_being_deleted_is_not_answered() {
    for metadata in [
        json!({"ownerReferences": [{"uid": "a"}, {"uid": "b", "controller": true}]}),
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ] {
        let mut owned = job(7200, "research");
        owned["metadata"] = metadata;
        assert!(read("batch/Job", &owned, None).is_none(), "{owned}");
    }
    let mut owned = job(7200, "research");
    owned["metadata"] =
        json!({"ownerReferences": [{"uid": "a", "controller": false}], "deletionTimestamp": null});
    assert!(read("batch/Job", &owned, None).is_some());
}

#[test]
fn pods_that_are_never_touched_ask_for_nothing() {
    let mut system = job(60, "research");
    let spec = json!({"activeDeadlineSeconds": 7200, "priorityClassName": "system-node-critical"});
    system["metadata"]["labels"] = json!({"kai.scheduler/queue": "research"});
    system["spec"] = json!({"activeDeadlineSeconds": 7200, "template": template("research", &spec)});
    assert_eq!(warned("batch/Job", &system), [""; 0]);
}

#[test]
fn the_queue_of_a_group_comes_first_and_one_that_is_not_known_gives_no_answer() {
    let mut grouped = job(7200, "free");
    grouped["spec"]["template"]["metadata"]["annotations"] = json!({"pod-group-name": "gang"});
    let owner = read("batch/Job", &grouped, None).unwrap();
    let gang = (PodGroupKind::Runai, "gang".to_owned());
    assert_eq!(owner.groups(), BTreeSet::from([gang.clone()]));
    let found = |lookup: Option<GroupLookup>| {
        let found = lookup.map(|lookup| (gang.clone(), lookup)).into_iter().collect();
        owner.queues("team", &KueueQueues::default(), &found).into_iter().next().map(|(_, queue)| queue)
    };
    assert_eq!(found(Some(GroupLookup::Found(Some("research".into())))).as_deref(), Some("research"));
    assert_eq!(found(Some(GroupLookup::Found(None))).as_deref(), Some("free"));
    assert_eq!(found(Some(GroupLookup::Absent)).as_deref(), Some("free"));
    assert_eq!((found(Some(GroupLookup::Unknown)), found(None)), (None, None));
    let group =
        |kind, spec: Value| GroupLookup::found(kind, &serde_json::from_value(json!({"spec": spec})).unwrap());
    let queue = |name: &str| GroupLookup::Found(Some(name.to_owned()));
    assert_eq!(group(PodGroupKind::Runai, json!({"queue": "a"})), queue("a"));
    assert_eq!(group(PodGroupKind::Runai, json!({})), GroupLookup::Found(None));
    assert_eq!(group(PodGroupKind::Tensorstack, json!({})), queue("default"));
}

#[test]
fn no_more_groups_are_looked_up_than_an_answer_has_time_for() {
    let jobs: Vec<_> = (0..100)
        .map(|n| {
            let metadata = json!({"annotations": {"pod-group-name": format!("gang-{n}")}});
            json!({"template": {"spec": {"activeDeadlineSeconds": 7200, "template": {"metadata": metadata}}}})
        })
        .collect();
    let jobset = json!({"metadata": {}, "spec": {"replicatedJobs": jobs}});
    let owner = read("jobset.x-k8s.io/JobSet", &jobset, None).unwrap();
    assert_eq!(owner.groups().len(), MOST_LOOKUPS);
    assert_eq!(queues(&owner), BTreeSet::new());
}

#[test]
fn a_queue_of_kueues_stands_for_the_one_that_is_configured() {
    let mut of_kueue = job(7200, "");
    of_kueue["spec"]["template"]["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "main"});
    let owner = read("batch/Job", &of_kueue, None).unwrap();
    let row = KueueQueue::Local { namespace: Some("team".into()), name: "main".into() };
    let rows = KueueQueues(vec![(row, "research".into())]);
    let research = BTreeSet::from([(Family::Runai, "research".to_owned())]);
    assert_eq!(owner.queues("team", &rows, &HashMap::new()), research);
    assert_eq!(owner.queues("other", &rows, &HashMap::new()), BTreeSet::new());
}

#[test]
fn values_of_the_wrong_shape_ask_for_nothing() {
    for odd in [
        json!({"metadata": [], "spec": {"activeDeadlineSeconds": "7200", "template": 5}}),
        json!({"metadata": {"annotations": {OWN: 5}, "labels": "x"}, "spec": []}),
        json!({"spec": {"activeDeadlineSeconds": -1}}),
        json!({"spec": {"activeDeadlineSeconds": 1e300}}),
        json!([]),
        json!(null),
    ] {
        let owner = read("batch/Job", &odd, None).unwrap();
        assert!(owner.asks.is_empty() && owner.unreadable.is_empty() && owner.places.is_empty(), "{odd}");
        assert!(read("batch/Job", &odd, Some(&json!({}))).is_none(), "{odd}");
    }
}

#[test]
fn a_queue_that_does_not_exist_gets_a_warning_at_the_creation_and_refuses_nothing() {
    let owner = read("batch/Job", &job(0, "reserch"), None).unwrap();
    let (t9k, runai, floors) = (QueueTree::default(), tree(&json!({})), Floors::default());
    let known = CeilingSources { trees: PerFamily { tensorstack: &t9k, runai: &runai }, floors: &floors };
    let queues = queues(&owner);
    let absent: BTreeSet<_> = queues.iter().filter(|queue| !known.has(queue)).cloned().collect();
    let Findings { errors, warnings, .. } = answer(&owner, Some(&train()), &queues, &absent, &known);
    assert!(errors.is_empty());
    let warning =
        "queue \"reserch\", which the pods of this workload name, doesn't exist: no ceiling applies to them";
    assert_eq!(warnings, [warning]);
    assert!(known.has(&(Family::Runai, "research".into())));
    let before = job(0, "reserch");
    assert!(read("batch/Job", &job(0, "reserch"), Some(&before)).is_none(), "a change that asks for nothing");
}

#[test]
fn a_queue_label_of_an_owner_alone_is_unused_where_no_template_names_a_queue() {
    let owner =
        OwnerReference { api_version: "batch/v1".into(), kind: "Job".into(), ..OwnerReference::default() };
    let unused = |object: &Value| unused_label(&owner, object, &OwnerTable::default());
    let mut labelled = job(0, "");
    labelled["metadata"]["labels"] = json!({keys::RUNAI_QUEUE_LABEL: "research"});
    labelled["spec"]["template"] = json!({"metadata": {"labels": {"app": "a"}}, "spec": {}});
    assert_eq!(unused(&labelled), Some(keys::RUNAI_QUEUE_LABEL));
    let but = |change: Value| {
        let mut object = labelled.clone();
        json_patch::merge(&mut object, &change);
        unused(&object)
    };
    let template = |of: Value| json!({"spec": {"template": of}});
    assert_eq!(but(template(json!({"metadata": {"labels": {keys::RUNAI_QUEUE_LABEL: "other"}}}))), None);
    assert_eq!(but(template(json!({"metadata": {"annotations": {"pod-group-name": "gang"}}}))), None);
    assert_eq!(
        but(template(json!({"spec": {"schedulerName": "kai-scheduler"}}))),
        None,
        "it reads the label"
    );
    assert_eq!(but(json!({"metadata": {"labels": null}})), None);
    assert_eq!(but(json!({"spec": {"template": null}})), None, "its pods aren't known");
}
