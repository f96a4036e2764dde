//! The values that turn on the guard and the scheduler extender, which are off by default.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_policy::{config::Config, guard::UnknownPreemptor};

use crate::{
    CHART, NOWHERE, PEM, arguments, find, helm, kinds, parse, render,
    rights::{WATCHED, granted_to, rights, triples},
    shared, template,
    values::{assert_refused, config},
};

const CONFIGURATION: &str = "ValidatingWebhookConfiguration";

fn guarding(values: &Value) -> Value {
    let mut guard = json!({"enabled": true});
    guard.as_object_mut().unwrap().append(&mut values.as_object().unwrap().clone());
    json!({"guard": guard})
}

/// The webhooks of the guard, by these values of it: for deletions, and for evictions.
async fn webhooks(values: &Value) -> [Value; 2] {
    let objects = render("test", &guarding(values)).await;
    let webhooks =
        find(&objects, CONFIGURATION, "test-tenure-webhook-guard").get("webhooks").unwrap().clone();
    serde_json::from_value(webhooks).unwrap()
}

#[tokio::test]
async fn nothing_of_guard_and_extender_is_there_when_they_are_off() {
    let objects = render("test", &json!({})).await;
    assert_eq!(kinds(&objects).get(CONFIGURATION), Some(&2));
    let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
    for flag in ["--guard", "--eviction-responder", "--scheduler-extender", "--wake-up"] {
        assert!(!arguments.iter().any(|argument| argument.starts_with(flag)), "{arguments:?}");
    }
    assert_eq!(config(&json!({})).await.get("guard"), None);
}

#[tokio::test]
async fn guard_is_asked_about_deletions_of_pods_and_about_evictions_alone() {
    let [deletions, evictions] = webhooks(&json!({})).await;
    let rule = |operation: &str, resource: &str| {
        json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": [operation],
            "scope": "Namespaced",
        }])
    };
    assert_eq!(deletions["rules"], rule("DELETE", "pods"));
    assert_eq!(evictions["rules"], rule("CREATE", "pods/eviction"));
    for webhook in [deletions, evictions] {
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["timeoutSeconds"], 2);
        assert_eq!(webhook["sideEffects"], "None");
        let exempt = json!([{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "tenure-system"],
        }]);
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"], exempt);
    }
    for webhook in webhooks(&json!({"failurePolicy": "Fail", "timeoutSeconds": 7})).await {
        assert_eq!((&webhook["failurePolicy"], &webhook["timeoutSeconds"]), (&json!("Fail"), &json!(7)));
    }
}

#[tokio::test]
async fn webhook_outside_of_the_cluster_is_asked_under_its_url() {
    let mut values = guarding(&json!({}));
    values["webhook"] = json!({"url": NOWHERE});
    let objects = render("test", &values).await;
    let guard = find(&objects, CONFIGURATION, "test-tenure-webhook-guard");
    assert_eq!(guard["webhooks"][0]["clientConfig"]["url"], format!("{NOWHERE}/guard"));
}

#[tokio::test]
async fn release_and_its_namespace_are_never_guarded() {
    for (values, namespaces) in [
        (json!({"exemptNamespaces": []}), json!(["tenure-system"])),
        (json!({"exemptNamespaces": ["123", "tenure-system"]}), json!(["123", "tenure-system"])),
    ] {
        for webhook in webhooks(&values).await {
            assert_eq!(webhook["namespaceSelector"]["matchExpressions"][0]["values"], namespaces);
        }
        assert_eq!(config(&guarding(&values)).await["guard"]["exemptNamespaces"], namespaces);
    }
    let mut elsewhere = guarding(&json!({"exemptNamespaces": []}));
    elsewhere["namespaceOverride"] = json!("elsewhere");
    assert_eq!(config(&elsewhere).await["guard"]["exemptNamespaces"], json!(["elsewhere"]));
}

#[tokio::test]
async fn values_of_the_guard_become_configuration_and_a_flag() {
    let section = json!({
        "schedulers": [
            "system:kube-scheduler",
            {"name": "system:serviceaccount:batch:scheduler", "unknownPreemptor": "weaker"},
        ],
        "exemptUsers": ["O'Hara \"x\" \\ <&>"],
        "exemptGroups": ["on-call"],
        "exemptNamespaces": ["batch", "tenure-system"],
    });
    let values = guarding(&section);
    assert_eq!(config(&values).await["guard"], section);
    let objects = render("test", &values).await;
    let by_scheduler = "username in [\"system:kube-scheduler\",\"system:serviceaccount:batch:scheduler\"]";
    let conditions = &webhooks(&section).await[0]["matchConditions"];
    assert_eq!(conditions[0]["expression"], format!("request.userInfo.{by_scheduler}"));
    let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
    assert!(arguments.contains(&"--guard".into()), "{arguments:?}");
    assert!(!arguments.iter().any(|argument| argument.starts_with("--scheduler-extender")), "{arguments:?}");
}

#[tokio::test]
async fn preset_for_kai_has_its_scheduler_judged_by_the_weaker_floor_and_its_queues_read() {
    let preset = format!("{CHART}/values-kai.yaml");
    let output = template("test", &json!({}), &["--values", &preset]).await;
    let objects = parse(&output.success().unwrap());
    let config = find(&objects, "ConfigMap", "test-tenure-config").pointer("/data/tenure.yaml").unwrap();
    let guarded = Config::parse(config.as_str().unwrap()).unwrap().guarded;
    let of = |user| guarded.unknown_preemptor(user);
    assert_eq!(of("system:serviceaccount:kai-scheduler:scheduler"), UnknownPreemptor::Weaker);
    assert_eq!(of("system:kube-scheduler"), UnknownPreemptor::Stricter);
    let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
    for flag in ["--guard", "--runai-queue-version=v2"] {
        assert!(arguments.contains(&flag.into()), "{flag} in {arguments:?}");
    }
}

#[tokio::test]
async fn values_of_the_extender_become_flags() {
    let ca = "--scheduler-client-ca-file=/config/scheduler-client-ca.crt";
    let of_secret = "--scheduler-client-ca-file=/client-ca/scheduler/ca.crt";
    for (values, flags) in [
        (json!({"enabled": true, "clientCA": PEM}), &["--scheduler-extender", ca][..]),
        (json!({"enabled": true, "clientCASecret": "mine"}), &["--scheduler-extender", of_secret]),
        (
            json!({"enabled": true, "allowAnonymous": true}),
            &["--scheduler-extender", "--scheduler-allow-anonymous"],
        ),
        (
            json!({"enabled": true, "clientCA": PEM, "wakeUp": false}),
            &["--scheduler-extender", ca, "--wake-up=false"],
        ),
        (json!({"enabled": false, "wakeUp": false, "allowAnonymous": true}), &[]),
    ] {
        let objects = render("test", &json!({"schedulerExtender": values})).await;
        let arguments = arguments(find(&objects, "Deployment", "test-tenure-webhook"));
        let ours = ["--scheduler-", "--wake-up"];
        let passed = arguments.iter().filter(|argument| ours.iter().any(|flag| argument.starts_with(flag)));
        assert_eq!(passed.collect::<Vec<_>>(), flags, "{values}");
    }
}

#[tokio::test]
async fn a_scheduler_of_the_guard_is_one_account_and_named_once() {
    assert_refused(&[
        (
            guarding(&json!({"schedulers": ["a", {"name": "system:serviceaccount:kai-scheduler"}]})),
            "guard.schedulers[1]: \"system:serviceaccount:kai-scheduler\" is no service account: give each scheduler",
        ),
        (
            guarding(&json!({"schedulers": ["a", {"name": "a", "unknownPreemptor": "weaker"}]})),
            "guard.schedulers[1]: \"a\" is in the list already",
        ),
    ])
    .await;
}

#[tokio::test]
async fn value_of_the_guard_that_cannot_be_meant_is_refused_by_its_name() {
    let guard = |values: Value| json!({"guard": values});
    assert_refused(&[
        (guard(json!({"enable": true})), "'/guard': additional properties 'enable' not allowed"),
        (guard(json!({"enabled": "true"})), "'/guard/enabled': got string, want boolean"),
        (
            guard(json!({"schedulers": "system:kube-scheduler"})),
            "'/guard/schedulers': got string, want array",
        ),
        (guard(json!({"schedulers": [""]})), "'/guard/schedulers/0'"),
        (guard(json!({"schedulers": ["a,b"]})), "'/guard/schedulers/0'"),
        (guard(json!({"schedulers": [{"name": "a b"}]})), "'/guard/schedulers/0/name'"),
        (guard(json!({"schedulers": [{}]})), "'/guard/schedulers/0': missing property 'name'"),
        (
            guard(json!({"schedulers": [{"name": "a", "unknownPreemptor": "none"}]})),
            "'/guard/schedulers/0/unknownPreemptor': value must be one of 'stricter', 'weaker'",
        ),
        (guard(json!({"exemptUsers": ["a", "a"]})), "'/guard/exemptUsers': items at 0 and 1 are equal"),
        (guard(json!({"exemptGroups": [" a"]})), "'/guard/exemptGroups/0'"),
        (guard(json!({"exemptGroups": ["a\nb"]})), "'/guard/exemptGroups/0'"),
        (guard(json!({"exemptNamespaces": ["Kube"]})), "'/guard/exemptNamespaces/0'"),
        (guard(json!({"failurePolicy": "Allow"})), "'/guard/failurePolicy': value must be one of"),
        (guard(json!({"timeoutSeconds": 0})), "'/guard/timeoutSeconds': minimum: got 0"),
        (guard(json!({"timeoutSeconds": 31})), "'/guard/timeoutSeconds': maximum"),
    ])
    .await;
}

#[tokio::test]
async fn webhook_may_read_what_floors_depend_on_where_it_needs_to_and_wake_pods_where_it_does() {
    let pod_groups = [
        "scheduler.tensorstack.dev",
        "scheduling.k8s.io",
        "scheduling.run.ai",
        "scheduling.volcano.sh",
        "scheduling.x-k8s.io",
    ];
    let placement = [
        triples("webhook", &pod_groups, &["podgroups"], WATCHED),
        triples("webhook", &[""], &["nodes", "pods"], WATCHED),
        triples("webhook", &["policy"], &["poddisruptionbudgets"], WATCHED),
        triples("webhook", &["scheduling.k8s.io"], &["priorityclasses"], WATCHED),
        triples("webhook", &["storage.k8s.io"], &["csinodes"], WATCHED),
    ]
    .concat();
    let namespaces = triples("webhook", &[""], &["namespaces"], WATCHED);
    let wakes = ["webhook get pods.", "webhook patch pods/status."].map(str::to_owned).to_vec();
    for (guard, extender, wake_up, more) in [
        (true, false, true, [&placement[..], &namespaces].concat()),
        (false, true, false, placement.clone()),
        (false, true, true, [&placement[..], &wakes].concat()),
        (true, true, true, [&placement[..], &namespaces, &wakes].concat()),
    ] {
        let values = json!({
            "guard": {"enabled": guard},
            "schedulerExtender": {"enabled": extender, "clientCA": PEM, "wakeUp": wake_up},
        });
        let expected: BTreeSet<_> =
            rights().into_iter().filter(|right| right.starts_with("webhook")).chain(more).collect();
        assert_eq!(granted_to("webhook", &render("test", &values).await), expected, "{values}");
    }
}

#[tokio::test]
async fn webhook_responds_to_evictions_where_the_guard_is_on_and_may_write_nothing_else_of_them() {
    let rendered = async |guard: Value| render("test", &json!({"guard": guard})).await;
    let rights_of = |objects: &[Value]| granted_to("webhook", objects);
    let alone = rights_of(&rendered(json!({"enabled": true})).await);
    let objects = rendered(json!({"enabled": true, "evictionResponder": true})).await;
    let more = ["webhook list evictions.lifecycle.k8s.io", "webhook patch evictions/status.lifecycle.k8s.io"];
    let expected: BTreeSet<_> = alone.into_iter().chain(more.map(str::to_owned)).collect();
    assert_eq!(rights_of(&objects), expected);
    let flag = "--eviction-responder".to_owned();
    assert!(arguments(find(&objects, "Deployment", "test-tenure-webhook")).contains(&flag));
    let without_guard = rendered(json!({"enabled": false, "evictionResponder": true})).await;
    assert!(!arguments(find(&without_guard, "Deployment", "test-tenure-webhook")).contains(&flag));
}

#[tokio::test]
async fn notes_say_what_is_to_be_done_next() {
    let notes = async |values: Value| {
        let output = helm(shared().await, "install", "test", &values, &["--dry-run=client"]).await;
        output.success().unwrap().split_once("NOTES:").expect("there are notes").1.to_owned()
    };
    let off = notes(json!({})).await;
    assert!(!off.contains("schedulerExtender") && !off.contains("guard"), "{off}");

    let on = json!({"enabled": true});
    let extends = json!({"enabled": true, "clientCA": PEM});
    let both = notes(json!({"guard": on, "schedulerExtender": extends})).await;
    for expected in [
        "a client certificate of schedulerExtender.clientCA.\n",
        "docs/kube-scheduler.md",
        "     https://test-tenure-webhook.tenure-system.svc:443/scheduler\n",
        "     kubectl -n tenure-system get configmap test-tenure-webhook-ca -o jsonpath='{.data.ca\\.crt}'",
        "nor deleted by\nsystem:kube-scheduler. kubectl drain waits",
        "     kubectl -n NAMESPACE annotate pod POD tenure.dev/unguarded=true",
    ] {
        assert!(both.contains(expected), "{expected:?} should be in: {both}");
    }

    let existing = json!({"mode": "existingSecret", "existingSecret": {"name": "mine", "caBundle": "-----BEGIN CERTIFICATE-----"}});
    let elsewhere = notes(json!({
        "guard": {"enabled": true, "schedulers": []},
        "schedulerExtender": {"enabled": true, "clientCA": PEM, "wakeUp": false},
        "webhook": {"url": "https://10.0.0.7:9443/", "certificate": existing},
    }))
    .await;
    for expected in [
        "     https://10.0.0.7:9443/scheduler\n     webhook.certificate.existingSecret.caBundle",
        "--config tenure.yaml --scheduler-extender --wake-up=false --guard --answer-owners --scheduler-client-ca-file scheduler-client-ca.crt\n",
        "-o jsonpath='{.data.scheduler-client-ca\\.crt}' > scheduler-client-ca.crt\n",
        "no pod is evicted. kubectl drain waits",
    ] {
        assert!(elsewhere.contains(expected), "{expected:?} should be in: {elsewhere}");
    }
}
