//! Each way in which the plugin refuses, with its exact words and exit code: files that can't be meant, and clusters that
//! can't be asked. Clusters that answer are in `tests/tests/cli/refusals.rs`.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod plugin;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::Stdio,
    thread,
};

use plugin::{outcome, plugin, run, with};

/// Files that hold no objects, and the complaint about each.
const UNREADABLE: [(&str, &str); 15] = [
    ("", "no objects in f"),
    ("# none\n---\n~\n", "no objects in f"),
    ("apiVersion: v1\nkind: [Queue\n", "f:2: unclosed bracket '['"),
    ("apiVersion: \"v1\nkind: Queue\n", "f:1: unclosed quote"),
    (
        "apiVersion: v1\nkind: Queue\nspec:\n\ta: 1\n",
        "f:4: tabs disallowed within this context (block indentation)",
    ),
    ("apiVersion: v1\nkind: Queue\nkind: Queue\n", "f:3: key \"kind\" appears twice"),
    ("- apiVersion: v1\n", "f:1: an object was expected, with apiVersion, kind and metadata"),
    ("just text\n", "f:1: an object was expected, with apiVersion, kind and metadata"),
    ("kind: Queue\n", "f:1: apiVersion is missing"),
    ("apiVersion: v1\n", "f:1: kind is missing"),
    ("apiVersion: v1\nkind: 5\n", "f:1: kind must be a string that isn't empty, not 5"),
    ("apiVersion: v1\nkind: List\nitems: {}\n", "f:1: items must be a list"),
    ("{\"apiVersion\": \"v1\",\n\"kind\": \"Queue\"", "f:2: EOF while parsing an object"),
    ("a: &a [*a]\n", "f:1: Recursive reference not allowed here"),
    ("apiVersion: v1\nkind: Queue\nspec: *gone\n", "f:3: reference to unknown value"),
];

/// The beginning of an object, the rest of it, and the message about it after the place and its kind.
const REFUSED: [(&str, &str, &str); 21] = [
    (
        "scheduling.run.ai/v9 Queue",
        "metadata: {name: a}",
        "a: apiVersion: Invalid value: \"scheduling.run.ai/v9\": must be scheduling.run.ai/v3alpha1 or scheduling.run.ai/v2 for kind Queue",
    ),
    (
        "scheduler.tensorstack.dev/v2 Queue",
        "metadata: {name: a}",
        "a: apiVersion: Invalid value: \"scheduler.tensorstack.dev/v2\": must be scheduler.tensorstack.dev/v1beta1 for kind Queue",
    ),
    (
        "scheduling.run.ai/v2 Queues",
        "metadata: {name: a}",
        "a: kind: Invalid value: \"Queues\": there is no such kind in group scheduling.run.ai: did you mean Queue?",
    ),
    (QUEUE, "metadata: {}", ": metadata.name: Required value: name or generateName is required"),
    (
        QUEUE,
        "metadata: {name: Bad_Name}",
        "Bad_Name: metadata.name: Invalid value: \"Bad_Name\": must be lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters",
    ),
    (
        QUEUE,
        "metadata: {name: a, labels: {team: 5}}",
        "a: metadata.labels.team: Invalid value: 5: must be a string",
    ),
    (
        QUEUE,
        "metadata: {name: a, label: {}}",
        "a: metadata.label: Invalid value: {}: unknown field: did you mean labels?",
    ),
    (QUEUE, "metadata: {name: a}\nspec: []", "a: spec: Invalid value: []: must be an object"),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {maxDuraton: 1h}",
        "a: spec.maxDuraton: Invalid value: \"1h\": unknown field: did you mean maxDuration?",
    ),
    (
        "scheduling.run.ai/v2 Queue",
        "metadata: {name: a}\nspec: {maxDuration: 1h}",
        "a: spec.maxDuration: Invalid value: \"1h\": unknown field: v2 has annotation tenure.dev/max-duration instead, and scheduling.run.ai/v3alpha1 has the field",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {priority: high}",
        "a: spec.priority: Invalid value: \"high\": must be a whole number",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {onReversal: Ignore}",
        "a: spec.onReversal: Invalid value: \"Ignore\": must be Pause or DeletePods",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {maxDuration: 10 s}",
        "a: spec.maxDuration: Invalid value: \"10 s\": must be a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns): unknown unit \" s\"",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {maxDuration: 0s}",
        "a: spec.maxDuration: Invalid value: \"0s\": must be greater than zero; leave it out for no limit of its own",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {waitForPodsReady: {timeout: 0s}}",
        "a: spec.waitForPodsReady.timeout: Invalid value: \"0s\": must be greater than zero; set enable: false for none",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {preemptMinRuntime: 2h, maxDuration: 1h}",
        "a: spec.preemptMinRuntime: Invalid value: \"2h\": must not be longer than the queue's own maxDuration, 1h",
    ),
    (
        QUEUE,
        "metadata: {name: a}\nspec: {parentQueue: a}",
        "a: spec.parentQueue: Invalid value: \"a\": a queue can't be its own parent",
    ),
    (
        "scheduler.tensorstack.dev/v1beta1 Queue",
        "metadata: {name: a, namespace: t9k-system}\nspec: {priority: 101}",
        "a: spec.priority: Invalid value: 101: must be from 0 to 100",
    ),
    (
        CLASS,
        "metadata: {name: a}\nvalue: 1000000001",
        "a: value: Invalid value: 1000000001: must be at most 1000000000",
    ),
    (
        CLASS,
        "metadata: {name: system-a}",
        "system-a: metadata.name: Invalid value: \"system-a\": must not begin with system-, which is reserved for system use",
    ),
    (
        CLASS,
        "metadata: {name: a}\nvalue: high",
        "a: value: Invalid value: \"high\": must be a whole number from -2147483648 to 2147483647",
    ),
];

const QUEUE: &str = "scheduling.run.ai/v3alpha1 Queue";
const CLASS: &str = "scheduling.k8s.io/v1 PriorityClass";

#[test]
fn files_that_hold_no_objects() {
    for (text, complaint) in UNREADABLE {
        let (out, err, code) = run(&with(&[("f", text)]), "validate -f f");
        assert_eq!((out.as_str(), err, code), ("", format!("error: {complaint}\n"), 1), "{text}");
    }
    let none = run(&with(&[]), "validate -f f");
    assert_eq!(none, (String::new(), "error: the path \"f\" does not exist\n".into(), 1));
}

#[test]
fn objects_that_the_api_server_or_the_webhook_would_refuse() {
    for (head, rest, said) in REFUSED {
        let (api_version, kind) = head.split_once(' ').unwrap();
        let group = api_version.split_once('/').unwrap().0;
        let text = format!("apiVersion: {api_version}\nkind: {kind}\n{rest}\n");
        let (out, _, code) = run(&with(&[("f", &text)]), "validate -f f");
        let lines = format!(
            "f:1: error: {}.{group}/{said}\n1 reviewed: 0 allowed, 1 refused, 0 with warnings; 0 skipped\n",
            kind.to_lowercase()
        );
        assert_eq!((out, code), (lines, 1), "{text}");
    }
}

#[test]
fn files_with_nothing_to_review() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n";
    for (text, skipped) in
        [(deployment, "1 skipped (Deployment)"), ("apiVersion: v1\nkind: List\n", "0 skipped")]
    {
        let (out, err, code) = run(&with(&[("f", text)]), "validate -f f");
        assert_eq!(out, format!("0 reviewed: 0 allowed, 0 refused, 0 with warnings; {skipped}\n"));
        let complaint = "error: nothing to review in f: the kinds that are reviewed are Queue of scheduling.run.ai, Queue of scheduler.tensorstack.dev, and PriorityClass of scheduling.k8s.io\n";
        assert_eq!((err.as_str(), code), (complaint, 1));
    }
}

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nclusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

const REFUSED_CONNECTION: &str = "cannot reach the API server at https://127.0.0.1:1: Connection refused (os error 111): check that it runs, and that the server of the kubeconfig's context, or --server, is right";

#[test]
fn clusters_that_no_kubeconfig_leads_to() {
    let good = kubeconfig("https://127.0.0.1:1", "token: t");
    let login =
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nonexistent, interactiveMode: Never}";
    let directory = with(&[
        ("good", &good),
        ("empty", "{}"),
        ("broken", "a: ["),
        ("no-context", &good.replace("current-context: c", "current-context: d")),
        ("no-cluster", &good.replace("cluster: k,", "cluster: z,")),
        ("no-url", &kubeconfig("https://a b", "")),
        ("no-login", &kubeconfig("https://127.0.0.1:1", login)),
    ]);
    for (flags, complaint) in [
        (
            "",
            "no cluster: set KUBECONFIG, or give --kubeconfig or --server: cannot read the kubeconfig /nonexistent: No such file or directory (os error 2)",
        ),
        ("--kubeconfig gone", "cannot read the kubeconfig gone: No such file or directory (os error 2)"),
        (
            "--kubeconfig broken",
            "cannot use the kubeconfig: failed to parse kubeconfig YAML: error: line 1 column 4: unclosed bracket '['",
        ),
        (
            "--kubeconfig empty",
            "the kubeconfig has no current context: give --context, or set one with kubectl config use-context",
        ),
        (
            "--kubeconfig no-context",
            "the kubeconfig has no context \"d\": kubectl config get-contexts shows which it has",
        ),
        (
            "--kubeconfig good --context d",
            "the kubeconfig has no context \"d\": kubectl config get-contexts shows which it has",
        ),
        (
            "--kubeconfig no-cluster",
            "the kubeconfig has no cluster \"z\", which --cluster or its context names: kubectl config get-clusters shows which it has",
        ),
        (
            "--kubeconfig good --cluster z",
            "the kubeconfig has no cluster \"z\", which --cluster or its context names: kubectl config get-clusters shows which it has",
        ),
        (
            "--kubeconfig good --user z",
            "the kubeconfig has no user \"z\": kubectl config get-users shows which it has",
        ),
        (
            "--kubeconfig good --certificate-authority gone",
            "cannot read gone: No such file or directory (os error 2)",
        ),
        ("--kubeconfig good --certificate-authority broken", "broken has no certificates in PEM"),
        ("--kubeconfig good --cluster k --user u --token t", REFUSED_CONNECTION),
        ("--kubeconfig good --insecure-skip-tls-verify", REFUSED_CONNECTION),
        (
            "--kubeconfig no-url",
            "cannot use the kubeconfig: failed to parse cluster url: invalid uri character",
        ),
        (
            "--kubeconfig no-login",
            "cannot log in to the API server at https://127.0.0.1:1: auth error: unable to run auth exec: No such file or directory (os error 2): check the user of the kubeconfig's context",
        ),
        ("--kubeconfig good", REFUSED_CONNECTION),
        ("--kubeconfig good --as jane --as-group team --request-timeout 5s", REFUSED_CONNECTION),
        ("--server https://127.0.0.1:1", REFUSED_CONNECTION),
        ("--kubeconfig good -n a/b", "\"a/b\" can't be a namespace"),
    ] {
        let (out, err, code) = run(&directory, &format!("list {flags}"));
        assert_eq!((out.as_str(), err, code), ("", format!("error: {complaint}\n"), 1), "{flags}");
    }
    for command in
        ["queue a", "resume job/a", "resume --all", "explain pod a", "matrix", "requeue-schedule --queue a"]
    {
        let (out, err, code) = run(&directory, &format!("{command} --kubeconfig good"));
        assert_eq!((out.as_str(), err, code), ("", format!("error: {REFUSED_CONNECTION}\n"), 1), "{command}");
    }
}

#[test]
fn of_the_list_in_kubeconfig_the_files_that_exist_count_as_for_kubectl() {
    let good = kubeconfig("https://127.0.0.1:1", "token: t");
    let files =
        [("good", good.as_str()), ("user", "users: [{name: u, user: {token: t}}]"), ("broken", "a: [")];
    let directory = with(&files);
    let without_user = good.lines().filter(|line| !line.starts_with("users")).collect::<Vec<_>>().join("\n");
    fs::write(directory.path().join("no-user"), without_user).unwrap();
    let outcome_with = |list: &str| {
        let mut plugin = plugin(directory.path(), "list");
        outcome(plugin.env("KUBECONFIG", list).stdin(Stdio::null()).output().unwrap())
    };
    for list in ["gone:good", "good:gone", ":good", "gone::no-user:user", "user:gone:no-user"] {
        assert_eq!(
            outcome_with(list),
            (String::new(), format!("error: {REFUSED_CONNECTION}\n"), 1),
            "{list}"
        );
    }
    let (_, err, _) = outcome_with("gone:also-gone");
    let first =
        "no cluster: set KUBECONFIG, or give --kubeconfig or --server: cannot read the kubeconfig gone: ";
    assert!(err.contains(first), "{err}");
    let (_, err, _) = outcome_with("good:broken");
    assert!(err.contains("cannot use the kubeconfig: "), "{err}");
}

/// The address of a server that gives each request the same answer, a status and a body, or none at all.
fn answering(answer: Option<(u16, &'static str)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some((status, body)) = answer else {
                silent.push(stream);
                continue;
            };
            let head =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            drop(head.last());
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            // the client may have enough
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn servers_that_answer_otherwise_than_an_api_server() {
    let unauthorized =
        r#"{"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401}"#;
    let forbidden = r#"{"kind": "Status", "message": "forbidden: User \"jane\" cannot get path \"/api\"", "reason": "Forbidden", "code": 403}"#;
    let address =
        "check that it runs, and that the server of the kubeconfig's context, or --server, is right";
    let none = format!("the server there is not an API server: {address}");
    for (answer, expected) in [
        (Some((404, "<html>")), format!("error: cannot reach the API server at URL: {none}\n")),
        (Some((200, "<html>")), format!("error: cannot reach the API server at URL: {none}\n")),
        (
            Some((401, unauthorized)),
            "error: cannot log in to the API server at URL: Unauthorized: check the user of the kubeconfig's context\n".into(),
        ),
        (
            Some((403, forbidden)),
            "Error from server (Forbidden): forbidden: User \"jane\" cannot get path \"/api\"\n".into(),
        ),
        (None, format!("error: cannot reach the API server at URL: timed out: {address}\n")),
    ] {
        let url = answering(answer);
        let (out, err, code) = run(&with(&[]), &format!("list --server {url} --request-timeout 1s"));
        assert_eq!((out.as_str(), err.replace(&url, "URL"), code), ("", expected, 1));
    }
}

#[test]
fn command_lines_that_say_too_little_or_too_much() {
    let which = "error: no workloads: name them as in deployment/test, or select them with --queue NAME, -l SELECTOR, or --all for all paused ones of the namespace (with -A of all namespaces)\n";
    for (line, begin) in [
        ("resume", which),
        ("resume -A --since 1h", which),
        (
            "resume --queue a job/b",
            "error: the argument '--queue <QUEUE>' cannot be used with '[OBJECT]...'\n",
        ),
        ("resume --all --field spec.x", "error: the argument '--all' cannot be used with '--field <PATH>'\n"),
        (
            "resume --all --since soon",
            "error: invalid value 'soon' for '--since <DURATION>': must be a duration such as 10m, 1h30m or 1d: a number is missing before \"soon\"\n",
        ),
        (
            "list -l a>1",
            "error: invalid value 'a>1' for '--selector <SELECTOR>': must be a label selector such as app=web,tier!=test, 'env in (dev, ci)' or '!legacy': can't read \"a>1\"\n",
        ),
        (
            "list --server localhost",
            "error: invalid value 'localhost' for '--server <URL>': must be a URL such as https://10.0.0.1:6443\n",
        ),
        (
            "simulate --prometheus localhost",
            "error: invalid value 'localhost' for '--prometheus <URL>': must be a URL such as http://prometheus.monitoring:9090\n",
        ),
        (
            "ui -f a.yaml --export a.html --no-browser",
            "error: the argument '--export <FILE>' cannot be used with '--no-browser'\n",
        ),
        (
            "list --request-timeout soon",
            "error: invalid value 'soon' for '--request-timeout <DURATION>': must be a duration such as 10s or 1m, a number of seconds, or 0 for no limit\n",
        ),
        ("list --as-group a", "error: the following required arguments were not provided:\n  --as <USER>\n"),
        ("lst", "error: unrecognized subcommand 'lst'\n\n  tip: a similar subcommand exists: 'list'\n"),
    ] {
        let (out, err, code) = run(&with(&[]), line);
        assert_eq!((out.as_str(), code), ("", 2), "{line}");
        assert!(err.starts_with(begin), "{line}: {err}");
    }
}
