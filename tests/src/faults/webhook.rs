//! Plans about a webhook: no answer may be wrong, and after the faults the webhook must recover in
//! time.

use anyhow::{Result, bail};
use jiff::Timestamp;
use tenure_testbed::{eventually, free_port};
use tokio::time::{Instant, sleep};

use super::{
    Diary, asker::Asker, commit::commit, draw::Draw, kinds::Kind, plan::Outcome, rules::RECOVERY,
    servers::Server,
};
use crate::{DEADLINE, World};

/// The rounds of requests after the webhook has recovered.
const ROUNDS_AFTERWARDS: u64 = 5;

/// Plays a plan: asks a webhook all the time while its faults last, and for some rounds more. Each
/// answer counts, except while the process can't answer.
pub(super) async fn play(world: &World, kind: Kind, seed: u64, diary: &Diary) -> Result<Outcome> {
    let name = format!("{}-{seed}", kind.name);
    let faults = kind.faults(&mut Draw::new(kind.name, seed));
    let port = free_port()?;
    let server = Server::webhook(world, &name, port, diary).await?;
    server.start().await?;
    server.ready().await?;
    let asker = Asker::new(world, port);
    if let (errors, _) = asker.ask().await
        && !errors.is_empty()
    {
        bail!("before any fault: {errors:?}");
    }
    let play = async {
        for fault in &faults {
            sleep(fault.at).await;
            commit(&[&server], fault, diary).await?;
        }
        let began = Instant::now();
        recovered(&server, &asker).await?;
        let recovery = began.elapsed();
        asker.more_rounds(ROUNDS_AFTERWARDS).await;
        Ok::<_, anyhow::Error>(recovery)
    };
    let (recovery, answers) = asker.ask_until(&server, diary, play).await;
    let recovery = recovery?;
    let is_judged = |asked: Timestamp, answered: Timestamp| !server.was_away(asked, answered);
    let mut violations: Vec<String> = answers
        .failed
        .iter()
        .filter(|failed| is_judged(failed.asked, failed.answered))
        .map(|failed| format!("wrong answer: {}", failed.error))
        .collect();
    if recovery > RECOVERY {
        violations.push(format!("late: the webhook is ready after {recovery:?}"));
    }
    diary.note(format!("{} rounds of questions, the slowest in {:?}", answers.asked, answers.slowest));
    violations.extend(server.check().await.err().map(|error| format!("{error:#}")));
    Ok((violations, recovery))
}

/// Waits until a webhook is ready and answers all requests.
async fn recovered(server: &Server, asker: &Asker<'_>) -> Result<()> {
    server.ready().await?;
    let answers = async || {
        let (errors, _) = asker.ask().await;
        if errors.is_empty() { Ok(Some(())) } else { bail!("{errors:?}") }
    };
    eventually("the webhook to answer", DEADLINE, answers).await
}
