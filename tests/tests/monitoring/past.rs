//! `kubectl tenure simulate --prometheus`: on a Prometheus with days that promtool has filled in, and on one that scrapes
//! kube-state-metrics.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_certs::Authority;
use tenure_testbed::{Process, eventually, free_port, program};
use tenure_tests::{
    DEADLINE,
    pages::workspace,
    workloads::{Namespace, bare_pod, distinct, in_runai_queue, workload},
};

use crate::world;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// A password, and what Prometheus' file has in its place: a hash by bcrypt.
const PASSWORD: &str = "let me in";
const HASHED: &str = "$2b$04$sSqAddqgu9Twp0cKoAcYd.50Da3yHUUbtE.viSqW5xVGRQUlwatg6";

/// The path of a program of the Go module in `tests/prometheus`, which is built the first time.
fn tool(name: &str) -> PathBuf {
    let mut command = Command::new(workspace().join("tests/prometheus/tool"));
    let output = command.arg(name).stderr(Stdio::inherit()).output().expect("Go 1.26 is installed");
    assert!(output.status.success(), "{name}");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn server(name: &str, program: &Path, arguments: &[String], log: &Path) -> Process {
    let mut command = Command::new(program);
    command.args(arguments);
    Process::spawn(name, command, log).unwrap()
}

/// Starts a Prometheus with its data and configuration in a directory. Returns it with its address.
fn prometheus(directory: &Path, more: &[String]) -> (Process, String) {
    let program = tool("prometheus");
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let path = |name: &str| directory.join(name).display().to_string();
    let own = [
        format!("--config.file={}", path("prometheus.yml")),
        format!("--storage.tsdb.path={}", path("data")),
        format!("--web.listen-address={address}"),
    ];
    let arguments = [&own[..], more].concat();
    (server("prometheus", &program, &arguments, &directory.join("prometheus.log")), address)
}

/// Runs `simulate --prometheus`.
fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(program("kubectl-tenure").unwrap());
    command.args(["simulate", "-o", "json", "--prometheus"]).args(arguments).output().unwrap()
}

/// Returns the report, once Prometheus serves.
async fn report(arguments: &[&str]) -> Value {
    eventually("an answer by Prometheus", DEADLINE, async || {
        let Output { status, stdout, stderr } = simulate(arguments);
        anyhow::ensure!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        Ok(Some(serde_json::from_slice::<Value>(&stdout)?))
    })
    .await
    .unwrap()
}

/// A pod with the times of its series, all in seconds before now.
struct Told {
    name: &'static str,
    owner: (&'static str, &'static str),
    in_queue: bool,
    gpus: u32,
    created: i64,
    scheduled: Option<i64>,
    ended: Option<i64>,
    last: i64,
}

/// A pod that is bound at once.
const fn pod(
    name: &'static str,
    owner: (&'static str, &'static str),
    gpus: u32,
    created: i64,
    ended: Option<i64>,
    last: i64,
) -> Told {
    Told { name, owner, in_queue: true, gpus, created, scheduled: Some(created), ended, last }
}

/// It has two containers, of which one ends early and starts again.
const LONG: &str = "long-0";

/// Its node refuses it: no container has an end.
const REFUSED: &str = "refused-0";

/// The pods of three days. The Job `again` was deleted, and created again after five minutes.
const PODS: [Told; 10] = [
    pod(LONG, ("Job", "long"), 1, 40 * HOUR, None, 0),
    pod("short-0", ("Job", "short"), 1, 30 * HOUR, Some(29 * HOUR), 20 * HOUR),
    pod(REFUSED, ("Job", "refused"), 8, 30 * HOUR, Some(30 * HOUR - MINUTE), 0),
    Told { in_queue: false, ..pod("web-0", ("ReplicaSet", "web-1"), 1, 20 * HOUR, None, 10 * HOUR) },
    Told { in_queue: false, ..pod("agent-0", ("DaemonSet", "agent"), 0, 72 * HOUR, None, 0) },
    Told { scheduled: None, ..pod("waits-0", ("Job", "waits"), 1, HOUR, None, 0) },
    pod("again-0", AGAIN, 1, 70 * HOUR, Some(69 * HOUR), 69 * HOUR),
    pod("again-1", AGAIN, 1, 69 * HOUR - 5 * MINUTE, Some(68 * HOUR), 68 * HOUR),
    pod("set-0-0", ("Job", "set-0"), 4, 9 * HOUR, Some(8 * HOUR), 7 * HOUR),
    pod("set-1-0", ("Job", "set-1"), 4, 9 * HOUR, Some(8 * HOUR), 7 * HOUR),
];

const AGAIN: (&str, &str) = ("Job", "again");

/// Nothing was scraped in this time, in hours before now.
const GAP: (i64, i64) = (50, 48);

/// What Prometheus has of these pods, in the format that promtool reads. Where it keeps its own labels, it calls theirs exported.
fn samples(now: i64, exports: bool) -> String {
    let [namespace, pod, container] = if exports {
        [
            "namespace=\"m\",exported_namespace",
            "pod=\"ksm\",exported_pod",
            "container=\"ksm\",exported_container",
        ]
    } else {
        ["namespace", "pod", "container"]
    };
    let mut families: BTreeMap<&str, String> = BTreeMap::new();
    let mut add = |metric: &'static str, labels: &str, value: i64, [from, until]: [i64; 2]| {
        let lines = families.entry(metric).or_default();
        for ago in (until..=from)
            .rev()
            .filter(|ago| ago % MINUTE == 0 && !(GAP.1 * HOUR..GAP.0 * HOUR).contains(ago))
        {
            writeln!(lines, "{metric}{{{labels}}} {value} {}", now - ago).unwrap();
        }
    };
    for Told { name, owner: (kind, owner), in_queue, gpus, created, scheduled, ended, last } in PODS {
        let labels = format!("{namespace}=\"team\",{pod}=\"{name}\",uid=\"uid-{name}\"");
        let all = [created, last];
        add("kube_pod_created", &labels, now - created, all);
        let controller =
            |kind, name| format!("owner_kind=\"{kind}\",owner_name=\"{name}\",owner_is_controller=\"true\"");
        add("kube_pod_owner", &format!("{labels},{}", controller(kind, owner)), 1, all);
        if kind == "Job" {
            let labels = format!("{namespace}=\"team\",job_name=\"{owner}\"");
            add("kube_job_created", &labels, now - created, all);
            if owner.starts_with("set") {
                add("kube_job_owner", &format!("{labels},{}", controller("JobSet", "set")), 1, all);
            }
        }
        for name in ["a", "b"].into_iter().take(if name == LONG { 2 } else { 1 }) {
            let of_gpus =
                format!("{labels},{container}=\"{name}\",resource=\"nvidia_com_gpu\",unit=\"integer\"");
            add("kube_pod_container_resource_requests", &of_gpus, gpus.into(), all);
        }
        if in_queue {
            add("kube_pod_labels", &format!("{labels},label_kai_scheduler_queue=\"q\""), 1, all);
        }
        let Some(scheduled) = scheduled else { continue };
        add("kube_pod_status_scheduled_time", &labels, now - scheduled, [scheduled, last]);
        let in_phase = |phase| format!("{labels},phase=\"{phase}\"");
        add("kube_pod_status_phase", &in_phase("Running"), 1, [scheduled, ended.unwrap_or(last)]);
        if let Some(ended) = ended {
            add("kube_pod_status_phase", &in_phase("Failed"), 1, [ended - MINUTE, last]);
        }
        let completed = ended.filter(|_| name != REFUSED).map(|ended| [ended, last]);
        let completed = completed.or((name == LONG).then_some([39 * HOUR, 38 * HOUR]));
        if let Some([at, until]) = completed {
            add("kube_pod_completion_time", &labels, now - at, [at, until]);
        }
    }
    let families = families.iter().map(|(metric, lines)| format!("# TYPE {metric} gauge\n{lines}"));
    families.collect::<String>() + "# EOF\n"
}

/// A directory of its own for a Prometheus, with these days.
fn filled(name: &str, text: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory).unwrap();
    }
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("prometheus.yml"), "global: {scrape_interval: 1m}\n").unwrap();
    let file = directory.join("past.txt");
    fs::write(&file, text).unwrap();
    let mut promtool = Command::new(tool("promtool"));
    promtool.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(&file).arg(directory.join("data"));
    let Output { status, stderr, .. } = promtool.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    directory
}

fn now() -> i64 {
    Timestamp::now().as_second() / MINUTE * MINUTE
}

fn cut_by_queue(report: &Value) -> Value {
    let queues = report["queues"].as_array().unwrap().iter();
    queues
        .map(|of| json!([of["queue"], of["jobs"], of["cut"], of["freed"].as_f64().unwrap().round()]))
        .collect()
}

/// Asserts what a ceiling of nine hours does to the three days.
fn assert_report(report: &Value, now: i64) {
    let source = &report["source"];
    let ago = |field: &str| now - source[field].as_str().unwrap().parse::<Timestamp>().unwrap().as_second();
    // two GPUs for 31 hours more, and one for an hour more
    assert_eq!(cut_by_queue(report), json!([["q", 6, 1, 62.0], ["namespace/team", 1, 1, 1.0]]), "{report:#}");
    assert_eq!((&report["total"]["jobs"], &source["neverStarted"]), (&json!(7), &json!(1)), "{report:#}");
    assert_eq!(source["skipped"], json!([{"number": 1, "reason": "pods that are never touched"}]));
    assert!((-10 * MINUTE..=0).contains(&(ago("completeSince") - GAP.1 * HOUR)), "{source:#}");
    assert!((-5 * MINUTE..=5 * MINUTE).contains(&(ago("since") - 72 * HOUR)), "{source:#}");
    assert!(source["shareSeen"].as_f64().unwrap() > 0.97, "{source:#}");
    let missing = report["missing"].to_string();
    assert!(missing.contains("which runs were preempted") && !missing.contains("allowlist"), "{missing}");
}

const POLICY: [&str; 2] = ["--max-duration", "9h"];

#[tokio::test]
async fn days_that_prometheus_has_are_replayed() {
    let now = now();
    let directory = filled("prometheus", &samples(now, false));
    let (_server, address) = prometheus(&directory, &[]);
    let url = format!("http://{address}");
    let report = report(&[&[&*url], &POLICY[..]].concat()).await;
    assert_report(&report, now);
    assert_eq!(report["source"]["name"], format!("{url}/"));

    let later = simulate(&[&[&*url, "--last", "12h"], &POLICY[..]].concat());
    let later: Value = serde_json::from_slice(&later.stdout).unwrap();
    assert_eq!(cut_by_queue(&later), json!([["q", 2, 1, 24.0], ["namespace/team", 1, 1, 1.0]]), "{later:#}");
    let other = simulate(&[&[&*url, "--prometheus-selector", "cluster=\"other\""], &POLICY[..]].concat());
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(said.contains("has no kube_pod_created since"), "{said}");
    let none = simulate(&[&[&*url, "-n", "other"], &POLICY[..]].concat());
    let none: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!((&none["total"]["jobs"], &none["source"]["shareSeen"]), (&json!(0), &Value::Null), "{none:#}");
}

#[tokio::test]
async fn a_prometheus_that_keeps_its_own_labels_is_read_by_tls_and_with_a_password() {
    let now = now();
    let directory = filled("prometheus-tls", &samples(now, true));
    let path = |name: &str| directory.join(name).display().to_string();
    let authority = Authority::new("of Prometheus").unwrap();
    let pair = authority.server(&["127.0.0.1".into()]).unwrap();
    let files = [
        ("ca.pem", authority.certificate_pem()),
        ("tls.pem", &pair.certificate),
        ("key.pem", &pair.key),
        ("password", &format!("{PASSWORD}\n")),
        ("wrong", "let me out"),
    ];
    for (name, content) in files {
        fs::write(path(name), content).unwrap();
    }
    let web = json!({
        "tls_server_config": {"cert_file": "tls.pem", "key_file": "key.pem"},
        "basic_auth_users": {"admin": HASHED},
    });
    fs::write(path("web.yml"), web.to_string()).unwrap();
    let (_server, address) = prometheus(&directory, &[format!("--web.config.file={}", path("web.yml"))]);
    let url = format!("https://{address}");
    let (ca, password, wrong) = (path("ca.pem"), path("password"), path("wrong"));
    let with = |more: &[&str]| {
        let arguments = [&[&*url], &POLICY[..], more].concat();
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let user = ["--prometheus-ca", &ca, "--prometheus-user", "admin", "--prometheus-password"];
    let good = with(&[&user[..], &[&password]].concat());
    assert_report(&report(&good.iter().map(String::as_str).collect::<Vec<_>>()).await, now);

    let refusals = [
        (
            with(&[&user[..], &[&wrong]].concat()),
            format!(
                "Prometheus at {url} answers 401 Unauthorized: check --prometheus-token or --prometheus-user"
            ),
        ),
        (with(&["--prometheus-ca", &ca]), format!("Prometheus at {url} answers 401 Unauthorized")),
        (with(&[]), format!("cannot ask Prometheus at {url}: ")),
        (
            vec![url.replace("//", "//admin:secret@"), "--max-duration=9h".into()],
            "give --prometheus-user".into(),
        ),
        (with(&["--prometheus-ca", "none.pem"]), "cannot use --prometheus-ca".into()),
    ];
    for (arguments, refusal) in refusals {
        let Output { status, stderr, .. } =
            simulate(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let said = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(1) && said.contains(&refusal), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn a_token_is_sent_and_what_answers_otherwise_is_no_prometheus() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus-token");
    fs::write(&file, "secret\n").unwrap();
    let asked = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let lines = reader.by_ref().lines().map(Result::unwrap);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        // a connection that is closed before its request is read is reset
        let length =
            head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        reader.take(length).read_to_end(&mut Vec::new()).unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
        head
    });
    let arguments = [&[&*url, "--prometheus-token", file.to_str().unwrap()], &POLICY[..]].concat();
    let said = String::from_utf8(simulate(&arguments).stderr).unwrap();
    let expected = format!("the server at {url} is not Prometheus: it answers 200 OK to /api/v1/query_range");
    assert!(said.contains(&expected), "{said}");
    let head = asked.join().unwrap();
    assert!(head.contains(&"authorization: Bearer secret".to_owned()), "{head:?}");
}

#[tokio::test]
async fn kube_state_metrics_exports_what_is_asked_for_of_a_cluster_that_runs() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    let labels = in_runai_queue("q");
    namespace
        .create(&distinct(workload("Job", namespace.name(), "train", &labels, &Value::Null), "train"))
        .await;
    namespace.create(&bare_pod(namespace.name(), "alone", &json!({}), &Value::Null)).await;
    namespace.await_running(2).await;
    let directory = world.cluster.directory().join("prometheus");
    fs::create_dir_all(&directory).unwrap();
    let ksm = tool("kube-state-metrics");
    let [metrics, telemetry] = [(); 2].map(|()| free_port().unwrap());
    let scrape = json!({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "ksm", "static_configs": [{"targets": [format!("127.0.0.1:{metrics}")]}]}],
    });
    fs::write(directory.join("prometheus.yml"), scrape.to_string()).unwrap();
    let labels = format!("--metric-labels-allowlist=pods=[{}]", tenure_types::keys::QUEUE_LABELS.join(","));
    let arguments = [
        format!("--kubeconfig={}", world.cluster.kubeconfig().display()),
        "--resources=jobs,nodes,pods".into(),
        "--host=127.0.0.1".into(),
        format!("--port={metrics}"),
        "--telemetry-host=127.0.0.1".into(),
        format!("--telemetry-port={telemetry}"),
    ];
    let log = directory.join("ksm.log");
    let without = server("kube-state-metrics", &ksm, &arguments, &log);
    let (_prometheus, address) = prometheus(&directory, &[]);
    let url = format!("http://{address}");
    let seen = async |queue: &str, missing: bool| {
        eventually("runs by queue", DEADLINE, async || {
            let report = report(&[&url, "--max-duration", "1d", "-n", namespace.name()]).await;
            let own = format!("namespace/{}", namespace.name());
            let jobs = |name: &str| {
                let mut queues = report["queues"].as_array().into_iter().flatten();
                queues.find(|of| of["queue"] == name).map_or(0, |of| of["jobs"].as_u64().unwrap())
            };
            let expected = if queue == "q" { [1, 1] } else { [0, 2] };
            anyhow::ensure!([jobs("q"), jobs(&own)] == expected, "{report:#}");
            assert_eq!(
                report["missing"].to_string().contains("--metric-labels-allowlist=pods=["),
                missing,
                "{report:#}"
            );
            Ok(Some(()))
        })
        .await
        .unwrap();
    };
    seen("namespace", true).await;
    drop(without);
    let _with = server("kube-state-metrics", &ksm, &[&arguments[..], &[labels]].concat(), &log);
    seen("q", false).await;
    let kubeconfig = world.cluster.kubeconfig().display().to_string();
    let of_both =
        ["--from-cluster", "--kubeconfig", &kubeconfig, "--max-duration", "1d", "-n", namespace.name()];
    let both = report(&[&[&*url], &of_both[..]].concat()).await;
    assert_eq!(
        (&both["baseline"], &both["total"]["jobs"], &both["eventsNow"]),
        (&json!("the queues of the cluster"), &json!(2), &json!(0)),
        "{both:#}"
    );
    assert!(!both["missing"].to_string().contains("were deleted"), "{both:#}");
}
