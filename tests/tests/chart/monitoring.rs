//! What the chart has for Prometheus and Grafana.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{CHART, accepted, find, kinds, render, template, values::assert_refused};

/// The kinds of the Prometheus Operator, as far as the chart sets their fields.
pub fn operators_kinds() -> Vec<Value> {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let selector = json!({"type": "object", "properties": {
        "matchLabels": texts,
        "matchExpressions": {"type": "array", "items": {"type": "object", "properties": {
            "key": text, "operator": text, "values": {"type": "array", "items": text},
        }}},
    }});
    let duration = json!({"type": "string", "pattern": "^([0-9]+(d|h|m|s|ms))+$"});
    let relabelings = json!({"type": "array", "items": {"type": "object", "properties": {
        "action": text, "regex": text, "targetLabel": text, "sourceLabels": {"type": "array", "items": text},
    }}});
    let endpoints = json!({"type": "array", "items": {"type": "object", "properties": {
        "port": text, "path": text, "interval": duration, "scrapeTimeout": duration, "scheme": text,
        "bearerTokenFile": text, "authorization": {"type": "object", "properties": {"credentials": texts}},
        "tlsConfig": {"type": "object", "properties": {"insecureSkipVerify": {"type": "boolean"}}},
        "relabelings": relabelings, "metricRelabelings": relabelings,
    }}});
    let rule = json!({"type": "object", "required": ["expr"], "properties": {
        "alert": text, "expr": text, "for": duration, "labels": texts, "annotations": texts,
    }});
    let group = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1}, "rules": {"type": "array", "items": rule},
    }});
    let monitor = |field: &str| {
        json!({"type": "object", "required": ["selector", field], "properties": {
            "selector": selector, field: endpoints,
        }})
    };
    let rules = json!({"type": "object", "properties": {"groups": {"type": "array", "items": group}}});
    vec![
        kind("PodMonitor", &monitor("podMetricsEndpoints")),
        kind("ServiceMonitor", &monitor("endpoints")),
        kind("PrometheusRule", &rules),
    ]
}

fn kind(kind: &str, spec: &Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

/// Everything on, and each value set.
fn all_of(kind: &str) -> Value {
    let labels = json!({"release": "prometheus"});
    let relabelings = json!([{"targetLabel": "cluster", "action": "replace"}]);
    json!({"monitoring": {
        "service": {"enabled": true, "annotations": {"prometheus.io/scrape": "true"}},
        "monitor": {
            "enabled": true, "kind": kind, "labels": labels, "interval": "1m", "scrapeTimeout": "10s",
            "relabelings": relabelings, "metricRelabelings": relabelings,
        },
        "rules": {
            "enabled": true, "labels": labels, "alertLabels": {"team": "gpu"},
            "disabled": ["TenureWorkloadsDeactivated"], "runbookBaseURL": "https://example.com/runbooks/",
        },
        "dashboard": {"enabled": true, "annotations": {"grafana_folder": "Batch"}},
    }})
}

const KINDS: [&str; 2] = ["PodMonitor", "ServiceMonitor"];

#[tokio::test]
async fn nothing_for_prometheus_is_there_by_default() {
    let objects = render("test", &json!({})).await;
    let found = kinds(&objects);
    for kind in ["PodMonitor", "ServiceMonitor", "PrometheusRule"] {
        assert_eq!(found.get(kind), None);
    }
    assert_eq!((found["Service"], found["ConfigMap"]), (1, 2));
}

#[tokio::test]
async fn each_part_is_accepted_by_the_api_server() {
    for kind in KINDS {
        let objects = accepted(&all_of(kind)).await;
        let found = kinds(&objects);
        assert_eq!((found[kind], found["PrometheusRule"]), (1, 1));
        assert_eq!((found["Service"], found["ConfigMap"]), (2, 3));
    }
}

#[tokio::test]
async fn monitor_and_service_select_the_pods_of_both_programs_and_no_others() {
    for kind in KINDS {
        let objects = render("test", &all_of(kind)).await;
        let monitor = find(&objects, kind, "test-tenure");
        assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
        let selects = |object: &Value, labels: &Value| {
            let selector = &object["spec"]["selector"];
            let by_labels = selector.get("matchLabels").unwrap_or(selector).as_object().unwrap();
            let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
            let by_expressions = expressions.map(|expression| {
                expression["values"]
                    .as_array()
                    .unwrap()
                    .contains(&labels[expression["key"].as_str().unwrap()])
            });
            by_labels.iter().all(|(key, value)| &labels[key] == value)
                && by_expressions.into_iter().all(|is| is)
        };
        let labels = |object: &Value| object["metadata"]["labels"].clone();
        let pods = ["webhook", "keeper"].map(|component| {
            let deployment = find(&objects, "Deployment", &format!("test-tenure-{component}"));
            deployment["spec"]["template"].clone()
        });
        let service = find(&objects, "Service", "test-tenure-metrics");
        assert!(pods.iter().all(|pod| selects(service, &labels(pod))));
        assert_eq!(service["spec"]["clusterIP"], "None");
        assert_eq!(service["metadata"]["annotations"]["prometheus.io/scrape"], "true");
        let of_webhook = find(&objects, "Service", "test-tenure-webhook");
        let (scraped, endpoints) = if kind == "PodMonitor" {
            (pods.iter().collect(), "podMetricsEndpoints")
        } else {
            (vec![service], "endpoints")
        };
        assert!(scraped.iter().all(|object| selects(monitor, &labels(object))));
        assert!(!selects(monitor, &labels(of_webhook)) || kind == "PodMonitor", "it has no metrics");
        let endpoint = &monitor["spec"][endpoints][0];
        assert_eq!((&endpoint["port"], &endpoint["interval"]), (&json!("admin"), &json!("1m")));
        for pod in &pods {
            let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
            assert!(ports.iter().any(|port| port["name"] == endpoint["port"]), "{ports:?}");
        }
    }
}

#[tokio::test]
async fn a_service_monitor_brings_its_service_and_a_pod_monitor_does_not() {
    for (kind, services) in [("PodMonitor", 1), ("ServiceMonitor", 2)] {
        let objects =
            render("test", &json!({"monitoring": {"monitor": {"enabled": true, "kind": kind}}})).await;
        assert_eq!(kinds(&objects)["Service"], services, "{kind}");
    }
}

#[tokio::test]
async fn with_a_certificate_probes_and_monitor_use_https_and_both_programs_may_ask_who_reads_the_metrics() {
    let tls = |monitor: Value| json!({"monitoring": {"tls": {"secretName": "admin"}, "monitor": monitor}});
    let of_service = tls(json!({"enabled": true, "kind": "ServiceMonitor"}));
    let objects = accepted(&of_service).await;
    for component in ["keeper", "webhook"] {
        let name = format!("test-tenure-{component}");
        let pod = &find(&objects, "Deployment", &name)["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for probe in ["livenessProbe", "readinessProbe"] {
            assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS", "{component}");
        }
        let has = |field: &Value, item: Value| field.as_array().unwrap().contains(&item);
        for (flag, file) in [("cert", "crt"), ("key", "key")] {
            let flag = json!(format!("--admin-tls-{flag}-file=/admin-certs/tls.{file}"));
            assert!(has(&container["args"], flag), "{component}");
        }
        let mount = json!({"name": "admin-certs", "mountPath": "/admin-certs", "readOnly": true});
        assert!(has(&container["volumeMounts"], mount), "{component}");
        let rules = &find(&objects, "ClusterRole", &name)["rules"];
        for (group, resource) in
            [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
        {
            let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": ["create"]});
            assert!(has(rules, rule), "{component}: {resource}");
        }
    }
    let endpoint = &find(&objects, "ServiceMonitor", "test-tenure")["spec"]["endpoints"][0];
    assert_eq!(
        (&endpoint["scheme"], &endpoint["tlsConfig"]),
        (&json!("https"), &json!({"insecureSkipVerify": true}))
    );
    assert!(endpoint["bearerTokenFile"].is_string(), "{endpoint}");
    assert_eq!(
        find(&objects, "ClusterRole", "test-tenure-metrics-reader")["rules"],
        json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    );

    let of_pods = tls(json!({"enabled": true, "kind": "PodMonitor"}));
    let refused = template("test", &of_pods, &[]).await;
    assert!(refused.stderr.contains("monitoring.monitor.authorization must name"), "{}", refused.stderr);
    let credentials = json!({"credentials": {"name": "token", "key": "token"}});
    let given = json!({"enabled": true, "authorization": credentials, "tlsConfig": {"serverName": "a"}});
    let objects = render("test", &tls(given)).await;
    let endpoint = &find(&objects, "PodMonitor", "test-tenure")["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["authorization"]["credentials"]["name"], "token");
    assert_eq!(
        (&endpoint["tlsConfig"], endpoint.get("bearerTokenFile")),
        (&json!({"serverName": "a"}), None)
    );
}

fn alerts(objects: &[Value]) -> Vec<Value> {
    let groups = find(objects, "PrometheusRule", "test-tenure").pointer("/spec/groups").unwrap();
    let rules =
        groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules.collect()
}

#[tokio::test]
async fn alerts_are_those_of_the_file_with_the_labels_and_the_runbooks_of_the_values() {
    let file = std::fs::read_to_string(format!("{CHART}/files/monitoring/alerts.yaml")).unwrap();
    let file: Value = serde_saphyr::from_str(&file).unwrap();
    let plain = render("test", &json!({"monitoring": {"rules": {"enabled": true}}})).await;
    assert_eq!(find(&plain, "PrometheusRule", "test-tenure")["spec"], file);
    let all = alerts(&plain);
    let changed = alerts(&render("test", &all_of("PodMonitor")).await);
    let names = |alerts: &[Value]| alerts.iter().map(|alert| alert["alert"].clone()).collect::<Vec<_>>();
    let mut left: Vec<Value> = names(&all);
    left.retain(|name| name != "TenureWorkloadsDeactivated");
    assert_eq!(names(&changed), left);
    for alert in &changed {
        assert_eq!(alert["labels"]["team"], "gpu");
        assert!(alert["labels"]["severity"].is_string());
        let runbook = format!("https://example.com/runbooks/{}.md", alert["alert"].as_str().unwrap());
        assert_eq!(alert["annotations"]["runbook_url"], runbook);
    }
    let severity = json!({"monitoring": {"rules": {"enabled": true, "alertLabels": {"severity": "page"}}}});
    assert!(
        alerts(&render("test", &severity).await).iter().all(|alert| alert["labels"]["severity"] == "page")
    );
}

#[tokio::test]
async fn without_a_keeper_there_are_no_alerts_about_keepers() {
    let values = json!({"keeper": {"enabled": false}, "monitoring": {"rules": {"enabled": true}}});
    let objects = render("test", &values).await;
    let groups =
        find(&objects, "PrometheusRule", "test-tenure")["spec"]["groups"].as_array().unwrap().clone();
    let names: Vec<&Value> = groups.iter().map(|group| &group["name"]).collect();
    assert_eq!(names, ["tenure-webhook", "tenure-servers"]);
}

#[tokio::test]
async fn the_dashboard_is_that_of_the_file_where_the_sidecar_finds_it() {
    let file = std::fs::read_to_string(format!("{CHART}/files/monitoring/dashboard.json")).unwrap();
    let objects = render(
        "test",
        &json!({"monitoring": {"dashboard": {"enabled": true, "namespace": "grafana", "labels": {"a": "b"}}}}),
    )
    .await;
    let map = find(&objects, "ConfigMap", "test-tenure-dashboard");
    let (dashboard, expected): (Value, Value) = (
        serde_json::from_str(map["data"]["tenure.json"].as_str().unwrap()).unwrap(),
        serde_json::from_str(&file).unwrap(),
    );
    assert_eq!(dashboard, expected);
    let metadata = &map["metadata"];
    assert_eq!((&metadata["namespace"], &metadata["labels"]["a"]), (&json!("grafana"), &json!("b")));
    assert_eq!(metadata["labels"]["grafana_dashboard"], "1");
}

#[test]
fn panels_of_the_dashboard_have_places_of_their_own_and_say_what_they_show() {
    let file = std::fs::read_to_string(format!("{CHART}/files/monitoring/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&file).unwrap();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|field| panel["gridPos"][field].as_u64().unwrap());
        assert!(x + width <= 24, "{}", panel["title"]);
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{} lies on another", panel["title"]);
        }
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{panel}");
    }
    assert!(ids.len() > 30, "{}", ids.len());
}

#[tokio::test]
async fn values_for_prometheus_that_cannot_be_meant_are_refused() {
    let of = |part: &str, values: Value| json!({"monitoring": {part: values}});
    assert_refused(&[
        (of("monitor", json!({"kind": "Probe"})), "'/monitoring/monitor/kind': value must be one of"),
        (of("monitor", json!({"interval": "often"})), "'/monitoring/monitor/interval'"),
        (of("rules", json!({"runbookBaseURL": "runbooks"})), "'/monitoring/rules/runbookBaseURL'"),
        (
            of("rules", json!({"enabled": true, "disabled": ["TenureUnheardOf"]})),
            "monitoring.rules.disabled: Invalid value: \"TenureUnheardOf\": must be the name of an alert that docs/alerts.md lists",
        ),
        (of("dashboards", json!({})), "'/monitoring': additional properties 'dashboards' not allowed"),
    ])
    .await;
}
