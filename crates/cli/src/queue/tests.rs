use tenure_policy::requeue::WaitingWorkload;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn row(name: &str, state: WorkloadState) -> WorkloadRow {
    WorkloadRow {
        namespace: "ns".into(),
        workload: format!("job/{name}"),
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: name.into(),
        queue: Some("q".into()),
        state,
        ..WorkloadRow::default()
    }
}

/// Waits until then; paused and created then.
fn waiting(name: &str, requeue_at: i64, priority: i32, paused_at: i64, created: i64) -> WorkloadRow {
    let waiting =
        WaitingWorkload { priority, created: at(created), paused: at(paused_at), name: format!("ns/{name}") };
    WorkloadRow {
        reason: Some("PodsReadyTimeout".into()),
        paused_at: Some(at(paused_at)),
        requeue_at: Some(at(requeue_at)),
        requeue_count: Some(3),
        waiting: Some((Family::Runai, waiting)),
        ..row(name, WorkloadState::Requeueing)
    }
}

fn answer(timestamp: RequeuingTimestamp, rows: Vec<WorkloadRow>) -> QueueOverview {
    QueueOverview::new("q".into(), |_| timestamp, rows, at(100))
}

#[test]
fn those_that_are_due_come_back_in_the_order_of_the_queue_and_the_others_at_their_times() {
    let rows = vec![
        waiting("late", 300, 9, 50, 5),
        waiting("next", 200, 0, 60, 5),
        waiting("younger", 90, 0, 20, 11),
        waiting("older", 95, 0, 30, 10),
        waiting("urgent", 99, 5, 40, 12),
    ];
    let names = |timestamp| -> Vec<String> {
        answer(timestamp, rows.clone()).coming_back.into_iter().map(|row| row.name).collect()
    };
    assert_eq!(names(RequeuingTimestamp::Eviction), ["urgent", "younger", "older", "next", "late"]);
    assert_eq!(names(RequeuingTimestamp::Creation), ["urgent", "older", "younger", "next", "late"]);
}

#[test]
fn queues_of_one_name_in_both_families_have_each_its_own_order() {
    let of = |family: Family, row: WorkloadRow| WorkloadRow {
        waiting: row.waiting.map(|(_, place)| (family, place)),
        ..row
    };
    let rows = [Family::Runai, Family::Tensorstack].into_iter().flat_map(|family| {
        let of = |row| of(family, row);
        [of(waiting("younger", 90, 0, 20, 11)), of(waiting("older", 95, 0, 30, 10))]
    });
    let timestamp = |family| match family {
        Family::Runai => RequeuingTimestamp::Creation,
        Family::Tensorstack => RequeuingTimestamp::Eviction,
    };
    let answer = QueueOverview::new("q".into(), timestamp, rows.collect(), at(100));
    let names: Vec<_> = answer.coming_back.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["younger", "older", "older", "younger"]);
}

#[test]
fn each_list_has_a_table_and_those_that_are_empty_have_none() {
    let running = WorkloadRow {
        ready_pods: Some(1),
        needed_pods: Some(2),
        started_at: Some(at(0)),
        expires_at: Some(at(3600)),
        ..row("a", WorkloadState::Running)
    };
    let inactive = WorkloadRow {
        reason: Some("WorkloadInactive".into()),
        paused_at: Some(at(60)),
        requeue_count: Some(10),
        ..row("c", WorkloadState::Inactive)
    };
    let rows = vec![row("p", WorkloadState::Pending), running, waiting("b", 130, 0, 70, 0), inactive];
    let expected = "\
RUNNING   PODS READY   SINCE                  FLOOR UNTIL   EXPIRES AT             STATE
job/a     1/2          2027-01-15T08:00:00Z   <none>        2027-01-15T09:00:00Z   Running
job/p     <none>       <none>                 <none>        <none>                 Pending

COMING BACK   AT                     IN    RETURNS   PAUSED AT              BECAUSE OF
job/b         2027-01-15T08:02:10Z   30s   3         2027-01-15T08:01:10Z   PodsReadyTimeout

DEACTIVATED   RETURNS   PAUSED AT              BECAUSE OF
job/c         10        2027-01-15T08:01:00Z   WorkloadInactive
";
    assert_eq!(answer(RequeuingTimestamp::Eviction, rows).tables(false, at(100)), expected);
}

#[test]
fn workloads_of_other_queues_are_left_out_and_namespaces_are_named_where_there_are_several() {
    let other = WorkloadRow { queue: Some("other".into()), ..row("b", WorkloadState::Paused) };
    let answer = answer(RequeuingTimestamp::Eviction, vec![row("a", WorkloadState::Paused), other]);
    assert_eq!(
        answer.tables(true, at(100)),
        "NAMESPACE   PAUSED   PAUSED AT   BECAUSE OF\nns          job/a    <none>      <none>\n"
    );
}
