//! `docs/kueue.md`, with its commands done word for word.

use tenure_tests::{pages::Walk, workloads::Namespace};

use super::{await_starts, standin::Kueue, world};

#[tokio::test]
async fn job_of_kueue_gets_a_ceiling_and_comes_back_as_on_the_page() {
    let world = world().await;
    let namespace = Namespace::named(world, "admitted").await;
    let kueue = Kueue::start(world, &namespace, "v1beta2");
    let mut walk = Walk::new(world, "kueue.md").with("2d", "2s");
    walk.follow("Give jobs of Kueue a ceiling").await;
    await_starts(&kueue, &["train", "train"]).await;
    walk.follow("One label for both").await;
    walk.end();
}
