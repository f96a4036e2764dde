use serde_json::json;

use super::*;

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

fn minimums(spec: &PodGroupSpec) -> Vec<(&str, Option<u32>)> {
    spec.sub_groups.iter().map(|of| (of.name.as_str(), of.min_member)).collect()
}

#[test]
fn every_kind_is_found_by_its_group() {
    for kind in PodGroupKind::ALL {
        assert_eq!(PodGroupKind::of(kind.group(), "PodGroup"), Some(kind));
        assert_eq!(PodGroupKind::of(kind.group(), "Queue"), None);
        assert!(!kind.versions().is_empty());
    }
    assert_eq!(PodGroupKind::of("example.com", "PodGroup"), None);
}

#[test]
fn a_pod_names_its_group_in_the_way_of_each_scheduler() {
    let in_all = pod(json!({
        "metadata": {
            "labels": {"scheduler.tensorstack.dev/group-name": "t", "scheduling.x-k8s.io/pod-group": "c"},
            "annotations": {"pod-group-name": "r", "scheduling.k8s.io/group-name": "v"},
        },
        "spec": {"schedulingGroup": {"podGroupName": "n"}},
    }));
    let names = PodGroupKind::ALL.map(|kind| kind.named_by(&in_all));
    assert_eq!(names, [Some("r"), Some("t"), Some("c"), Some("v"), Some("n")]);
    let bare = pod(json!({"metadata": {"annotations": {"pod-group-name": ""}}}));
    assert_eq!(PodGroupKind::ALL.map(|kind| kind.named_by(&bare)), [None; 5]);
}

#[test]
fn a_kind_names_queues_where_its_spec_is_read_so() {
    for kind in PodGroupKind::ALL {
        assert_eq!(kind.spec(&json!({"queue": "q"})).queue.is_some(), kind.names_queue(), "{kind:?}");
    }
    let queues = PodField::of_queues();
    assert_eq!(queues.len(), 4);
    assert!(PodField::all().is_superset(&queues));
}

#[test]
fn what_a_group_takes_is_written_in_the_way_of_each_scheduler() {
    let runai = PodGroupKind::Runai
        .spec(&json!({"queue": "q", "minMember": 9, "subGroups": [{"name": "a", "minMember": 2}, 7]}));
    assert_eq!((runai.queue.as_deref(), runai.min_member), (Some("q"), None));
    assert_eq!(minimums(&runai), [("a", Some(2))]);
    let tensorstack = PodGroupKind::Tensorstack
        .spec(&json!({"queue": "q", "minMember": 3, "roles": [{"name": "a", "minMember": 2}]}));
    assert_eq!((tensorstack.queue.as_deref(), tensorstack.min_member), (Some("q"), Some(3)));
    assert_eq!(minimums(&tensorstack), [("a", Some(2))]);
    let volcano =
        PodGroupKind::Volcano.spec(&json!({"queue": "q", "minMember": 3, "minTaskMember": {"a": 2}}));
    assert_eq!((volcano.queue, volcano.min_member), (None, Some(3)));
    assert_eq!(PodGroupKind::Coscheduling.spec(&json!({"minMember": 3})).min_member, Some(3));
    let native = json!({"schedulingPolicy": {"gang": {"minCount": 4}}});
    assert_eq!(PodGroupKind::Native.spec(&native).min_member, Some(4));
    for kind in PodGroupKind::ALL {
        for garbage in [json!(null), json!([1]), json!({"minMember": "x", "subGroups": 1, "roles": {}})] {
            assert_eq!(kind.spec(&garbage).min_member, None);
        }
    }
}

#[test]
fn the_minimums_of_volcanos_tasks_count_while_their_sum_is_within_that_of_the_group() {
    let volcano = |spec: Value| PodGroupKind::Volcano.spec(&spec);
    let tasks = json!({"master": 1, "worker": 2});
    let within = volcano(json!({"minMember": 3, "minTaskMember": tasks}));
    assert_eq!(minimums(&within), [("master", Some(1)), ("worker", Some(2))]);
    let beyond = volcano(json!({"minMember": 2, "minTaskMember": tasks}));
    assert_eq!((beyond.min_member, minimums(&beyond)), (Some(2), vec![]));
    assert_eq!(minimums(&volcano(json!({"minTaskMember": tasks}))), []);
    let many = volcano(json!({"minMember": 9, "minTaskMember": {"a": u32::MAX, "b": u32::MAX, "c": -1}}));
    assert_eq!(minimums(&many), []);
}

#[test]
fn kai_takes_so_many_of_its_subgroups_and_of_their_parts() {
    let spec = json!({"minSubGroup": 1, "subGroups": [{"name": "all", "minSubGroup": 2}, {"name": "a", "parent": "all"}]});
    let spec = PodGroupKind::Runai.spec(&spec);
    assert_eq!(spec.min_sub_group, Some(1));
    let parts: Vec<_> = spec.sub_groups.iter().map(|of| (of.min_sub_group, of.parent.as_deref())).collect();
    assert_eq!(parts, [(Some(2), None), (None, Some("all"))]);
}

#[test]
fn a_status_shows_a_start_only_while_the_group_runs() {
    let at = "2026-01-02T03:04:05Z";
    let condition =
        |type_: &str, status: &str| json!({"type": type_, "status": status, "lastTransitionTime": at});
    let since = ReportedStart::Since(at.parse().unwrap());
    let runai = |status: Value| PodGroupKind::Runai.shown(&status);
    assert_eq!(runai(json!({"resourcesStatus": {"allocated": {"cpu": "1"}}})), ReportedStart::Running);
    assert_eq!(runai(json!({"resourcesStatus": {"allocated": {}}})), ReportedStart::Nothing);
    let tensorstack = |status: &str| {
        PodGroupKind::Tensorstack.shown(&json!({"conditions": [condition("GroupScheduled", status)]}))
    };
    assert_eq!((tensorstack("True"), tensorstack("False")), (since, ReportedStart::Nothing));
    let volcano = |phase: &str| {
        PodGroupKind::Volcano.shown(&json!({"phase": phase, "conditions": [condition("Scheduled", "True")]}))
    };
    assert_eq!((volcano("Running"), volcano("Inqueue")), (since, ReportedStart::Nothing));
    let coscheduling = |phase: &str| PodGroupKind::Coscheduling.shown(&json!({"phase": phase}));
    assert_eq!(
        (coscheduling("Scheduled"), coscheduling("Pending")),
        (ReportedStart::Running, ReportedStart::Nothing)
    );
    for kind in PodGroupKind::ALL {
        assert_eq!(kind.shown(&json!({"conditions": [{}], "phase": 7})), ReportedStart::Nothing);
    }
}

#[test]
fn names_and_subgroups_are_bounded() {
    let (long, longest) = ("a".repeat(LONGEST_NAME + 1), "a".repeat(LONGEST_NAME));
    for kind in PodGroupKind::ALL {
        let pod = |name: &str| {
            serde_json::from_value::<Pod>(json!({
                "metadata": {
                    "labels": {"scheduler.tensorstack.dev/group-name": name, "scheduling.x-k8s.io/pod-group": name},
                    "annotations": {"pod-group-name": name, "scheduling.k8s.io/group-name": name},
                },
                "spec": {"schedulingGroup": {"podGroupName": name}},
            }))
            .unwrap()
        };
        assert_eq!(kind.named_by(&pod(&longest)), Some(&*longest), "{kind:?}");
        assert_eq!(kind.named_by(&pod(&long)), None, "{kind:?}");
        assert_eq!(kind.spec(&json!({"queue": long})).queue, None, "{kind:?}");
    }
    let subgroups: Vec<_> = (0..2_000).map(|of| json!({"name": of.to_string(), "minMember": 1})).collect();
    assert_eq!(PodGroupKind::Runai.spec(&json!({"subGroups": subgroups})).sub_groups.len(), MOST_SUBGROUPS);
    let named = json!({"subGroups": [{"name": long, "minMember": 1}]});
    assert!(PodGroupKind::Runai.spec(&named).sub_groups.is_empty());
}

#[test]
fn a_field_of_a_group_that_cannot_be_read_hides_no_other() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let text =
        format!(r#"{{"metadata":{{"name":"g"}},"spec":{{"queue":"q","deep":{deep}}},"status":{deep}}}"#);
    let group: PodGroup = serde_json::from_str(&text).unwrap();
    assert_eq!(group.metadata.name.as_deref(), Some("g"));
    assert_eq!(group.minimums(PodGroupKind::Runai).queue.as_deref(), Some("q"));
    for text in ["{}", r#"{"spec":null}"#, r#"{"spec":[1]}"#, r#"{"spec":{"queue":7}}"#] {
        let group: PodGroup = serde_json::from_str(text).unwrap();
        assert_eq!(group.minimums(PodGroupKind::Runai).queue, None, "{text}");
    }
}

#[test]
fn the_spec_of_a_group_stays_text_and_no_more_subgroups_are_read_than_count() {
    let subgroups = vec![r#"{"name":"a","minMember":1}"#; 50_000].join(",");
    // a value that is built from this one fails
    let deep = "[".repeat(200) + &"]".repeat(200);
    let spec = format!(r#"{{"subGroups":[{subgroups},{deep}]}}"#);
    let text = format!(r#"{{"spec":{spec},"status":{{"conditions":[{subgroups}]}}}}"#);
    let group: PodGroup = serde_json::from_str(&text).unwrap();
    assert_eq!(group.spec.get(), spec);
    assert_eq!(group.minimums(PodGroupKind::Runai).sub_groups.len(), MOST_SUBGROUPS);
}
