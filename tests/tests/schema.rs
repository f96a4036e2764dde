//! Queues on a real API server while the webhook is down, and the values that the schema refuses by itself. That the schema in
//! the chart is the one of the types is tested in `crates/types/tests/generated.rs`.
#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use futures::{StreamExt, stream};
use tenure_tests::{
    World,
    queues::{By, Case, Verdict, table, write},
};

#[tokio::test]
async fn the_schema_refuses_by_itself_and_says_why() {
    let world = &World::installed_alone("schema", &[]).await.unwrap();
    let client = &world.cluster.client().unwrap();
    let refused_by_schema = |case: &Case| matches!(case.verdict, Verdict::Refused(By::Schema, _));
    let cases: Vec<Case> = table().into_iter().filter(refused_by_schema).collect();
    assert!(cases.len() >= 30, "{}", cases.len());
    let check = async |(number, case): (usize, Case)| {
        let answer = write(client, &case.object(&format!("bad-{number}"))).await;
        let Verdict::Refused(_, parts) = case.verdict else {
            return None;
        };
        let is_by_schema = |refusal: &String| {
            parts.iter().all(|part| refusal.contains(part)) && !refusal.contains("failed calling webhook")
        };
        (!answer.1.as_ref().is_err_and(is_by_schema)).then(|| format!("{}: {answer:?}", case.spec))
    };
    let checks = cases.into_iter().enumerate().map(check);
    let complaints: Vec<String> =
        stream::iter(checks).buffer_unordered(4).filter_map(async |c| c).collect().await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
