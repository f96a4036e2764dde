//! The page, as it follows a cluster.

use std::time::Duration;

use serde_json::json;
use tenure_tests::{
    DEADLINE,
    served::Ui,
    workloads::{Namespace, in_queue, queue, workload},
};
use tokio::time::{Instant, sleep};

use super::browser::Chromium;
use crate::world;

#[tokio::test]
async fn the_page_follows_a_pause_and_resumes_what_its_user_confirms() {
    let world = world().await;
    let namespace = Namespace::new(world).await;
    namespace.create(&queue("ui-short", "20s")).await;
    let job = workload("Job", namespace.name(), "train", &in_queue("ui-short"), &json!({}));
    let job = namespace.create(&job).await;
    let ui = Ui::start(Some(world.cluster.kubeconfig()), &["-n", namespace.name()]).await;
    let Some(mut browser) = Chromium::open("follows").await else { return };
    browser.sign_in(&ui).await;
    browser.sees("job/train").await;
    browser.sees("ends in").await;
    browser.sees("live").await;
    assert!(!ui.file.exists(), "the file was used");

    // a screen reader is told the same
    let rows = browser.accessible_names("row").await;
    let train =
        rows.iter().find(|row| row.starts_with("job/train in ")).unwrap_or_else(|| panic!("{rows:?}"));
    assert!(train.contains("queue ui-short") && train.contains("ends in"), "{train}");
    for (role, name) in [("grid", "Workloads"), ("searchbox", "Find"), ("combobox", "Queue")] {
        let names = browser.accessible_names(role).await;
        assert!(names.iter().any(|of| of.starts_with(name)), "{role}: {names:?}");
    }

    // by the keyboard alone
    browser.value::<bool>("document.querySelector('.runs').focus() ?? true").await;
    browser.page.find_element(".runs").await.unwrap().press_key("Enter").await.unwrap();
    browser.sees("kubectl tenure extend job/train 2h -n").await;
    browser.page.find_element(".detail").await.unwrap().press_key("Escape").await.unwrap();
    browser.holds("document.querySelector('.detail') === null").await;

    // a filter that fits nothing, and one that fits
    browser.page.find_element("input[name=text]").await.unwrap().click().await.unwrap();
    browser.page.find_element("input[name=text]").await.unwrap().type_str("nothing like it").await.unwrap();
    browser.sees("No workload is like that.").await;
    browser.holds("(() => { const box = document.querySelector('input[name=text]'); box.value = 'TRAIN'; box.dispatchEvent(new Event('input', { bubbles: true })); return true; })()").await;
    browser.sees("job/train").await;

    namespace.await_events(1).await;
    let paused = Instant::now();
    browser.sees("until it is resumed").await;
    println!("the page showed the pause {:?} after its event", paused.elapsed());

    browser.click_text("job/train").await;
    browser.sees("Resume…").await;
    browser.click("button.change").await;
    browser.sees("in namespace").await;
    browser.holds("document.querySelector('dialog[open]') !== null").await;
    let suspended = async || namespace.field(&job, "spec.suspend").await == json!(true);
    assert!(suspended().await, "nothing is done before it is confirmed");
    browser.click("dialog button.confirm").await;
    browser.sees("resumed").await;
    let begun = Instant::now();
    while suspended().await {
        assert!(begun.elapsed() < DEADLINE, "the Job stays suspended");
        sleep(Duration::from_millis(100)).await;
    }
    browser.sees("ends in").await;

    // what another ceiling would have done to what was here
    browser.click("nav button:nth-of-type(4)").await;
    browser.sees("kubectl tenure simulate --from-cluster --max-duration 2d -n").await;
    browser.holds("(() => { const box = document.querySelector('input[name=maxDuration]'); box.value = 'soon'; box.dispatchEvent(new Event('input', { bubbles: true })); return true; })()").await;
    browser.click("form button").await;
    browser.sees("maxDuration \"soon\"").await;
    browser.holds("(() => { const box = document.querySelector('input[name=maxDuration]'); box.value = '1s'; box.dispatchEvent(new Event('input', { bubbles: true })); return true; })()").await;
    browser.click("form button").await;
    browser.sees("would have been cut").await;
    browser.close().await;
}

#[tokio::test]
async fn ten_tabs_of_a_browser_share_one_stream_and_are_all_live() {
    let file = super::files::written("tabs", &[]);
    let ui = Ui::start(None, &["-f", file.to_str().unwrap()]).await;
    let Some(mut browser) = Chromium::open("tabs").await else { return };
    browser.sign_in(&ui).await;
    browser.sees("pod/train").await;
    let url = format!("http://127.0.0.1:{}/", ui.port);
    let mut tabs = Vec::new();
    for _ in 1..10 {
        tabs.push(browser.tab(&url).await);
    }
    for tab in &tabs {
        let begun = Instant::now();
        while !tab
            .evaluate("document.body.innerText.includes('pod/train')")
            .await
            .is_ok_and(|value| value.into_value::<bool>().unwrap_or(false))
        {
            assert!(begun.elapsed() < DEADLINE, "a tab isn't live");
            sleep(Duration::from_millis(50)).await;
        }
    }
    let locks = "navigator.locks.query().then(({ held, pending }) => [held.length, pending.length])";
    assert_eq!(browser.value::<[usize; 2]>(locks).await, [1, 9]);
    // the first one goes, and another listens
    let mut first = tabs.remove(0);
    std::mem::swap(&mut browser.page, &mut first);
    first.close().await.unwrap();
    browser.holds("known.lost === null && known.heard > 0").await;
    browser
        .holds(
            "navigator.locks.query().then(({ held, pending }) => held.length === 1 && pending.length === 8)",
        )
        .await;
    browser.close().await;
}
