//! Values that are the same for both programs: images, accounts, ports, and what is added to pods.

use serde_json::{Value, json};

use crate::{
    accepted, arguments, find, name_of, render,
    values::{assert_refused, config},
};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const COMPONENTS: [&str; 2] = ["webhook", "keeper"];

fn pod(objects: &[Value], component: &str) -> Value {
    let deployment = find(objects, "Deployment", &format!("test-tenure-{component}"));
    deployment.pointer("/spec/template/spec").unwrap().clone()
}

/// The same values of both programs.
fn of_both(values: &Value) -> Value {
    json!({"webhook": values, "keeper": values})
}

#[tokio::test]
async fn an_image_is_named_for_both_programs_or_for_each() {
    let image = async |values: Value| {
        let objects = render("test", &values).await;
        COMPONENTS
            .map(|component| pod(&objects, component)["containers"][0]["image"].as_str().unwrap().to_owned())
    };
    let both = json!({"registry": "example.com/gpu", "tag": "v1"});
    let expected = ["webhook", "keeper"].map(|name| format!("example.com/gpu/tenure-{name}:v1"));
    assert_eq!(image(json!({"image": both})).await, expected);
    let own = |image: Value| json!({"image": both, "webhook": {"image": image}});
    for (values, webhook) in [
        (json!({"tag": "v2"}), "example.com/gpu/tenure-webhook:v2".to_owned()),
        (json!({"repository": "other.example.com/hook"}), "other.example.com/hook:v1".to_owned()),
        (json!({"tag": "v2", "digest": DIGEST}), format!("example.com/gpu/tenure-webhook@{DIGEST}")),
    ] {
        assert_eq!(image(own(values)).await, [webhook.as_str(), &expected[1]]);
    }
    assert_refused(&[
        (own(json!({"digest": "sha256:0"})), "'/webhook/image/digest'"),
        (own(json!({"repository": "a b"})), "'/webhook/image/repository'"),
    ])
    .await;
}

#[tokio::test]
async fn pods_have_what_the_values_add() {
    let volume = json!({"name": "scratch", "emptyDir": {}});
    let mount = json!({"name": "scratch", "mountPath": "/scratch"});
    let variable = json!({"name": "HTTPS_PROXY", "value": "http://proxy:3128"});
    let spread = json!([{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
    let added = json!({
        "extraEnv": [variable], "extraVolumes": [volume], "extraVolumeMounts": [mount],
        "livenessProbe": {"periodSeconds": 7}, "readinessProbe": {"periodSeconds": 3, "failureThreshold": 9},
        "topologySpreadConstraints": spread, "adminPort": 10080,
    });
    let mut values = of_both(&added);
    values["webhook"]["port"] = json!(10443);
    let objects = accepted(&values).await;
    for component in COMPONENTS {
        let pod = pod(&objects, component);
        let constraint = &pod["topologySpreadConstraints"][0];
        assert_eq!((&constraint["maxSkew"], &constraint["topologyKey"]), (&json!(2), &json!("rack")));
        let of_pods = &constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/component"];
        assert_eq!(of_pods, component);
        let has = |list: &Value, item: &Value| list.as_array().unwrap().contains(item);
        let container = &pod["containers"][0];
        assert!(has(&pod["volumes"], &volume) && has(&container["volumeMounts"], &mount), "{pod:#}");
        assert!(has(&container["env"], &variable), "{container:#}");
        let live = json!({"httpGet": {"path": "/livez", "port": "admin"}, "periodSeconds": 7});
        assert_eq!(container["livenessProbe"], live);
        let ready = json!({"httpGet": {"path": "/readyz", "port": "admin"}, "periodSeconds": 3, "failureThreshold": 9});
        assert_eq!(container["readinessProbe"], ready);
        assert!(has(&container["ports"], &json!({"name": "admin", "containerPort": 10080})), "{container:#}");
        let arguments = arguments(find(&objects, "Deployment", &format!("test-tenure-{component}")));
        assert!(arguments.contains(&"--admin-listen=:10080".to_owned()), "{arguments:?}");
        let listens = arguments.contains(&"--listen=:10443".to_owned());
        assert_eq!(listens, component == "webhook", "{arguments:?}");
    }
    let mut on_nodes = of_both(&json!({"hostNetwork": true}));
    on_nodes["keeper"]["adminPort"] = json!(8082);
    let on_nodes = render("test", &on_nodes).await;
    for component in COMPONENTS {
        let pod = pod(&on_nodes, component);
        assert_eq!(
            (&pod["hostNetwork"], &pod["dnsPolicy"]),
            (&json!(true), &json!("ClusterFirstWithHostNet"))
        );
        let deployment = find(&on_nodes, "Deployment", &format!("test-tenure-{component}"));
        let update = deployment.pointer("/spec/strategy/rollingUpdate");
        assert_eq!(update, Some(&json!({"maxUnavailable": 1, "maxSurge": 0})), "the old pod has the ports");
    }
    // the keeper's own variable is there as well
    assert_eq!(pod(&objects, "keeper")["containers"][0]["env"].as_array().unwrap().len(), 2);
    assert_refused(&[
        (json!({"webhook": {"port": 443}}), "'/webhook/port': minimum"),
        (json!({"webhook": {"port": 8080}}), "webhook.port and webhook.adminPort must differ: both are 8080"),
        (
            of_both(&json!({"hostNetwork": true})),
            "webhook.adminPort and keeper.adminPort must differ with hostNetwork",
        ),
        (of_both(&json!({"extraEnv": [{}]})), "'/webhook/extraEnv/0': missing property 'name'"),
    ])
    .await;
}

#[tokio::test]
async fn a_service_account_may_have_another_name_and_may_be_there_already() {
    let annotations = json!({"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"});
    let account = |create: bool| {
        of_both(&json!({"serviceAccount": {"create": create, "name": "own", "annotations": annotations}}))
    };
    for (create, count) in [(true, 2), (false, 0)] {
        let objects = render("test", &account(create)).await;
        let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount").collect::<Vec<_>>();
        assert_eq!(accounts.len(), count);
        assert!(accounts.iter().all(|account| account["metadata"]["annotations"] == annotations));
        for component in COMPONENTS {
            assert_eq!(pod(&objects, component)["serviceAccountName"], "own");
        }
        for object in &objects {
            for subject in object["subjects"].as_array().into_iter().flatten() {
                assert_eq!(subject["name"], "own", "{}", name_of(object));
            }
        }
    }
    let writers = &config(&account(true)).await["trustedWriters"];
    assert!(
        writers.as_array().unwrap().contains(&json!("system:serviceaccount:tenure-system:own")),
        "{writers}"
    );
}

#[tokio::test]
async fn common_labels_are_on_all_objects_and_pods_and_in_no_selector() {
    let objects = render("test", &json!({"commonLabels": {"team": "gpu"}})).await;
    for object in objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition") {
        assert_eq!(object["metadata"]["labels"]["team"], "gpu", "{} {}", object["kind"], name_of(object));
    }
    for component in COMPONENTS {
        let deployment = find(&objects, "Deployment", &format!("test-tenure-{component}"));
        assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["team"], "gpu");
        assert_eq!(deployment["spec"]["selector"]["matchLabels"].get("team"), None);
    }
    for key in ["app.kubernetes.io/name", "helm.sh/chart"] {
        let words = format!("commonLabels.{key}: Invalid value: \"{key}\": must not begin with ");
        assert_refused(&[(json!({"commonLabels": {key: "a"}}), words.as_str())]).await;
    }
}

#[tokio::test]
async fn deployments_have_the_labels_and_annotations_of_the_values() {
    let more = json!({"labels": {"team": "gpu"}, "annotations": {"example.com/a": "b"}});
    let objects = render("test", &json!({"webhook": more, "keeper": more})).await;
    for component in ["webhook", "keeper"] {
        let deployment = find(&objects, "Deployment", &format!("test-tenure-{component}"));
        assert_eq!(deployment["metadata"]["labels"]["team"], "gpu", "{}", name_of(deployment));
        assert_eq!(deployment["metadata"]["annotations"], more["annotations"]);
        assert_eq!(deployment["spec"]["template"]["metadata"]["labels"].get("team"), None);
    }
}

#[tokio::test]
async fn the_keeper_may_be_off_by_either_value() {
    for values in
        [json!({"keeper": {"enabled": false}}), json!({"options": {"durationKeeper": {"enabled": false}}})]
    {
        let objects = render("test", &values).await;
        let of_keeper = objects.iter().filter(|object| name_of(object).contains("keeper")).count();
        assert_eq!(of_keeper, 0, "{values}");
    }
}

#[tokio::test]
async fn times_of_the_election_by_which_no_keeper_would_start_are_refused() {
    let times = |times: Value| json!({"keeper": {"leaderElection": times}});
    let table = [
        (
            times(json!({"leaseDuration": "5s"})),
            "keeper.leaderElection.leaseDuration must be longer than renewDeadline: 5s isn't longer than 10s",
        ),
        (
            times(json!({"leaseDuration": "1m", "renewDeadline": "1500ms"})),
            "keeper.leaderElection.renewDeadline must be longer than retryPeriod: 1500ms isn't longer than 2s",
        ),
        (times(json!({"leaseDuration": "10s"})), "10s isn't longer than 10s"),
        (times(json!({"retryPeriod": "0s"})), "keeper.leaderElection.retryPeriod must be longer than zero"),
    ];
    assert_refused(&table).await;
    let unused = json!({"keeper": {"dryRun": true, "leaderElection": {"leaseDuration": "5s"}}});
    assert!(!render("test", &unused).await.is_empty(), "a dry run elects no leader");
}
