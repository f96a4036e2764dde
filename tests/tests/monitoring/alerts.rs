//! When alerts fire.

use std::collections::BTreeSet;

use crate::{
    expressions::{alerts, of_alerts, of_dashboard, rules, selectors},
    promql::{check, evaluate},
};

/// An alert, series with which it fires, and series with which it doesn't. Each has a value a minute for 150 minutes:
/// `1x150` is always 1, `0+2x150` grows by 2, and of `_x140 1x10` there is none before minute 140.
struct Case(&'static str, &'static [&'static str], &'static [&'static str]);

const CASES: [Case; 18] = [
    Case(
        "TenureNoKeeperLeads",
        &[r#"tenure_keeper_leader{pod="a"} 0x150"#],
        &[r#"tenure_keeper_leader{pod="a"} 0x150"#, r#"tenure_keeper_leader{pod="b"} 1x150"#],
    ),
    Case(
        "TenureCeilingsLate",
        &[
            r#"tenure_keeper_lateness_seconds_bucket{le="60"} 0x150"#,
            r#"tenure_keeper_lateness_seconds_bucket{le="300"} 0+1x150"#,
            r#"tenure_keeper_lateness_seconds_bucket{le="+Inf"} 0+1x150"#,
        ],
        &[
            r#"tenure_keeper_lateness_seconds_bucket{le="1"} 0+1x150"#,
            r#"tenure_keeper_lateness_seconds_bucket{le="60"} 0+1x150"#,
            r#"tenure_keeper_lateness_seconds_bucket{le="+Inf"} 0+1x150"#,
        ],
    ),
    Case(
        "TenureWritesPending",
        &[
            r#"tenure_keeper_pending_writes{instance="a"} 3x150"#,
            r#"tenure_keeper_leader{instance="a"} 1x150"#,
        ],
        // one that stands by doesn't count
        &[
            r#"tenure_keeper_pending_writes{instance="a"} 3x140 0x2 3x8"#,
            r#"tenure_keeper_leader{instance="a"} 1x150"#,
            r#"tenure_keeper_pending_writes{instance="b"} 3x150"#,
            r#"tenure_keeper_leader{instance="b"} 0x150"#,
        ],
    ),
    Case(
        "TenurePausesRefused",
        // the first
        &[r#"tenure_keeper_refused_pauses_total{family="t9k",queue="q",kind="Job"} _x140 1x10"#],
        &[r#"tenure_keeper_refused_pauses_total{family="t9k",queue="q",kind="Job"} 5x150"#],
    ),
    Case(
        "TenureReturnsRefused",
        // one more
        &[r#"tenure_keeper_refused_returns_total{family="t9k",queue="q",kind="Job"} 1x140 2x10"#],
        &[r#"tenure_keeper_refused_returns_total{family="t9k",queue="q",kind="Job"} 5x150"#],
    ),
    Case(
        "TenurePausesReversed",
        &[r#"tenure_keeper_reversed_pauses_total{family="t9k",queue="q",kind="Deployment"} 1x50 7x100"#],
        &[r#"tenure_keeper_reversed_pauses_total{family="t9k",queue="q",kind="Deployment"} 7x150"#],
    ),
    Case(
        "TenurePodsDoNotEnd",
        &["tenure_keeper_terminating_past_end 2x150"],
        &["tenure_keeper_terminating_past_end 0x150"],
    ),
    Case(
        "TenureQueueStatusFails",
        &[r#"tenure_keeper_queue_status_writes_total{result="Failed"} 0+2x150"#],
        &[
            r#"tenure_keeper_queue_status_writes_total{result="Failed"} 3x150"#,
            r#"tenure_keeper_queue_status_writes_total{result="Written"} 0+9x150"#,
        ],
    ),
    Case(
        "TenureWorkloadsDeactivated",
        &[r#"tenure_keeper_deactivations_total{family="run.ai",queue="q"} _x140 1x10"#],
        &[r#"tenure_keeper_deactivations_total{family="run.ai",queue="q"} 1x150"#],
    ),
    Case(
        "TenureMessagesLost",
        &[r#"tenure_keeper_messages_total{receiver="ops",result="Dropped"} 0x140 1x10"#],
        &[
            r#"tenure_keeper_messages_total{receiver="ops",result="Dropped"} 3x150"#,
            r#"tenure_keeper_messages_total{receiver="ops",result="Sent"} 0+9x150"#,
        ],
    ),
    Case("TenureNoWebhook", &[], &["tenure_webhook_review_duration_seconds_count 0x150"]),
    Case(
        "TenureReviewsSlow",
        &[
            r#"tenure_webhook_review_duration_seconds_bucket{le="0.1"} 0x150"#,
            r#"tenure_webhook_review_duration_seconds_bucket{le="1"} 0+60x150"#,
            r#"tenure_webhook_review_duration_seconds_bucket{le="+Inf"} 0+60x150"#,
        ],
        &[
            r#"tenure_webhook_review_duration_seconds_bucket{le="0.1"} 0+60x150"#,
            r#"tenure_webhook_review_duration_seconds_bucket{le="+Inf"} 0+60x150"#,
        ],
    ),
    Case(
        "TenureConversionsFail",
        &[r#"tenure_webhook_conversions_total{version="v2",result="Failed"} 0x140 1x10"#],
        &[
            r#"tenure_webhook_conversions_total{version="v2",result="Failed"} 3x150"#,
            r#"tenure_webhook_conversions_total{version="v2",result="Converted"} 0+9x150"#,
        ],
    ),
    Case(
        "TenureCallsRejected",
        &[r#"tenure_webhook_rejected_requests_total{code="403"} 0x140 1x10"#],
        &[r#"tenure_webhook_rejected_requests_total{code="403"} 3x150"#],
    ),
    Case(
        "TenureConfigurationBad",
        &[r#"tenure_webhook_config_last_reload_successful{pod="a"} 0x150"#],
        &[
            r#"tenure_webhook_config_last_reload_successful{pod="a"} 1x150"#,
            r#"tenure_keeper_config_last_reload_successful{pod="b"} 1x150"#,
        ],
    ),
    Case(
        "TenureConfiguredQueuesMissing",
        &[
            r#"tenure_keeper_configured_queues_missing{pod="a"} 1x150"#,
            r#"tenure_webhook_configured_queues_missing{pod="b"} 0x150"#,
        ],
        &[
            r#"tenure_keeper_configured_queues_missing{pod="a"} 1x140 0x10"#,
            r#"tenure_webhook_configured_queues_missing{pod="b"} 0x150"#,
        ],
    ),
    Case(
        "TenureWatchSilent",
        &[r#"tenure_webhook_watch_staleness_seconds{kind="queues"} 120x150"#],
        &[r#"tenure_keeper_watch_staleness_seconds{kind="pods"} 45x150"#],
    ),
    Case(
        "TenureCertificateEnds",
        // 13 and 15 days later
        &[r#"tenure_webhook_certificate_expiry_timestamp_seconds{certificate="ca"} 1132200x150"#],
        &[r#"tenure_webhook_certificate_expiry_timestamp_seconds{certificate="ca"} 1305000x150"#],
    ),
];

#[test]
fn rules_are_what_prometheus_takes() {
    assert_eq!(check(&rules()), [""; 0]);
    assert!(!check(&rules().replace("sum by", "sum buy")).is_empty());
}

#[test]
fn expressions_are_of_metrics_of_tenure() {
    let shown = [of_alerts(), of_dashboard()].concat();
    assert!(shown.len() > 60, "{}", shown.len());
    for (place, selector) in selectors(&shown) {
        let is_ours = selector.metric.starts_with("tenure_") || selector.metric == "ALERTS";
        assert!(is_ours, "{place}: {selector:?}");
    }
}

#[test]
fn each_alert_fires_when_it_should_and_shows_labels_that_it_has() {
    let shown = of_alerts();
    let names: Vec<&str> = shown.iter().map(|alert| alert.place.as_str()).collect();
    assert_eq!(names, CASES.map(|case| case.0));
    let series = CASES.map(|Case(_, fires, quiet)| [fires.join("\n"), quiet.join("\n")]);
    let evaluated = shown.iter().zip(&series);
    let evaluated: Vec<(&str, &str)> = evaluated
        .flat_map(|(alert, series)| series.iter().map(|series| (alert.expression.as_str(), series.as_str())))
        .collect();
    let results = evaluate(&evaluated);
    for (alert, results) in shown.iter().zip(results.chunks(2)) {
        let [fires, quiet] = results else { panic!("two results for {}", alert.place) };
        assert_eq!(fires.len(), 1, "{} should fire", alert.place);
        assert!(quiet.is_empty(), "{} should not fire: {quiet:?}", alert.place);
        let has: BTreeSet<&String> = fires[0].keys().collect();
        assert!(alert.labels.iter().all(|label| has.contains(label)), "{} has only {has:?}", alert.place);
    }
}

#[test]
fn each_alert_has_a_severity_and_says_what_it_means() {
    for alert in alerts() {
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{alert}");
        for text in ["summary", "description"] {
            assert!(alert["annotations"][text].as_str().is_some_and(|text| text.len() > 10), "{alert}");
        }
    }
}
