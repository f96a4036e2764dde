//! The page of files, whose texts may be of any tenant.

use std::{fmt::Write as _, fs, path::PathBuf};

use serde_json::{Value, json};
use tenure_testbed::program;
use tenure_tests::served::Ui;
use tokio::process::Command;

use super::browser::Chromium;

pub const NOW: &str = "2026-01-02T03:04:05Z";

/// A queue and its runs, with more objects, in a file.
pub fn written(name: &str, more: &[Value]) -> PathBuf {
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "research"},
        "spec": {"maxDuration": "2h", "preemptMinRuntime": "90m"},
    });
    written_alone(name, &[&[queue, pod("train", "research", "2026-01-02T02:04:05Z", 8)], more].concat())
}

/// Objects in a file.
pub fn written_alone(name: &str, objects: &[Value]) -> PathBuf {
    let mut text = String::new();
    for object in objects {
        writeln!(text, "---\n{object}").unwrap();
    }
    let directory = program("kubectl-tenure").unwrap().with_file_name("ui-files");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{name}.yaml"));
    fs::write(&path, text).unwrap();
    path
}

/// A pod of a queue that was scheduled at a time.
pub fn pod(name: &str, queue: &str, scheduled: &str, gpus: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "creationTimestamp": scheduled,
            "labels": {"kai.scheduler/queue": queue},
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "example.com/image", "resources": {"requests": {"nvidia.com/gpu": gpus.to_string()}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled}],
        },
    })
}

/// A Job with a record of a pause that a tenant has written.
fn paused(name: &str, text: &str) -> Value {
    let record = json!({
        "reason": text, "at": "2026-01-02T02:00:00Z", "queue": text, "field": "spec.suspend", "previousValue": false,
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": "team", "uid": name,
            "annotations": {"tenure.dev/paused": record.to_string()},
        },
        "spec": {"suspend": true},
    })
}

#[tokio::test]
async fn the_page_of_files_says_who_ends_when_who_is_safe_and_which_gpus_come_free() {
    let more =
        [pod("lost", "reserch", "2026-01-02T03:00:00Z", 1), pod("stray", "", "2026-01-02T03:00:00Z", 2)];
    let file = written("says", &more);
    let ui = Ui::start(None, &["-f", file.to_str().unwrap(), "--now", NOW]).await;
    let cookie = ui.sign_in().await;
    let update = ui.first_event(&cookie).await;
    let row = &update["rows"]["team/pod/train"];
    assert_eq!(
        (&row["state"], &row["expiresAt"], &row["floorUntil"], &row["gpus"]),
        (&json!("Running"), &json!("2026-01-02T04:04:05Z"), &json!("2026-01-02T03:34:05Z"), &json!(8))
    );
    assert_eq!(update["rows"]["team/pod/lost"]["queueIsUnknown"], json!(true));
    assert_eq!(
        update["parts"]["strays"],
        json!([{"namespace": "team", "name": "stray", "node": "node-1", "gpus": 2}])
    );
    assert_eq!(update["parts"]["free"][0]["free"]["nvidia.com/gpu"], json!(8));
    assert_eq!(
        update["parts"]["queues"][0]["maxDuration"],
        json!({"value": "2h", "from": "queue \"research\""})
    );
    let about = ui.request("GET /workload?id=team%2Fpod%2Ftrain", &[&cookie], "").await;
    assert!(about.body.contains("research") && about.body.contains("2h"), "{about:?}");

    let Some(mut browser) = Chromium::open("of-files").await else { return };
    // the code was taken: the next one isn't printed where a test reads it
    browser.cookie(&ui, &cookie).await;
    browser.goto(&format!("http://127.0.0.1:{}/", ui.port)).await;
    browser.sees("pod/train").await;
    browser.sees("ends in 1 h").await;
    browser.sees("04:04 UTC").await;
    browser.sees("protected for 30 min").await;
    browser.sees("In queues that don't exist").await;
    browser.sees("1 pod has GPUs and no queue").await;
    browser.click("nav button:nth-of-type(2)").await;
    browser.sees("Floor against other trees").await;
    browser.close().await;
}

#[tokio::test]
async fn what_tenants_write_is_text_and_nothing_of_it_runs_or_stands_elsewhere() {
    const ATTACK: &str =
        "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>";
    const TURNED: &str = "a\u{202e}gpj.exe\u{2066}\u{0007}";
    let more = [paused("attack", ATTACK), paused("turned", TURNED)];
    let file = written("attack", &more);
    let exported = file.with_extension("html");
    let plugin = program("kubectl-tenure").unwrap();
    let written = Command::new(plugin)
        .args(["ui", "-f", file.to_str().unwrap(), "--now", NOW, "--export", exported.to_str().unwrap()])
        .output()
        .await
        .unwrap();
    assert!(written.status.success(), "{written:?}");
    let ui = Ui::start(None, &["-f", file.to_str().unwrap(), "--now", NOW]).await;
    let cookie = ui.sign_in().await;
    let update = ui.first_event(&cookie).await;
    let turned = &update["rows"]["team/job/turned"]["reason"];
    assert_eq!(turned, &json!("a\u{fffd}gpj.exe\u{fffd}\u{fffd}"));

    let Some(mut browser) = Chromium::open("attacks").await else { return };
    browser.cookie(&ui, &cookie).await;
    for page in [format!("http://127.0.0.1:{}/", ui.port), format!("file://{}", exported.display())] {
        browser.goto(&page).await;
        browser.sees("job/attack").await;
        browser.holds("[...document.querySelectorAll('.line')].length >= 4").await;
        browser.click_text("job/attack").await;
        browser.sees("Commands").await;
        assert_eq!(browser.value::<String>("document.title").await, "Tenure", "{page}");
        assert_eq!(browser.value::<usize>("document.images.length").await, 0, "{page}");
        assert!(browser.value::<bool>("document.body.innerText.includes('<img src=x')").await, "{page}");
    }
    browser.close().await;
}

#[tokio::test]
async fn an_exported_page_shows_the_same_without_a_server() {
    let file = written("exported", &[]);
    let exported = file.with_extension("html");
    let plugin = program("kubectl-tenure").unwrap();
    let arguments =
        ["ui", "-f", file.to_str().unwrap(), "--now", NOW, "--export", exported.to_str().unwrap()];
    let output = Command::new(plugin).args(arguments).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().ends_with("exported.html written\n"));
    let Some(mut browser) = Chromium::open("exported").await else { return };
    browser.goto(&format!("file://{}", exported.display())).await;
    browser.sees("pod/train").await;
    browser.sees("as of").await;
    browser.sees("ends in 1 h").await;
    browser.close().await;
}

#[tokio::test]
async fn a_simulation_stands_on_the_page_with_each_queue_before_and_after() {
    let (file, plugin) = (written("simulated", &[]), program("kubectl-tenure").unwrap());
    let (report, exported) = (file.with_extension("json"), file.with_extension("html"));
    let simulate = ["simulate", "--generate", "--max-duration", "2d", "--output", "json"];
    let output = Command::new(&plugin).args(simulate).output().await.unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    fs::write(&report, &output.stdout).unwrap();
    let [text, page] = [&report, &exported].map(|path| path.to_str().unwrap());
    let export = ["ui", "-f", file.to_str().unwrap(), "--now", NOW, "--export", page, "--simulation"];
    let output = Command::new(&plugin).args(export).arg(text).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let refused = Command::new(&plugin).args(export).arg(&file).output().await.unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("is no report: write one with kubectl tenure simulate --output json"), "{error}");

    let Some(mut browser) = Chromium::open("simulated").await else { return };
    browser.goto(&format!("file://{page}")).await;
    browser.sees("pod/train").await;
    browser.click("nav button:nth-of-type(4)").await;
    browser.sees(answer["sentence"].as_str().unwrap()).await;
    let first = &answer["queues"][0];
    let used = first["used"].as_f64().unwrap();
    assert!(used > first["freed"].as_f64().unwrap() && first["freed"].as_f64().unwrap() > 0.0, "{first}");
    browser.sees(first["queue"].as_str().unwrap()).await;
    browser.sees("Who would lose most").await;
    let bars = "[...document.querySelectorAll('.bars i.after')].every((bar) => bar.offsetWidth <= bar.previousElementSibling.offsetWidth)";
    assert!(browser.value::<bool>(bars).await);
    assert_eq!(
        browser.value::<usize>("document.querySelectorAll('form').length").await,
        0,
        "a file asks no cluster"
    );
    browser.close().await;
}

/// Not a timed test: the numbers are printed, and only what can't be is refused.
#[tokio::test]
async fn ten_thousand_workloads_are_drawn_by_the_lines_in_sight() {
    let more: Vec<Value> = (0..10_000)
        .map(|number| pod(&format!("run-{number}"), "research", "2026-01-02T02:30:00Z", 1))
        .collect();
    let file = written("many", &more);
    let ui = Ui::start(None, &["-f", file.to_str().unwrap(), "--now", NOW]).await;
    let cookie = ui.sign_in().await;
    let Some(mut browser) = Chromium::open("many").await else { return };
    browser.cookie(&ui, &cookie).await;
    browser.goto(&format!("http://127.0.0.1:{}/", ui.port)).await;
    browser.sees("pod/run-").await;
    let lines = browser.value::<usize>("document.querySelectorAll('.line').length").await;
    assert!(lines < 200, "{lines}");
    let painted = browser.value::<f64>("known.painted - known.took").await;
    let scrolled = browser
        .value::<f64>(
            "(async () => {
                const list = document.querySelector('.runs');
                let longest = 0, before = performance.now();
                for (let frame = 0; frame < 100; frame += 1) {
                    list.scrollTop += 2500;
                    await new Promise(requestAnimationFrame);
                    longest = Math.max(longest, performance.now() - before);
                    before = performance.now();
                }
                return longest;
            })()",
        )
        .await;
    println!(
        "10,000 workloads: first paint {painted:.0} ms after the data, longest frame of a scroll {scrolled:.0} ms"
    );
    browser.close().await;
}
