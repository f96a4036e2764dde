//! Plans of faults that are made from seeds.

use std::{env, fs};

use tenure_tests::faults::{
    Verdict, in_full,
    kinds::{self, Kind},
    play_all, print,
};

/// The kinds that are tried each time, with a seed: a short plan of each sort. Connections that are cut and leaders that end
/// are in `outages` and in the program `failover`.
const TRIED: [(&str, u64); 4] = [
    ("watches-gone-at-start", 2),
    ("patches-conflict-by-turns", 1),
    ("write-done-and-answer-lost", 1),
    ("webhook-terminated", 1),
];

#[track_caller]
fn assert_no_rule_is_broken(verdicts: &[Verdict]) {
    let broken: Vec<String> =
        verdicts.iter().filter(|verdict| !verdict.violations.is_empty()).map(in_full).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn some_faults_of_each_sort_break_no_rule() {
    let plans: Vec<(Kind, u64)> =
        TRIED.iter().map(|(name, seed)| (kinds::named(name).unwrap(), *seed)).collect();
    let at_a_time = plans.len();
    assert_no_rule_is_broken(&play_all(plans, at_a_time).await.unwrap());
}

/// `FAULTS_KIND` chooses one kind, `FAULTS_SEED` one seed, `FAULTS_SEEDS` how many of them, and `FAULTS_AT_A_TIME` how
/// many plans are played at the same time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes hours: `make faults`"]
async fn no_fault_of_any_kind_breaks_a_rule() {
    // make sets them all
    let text = |name| env::var(name).ok().filter(|text| !text.is_empty());
    let number = |name| text(name).map(|text| text.parse::<u64>().unwrap());
    let seeds = number("FAULTS_SEED")
        .map_or_else(|| (1..=number("FAULTS_SEEDS").unwrap_or(20)).collect(), |seed| vec![seed]);
    let kinds = text("FAULTS_KIND").map_or_else(
        || kinds::ALL.to_vec(),
        |names| names.split(',').map(|name| kinds::named(name).unwrap()).collect(),
    );
    let plans = seeds.iter().flat_map(|seed| kinds.iter().map(|kind| (*kind, *seed))).collect();
    let at_a_time = number("FAULTS_AT_A_TIME").unwrap_or(8);
    let verdicts = play_all(plans, at_a_time.try_into().unwrap()).await.unwrap();
    print(&verdicts);
    assert_no_rule_is_broken(&verdicts);
}

#[test]
fn the_page_about_faults_has_each_kind_and_no_other() {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/acceptance/faults.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = kinds::ALL
        .iter()
        .map(|kind| format!("| `{}` | {} | {} |", kind.name, kind.stands_for, kind.holds_up))
        .collect();
    assert_eq!(rows, expected);
}
