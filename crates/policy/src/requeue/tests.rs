use serde_json::json;

use super::*;

fn cumulative(backoff: &Backoff, retry: i32) -> i64 {
    let last = backoff.schedule().take_while(|at| at.retry <= retry).last().unwrap();
    assert_eq!(last.retry, retry);
    last.cumulative.saturating_add(SignedDuration::from_millis(500)).as_secs()
}

#[test]
fn the_defaults_give_the_table_of_the_proposal() {
    for (retry, seconds) in
        [(1, 601), (2, 902), (3, 1204), (4, 1507), (5, 1811), (10, 3374), (20, 8730), (30, 86_400)]
    {
        assert_eq!(cumulative(&Backoff::default(), retry), seconds, "{retry}");
    }
    assert!((Backoff::default().wait(30).as_secs_f64() - 22_530.055_8).abs() < 0.001);
}

#[test]
fn delays_grow_by_the_factor_up_to_the_maximum() {
    let backoff = |base_seconds, factor, max_seconds| Backoff {
        base_seconds,
        factor,
        max_seconds,
        ..Backoff::default()
    };
    for (backoff, count, seconds) in [
        (backoff(60, 2.0, Some(3600)), -3, 0),
        (backoff(60, 2.0, Some(3600)), 0, 0),
        (backoff(60, 2.0, Some(3600)), 1, 60),
        (backoff(60, 2.0, Some(3600)), 2, 120),
        (backoff(60, 2.0, Some(3600)), 6, 1920),
        (backoff(60, 2.0, Some(3600)), 7, 3600),
        (backoff(60, 2.0, Some(3600)), i32::MAX, 3600),
        (backoff(10, 2.0, Some(7200)), 10, 5120),
        (backoff(10, 2.0, Some(7200)), 11, 7200),
        (backoff(60, 2.0, Some(30)), 1, 30),
        (backoff(60, 2.0, None), 20, 31_457_280),
        (backoff(0, 2.0, Some(3600)), i32::MAX, 0),
        (backoff(-5, 2.0, None), 3, 0),
        (backoff(5, 1.0, None), i32::MAX, 5),
        (backoff(5, 0.5, None), 9, 5),
        (backoff(5, f64::NAN, None), 9, 5),
        (backoff(5, 2.0, Some(0)), 2, 10),
    ] {
        assert_eq!(backoff.wait(count), SignedDuration::from_secs(seconds), "{backoff:?} {count}");
    }
}

#[test]
fn what_is_too_long_is_as_long_as_can_be() {
    for factor in [2.0, 1.412_847_38, f64::MAX, f64::INFINITY] {
        let backoff = Backoff { factor, ..Backoff::default() };
        for count in [2000, i32::MAX - 1, i32::MAX] {
            assert_eq!(backoff.wait(count), SignedDuration::MAX, "{factor} {count}");
            assert_eq!(backoff.wait_with_jitter(count, 0.9), SignedDuration::MAX);
        }
    }
    let steep = Backoff { factor: 1e18, timeout: "15250w".parse().unwrap(), ..Backoff::default() };
    assert!(steep.schedule().skip(2).take(100).all(|retry| retry.cumulative == SignedDuration::MAX));
}

#[test]
fn jitter_makes_a_delay_a_little_longer() {
    let backoff = Backoff { base_seconds: 60, factor: 2.0, max_seconds: Some(3600), ..Backoff::default() };
    assert_eq!(backoff.wait_with_jitter(1, 0.0), SignedDuration::from_secs(60));
    assert_eq!(backoff.wait_with_jitter(1, 0.5), SignedDuration::from_millis(60_003));
    assert_eq!(backoff.wait_with_jitter(7, 1.0), SignedDuration::from_millis(3_600_360));
    for random in [f64::NAN, -1.0, f64::NEG_INFINITY] {
        assert_eq!(backoff.wait_with_jitter(1, random), SignedDuration::from_secs(60));
    }
    assert_eq!(backoff.wait_with_jitter(0, 1.0), SignedDuration::ZERO);
}

#[test]
fn a_workload_comes_back_as_often_as_the_limit_says() {
    let after = |limit, count| Backoff { limit, ..Backoff::default() }.after_timeout(count);
    for (limit, count, expected) in [
        (Some(0), 0, None),
        (Some(1), 0, Some(1)),
        (Some(1), 1, None),
        (Some(3), 2, Some(3)),
        (Some(3), 3, None),
        (Some(3), 100, None),
        (None, 0, Some(1)),
        (None, -7, Some(1)),
        (None, i32::MAX, Some(i32::MAX)),
    ] {
        assert_eq!(after(limit, count), expected, "{limit:?} {count}");
    }
    let backoff = Backoff { base_seconds: 7, ..Backoff::default() };
    assert_eq!(backoff.after_timeout(0).map(|count| backoff.wait(count)), Some(SignedDuration::from_secs(7)));
}

#[test]
fn a_return_before_its_time_is_after_the_first_delay_and_never_the_last() {
    let earliest = |limit, count| {
        let backoff = Backoff { limit, base_seconds: 60, ..Backoff::default() };
        backoff.earliest(Timestamp::UNIX_EPOCH, count).map(Timestamp::as_second)
    };
    for (limit, count, expected) in [
        (None, u32::MAX, Some(60)),
        (Some(3), 2, Some(60)),
        (Some(3), 3, None),
        (Some(3), 4, None),
        (Some(0), 1, None),
        (Some(i32::MAX), u32::MAX, None),
    ] {
        assert_eq!(earliest(limit, count), expected, "{limit:?} {count}");
    }
    let backoff = Backoff { base_seconds: i32::MAX, ..Backoff::default() };
    assert_eq!(backoff.earliest(Timestamp::MAX, 1), Some(Timestamp::MAX));
}

#[test]
fn a_schedule_ends_with_its_limit() {
    let count = |limit| Backoff { limit, ..Backoff::default() }.schedule().take(1000).count();
    assert_eq!((count(Some(0)), count(Some(3)), count(Some(-1)), count(None)), (0, 3, 0, 1000));
}

#[test]
fn a_block_is_read_and_what_can_not_be_is_as_by_default() {
    let read = |block| Backoff::from(&serde_json::from_value::<WaitForPodsReady>(block).unwrap());
    assert_eq!(read(json!({})), Backoff::default());
    let strategy = json!({"backoffBaseSeconds": 60, "backoffFactor": "2", "backoffMaxSeconds": 3600, "backoffLimitCount": 0});
    assert_eq!(
        read(json!({"timeout": "1d", "requeuingStrategy": strategy})),
        Backoff {
            timeout: "1d".parse().unwrap(),
            base_seconds: 60,
            factor: 2.0,
            max_seconds: Some(3600),
            limit: Some(0),
        }
    );
    let strategy = json!({"backoffBaseSeconds": 0, "backoffFactor": "inf", "backoffMaxSeconds": 0, "backoffLimitCount": -1});
    for timeout in ["0s", "-5m", "soon"] {
        assert_eq!(read(json!({"timeout": timeout, "requeuingStrategy": strategy})), Backoff::default());
    }
}

#[test]
fn a_factor_is_a_decimal_number_of_at_least_one() {
    for (text, expected) in [("1", 1.0), ("1.5", 1.5), ("01.25", 1.25), ("1.41284738", 1.412_847_38)] {
        assert_eq!(factor(text), Some(expected), "{text}");
    }
    for text in ["", "0.99", "1.", ".5", "1e3", "inf", "NaN", "-2", "+2", "1,5", "1.00000000000000000000"] {
        assert_eq!(factor(text), None, "{text}");
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn waiting(name: &str, priority: i32, created: i64, paused: i64) -> WaitingWorkload {
    WaitingWorkload { priority, created: at(created), paused: at(paused), name: name.into() }
}

/// Kueue's `TestStrictFIFO`.
#[test]
fn who_comes_first_goes_by_priority_then_time_then_name() {
    use RequeuingTimestamp::{Creation, Eviction};
    for (one, other, strategy, first) in [
        (waiting("1", 9, 1, 3), waiting("2", 1, 2, 3), Eviction, "1"),
        (waiting("1", 5, 1, 2), waiting("2", 5, 2, 3), Eviction, "1"),
        (waiting("1", 5, 1, 3), waiting("2", 5, 2, 2), Eviction, "2"),
        (waiting("1", 5, 1, 3), waiting("2", 5, 2, 2), Creation, "1"),
        (waiting("1", 1, 1, 3), waiting("2", 9, 2, 3), Eviction, "2"),
        (waiting("1", i32::MIN, 1, 3), waiting("2", i32::MAX, 2, 9), Creation, "2"),
        (waiting("b", 5, 1, 3), waiting("a", 5, 1, 3), Creation, "a"),
        (waiting("b", 5, 1, 3), waiting("a", 5, 1, 3), Eviction, "a"),
    ] {
        let mut queue = [one, other];
        queue.sort_by(order(strategy));
        assert_eq!(queue[0].name, first, "{queue:?}");
    }
}
