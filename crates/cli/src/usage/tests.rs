use serde_json::json;

use super::*;

const HOUR: u64 = 3_600_000_000;

fn record() -> UsageRecord {
    serde_json::from_value(json!({
        "resourceVersion": "7", "at": "2026-01-02T00:00:00Z", "since": "2026-01-01T00:00:00Z",
        "queues": [
            {"family": "run.ai", "queue": "", "used": {"cpu": {"deleted": HOUR}}},
            {"family": "run.ai", "queue": "research", "used": {
                "nvidia.com/gpu": {
                    "succeeded": 100 * HOUR, "cut": 40 * HOUR, "preemptedUnder5m": HOUR / 2,
                    "preemptedUnder6h": 8 * HOUR, "evictedUnready": HOUR / 100,
                },
                "memory": {"failed": 2 * (HOUR << 30)},
            }},
        ],
    }))
    .unwrap()
}

fn args(arguments: &[&str]) -> UsageArgs {
    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        usage: UsageArgs,
    }
    <Program as clap::Parser>::try_parse_from([&["usage"], arguments].concat()).unwrap().usage
}

fn shown(arguments: &[&str], record: &UsageRecord) -> String {
    let args = args(arguments);
    args.table(&args.answer(record), record, "2026-01-02T00:00:03Z".parse().unwrap())
}

#[test]
fn the_table_has_hours_of_each_queue_and_resource_by_end() {
    let expected = "\
QUEUE      RESOURCE         TOTAL   SUCCEEDED   FAILED   CUT    PREEMPTED   UNREADY   DELETED
<none>     cpu              1.00    0           0        0      0           0         1.00
research   memory           2.00    0           2.00     0      0           0         0
research   nvidia.com/gpu   149     100         0        40.0   8.50        0.01      0

Hours of one unit, of runs that have ended since 2026-01-01T00:00:00Z. Counted up to 3s ago.
";
    assert_eq!(shown(&[], &record()), expected);
}

#[test]
fn queues_and_resources_can_be_chosen_and_preempted_runs_shown_by_age() {
    let expected = "\
QUEUE      RESOURCE         0-5m   5m-30m   30m-1h   1h-6h   6h-1d   1d+
research   nvidia.com/gpu   0.50   0        0        8.00    0       0
";
    let arguments = ["--queue", "research", "--resource=nvidia.com/gpu,cpu", "--preempted"];
    assert!(shown(&arguments, &record()).starts_with(expected));
}

#[test]
fn a_gap_is_reported() {
    let gap = json!({"from": "2026-01-01T01:00:00Z", "to": "2026-01-01T02:00:00Z"});
    let record = UsageRecord { gaps: 2, last_gap: serde_json::from_value(gap).unwrap(), ..record() };
    let message = "2 times, the last from 2026-01-01T01:00:00Z to 2026-01-01T02:00:00Z.\n";
    assert!(shown(&[], &record).ends_with(message));
}

#[test]
fn programs_get_seconds() {
    let args = args(&["--queue=research", "--resource=nvidia.com/gpu"]);
    let answer = serde_json::to_value(args.answer(&record())).unwrap();
    assert_eq!(
        answer["usage"][0],
        json!({
            "family": "run.ai", "queue": "research", "resource": "nvidia.com/gpu", "total": 534_636.0,
            "ends": {"succeeded": 360_000.0, "cut": 144_000.0, "preempted": 30_600.0, "evicted_unready": 36.0},
            "preempted": {"0-5m": 1_800.0, "1h-6h": 28_800.0},
        })
    );
}
