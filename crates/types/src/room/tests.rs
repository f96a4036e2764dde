use serde_json::{Value, json};

use super::*;

fn room(spec: &Value) -> ResourceDemand {
    let pod: PodWithRoom = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    pod.split().1
}

fn container(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}}})
}

fn cpu(spec: &Value) -> i64 {
    room(spec).requests.get("cpu").copied().unwrap_or_default()
}

#[test]
fn containers_are_added_up_and_the_overhead_comes_on_top() {
    let two = [container("1"), container("500m")];
    assert_eq!(cpu(&json!({"containers": two})), 1_500);
    assert_eq!(cpu(&json!({"containers": two, "overhead": {"cpu": "1"}})), 2_500);
    assert_eq!(room(&json!({"containers": null})), ResourceDemand::default());
}

#[test]
fn the_largest_init_container_counts_if_it_is_more_than_all_containers() {
    let with = |init: &[Value]| cpu(&json!({"containers": [container("2")], "initContainers": init}));
    assert_eq!(with(&[container("1"), container("1")]), 2_000);
    assert_eq!(with(&[container("3"), container("1")]), 3_000);
}

#[test]
fn an_init_container_that_goes_on_counts_with_all_that_come_after_it() {
    let mut sidecar = container("1");
    sidecar["restartPolicy"] = json!("Always");
    let with = |init: &[&Value]| cpu(&json!({"containers": [container("2")], "initContainers": init}));
    assert_eq!(with(&[&sidecar]), 3_000);
    assert_eq!(with(&[&sidecar, &container("4")]), 5_000);
    assert_eq!(with(&[&container("4"), &sidecar]), 4_000);
}

#[test]
fn an_init_container_counts_beside_the_sidecars_before_it_for_its_own_resources() {
    let requests = |of: Value| json!({"requests": of});
    let init = json!([
        {"restartPolicy": "Always", "resources": requests(json!({"cpu": "1", "example.com/a": 2}))},
        {"resources": requests(json!({"example.com/a": 3, "example.com/b": 4}))},
        {"restartPolicy": "Always", "resources": requests(json!({"example.com/b": 1}))},
    ]);
    let main = json!([{"resources": requests(json!({"cpu": "2", "example.com/b": 2}))}]);
    let requests = room(&json!({"containers": main, "initContainers": init})).requests;
    assert_eq!((requests["cpu"], requests["example.com/a"], requests["example.com/b"]), (3_000, 5, 4));
}

#[test]
fn each_of_many_sidecars_is_added_once() {
    // with a sum for each of them, this takes minutes
    let sidecar = |number: usize| {
        let requests = json!({format!("example.com/{number}"): 1});
        json!({"name": number.to_string(), "restartPolicy": "Always", "resources": {"requests": requests}})
    };
    let sidecars: Vec<Value> = (0..15_000).map(sidecar).collect();
    let spec = json!({"containers": [], "initContainers": sidecars});
    let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec})).unwrap();
    assert_eq!(pod.clone().split_run().1.given.len(), 15_000);
    assert!(pod.split().1.requests.is_empty(), "no node has as many resources");
}

#[test]
fn what_a_pod_requests_itself_replaces_what_its_containers_do() {
    let own = json!({"requests": {"cpu": "1", "nvidia.com/gpu": "7"}});
    let spec = json!({"containers": [{"resources": {"requests": {"cpu": "3", "nvidia.com/gpu": 2}}}], "resources": own});
    let requests = room(&spec).requests;
    assert_eq!((requests["cpu"], requests["nvidia.com/gpu"]), (1_000, 2));
}

#[test]
fn memory_is_in_bytes_and_what_is_no_quantity_is_nothing() {
    let requests = json!({"memory": "1Gi", "example.com/a": "many", "example.com/b": {}});
    let room = room(&json!({"containers": [{"resources": {"requests": requests}}]}));
    assert_eq!(room.requests, BTreeMap::from([("memory".to_owned(), 1 << 30)]));
}

fn needs(spec: &Value) -> Option<PodNeeds> {
    let metadata = json!({"name": "a", "namespace": "ns"});
    let pod: PodWithRoom = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    pod.split().1.needs
}

fn affinity(kind: &str, terms: &Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn most_pods_need_nothing_but_room() {
    let volume = |kind: &str| json!({"name": kind, kind: {}});
    let volumes = ["emptyDir", "projected", "configMap", "hostPath", "nfs", "csi"].map(volume);
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]});
    let spread = json!({"whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}});
    for spec in [
        json!({"volumes": volumes, "containers": [{"ports": [{"containerPort": 80}]}]}),
        json!({"affinity": {"nodeAffinity": {}, "podAffinity": preferred, "podAntiAffinity": preferred}}),
        json!({"affinity": null, "volumes": null, "topologySpreadConstraints": [spread, {}]}),
    ] {
        assert_eq!(needs(&spec), None, "{spec}");
    }
}

#[test]
fn the_claims_of_a_pods_volumes_are_kept_once_each_in_order() {
    let names = ["b", "a", "b", "c", "a"];
    let volume = |name: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": name}});
    let needs = needs(&json!({"volumes": names.map(volume)})).unwrap();
    assert_eq!(*needs.claims, ["a", "b", "c"].map(Into::into));
    assert!(names.iter().all(|name| needs.uses(name)) && !needs.uses("d"));
}

#[test]
fn the_fields_of_a_volume_are_skipped_however_many_and_deep_they_are() {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let items = vec![r#"{"key":"a","path":"b"}"#; 10_000].join(",");
    let volumes = format!(
        r#"[{{"name":"v","configMap":{{"name":"c","items":[{items}],"deep":{deep}}}}},{{"name":"w","ephemeral":{{"deep":{deep}}}}}]"#
    );
    let text = format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"volumes":{volumes}}}}}"#);
    let pod: PodWithRoom = serde_json::from_str(&text).unwrap();
    let needs = pod.split().1.needs.unwrap();
    assert_eq!(needs, PodNeeds { claims: Box::new(["a-w".into()]), ..PodNeeds::default() });
}

#[test]
fn a_pod_that_needs_more_than_room_is_not_plain() {
    let port = |port: Value| needs(&json!({"containers": [{"ports": [port]}]})).unwrap().host_ports;
    let [any, udp, one, other] = [
        json!({"hostPort": 80}),
        json!({"hostPort": 80, "protocol": "UDP"}),
        json!({"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}),
        json!({"hostPort": 80, "hostIP": "10.0.0.2"}),
    ]
    .map(|of| port(of)[0].clone());
    assert!(any.conflicts(&one) && one.conflicts(&any) && any.conflicts(&any));
    assert!(!any.conflicts(&udp) && !one.conflicts(&other));
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
    let volumes = json!({"volumes": [claim, {"name": "w", "ephemeral": {}}]});
    let claims = needs(&volumes).unwrap();
    assert_eq!((&*claims.claims, claims.has_disks), (&["a-w".into(), "data".into()][..], false));
    let disk = needs(&json!({"volumes": [{"name": "v", "iscsi": {}}]})).unwrap();
    assert!(disk.has_disks && disk.attaches() && disk.claims.is_empty());
    assert!(needs(&json!({"resourceClaims": [{}]})).unwrap().has_resource_claims);
    let spread =
        json!({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]});
    assert!(needs(&spread).unwrap().spread[0].is_empty());
    assert_eq!(needs(&affinity("podAffinity", &json!([{}, {}]))).unwrap().affinity.len(), 2);
    assert_eq!(needs(&affinity("podAntiAffinity", &json!([{}]))).unwrap().anti_affinity.len(), 1);
}

#[test]
fn a_term_selects_pods_of_its_own_namespace_unless_it_names_others() {
    let selects = |term: &Value, namespace: &str, app: &str| {
        let labels = BTreeMap::from([("app".to_owned(), app.to_owned())]);
        let needs = needs(&affinity("podAntiAffinity", &json!([term]))).unwrap();
        needs.anti_affinity[0].may_select(namespace, &labels)
    };
    let app = json!({"matchLabels": {"app": "a"}});
    let own = json!({"labelSelector": app});
    assert!(selects(&own, "ns", "a") && !selects(&own, "ns", "b") && !selects(&own, "other", "a"));
    let named = json!({"labelSelector": app, "namespaces": ["other"]});
    assert!(selects(&named, "other", "a") && !selects(&named, "ns", "a"));
    let selected = json!({"labelSelector": app, "namespaceSelector": {"matchLabels": {"team": "a"}}});
    assert!(selects(&selected, "other", "a"), "labels of namespaces aren't known");
    assert!(!selects(&selected, "other", "b"));
    assert!(selects(&json!({"labelSelector": {}}), "ns", "b"), "an empty selector selects all");
    assert!(!selects(&json!({}), "ns", "a"), "none at all selects nothing");
    let odd = json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}});
    assert!(selects(&odd, "ns", "a"), "one that can't be read may select anything");
}

#[test]
fn nothing_is_known_of_a_pod_that_needs_more_than_is_kept() {
    let volume = |number: usize| json!({"name": "v", "persistentVolumeClaim": {"claimName": format!("data-{number}")}});
    let with = |many: usize| needs(&json!({"volumes": (0..many).map(volume).collect::<Vec<_>>()})).unwrap();
    assert!(!with(100).is_unknown);
    assert_eq!(with(1_000), PodNeeds::unknown());
    let values: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": values}]});
    let term = affinity("podAffinity", &json!([{"labelSelector": selector}]));
    assert_eq!(needs(&term), Some(PodNeeds::unknown()));
}

/// The processors of a pod with these requests, of which its containers have this status.
fn resized(spec: &str, allocated: &str, actual: &str, reason: Option<&str>) -> i64 {
    let mut container = container(spec);
    container["name"] = json!("main");
    let status = json!({
        "name": "main", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}},
    });
    let pending =
        reason.map(|reason| json!({"type": "PodResizePending", "status": "True", "reason": reason}));
    let conditions: Vec<Value> = pending.into_iter().collect();
    let pod: PodWithRoom = serde_json::from_value(json!({
        "metadata": {"name": "a"}, "spec": {"containers": [container]},
        "status": {"containerStatuses": [status], "conditions": conditions},
    }))
    .unwrap();
    pod.split().1.requests["cpu"]
}

#[test]
fn while_a_pod_is_resized_the_most_of_what_it_asks_for_and_what_it_holds_counts() {
    assert_eq!(resized("1", "4", "4", None), 4_000, "on its way down");
    assert_eq!(resized("1", "1", "4", None), 4_000, "allocated, but not actuated");
    assert_eq!(resized("1", "4", "1", None), 4_000, "allocated and about to be actuated");
    assert_eq!(resized("4", "1", "1", Some("Deferred")), 4_000, "it will come");
}

#[test]
fn a_resize_that_its_node_can_never_give_does_not_count() {
    assert_eq!(resized("8", "1", "2", Some("Infeasible")), 2_000);
    let with_status = |status: Value| {
        let spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "8"}}}]});
        let pending = json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"});
        let pod = json!({"spec": spec, "status": {"conditions": [pending], "containerStatuses": status}});
        serde_json::from_value::<PodWithRoom>(pod).unwrap().split().1.requests["cpu"]
    };
    assert_eq!(with_status(json!(null)), 8_000, "nothing else is known");
    assert_eq!(with_status(json!([{"name": "main"}])), 8_000);
}

#[test]
fn a_sidecar_is_resized_as_any_container() {
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
    let spec = json!({"containers": [container("2")], "initContainers": [sidecar]});
    let status = json!({"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "3"}}]});
    let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
    assert_eq!(pod.split().1.requests["cpu"], 5_000);
}

#[test]
fn what_a_pod_holds_itself_counts_without_its_overhead() {
    let own = json!({"requests": {"cpu": "1"}});
    let spec = json!({"containers": [container("1")], "resources": own, "overhead": {"cpu": "500m"}});
    let status = json!({"resources": {"requests": {"cpu": "4500m"}}, "allocatedResources": {"cpu": "1500m"}});
    let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
    assert_eq!(pod.split().1.requests["cpu"], 4_500);
}

#[test]
fn too_many_resources_and_too_long_names_leave_no_trace() {
    let with = |requests: Value| room(&json!({"containers": [{"resources": {"requests": requests}}]}));
    let many = |many: u32| -> BTreeMap<String, u32> {
        (0..many).map(|number| (format!("example.com/{number}"), 1)).collect()
    };
    let unknown = ResourceDemand { needs: Some(PodNeeds::unknown()), ..ResourceDemand::default() };
    assert_eq!(with(json!(many(32))).requests.len(), 32);
    assert_eq!(with(json!(many(33))), unknown);
    assert_eq!(with(json!({"a".repeat(318): 1})), unknown);
    assert_eq!(with(json!({"a".repeat(317): 1})).needs, None);
}

/// The time at which a pod with a sidecar has stopped, of which these are the states of containers and init containers.
fn stopped(main: &Value, init: &Value) -> Option<String> {
    let inits = json!([{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]);
    let pod: PodWithRoom = serde_json::from_value(json!({
        "spec": {"containers": [{"name": "main"}], "initContainers": inits},
        "status": {"containerStatuses": main, "initContainerStatuses": init},
    }))
    .unwrap();
    pod.split_run().2.map(|at| at.to_string())
}

#[test]
fn a_pod_has_stopped_when_its_last_container_has_and_a_sidecar_is_one() {
    let at = |name: &str, time: &str| {
        let time = format!("2026-01-01T{time}Z");
        json!({"name": name, "state": {"terminated": {"exitCode": 0, "finishedAt": time}}})
    };
    let running = |name: &str| json!({"name": name, "state": {"running": {}}});
    let (main, setup) = (json!([at("main", "10:00:00")]), at("setup", "09:00:00"));
    let after = |init: Value| stopped(&main, &init);
    assert_eq!(after(json!([setup, at("proxy", "12:00:00")])).as_deref(), Some("2026-01-01T12:00:00Z"));
    assert_eq!(after(json!([setup, at("proxy", "09:30:00")])).as_deref(), Some("2026-01-01T10:00:00Z"));
    assert_eq!(after(json!([setup, running("proxy")])), None, "it works on");
    assert_eq!(after(json!([setup])), None, "it may work on");
    assert_eq!(stopped(&json!([running("main")]), &json!([setup, at("proxy", "12:00:00")])), None);
    let init = json!([running("setup"), at("proxy", "12:00:00")]);
    assert_eq!(after(init).as_deref(), Some("2026-01-01T12:00:00Z"), "only sidecars go on beside containers");
}

/// The processors that a run is given, and how many it asks for unless its node shows all.
fn run(spec: &Value, status: &Value) -> (i64, Option<i64>) {
    let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
    let RunRequests { given, asked } = pod.split_run().1;
    let cpu = |of: &BTreeMap<String, i64>| of.get("cpu").copied().unwrap_or_default();
    (cpu(&given), asked.as_ref().map(cpu))
}

fn named(name: &str, cpu: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
}

#[test]
fn a_run_has_what_its_node_shows_and_not_what_it_asks_for() {
    let spec = json!({"containers": [named("main", "1000000"), named("other", "1")]});
    let of = |statuses: Value| run(&spec, &json!({"containerStatuses": statuses}));
    let main = json!({
        "name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"},
    });
    assert_eq!(of(json!([main, named("other", "1")])), (4_000, None));
    assert_eq!(of(json!([main, {"name": "other", "resources": {}}])), (3_000, None), "it got nothing");
    assert_eq!(of(json!([main, {"name": "other"}])), (3_000, Some(4_000)), "it waits");
    assert_eq!(of(json!(null)), (0, Some(1_000_001_000)));
}

#[test]
fn each_of_many_statuses_is_read_once() {
    // with a search for each of them, this takes a minute
    let names = (0..40_000).map(|number| number.to_string());
    let containers: Vec<Value> = names.map(|name| named(&name, "1")).collect();
    let spec = json!({"containers": containers});
    assert_eq!(run(&spec, &json!({"containerStatuses": containers})), (40_000_000, None));
}

#[test]
fn a_run_has_what_no_resize_can_change() {
    let requests = json!({"requests": {"nvidia.com/gpu": 8, "cpu": "1"}});
    let spec =
        json!({"containers": [{"name": "main", "resources": requests}], "initContainers": [named("i", "2")]});
    let of = |status: Value| {
        let pod: PodWithRoom = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
        pod.split_run().1
    };
    let all: BTreeMap<String, i64> = [("nvidia.com/gpu".to_owned(), 8), ("cpu".to_owned(), 2_000)].into();
    assert_eq!(of(json!({})), RunRequests { given: all.clone(), asked: Some(all.clone()) });
    let shown = json!({"containerStatuses": [named("main", "1")]});
    assert_eq!(of(shown), RunRequests { given: all, asked: None });
}

#[test]
fn a_run_has_what_its_node_gives_the_pod_as_a_whole() {
    let spec = json!({"containers": [named("main", "1")], "resources": {"requests": {"cpu": "9"}}});
    let containers = json!([named("main", "1")]);
    assert_eq!(run(&spec, &json!({"containerStatuses": containers})), (1_000, Some(9_000)));
    let status = json!({"containerStatuses": containers, "resources": {"requests": {"cpu": "4"}}});
    assert_eq!(run(&spec, &status), (4_000, None));
}

#[test]
fn a_pod_claims_devices_by_the_claim_that_was_made_for_it_or_that_it_names() {
    let pod = json!({
        "metadata": {"name": "a"},
        "spec": {"resourceClaims": [
            {"name": "own", "resourceClaimTemplateName": "one-gpu"},
            {"name": "shared", "resourceClaimName": "team"},
            {"name": "later", "resourceClaimTemplateName": "one-nic"},
            {"name": "of-nothing"},
        ]},
        "status": {
            "resourceClaimStatuses": [{"name": "own", "resourceClaimName": "a-own-x7c2p"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "a-extended-resources-k9d4z", "requestMappings": []},
        },
    });
    let pod = serde_json::from_value::<PodWithRoom>(pod).unwrap();
    assert_eq!(pod.claim_of_requests(), Some("a-extended-resources-k9d4z"));
    let claims = pod.claims();
    let text = |of: &str| Some(of.to_owned());
    let expected = [
        ClaimReference { claim: text("a-own-x7c2p"), template: text("one-gpu") },
        ClaimReference { claim: text("team"), template: None },
        ClaimReference { claim: None, template: text("one-nic") },
        ClaimReference::default(),
    ];
    assert_eq!(claims, expected);
}
