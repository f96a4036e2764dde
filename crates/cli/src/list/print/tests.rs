use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn row(name: &str, state: WorkloadState) -> WorkloadRow {
    WorkloadRow {
        namespace: "ns".into(),
        workload: format!("deployment/{name}"),
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: name.into(),
        queue: Some("q".into()),
        family: Some("run.ai"),
        state,
        started_at: Some(at(0)),
        expires_at: Some(at(3_600)),
        ceiling_from: Some("root".into()),
        pods: 2,
        ready_pods: Some(1),
        needed_pods: Some(2),
        ..WorkloadRow::default()
    }
}

fn printed(format: Option<Format>, namespaces: bool, rows: &[WorkloadRow]) -> String {
    Printer::new(format, namespaces, true).all(rows, at(192)).unwrap()
}

#[test]
fn a_table_has_the_namespace_only_if_there_are_several() {
    let narrow = "\
WORKLOAD       QUEUE   AGE     FLOOR UNTIL   EXPIRES AT             COMES BACK AT   STATE
deployment/a   q       3m12s   <none>        2027-01-15T09:00:00Z   <none>          Running
";
    assert_eq!(printed(None, false, &[row("a", WorkloadState::Running)]), narrow);
    assert!(printed(None, true, &[row("a", WorkloadState::Running)]).starts_with("NAMESPACE   WORKLOAD "));
    assert_eq!(printed(None, true, &[]), "");
}

#[test]
fn what_comes_back_is_listed_with_when() {
    let waiting =
        WorkloadRow { requeue_at: Some(at(600)), expires_at: None, ..row("a", WorkloadState::Requeueing) };
    let table = printed(None, false, &[waiting]);
    assert!(table.ends_with("<none>       2027-01-15T08:10:00Z   Requeueing\n"), "{table}");
}

#[test]
fn what_a_user_may_not_read_is_unknown_and_not_none() {
    let hidden = WorkloadRow { queue_is_hidden: true, floor_until: None, ..row("a", WorkloadState::Running) };
    let table = printed(None, false, std::slice::from_ref(&hidden));
    assert!(
        table.ends_with("3m12s   <unknown>     2027-01-15T09:00:00Z   <none>          Running\n"),
        "{table}"
    );
    let table =
        printed(Some(Format::Wide), false, &[WorkloadRow { expires_at: None, ceiling_from: None, ..hidden }]);
    assert_eq!(table.matches("<unknown>").count(), 4, "{table}");
}

#[test]
fn a_paused_workload_is_as_old_as_its_pause() {
    let paused =
        WorkloadRow { started_at: None, paused_at: Some(at(180)), ..row("a", WorkloadState::Paused) };
    let table = printed(None, false, &[paused]);
    assert!(table.contains("deployment/a   q       12s "), "{table}");
}

#[test]
fn what_is_paused_is_listed_with_how_long_and_the_command_that_brings_it_back() {
    let paused = WorkloadRow {
        paused_at: Some(at(72)),
        started_at: None,
        expires_at: None,
        ..row("a", WorkloadState::Paused)
    };
    let inactive = WorkloadRow { state: WorkloadState::Inactive, ..paused.clone() };
    let expected = "\
WORKLOAD       QUEUE   AGE   FLOOR UNTIL   EXPIRES AT   COMES BACK AT             STATE
deployment/a   q       2m    <none>        <none>       kubectl tenure resume     Paused
deployment/a   q       2m    <none>        <none>       kubectl tenure activate   Inactive
";
    assert_eq!(printed(None, false, &[paused, inactive]), expected);
}

#[test]
fn a_wide_table_says_why_and_since_when() {
    let paused = WorkloadRow {
        reason: Some("MaxDurationExceeded".into()),
        paused_at: Some(at(0)),
        expires_at: None,
        ..row("a", WorkloadState::Paused)
    };
    let wide = printed(Some(Format::Wide), false, &[paused, row("b", WorkloadState::Running)]);
    let lines: Vec<_> = wide.lines().collect();
    assert!(lines[0].ends_with("STATE     IN       PODS   FAMILY   CEILING FROM   REASON"), "{wide}");
    assert!(lines[1].ends_with("root           MaxDurationExceeded since 2027-01-15T08:00:00Z"), "{wide}");
    assert!(lines[2].ends_with("Running   56m      2      run.ai   root           <none>"), "{wide}");
}

#[test]
fn objects_have_exact_times_and_no_fields_that_say_nothing() {
    let json: Value =
        serde_json::from_str(&printed(Some(Format::Json), false, &[row("a", WorkloadState::Running)]))
            .unwrap();
    let expected = json!([{
        "namespace": "ns", "workload": "deployment/a", "apiVersion": "apps/v1", "kind": "Deployment", "name": "a",
        "queue": "q", "family": "run.ai", "state": "Running", "startedAt": "2027-01-15T08:00:00Z",
        "expiresAt": "2027-01-15T09:00:00Z", "ceilingFrom": "root", "pods": 2, "readyPods": 1, "neededPods": 2,
    }]);
    assert_eq!(json, expected);
    let yaml = printed(Some(Format::Yaml), false, &[row("a", WorkloadState::Running)]);
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), expected, "{yaml}");
    assert_eq!(printed(Some(Format::Json), false, &[]), "[]\n");
}

#[test]
fn changes_come_under_the_headers_of_the_first_rows() {
    let mut printer = Printer::new(None, false, true);
    assert_eq!(printer.some(&[], at(0)).unwrap(), "");
    let first = printer.some(&[row("a", WorkloadState::Running)], at(0)).unwrap();
    let text = first + &printer.some(&[row("a", WorkloadState::Gone)], at(0)).unwrap();
    assert_eq!(text.matches("WORKLOAD").count(), 1);
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn each_object_of_a_watch_is_a_document() {
    let changes = |format: Format| {
        let mut printer = Printer::new(Some(format), false, true);
        let first = printer.some(&[row("a", WorkloadState::Pending)], at(0)).unwrap();
        first + &printer.some(&[row("a", WorkloadState::Running)], at(0)).unwrap()
    };
    let json = changes(Format::Json);
    let states: Vec<Value> =
        json.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect();
    assert_eq!(states, ["Pending", "Running"]);
    assert_eq!(changes(Format::Yaml).matches("---\n").count(), 2);
}

#[test]
fn age_alone_is_no_change_and_what_is_not_shown_is_none() {
    let (narrow, wide) = (Printer::new(None, false, true), Printer::new(Some(Format::Wide), false, true));
    let before = row("a", WorkloadState::Running);
    let more = WorkloadRow { pods: 3, ..before.clone() };
    assert!(!narrow.differ(&before, &before.clone()) && !narrow.differ(&before, &more));
    assert!(wide.differ(&before, &more));
    assert!(narrow.differ(&before, &row("a", WorkloadState::Expired)));
}

#[test]
fn names_are_as_kubectl_takes_them_and_headers_can_be_left_out() {
    let of = |api_version: &str, kind: &str| WorkloadRow {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "a".into(),
        workload: format!("{}/a", kind.to_lowercase()),
        ..WorkloadRow::default()
    };
    let rows = [of("apps/v1", "Deployment"), of("v1", "Pod"), of("kubeflow.org/v1", "MPIJob")];
    let names = Printer::new(Some(Format::Name), true, true).all(&rows, at(0)).unwrap();
    assert_eq!(names, "deployment.apps/a\npod/a\nmpijob.kubeflow.org/a\n");
    let table = Printer::new(None, false, false).all(&rows[1..2], at(0)).unwrap();
    assert!(table.starts_with("pod/a ") && table.lines().count() == 1, "{table}");
}
