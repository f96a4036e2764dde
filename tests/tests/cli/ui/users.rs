//! The page of a user who may see one namespace.

use std::fs;

use serde_json::{Value, json};
use tenure_tests::{
    DEADLINE, World,
    served::Ui,
    tenant::Tenant,
    workloads::{Namespace, in_queue, queue, workload},
};
use tokio::time::{sleep, timeout};

use crate::world;

#[tokio::test]
async fn who_may_list_one_namespace_sees_that_one_with_its_ends_and_what_is_missing() {
    let world = world().await;
    let tenant = Tenant::new(world).await;
    let (own, other) = (tenant.as_admin(), Namespace::new(world).await);
    own.create(&queue("ui-user", "1h")).await;
    for namespace in [&own, &other] {
        let job = workload("Job", namespace.name(), "train", &in_queue("ui-user"), &json!({}));
        namespace.create(&job).await;
        namespace.await_running(1).await;
    }
    let ui = Ui::start(Some(world.cluster.kubeconfig()), &["--as", tenant.user(), "-n", own.name()]).await;
    let cookie = ui.sign_in().await;
    let row = format!("{}/job/train", own.name());
    let update = loop {
        let update = ui.first_event(&cookie).await;
        if update["rows"][&row]["expiresAt"].is_string() {
            break update;
        }
        sleep(std::time::Duration::from_millis(200)).await;
    };
    assert_eq!(update["rows"].as_object().unwrap().len(), 1, "{update}");
    assert_eq!(update["rows"][&row]["queueIsHidden"], json!(true));
    assert_eq!(update["rows"][&row]["queueIsUnknown"], json!(false));
    assert_eq!(update["parts"]["facts"]["only"], json!(own.name()));
    hundred_pages_ask_no_more_than_one(world, &ui, &cookie, tenant.user()).await;
    let warnings = update["parts"]["warnings"].to_string();
    assert!(warnings.contains("you may not list"), "{warnings}");
}

/// The number of lists of pods that a user has asked the API server for.
fn lists(world: &World, user: &str) -> usize {
    let log = fs::read_to_string(world.cluster.audit_log()).unwrap();
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_list = |entry: &Value| {
        entry["impersonatedUser"]["username"] == user
            && (&entry["verb"], &entry["objectRef"]["resource"]) == (&json!("list"), &json!("pods"))
    };
    entries.filter(is_list).count()
}

async fn hundred_pages_ask_no_more_than_one(world: &World, ui: &Ui, cookie: &str, user: &str) {
    const LOOKS: usize = 5;
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(ui.stream(cookie).await);
    }
    let before = lists(world, user);
    for stream in &mut streams {
        let mut events = 0;
        while events <= LOOKS {
            let line = timeout(DEADLINE, stream.next_line()).await.unwrap().unwrap().unwrap();
            events += usize::from(line.starts_with("data: "));
        }
    }
    let asked = lists(world, user) - before;
    // a look may have begun before, and others go on until the last stream is read
    assert!((1..3 * LOOKS).contains(&asked), "{asked} lists for {LOOKS} looks of 100 pages");
}
