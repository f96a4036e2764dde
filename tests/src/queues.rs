//! A table of queues, with the expected result of each: accepted, with a warning or without, or
//! refused by the schema or the webhook, and the message. The tests of the schema and of admission
//! create all of them.

use http::{
    Request,
    header::{CONTENT_TYPE, WARNING},
    request::Builder,
};
use kube::Client;
use serde_json::{Value, json};
use tenure_testbed::{Cluster, Output};

/// The check that refuses a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The schema, even while the webhook is down.
    Schema,
    /// The webhook alone: the check needs other queues, or more than CEL can compute.
    Webhook,
}

/// The expected result of creating a queue.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The queue is accepted without a warning.
    Accepted,
    /// The queue is accepted with a warning that contains this text.
    Warned(&'static str),
    /// The queue is refused with a message that contains all of these texts.
    Refused(By, Vec<String>),
}

/// A queue of the table.
#[derive(Clone, Debug)]
pub struct Case {
    /// `scheduling.run.ai/v3alpha1` or `scheduler.tensorstack.dev/v1beta1`.
    pub api_version: &'static str,
    /// Its namespace. Empty: a queue of the run.ai family, which is cluster-scoped.
    pub namespace: &'static str,
    /// Its spec, in which `$name` stands for the queue's own name.
    pub spec: Value,
    /// The expected result.
    pub verdict: Verdict,
}

impl Case {
    /// Returns the object of this case, under a name.
    pub fn object(&self, name: &str) -> Value {
        let spec: Value =
            serde_json::from_str(&self.spec.to_string().replace("$name", name)).expect("still JSON");
        self.object_with(name, &spec)
    }

    /// Returns a queue like this one with another spec.
    pub fn object_with(&self, name: &str, spec: &Value) -> Value {
        let mut object = json!({
            "apiVersion": self.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec,
        });
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        object
    }
}

/// Reads an object as the API server has it, without the processor time of kubectl. `resource` is
/// `crd`, or a plural, a version and a group, such as `queues.v2.scheduling.run.ai`.
pub async fn read(cluster: &Cluster, resource: &str, name: &str) -> Value {
    let request = Request::get(path(resource, name)).body(Vec::new()).expect("a request");
    cluster.client().expect("a client").request(request).await.expect("it can be read")
}

/// Returns the path of an object. `resource` is as in [`read`].
fn path(resource: &str, name: &str) -> String {
    match resource.splitn(3, '.').collect::<Vec<_>>().as_slice() {
        [plural, version, group] => format!("/apis/{group}/{version}/{plural}/{name}"),
        _ => format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
    }
}

/// The answer to a write: the warnings, and the stored object or the refusal.
pub type Answer = (Vec<String>, Result<Value, String>);

/// Creates a queue, or replaces it if the object has a `resourceVersion`: with strict validation, as
/// by kubectl, but without its processor time.
pub async fn write(client: &Client, object: &Value) -> Answer {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (version, name) = (text("/apiVersion").unwrap(), text("/metadata/name").unwrap());
    let namespace = text("/metadata/namespace").map(|name| format!("namespaces/{name}/")).unwrap_or_default();
    let queues = format!("/apis/{version}/{namespace}queues");
    let request = match text("/metadata/resourceVersion") {
        Some(_) => Request::put(format!("{queues}/{name}?fieldValidation=Strict")),
        None => Request::post(format!("{queues}?fieldValidation=Strict")),
    };
    send(client, request.header(CONTENT_TYPE, "application/json"), object).await
}

/// Merges a patch into an object, which the API server may refuse. `resource` is as in [`read`].
pub async fn patch(client: &Client, resource: &str, name: &str, patch: &Value) -> Answer {
    let request = Request::patch(path(resource, name));
    send(client, request.header(CONTENT_TYPE, "application/merge-patch+json"), patch).await
}

/// Sends a request with a body, which the API server may refuse.
pub async fn send(client: &Client, request: Builder, body: &Value) -> Answer {
    let request = request.body(body.to_string().into_bytes().into()).unwrap();
    let (head, body) = client.send(request).await.unwrap().into_parts();
    let answer: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
    let warnings = head.headers.get_all(WARNING).iter().map(|warning| warning_text(warning.as_bytes()));
    let refusal = || answer["message"].as_str().unwrap_or_default().to_owned();
    (warnings.collect(), if head.status.is_success() { Ok(answer) } else { Err(refusal()) })
}

/// Returns what kubectl says as an answer of the API server.
pub fn said(output: Output) -> Answer {
    let warnings =
        output.stderr.lines().map(|line| line.trim_start_matches("Warning: ").to_owned()).collect();
    (warnings, output.success().map(Value::from).map_err(|error| error.to_string()))
}

/// Returns the text of a warning, as kubectl shows it. In the header, it is quoted and its quotes are
/// escaped.
fn warning_text(header: &[u8]) -> String {
    let text = String::from_utf8_lossy(header).replace('\\', "");
    let quoted = text.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"'));
    quoted.unwrap_or(&text).to_owned()
}

/// Returns the queues that must exist before those of the table.
pub fn ancestors() -> Vec<Value> {
    let queue = |name: &str, spec: Value| json!({"apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec});
    vec![queue("short", json!({"maxDuration": "1h"})), queue("team", json!({"parentQueue": "short"}))]
}

/// Returns a case of the run.ai family.
fn runai(spec: Value, verdict: Verdict) -> Case {
    Case { api_version: "scheduling.run.ai/v3alpha1", namespace: "", spec, verdict }
}

/// Returns a case of the tensorstack family, in its namespace.
fn tensorstack(spec: Value, verdict: Verdict) -> Case {
    Case { api_version: "scheduler.tensorstack.dev/v1beta1", namespace: "t9k-system", spec, verdict }
}

/// Returns all cases.
pub fn table() -> Vec<Case> {
    [runai_durations(), runai_relations(), runai_ranges(), runai_amounts(), tensorstack_queues()].concat()
}

/// Returns the verdict of a refusal with these texts.
fn refused<const N: usize>(by: By, parts: [&str; N]) -> Verdict {
    Verdict::Refused(by, parts.map(str::to_owned).into())
}

/// Returns the verdict of a refusal by the schema for the value of one field.
fn bad(field: &str, value: &Value, rule: &str) -> Verdict {
    refused(By::Schema, [&format!("{field}: Invalid value: {value}"), rule])
}

/// Returns the cases about the grammar and the bounds of durations.
fn runai_durations() -> Vec<Case> {
    let duration = "must be a duration such as 90m, 1h30m or 7d";
    let zero = "must be greater than zero";
    let (zero_among, nine) = ("it can't stand beside others", "1s,2s,3s,4s,5s,6s,7s,8s,9s");
    let max_duration = |text: &str, verdict: Verdict| runai(json!({"maxDuration": text}), verdict);
    let refused_for =
        |text: &str, rule: &str| max_duration(text, bad("spec.maxDuration", &json!(text), rule));
    let good = ["90m", "1h30m", "7d", "1w2d", "1.5h", "10s"];
    let short = ["500ms", "1µs", ".5s", "9s"];
    let no_durations = [
        "10 s",
        "1h 30m",
        "",
        "-5s",
        "+5s",
        "10",
        "1y",
        "1M",
        "1h30",
        "soon",
        "1.s.s",
        // times as other schedulers and people write them
        "1-12:00:00",
        "0-00:30:00",
        "PT1H",
        "UNLIMITED",
        "forever",
        "-1",
        "2027-01-01T00:00:00Z",
    ];
    let mut cases: Vec<Case> = good.map(|text| max_duration(text, Verdict::Accepted)).into();
    cases.extend(short.map(|text| max_duration(text, Verdict::Warned("is less than 10s: most pods"))));
    cases.extend(no_durations.map(|text| refused_for(text, duration)));
    cases.extend(["0", "0s", "0h0m"].map(|text| refused_for(text, zero)));
    cases.extend([
        refused_for("16000w", "292 years"),
        max_duration("0.1ns", refused(By::Webhook, ["spec.maxDuration: Invalid value: \"0.1ns\"", zero])),
        runai(json!({}), Verdict::Accepted),
        runai(json!({"maxDuration": null}), Verdict::Accepted),
        runai(
            json!({"maxDuration": 10}),
            refused(By::Schema, ["spec.maxDuration", "must be of type string"]),
        ),
        runai(json!({"preemptMinRuntime": "0s", "reclaimMinRuntime": "0"}), Verdict::Accepted),
        runai(json!({"preemptMinRuntime": "5 m"}), bad("spec.preemptMinRuntime", &json!("5 m"), duration)),
        runai(json!({"reclaimMinRuntime": "-1s"}), bad("spec.reclaimMinRuntime", &json!("-1s"), duration)),
        runai(json!({"requeueDelay": "5"}), bad("spec.requeueDelay", &json!("5"), duration)),
        runai(json!({"maxDuration": "1h", "expiryNotice": "10m"}), Verdict::Accepted),
        runai(json!({"maxDuration": "1d", "expiryNotices": ["1h", "10m"]}), Verdict::Accepted),
        runai(json!({"expiryNotices": ["10 m"]}), bad("spec.expiryNotices[0]", &json!("10 m"), duration)),
        runai(
            json!({"expiryNotice": "1h", "expiryNotices": ["1h"]}),
            refused(By::Schema, ["expiryNotices can't be set beside expiryNotice", "leave one of them out"]),
        ),
        runai(
            json!({"expiryNotices": ["1h", "0s"]}),
            refused(By::Webhook, ["spec.expiryNotices", zero_among]),
        ),
        runai(json!({"expiryNotice": "0s"}), Verdict::Accepted),
        runai(json!({"expiryNotice": "10m,1h, 1.5d"}), Verdict::Accepted),
        runai(json!({"expiryNotice": "1s,2s,3s,4s,5s,6s,7s,8s"}), Verdict::Accepted),
        runai(json!({"expiryNotice": "10 m"}), bad("spec.expiryNotice", &json!("10 m"), duration)),
        runai(json!({"expiryNotice": "1h,"}), bad("spec.expiryNotice", &json!("1h,"), "or up to 8 of them")),
        runai(json!({"expiryNotice": "1h,0s"}), bad("spec.expiryNotice", &json!("1h,0s"), zero_among)),
        runai(json!({"expiryNotice": nine}), bad("spec.expiryNotice", &json!(nine), "more than 8 durations")),
        runai(json!({"expiryNotice": "9000w,9000w"}), bad("spec.expiryNotice", &json!("9000w,9000w"), "292")),
        runai(
            json!({"maxDuration": "1h", "expiryNotice": "1h"}),
            Verdict::Warned("spec.expiryNotice: 1h is no shorter than maxDuration, 1h"),
        ),
    ]);
    cases
}

/// Returns the cases about several fields, and about parents.
fn runai_relations() -> Vec<Case> {
    let ceiling = "must not be longer than the queue's own maxDuration";
    let floors = |ceiling: &str, preempt: &str, reclaim: &str, verdict: Verdict| {
        let spec =
            json!({"maxDuration": ceiling, "preemptMinRuntime": preempt, "reclaimMinRuntime": reclaim});
        runai(spec, verdict)
    };
    let child_of = |parent: &str, verdict: Verdict| runai(json!({"parentQueue": parent}), verdict);
    let in_team = |field: &str, text: &str, verdict: Verdict| {
        runai(json!({"parentQueue": "team", field: text}), verdict)
    };
    let (preempt, reclaim) = ("spec.preemptMinRuntime", "spec.reclaimMinRuntime");
    let by_a_nanosecond = ["spec.reclaimMinRuntime: Invalid value: \"1h0m0.000000001s\"", ceiling];
    vec![
        floors("1h", "60m", "3600s", Verdict::Accepted),
        floors("1w", "7d", "0s", Verdict::Accepted),
        floors("1h", "61m", "1m", bad(preempt, &json!("61m"), ceiling)),
        floors("1w", "1m", "8d", bad(reclaim, &json!("8d"), ceiling)),
        floors("1h", "0s", "1h0m0.000000001s", refused(By::Webhook, by_a_nanosecond)),
        child_of("", Verdict::Accepted),
        child_of("team", Verdict::Accepted),
        child_of(
            "$name",
            refused(By::Schema, ["spec.parentQueue: Invalid value", "a queue can't be its own parent"]),
        ),
        child_of("Not A Name", bad("spec.parentQueue", &json!("Not A Name"), "must be the name of a queue")),
        child_of("missing", Verdict::Warned("queue \"missing\" doesn't exist")),
        in_team("maxDuration", "30m", Verdict::Accepted),
        in_team("maxDuration", "2h", Verdict::Warned("2h is longer than 1h of ancestor \"short\"")),
        in_team("preemptMinRuntime", "2h", Verdict::Warned("spec.preemptMinRuntime: 2h of queue")),
    ]
}

/// Returns the cases about ranges, choices and unknown fields.
fn runai_ranges() -> Vec<Case> {
    let wait = |wait: Value, verdict: Verdict| runai(json!({"waitForPodsReady": wait}), verdict);
    let backoff = |strategy: Value, verdict: Verdict| wait(json!({"requeuingStrategy": strategy}), verdict);
    let strategy = |field: &str, value: Value, rule: &str| {
        let path = format!("spec.waitForPodsReady.requeuingStrategy.{field}");
        wait(json!({"timeout": "5m", "requeuingStrategy": {field: value}}), bad(&path, &value, rule))
    };
    let whole_strategy = json!({
        "timestamp": "Creation", "onCapacity": true, "backoffLimitCount": 0, "backoffBaseSeconds": 1, "backoffFactor": "1.41284738",
        "backoffMaxSeconds": 3600,
    });
    let resources = json!({"cpu": {"quota": 1000, "limit": -1, "overQuotaWeight": 1}, "gpu": {"quota": 0.5}, "memory": {}});
    let delete = ["spec.onReversal: Unsupported value: \"Delete\"", "\"Pause\", \"DeletePods\""];
    let deny = ["spec.overCeiling: Unsupported value: \"Deny\"", "\"Warn\", \"Refuse\""];
    let kill = ["spec.maxDurationAction: Unsupported value: \"Kill\"", "\"Pause\", \"Requeue\""];
    vec![
        runai(json!({"priority": -7, "displayName": "A queue"}), Verdict::Accepted),
        runai(json!({"maxDurationAction": "Pause"}), Verdict::Accepted),
        runai(json!({"maxDurationAction": "Requeue", "requeueDelay": "5m"}), Verdict::Accepted),
        runai(
            json!({"requeueDelay": "5m"}),
            Verdict::Warned("spec.requeueDelay: has no effect unless maxDurationAction is Requeue"),
        ),
        runai(json!({"onReversal": "DeletePods"}), Verdict::Accepted),
        runai(
            json!({"onReversal": "DeletePods", "maxDurationAction": "Requeue"}),
            Verdict::Warned("spec.onReversal: has no effect unless maxDurationAction is Pause"),
        ),
        runai(json!({"overCeiling": "Warn"}), Verdict::Accepted),
        runai(json!({"overCeiling": "Refuse"}), Verdict::Accepted),
        runai(
            json!({"extensions": {"autoApprove": "1h", "maxTotal": "4h", "maxCount": 3}}),
            Verdict::Accepted,
        ),
        runai(
            json!({"extensions": {"autoApprove": "5h", "maxTotal": "4h"}}),
            refused(By::Webhook, ["spec.extensions.autoApprove", "must not be longer than maxTotal, 4h"]),
        ),
        runai(json!({"resources": resources}), Verdict::Accepted),
        wait(
            json!({
                "enable": true, "timeout": "5m", "countFrom": "Creation", "recoveryTimeout": "1m",
                "requeuingStrategy": whole_strategy, "blockAdmission": false,
            }),
            Verdict::Accepted,
        ),
        wait(json!({"enable": false}), Verdict::Accepted),
        wait(
            json!({"countFrom": "Admission"}),
            refused(
                By::Schema,
                ["countFrom: Unsupported value: \"Admission\"", "\"Scheduled\", \"Creation\""],
            ),
        ),
        wait(
            json!({"blockAdmission": true}),
            bad("spec.waitForPodsReady.blockAdmission", &json!(true), "Tenure admits no workloads"),
        ),
        strategy("backoffLimitTimeout", json!(600), "must be left out: set backoffLimitCount"),
        wait(json!({}), Verdict::Accepted),
        wait(
            json!({"timeout": "0s"}),
            bad("spec.waitForPodsReady.timeout", &json!("0s"), "greater than zero"),
        ),
        wait(
            json!({"recoveryTimeout": "0s"}),
            bad("spec.waitForPodsReady.recoveryTimeout", &json!("0s"), "greater than zero"),
        ),
        wait(
            json!({"recoveryTimeout": "5 m"}),
            bad("spec.waitForPodsReady.recoveryTimeout", &json!("5 m"), "must be a duration"),
        ),
        backoff(json!({"backoffBaseSeconds": 60, "backoffMaxSeconds": 60}), Verdict::Accepted),
        backoff(json!({"backoffMaxSeconds": 1}), Verdict::Accepted),
        backoff(
            json!({"backoffBaseSeconds": 61, "backoffMaxSeconds": 60}),
            refused(
                By::Schema,
                ["backoffBaseSeconds: Invalid value", "must not be more than backoffMaxSeconds"],
            ),
        ),
        wait(
            json!({"requeuingStrategy": {"timestamp": "Now"}}),
            refused(By::Schema, ["requeuingStrategy.timestamp: Unsupported value: \"Now\""]),
        ),
        strategy("backoffFactor", json!("0.5"), "at least 1"),
        strategy("backoffFactor", json!("fast"), "at least 1"),
        strategy("backoffLimitCount", json!(-1), "greater than or equal to 0"),
        strategy("backoffBaseSeconds", json!(0), "greater than or equal to 1"),
        strategy("backoffMaxSeconds", json!(0), "greater than or equal to 1"),
        runai(
            json!({"priority": 3_000_000_000_u32}),
            bad("spec.priority", &json!(3_000_000_000_u32), "less than or equal to 2147483647"),
        ),
        runai(json!({"priority": "high"}), refused(By::Schema, ["spec.priority", "must be of type integer"])),
        runai(json!({"maxDurationAction": "Kill"}), refused(By::Schema, kill)),
        runai(json!({"onReversal": "Delete"}), refused(By::Schema, delete)),
        runai(json!({"overCeiling": "Deny"}), refused(By::Schema, deny)),
        runai(json!({"maxDuraton": "1h"}), refused(By::Schema, ["unknown field \"spec.maxDuraton\""])),
    ]
}

/// Returns the cases about amounts of resources.
fn runai_amounts() -> Vec<Case> {
    vec![
        runai(
            json!({"resources": {"gpu": {"quota": -2}}}),
            bad("spec.resources.gpu.quota", &json!(-2), "greater than or equal to -1"),
        ),
        runai(
            json!({"resources": {"gpu": {"limit": -0.5}}}),
            refused(
                By::Webhook,
                ["spec.resources.gpu.limit: Invalid value: -0.5", "must be at least 0, or -1 for no limit"],
            ),
        ),
        runai(
            json!({"resources": {"cpu": {"overQuotaWeight": -1}}}),
            bad("spec.resources.cpu.overQuotaWeight", &json!(-1), "greater than or equal to 0"),
        ),
    ]
}

/// Returns the cases of the tensorstack family.
fn tensorstack_queues() -> Vec<Case> {
    let duration = "must be a duration of whole numbers such as 30s, 1h20m15s or 15d";
    let max_duration = |text: &str, verdict: Verdict| tensorstack(json!({"maxDuration": text}), verdict);
    let refused_for =
        |text: &str, rule: &str| max_duration(text, bad("spec.maxDuration", &json!(text), rule));
    let good = ["", "10s", "2h", "3w", "2h45m", "1h20m15s", "15d", "1y"];
    let no_durations = ["45m2h", "1h1h", "1.5h", "10 s", "10", "-1h", "1M", "5min", "1us", " 1h"];
    let mut cases: Vec<Case> = good.map(|text| max_duration(text, Verdict::Accepted)).into();
    cases.extend(no_durations.map(|text| refused_for(text, duration)));
    cases.push(max_duration("500ms", Verdict::Warned("is less than 10s: most pods")));
    cases.extend(["0", "0s", "0h0s"].map(|text| refused_for(text, "must be greater than zero")));
    let whole = json!({
        "closed": false, "preemptible": true, "priority": 100, "quota": {"requests": {"cpu": "10", "memory": "1Gi"}},
        "nodeSelector": {"matchLabels": {"gpu": "a100"}}, "namespaceSelector": {}, "resourceShapeProfile": "small",
    });
    let too_high = bad("spec.priority", &json!(101), "less than or equal to 100");
    let too_low = bad("spec.priority", &json!(-1), "greater than or equal to 0");
    let negative =
        refused(By::Webhook, ["spec.quota.requests[cpu]: Invalid value: \"-4\"", "must not be negative"]);
    let no_quantity = refused(By::Schema, ["spec.quota.requests.cpu: Invalid value: \"lots\""]);
    cases.extend([
        refused_for("300y", "292 years"),
        tensorstack(json!({"maxDuration": null}), Verdict::Accepted),
        tensorstack(
            json!({"maxDuration": 10}),
            refused(By::Schema, ["spec.maxDuration", "must be of type string"]),
        ),
        tensorstack(json!({"maxDuration": "1h", "expiryNotice": "10m"}), Verdict::Accepted),
        tensorstack(json!({"maxDuration": "1h", "expiryNotice": ""}), Verdict::Accepted),
        tensorstack(json!({"expiryNotice": "0"}), Verdict::Accepted),
        tensorstack(json!({"expiryNotice": "10m, 1h,2d"}), Verdict::Accepted),
        tensorstack(json!({"expiryNotice": "1h,,2h"}), bad("spec.expiryNotice", &json!("1h,,2h"), "missing")),
        tensorstack(
            json!({"expiryNotice": "0,2h"}),
            bad("spec.expiryNotice", &json!("0,2h"), "beside others"),
        ),
        tensorstack(json!({"expiryNotice": "1.5m"}), bad("spec.expiryNotice", &json!("1.5m"), duration)),
        tensorstack(
            json!({"maxDuration": "1h", "expiryNotice": "2h"}),
            Verdict::Warned("is no shorter than maxDuration"),
        ),
        tensorstack(whole, Verdict::Accepted),
        tensorstack(json!({"priority": 101}), too_high),
        tensorstack(json!({"priority": -1}), too_low),
        tensorstack(json!({"quota": {"requests": {"cpu": "lots"}}}), no_quantity),
        tensorstack(json!({"quota": {"requests": {"cpu": "-4"}}}), negative),
        Case {
            namespace: "default",
            ..tensorstack(json!({}), Verdict::Warned("queues count only in namespace \"t9k-system\""))
        },
    ]);
    cases
}
