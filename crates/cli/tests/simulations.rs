//! `simulate` and `forecast` as they are run, where they need no cluster.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod plugin;

use plugin::{run, with};
use serde_json::Value;
use tempfile::TempDir;

/// The standard output of a call that succeeded without a word of complaint.
fn good(directory: &TempDir, line: &str) -> String {
    let (out, err, code) = run(directory, line);
    assert_eq!((code, err.as_str()), (0, ""), "{line}: {out}");
    out
}

fn json(directory: &TempDir, line: &str) -> Value {
    serde_json::from_str(&good(directory, &format!("{line} -o json"))).unwrap()
}

const JOBS: &str = "\
JobID|User|Partition|Submit|Start|End|State|Priority|AllocTRES
1|ann|research|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-03T02:10:00|COMPLETED|1|cpu=8,gres/gpu=4
1.batch|||2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-03T02:10:00|COMPLETED||cpu=8
2|ben|research|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-11T00:00:00|TIMEOUT|1|cpu=8,gres/gpu=2
3|ben|batch|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T02:00:00|COMPLETED|1|cpu=8,gres/gpu=1
4|cy|batch|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:05:00|PREEMPTED|1|cpu=8,gres/gpu=1
5|cy|batch|2026-01-01T00:00:00|Unknown|Unknown|PENDING|1|
";

const QUEUES: &str = "\
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata: {name: company}
spec: {maxDuration: 2d}
---
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata: {name: research}
spec:
  parentQueue: company
  maxDuration: 7d
---
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata: {name: batch}
spec: {parentQueue: company, preemptMinRuntime: 10m, reclaimMinRuntime: 10m}
";

#[test]
fn the_first_line_is_a_sentence_for_somebody_else() {
    let directory = with(&[("jobs.txt", JOBS)]);
    let text = good(&directory, "simulate --trace jobs.txt --max-duration 2d");
    let expected = "2d over 10 days: 2 of 4 jobs of 2 users would have been cut, 392 GPU-hours freed; 1 of the 2 would have ended within 4h more.";
    assert_eq!(text.lines().next(), Some(expected), "{text}");
    for part in [
        "Depth: replay.",
        "Source: sacct --parsable2 jobs.txt, 2026-01-01 00:00 UTC to 2026-01-11 00:00 UTC; complete since: 2026-01-01 00:00 UTC; share of all GPU-hours seen: unknown",
        "1 never ran, and aren't counted.",
        "research   2      2     2           1                 0            392               0        0s         10m",
        "autoApprove: 2h",
        "maxDuration: 2d",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn queues_of_a_file_count_with_those_above_them_and_their_floors() {
    let directory = with(&[("jobs.txt", JOBS), ("new.yaml", QUEUES)]);
    let report = json(&directory, "simulate --trace jobs.txt --queues new.yaml");
    assert_eq!((&report["total"]["cut"], &report["depth"]), (&2.into(), &"replay".into()));
    assert_eq!(
        (&report["total"]["preempted"], &report["total"]["preemptionsAvoided"]),
        (&1.into(), &1.into())
    );
    assert_eq!(report["total"]["lostEarlyWithFloors"], 0.0);
    assert!(
        report["sentence"].as_str().unwrap().ends_with("floors would have forbidden 1 of 1 preemptions."),
        "{report}"
    );
    assert_eq!(report["losers"][0]["workload"], "2");
    let placed = json(&directory, "simulate --trace jobs.txt --queues new.yaml --schedule");
    assert_eq!((&placed["depth"], &placed["schedules"][1]["cut"]), (&"schedule".into(), &2.into()));
    // against themselves they make no difference
    let same = json(&directory, "simulate --trace jobs.txt --queues new.yaml --baseline new.yaml");
    assert_eq!((&same["total"]["cut"], &same["total"]["preemptionsAvoided"]), (&0.into(), &0.into()));
}

#[test]
fn a_replay_of_what_it_prints_changes_nothing() {
    let directory = with(&[("jobs.txt", JOBS), ("new.yaml", QUEUES)]);
    let csv = good(&directory, "simulate --trace jobs.txt --queues new.yaml -o csv");
    std::fs::write(directory.path().join("again.csv"), &csv).unwrap();
    let again = json(&directory, "simulate --trace again.csv --queues new.yaml");
    assert_eq!((&again["total"]["cut"], &again["total"]["freed"]), (&0.into(), &0.0.into()), "{csv}");
    assert_eq!(good(&directory, "simulate --trace again.csv --queues new.yaml -o csv"), csv);
}

#[test]
fn a_sweep_has_a_line_for_each_ceiling() {
    let directory = with(&[("jobs.txt", JOBS)]);
    let text = good(&directory, "simulate --trace jobs.txt --sweep maxDuration=30m,2d,7d,30d");
    assert!(text.starts_with("maxDuration over 10 days, 4 jobs:\n\nMAX DURATION   JOBS CUT"), "{text}");
    let rows = json(&directory, "simulate --trace jobs.txt --sweep maxDuration=30m,2d,7d,30d");
    let cut: Vec<u64> = rows.as_array().unwrap().iter().map(|row| row["jobs"].as_u64().unwrap()).collect();
    assert_eq!((cut, &rows[3]["maxDuration"]), (vec![3, 2, 1, 0], &"30d".into()));
    let csv = good(&directory, "simulate --trace jobs.txt --sweep maxDuration=7d -o csv");
    assert_eq!(csv, "maxDuration,jobs,users,freed,nearlyFinished\n7d,1,1,144,0\n");
}

#[test]
fn a_picture_has_two_bars_for_each_queue_and_no_text_of_a_trace_is_markup() {
    let directory = with(&[("jobs.txt", &JOBS.replace("|batch|", "|<b>&|"))]);
    let picture = good(&directory, "simulate --trace jobs.txt --max-duration 2d -o svg");
    let all = good(&directory, "simulate --trace jobs.txt --max-duration 2d");
    let sentence = all.lines().next().unwrap();
    assert!(picture.contains(&format!("<title id=\"title\">{sentence}</title>")), "{picture}");
    let shown = |text: &str| picture.matches(text).count();
    assert_eq!([shown("class=\"before\""), shown("class=\"after\"")], [2, 2], "{picture}");
    // four GPUs for 50 hours and two for 240, of which 48 each are left
    assert_eq!([shown(">680 → 288 GPU-hours<"), shown(">&lt;b&gt;&amp;<")], [1, 1], "{picture}");
    let (_, err, code) = run(&directory, "simulate --trace jobs.txt --sweep maxDuration=1d -o svg");
    assert!(code == 1 && err.contains("a sweep has no picture: give table, json, yaml or csv"), "{err}");
}

#[test]
fn made_up_jobs_are_shown_without_a_cluster_and_never_as_real_ones() {
    let directory = with(&[]);
    for line in [
        "simulate --generate",
        "simulate --generate research --seed 3 --jobs 500",
        "simulate --generate --sweep maxDuration=1d,2d",
    ] {
        let text = good(&directory, line);
        assert!(text.starts_with("Made-up jobs (mix "), "{text}");
        assert!(text.contains("of no real cluster: "), "{text}");
    }
    assert_eq!(json(&directory, "simulate --generate")["source"]["isReal"], false);
}

#[test]
fn broken_lines_are_reported_and_counted_and_a_broken_file_is_refused() {
    let broken = format!(
        "{JOBS}6|x\n7|dan|batch|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T00:00:00|COMPLETED|1|cpu=8\n"
    );
    let directory = with(&[("jobs.txt", &broken), ("other.txt", "hello\nworld\n")]);
    let (out, err, code) = run(&directory, "simulate --trace jobs.txt --max-duration 2d");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("Warning: jobs.txt: line 8: the line has fewer or more columns than the header: \"2 of 9\": it is skipped"), "{err}");
    assert!(out.contains("Skipped 1: the run ends before it starts"), "{out}");
    let (_, err, code) = run(&directory, "simulate --trace other.txt --max-duration 2d");
    assert_eq!(code, 1);
    assert!(
        err.starts_with("error: other.txt:1: no column has the start of runs: expected the output of sacct"),
        "{err}"
    );
    let (_, err, code) = run(&directory, "simulate --trace missing.txt --max-duration 2d");
    assert!(code == 1 && err.contains("cannot read missing.txt"), "{err}");
}

#[test]
fn a_bad_command_line_says_what_would_be_right() {
    let directory = with(&[("jobs.txt", JOBS)]);
    for (line, expected) in [
        ("simulate", "required arguments"),
        ("simulate --generate --from-cluster", "cannot be used with"),
        ("simulate --trace jobs.txt --prometheus http://localhost:9090", "cannot be used with"),
        ("simulate --from-cluster --last 7d", "--prometheus <URL>"),
        ("simulate --prometheus localhost:9090", "must be a URL such as http://prometheus"),
        ("simulate --trace jobs.txt --max-duration 0s", "must be greater than zero, such as 2d"),
        ("simulate --trace jobs.txt --sweep 1d,2d", "must begin with maxDuration="),
        (
            "simulate --trace jobs.txt --columns begin=Start --max-duration 2d",
            "is no field: must be one of id, submit",
        ),
        ("simulate --trace jobs.txt --zone Mars --max-duration 2d", "must be the name of a time zone"),
    ] {
        let (_, err, code) = run(&directory, line);
        assert_eq!(code, 2, "{line}: {err}");
        assert!(err.contains(expected), "{line}: {err}");
    }
    for format in ["csv", "svg"] {
        let line = format!("simulate --trace jobs.txt --max-duration 2d --schedule -o {format}");
        let (out, err, code) = run(&directory, &line);
        assert_eq!((out.as_str(), code), ("", 1), "{err}");
        assert!(err.contains("--schedule can't be used with --output csv or svg"), "{err}");
    }
    let (_, err, code) = run(&directory, "simulate --trace jobs.txt");
    assert_eq!(code, 1);
    assert!(err.contains("nothing to try: give --max-duration"), "{err}");
}

const CLUSTER: &str = "\
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata: {name: research}
spec: {maxDuration: 2h, preemptMinRuntime: 90m}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {nvidia.com/gpu: 8, cpu: '32', pods: '110'}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team, labels: {kai.scheduler/queue: research}, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 60
  containers: [{name: c, resources: {requests: {nvidia.com/gpu: 4}}}]
status:
  phase: Running
  conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z'}]
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: team, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  nodeName: n1
  containers: [{name: c, resources: {requests: {nvidia.com/gpu: 2}}}]
status:
  phase: Running
  conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z'}]
";

fn job(gpus: u32, pods: u32) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: big}}\nspec:\n  parallelism: {pods}\n  template:\n    spec:\n      containers: [{{name: c, resources: {{requests: {{nvidia.com/gpu: {gpus}}}}}}}]\n"
    )
}

#[test]
fn a_forecast_is_the_ceiling_with_the_time_that_the_keeper_and_the_pod_may_take() {
    let directory = with(&[("cluster.yaml", CLUSTER)]);
    let line = "forecast -f cluster.yaml --now 2026-01-01T01:00:00Z";
    let text = good(&directory, line);
    let expected = "\
A bound: by each time at the latest, ceilings alone have freed these amounts in all.

FREE BY                IN    PODS   NVIDIA.COM/GPU
2026-01-01T02:11:00Z   71m   1      4

NO CEILING ENDS          QUEUE    PODS   NVIDIA.COM/GPU
the pod is in no queue   <none>   1      2
";
    assert_eq!(text, expected);
    let by_node = json(&directory, &format!("{line} --by node"));
    assert_eq!(
        (&by_node["free"][0]["node"], &by_node["free"][0]["by"]),
        (&"n1".into(), &"2026-01-01T02:11:00Z".into())
    );
}

/// Two pods that share a claim of two GPUs, and a pod with a claim of its own.
const CLAIMS: &str = "
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata: {name: research}
spec: {maxDuration: 2h}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {extendedResourceName: nvidia.com/gpu}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared, namespace: team}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}
status: {allocation: {devices: {results: [{request: gpus, device: gpu-0}, {request: gpus, device: gpu-1}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: own-gpu-x7c2p, namespace: team}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
status: {allocation: {devices: {results: [{request: gpu, device: gpu-2}]}}}
";

/// A pod on node `n1` that has run since an hour, with the claim that a reference names.
fn claiming(name: &str, hour: u32, reference: &str, made: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team, labels: {{kai.scheduler/queue: research}}, creationTimestamp: '2026-01-01T00:00:00Z'}}
spec:
  nodeName: n1
  resourceClaims: [{{name: gpu, {reference}}}]
  containers: [{{name: c, resources: {{claims: [{{name: gpu}}]}}}}]
status:
  phase: Running
  resourceClaimStatuses: [{made}]
  conditions: [{{type: PodScheduled, status: 'True', lastTransitionTime: '2026-01-01T0{hour}:00:00Z'}}]
"
    )
}

#[test]
fn devices_of_a_claim_come_free_once_when_the_last_pod_that_shares_it_ends() {
    let shared = "resourceClaimName: shared";
    let own = claiming(
        "own",
        0,
        "resourceClaimTemplateName: one-gpu",
        "{name: gpu, resourceClaimName: own-gpu-x7c2p}",
    );
    let cluster =
        [CLAIMS.to_owned(), claiming("a", 0, shared, ""), claiming("b", 1, shared, ""), own].concat();
    let directory = with(&[("cluster.yaml", &cluster)]);
    let forecast = json(&directory, "forecast -f cluster.yaml --now 2026-01-01T01:30:00Z");
    let rows = forecast["free"].as_array().unwrap().iter();
    let rows: Vec<_> = rows.map(|row| (&row["pods"], row["free"].get("nvidia.com/gpu"))).collect();
    assert_eq!(rows, [(&2.into(), Some(&1.into())), (&1.into(), Some(&3.into()))]);
}

#[test]
fn room_for_a_job_is_there_by_a_time_or_never_and_it_is_said_what_stands_in_the_way() {
    let (two, six, eight) = (job(1, 2), job(3, 2), job(8, 1));
    let directory =
        with(&[("cluster.yaml", CLUSTER), ("two.yaml", &two), ("six.yaml", &six), ("eight.yaml", &eight)]);
    let line = |job: &str| format!("forecast -f cluster.yaml --now 2026-01-01T01:00:00Z --for {job}.yaml");
    let two = good(&directory, &line("two"));
    assert!(two.starts_with("There is room for job/big (pods: 2; nodes that it may run on: 1) now, if nothing else takes it.\n"), "{two}");
    let six = good(&directory, &line("six"));
    assert!(six.starts_with("There is room for job/big (pods: 2; nodes that it may run on: 1) by 2026-01-01T02:11:00Z at the latest, in 71m: a bound by ceilings alone"), "{six}");
    assert!(six.contains("floors protect them, until 2026-01-01T01:30:00Z at most"), "{six}");
    let eight = good(&directory, &line("eight"));
    assert!(eight.starts_with("Ceilings alone make no room for job/big"), "{eight}");
    assert!(eight.contains("the pod is in no queue"), "{eight}");
    let (_, err, code) = run(&directory, "forecast -f cluster.yaml --for cluster.yaml");
    assert!(code == 1 && err.contains("--for cluster.yaml: has 4 objects: must have one"), "{err}");
}

/// Node `n1` with four GPUs of a driver. A pod has two of them by its claim until two hours after its
/// start. The template is of claims of two GPUs.
const DEVICES: &str = "
apiVersion: scheduling.run.ai/v3alpha1
kind: Queue
metadata: {name: research}
spec: {maxDuration: 2h}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: '32', pods: '110'}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-gpus, namespace: team}
spec: {spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: team}
spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}
status:
  allocation:
    devices:
      results:
      - {request: gpus, driver: gpu.example.com, pool: n1, device: gpu-0}
      - {request: gpus, driver: gpu.example.com, pool: n1, device: gpu-1}
";

const SLICE: &str = "---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpus}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}, {name: gpu-2}, {name: gpu-3}]
";

#[test]
fn devices_of_nodes_are_room_for_claims_and_for_requests() {
    let pod = claiming("a", 0, "resourceClaimName: held", "");
    let claims = |pods: u32| {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: big, namespace: team}}\nspec:\n  parallelism: {pods}\n  template:\n    spec:\n      resourceClaims: [{{name: gpus, resourceClaimTemplateName: two-gpus}}]\n      containers: [{{name: c, resources: {{claims: [{{name: gpus}}]}}}}]\n"
        )
    };
    let (all, none) = ([DEVICES, &pod, SLICE].concat(), [DEVICES, &pod].concat());
    let directory = with(&[("all.yaml", &all), ("none.yaml", &none)]);
    let room = |cluster: &str, job: &str| {
        std::fs::write(directory.path().join("job.yaml"), job).unwrap();
        good(&directory, &format!("forecast -f {cluster}.yaml --now 2026-01-01T01:00:00Z --for job.yaml"))
    };
    let (now, later) = (" now, if nothing else takes it.", " by 2026-01-01T02:10:30Z at the latest");
    for (job, expected) in [(claims(1), now), (claims(2), later), (job(2, 1), now), (job(4, 1), later)] {
        let text = room("all", &job);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("There is room for job/big") && first.contains(expected), "{job}: {text}");
        assert_eq!(
            text.contains("Note: the devices that it claims count by"),
            job.contains("two-gpus"),
            "{text}"
        );
        assert!(!text.contains("Note: it also needs"), "{text}");
    }
    for job in [claims(3), job(5, 1)] {
        let text = room("all", &job);
        assert!(text.starts_with("Ceilings alone make no room for job/big"), "{job}: {text}");
    }
    // the devices aren't known
    let unknown = room("none", &claims(3));
    assert!(unknown.starts_with("There is room for job/big") && unknown.contains(now), "{unknown}");
    assert!(unknown.contains("Note: it also needs ports, volumes, devices"), "{unknown}");
}

/// The annotation is kube-scheduler's, but a tenant may write it to a claim.
#[test]
fn devices_of_a_claim_for_requests_are_room_only_if_the_status_of_a_pod_names_the_claim() {
    let annotated = "{name: held, namespace: team, annotations: {resource.kubernetes.io/extended-resource-claim: 'true'}}";
    let devices = DEVICES.replace("{name: held, namespace: team}", annotated);
    let pod = "---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team, labels: {kai.scheduler/queue: research}, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  nodeName: n1
  containers: [{name: c, resources: {requests: {nvidia.com/gpu: 2}}}]
status:
  phase: Running
  extendedResourceClaimStatus: {resourceClaimName: held}
  conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z'}]
";
    let (held, forged) = ([devices.as_str(), pod, SLICE].concat(), [devices.as_str(), SLICE].concat());
    let (two, four) = (job(2, 1), job(4, 1));
    let directory =
        with(&[("held.yaml", &held), ("forged.yaml", &forged), ("two.yaml", &two), ("four.yaml", &four)]);
    let room = |cluster: &str, job: &str| {
        good(&directory, &format!("forecast -f {cluster}.yaml --now 2026-01-01T01:00:00Z --for {job}.yaml"))
    };
    for cluster in ["held", "forged"] {
        let text = room(cluster, "two");
        assert!(
            text.starts_with("There is room for job/big") && text.contains(" now, if"),
            "{cluster}: {text}"
        );
    }
    let text = room("held", "four");
    assert!(text.contains(" by 2026-01-01T02:10:30Z at the latest"), "{text}");
    let text = room("forged", "four");
    assert!(text.starts_with("Ceilings alone make no room for job/big"), "{text}");
}

#[test]
fn a_pod_and_a_node_that_files_have_twice_count_once() {
    let (_, objects) = CLUSTER.split_once("---\n").unwrap();
    let (twice, job) = ([CLUSTER, objects].join("---\n"), job(8, 1));
    let directory = with(&[("once.yaml", CLUSTER), ("twice.yaml", &twice), ("job.yaml", &job)]);
    let forecast = |file: &str| {
        good(&directory, &format!("forecast -f {file} --now 2026-01-01T01:00:00Z --for job.yaml"))
    };
    assert_eq!(forecast("twice.yaml"), forecast("once.yaml"));
}
