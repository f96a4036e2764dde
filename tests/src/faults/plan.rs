//! A plan from its start to its verdict, for plans about keepers. Plans about a webhook are in
//! `webhook`.

use std::{collections::HashMap, future::pending, panic::AssertUnwindSafe, time::Duration};

use anyhow::Result;
use futures::{
    FutureExt,
    future::{join_all, try_join_all},
};
use jiff::{SignedDuration, Timestamp};
use tenure_testbed::eventually;
use tokio::{
    select,
    time::{sleep, timeout},
    try_join,
};

use super::{
    Diary,
    commit::{Committed, commit},
    draw::Draw,
    fault::{Blow, Fault, What, Whom},
    kinds::{HoldsUp, Kind},
    observer::{Observer, Seen},
    rules::{Evidence, PROMPTLY, RECOVERY, TAKEOVER},
    scene::Scene,
    servers::Server,
    webhook,
};
use crate::{DEADLINE, World, audit::Trail, proxy::Write};

/// The time from the beginning of a plan until all of its script would have happened without a
/// fault.
const SCRIPT: Duration = Duration::from_secs(32);

/// The time from the beginning until the latest ceiling that a person prevents would have been
/// exceeded.
const SAVED: Duration = Duration::from_secs(20);

/// The time in which a second event or pause would come.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// The result of a plan.
#[derive(Debug)]
pub struct Verdict {
    /// The name of the kind of fault.
    pub kind: &'static str,
    /// The seed.
    pub seed: u64,
    /// The violations of rules. Empty: the plan has passed.
    pub violations: Vec<String>,
    /// The longest time until an overdue act was done, from its deadline or the end of the fault.
    pub recovery: Duration,
    /// The timeline, a line for each step.
    pub timeline: String,
}

/// Plays a plan of a kind on a cluster that other plans may share. A failure of the plan itself, a
/// panic too, counts as a violation.
pub async fn play(world: &World, kind: Kind, seed: u64) -> Verdict {
    let diary = Diary::default();
    let playing = async {
        if kind.is_of_webhook() {
            Box::pin(webhook::play(world, kind, seed, &diary)).await
        } else {
            Box::pin(play_on_keepers(world, kind, seed, &diary)).await
        }
    };
    let played = AssertUnwindSafe(playing).catch_unwind().await;
    let (violations, recovery) = match played {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => (vec![format!("{error:#}")], Duration::ZERO),
        Err(_) => (vec!["a step of the plan has failed: its panic is above".into()], Duration::ZERO),
    };
    Verdict { kind: kind.name, seed, violations, recovery, timeline: diary.to_string() }
}

/// The violations, and the longest recovery.
pub(super) type Outcome = (Vec<String>, Duration);

/// The facts about a plan when its faults are over.
struct Past {
    /// The time from which the changes of people could be read.
    changed: Timestamp,
    /// The end of the last fault.
    healed: Timestamp,
    /// The time until which faults held up what was due.
    held_up_until: Timestamp,
    /// The time for what was due, from then on.
    within: Duration,
    /// True if a keeper starts after the changes of people, or clocks change.
    forgets_grace: bool,
    /// The settings of clocks.
    clocks: Vec<(Timestamp, [i64; 2])>,
}

/// Plays the script and the faults at the same time, waits until all has happened, and judges.
async fn play_on_keepers(world: &World, kind: Kind, seed: u64, diary: &Diary) -> Result<Outcome> {
    let name = format!("{}-{seed}", kind.name);
    let mut draw = Draw::new(kind.name, seed);
    let faults = kind.faults(&mut draw);
    let first = faults.iter().map(|fault| fault.at).min().unwrap_or_default();
    let mut scene = Scene::new(world, &name, &mut draw, first, diary).await?;
    scene.create_queues().await;
    let mut servers = Vec::new();
    for number in 0..2 {
        servers.push(Server::keeper(world, &format!("keeper-{number}"), &name, diary).await?);
    }
    let observer = Observer::start(world.cluster.client()?, &name, diary);
    let trail = Trail::begin(&world.cluster);
    let mut stage = Stage { servers, observer, clocks: Vec::new(), diary: diary.clone() };
    stage.set_first_clocks(&faults);
    stage.start_keepers().await?;
    scene.create_workloads().await;
    let script = async {
        let commit = faults.iter().map(|fault| stage.commit(&scene, fault));
        let (changed, set) = try_join!(scene.change(), try_join_all(commit))?;
        let healed = Timestamp::now();
        diary.note("all faults are over");
        let struck = set.iter().map(|committed| committed.struck).max().unwrap_or(healed);
        let (held_up_until, within) = match kind.holds_up {
            HoldsUp::Nothing => (scene.begun, PROMPTLY),
            HoldsUp::Leader => (healed.min(struck + SignedDuration::try_from(TAKEOVER)?), PROMPTLY),
            HoldsUp::All => (healed, RECOVERY),
        };
        let mut clocks = stage.clocks.clone();
        clocks.extend(set.into_iter().flat_map(|committed| committed.clocks));
        let forgets =
            |what: &What| matches!(what, What::Blow(Blow::Kill | Blow::Terminate, _) | What::Clocks(_));
        let forgets_grace = faults.iter().any(|fault| forgets(&fault.what));
        let past = Past { changed, healed, held_up_until, within, forgets_grace, clocks };
        stage.await_end(&scene, &past).await?;
        Ok::<_, anyhow::Error>(past)
    };
    let resume = async {
        match scene.resume(&stage.observer).await {
            Err(error) => error,
            Ok(()) => pending().await,
        }
    };
    let past = select! {
        past = script => past?,
        error = resume => return Err(error),
    };
    let (mut violations, recovery) = stage.judge(&scene, &past).await;
    violations.extend(unproxied(&trail.changes_of_keeper(&world.cluster, &name), &stage.writes()));
    scene.clean_up().await?;
    Ok((violations, recovery))
}

/// Returns the changes in the API server's audit log that no proxy has seen: the rules judge only
/// writes that the proxies saw.
fn unproxied(audited: &[String], writes: &[Write]) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for Write { call, .. } in writes {
        *seen.entry(format!("{} {}/{}", call.verb, call.resource, call.name)).or_default() += 1;
    }
    let is_lasting = |change: &&String| !change.contains(" leases/");
    let is_unseen = |change: &&String| {
        let left = seen.get_mut(*change).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_none()
    };
    let unseen = audited.iter().filter(is_lasting).filter(is_unseen);
    unseen.map(|change| format!("past the proxies: {change}")).collect()
}

/// Two keepers and the observer.
struct Stage {
    servers: Vec<Server>,
    observer: Observer,
    /// The settings of clocks before the beginning.
    clocks: Vec<(Timestamp, [i64; 2])>,
    diary: Diary,
}

impl Stage {
    /// Sets the clocks that are wrong from the beginning.
    fn set_first_clocks(&mut self, faults: &[Fault]) {
        for fault in faults.iter().filter(|fault| fault.at.is_zero()) {
            if let What::Clocks(ahead) = fault.what {
                self.servers.iter().for_each(|server| server.proxy.set_clocks(ahead));
                self.clocks.push((Timestamp::now(), ahead));
            }
        }
    }

    /// Starts the keepers, and waits until they are ready and one leads.
    async fn start_keepers(&self) -> Result<()> {
        try_join_all(self.servers.iter().map(Server::start)).await?;
        try_join_all(self.servers.iter().map(Server::ready)).await?;
        self.leader().await.map(drop)
    }

    /// Waits for a leader, and returns its identity.
    async fn leader(&self) -> Result<String> {
        eventually("a keeper to lead", DEADLINE, async || self.observer.leader().await).await
    }

    /// Returns the servers that a fault strikes.
    async fn of(&self, whom: Whom) -> Result<Vec<&Server>> {
        let leader = match whom {
            Whom::Leader | Whom::Standby => Some(self.leader().await?),
            Whom::Keepers | Whom::Webhook => None,
        };
        let is_of = |server: &&Server| match whom {
            Whom::Leader => leader.as_ref() == Some(&server.name),
            Whom::Standby => leader.as_ref() != Some(&server.name),
            Whom::Keepers | Whom::Webhook => true,
        };
        Ok(self.servers.iter().filter(is_of).collect())
    }

    /// Commits a fault from its beginning to its end.
    async fn commit(&self, scene: &Scene, fault: &Fault) -> Result<Committed> {
        scene.until(fault.at).await;
        let servers = self.of(fault.whom).await?;
        commit(&servers, fault, &self.diary).await
    }

    fn writes(&self) -> Vec<Write> {
        self.servers.iter().flat_map(|server| server.proxy.writes()).collect()
    }

    /// Waits until all has happened, or until it is too late, and for a moment more.
    async fn await_end(&self, scene: &Scene, past: &Past) -> Result<()> {
        scene.until(SAVED).await;
        let late = past.healed.max(scene.begun + SignedDuration::try_from(SCRIPT)?);
        let late = late + SignedDuration::try_from(RECOVERY)?;
        let left = Duration::try_from(late.duration_since(Timestamp::now())).unwrap_or_default();
        let done =
            self.observer.until(|seen| evidence(scene, past, seen, &self.writes()).outstanding().is_empty());
        if timeout(left, done).await.is_err() {
            self.diary.note("too late for all that is left");
        }
        sleep(AFTERWARDS).await;
        Ok(())
    }

    /// Returns the violations of rules, and servers that have ended by themselves.
    async fn judge(&self, scene: &Scene, past: &Past) -> Outcome {
        let (seen, writes) = (self.observer.seen(), self.writes());
        let evidence = evidence(scene, past, &seen, &writes);
        let mut violations = evidence.violations();
        for checked in join_all(self.servers.iter().map(Server::check)).await {
            violations.extend(checked.err().map(|error| format!("{error:#}")));
        }
        (violations, evidence.recovery())
    }
}

/// Returns the input of the rules.
fn evidence<'p>(scene: &'p Scene, past: &'p Past, seen: &'p Seen, writes: &'p [Write]) -> Evidence<'p> {
    let Past { changed, held_up_until, within, forgets_grace, clocks, .. } = past;
    let (changed, held_up_until, within, forgets_grace) = (*changed, *held_up_until, *within, *forgets_grace);
    Evidence { actors: &scene.actors, seen, writes, clocks, changed, held_up_until, within, forgets_grace }
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};

    use super::*;
    use crate::proxy::Call;

    #[test]
    fn a_deletion_past_the_proxies_is_found_though_they_saw_a_dry_run_or_another_one() {
        let write = |query| Write {
            by: "keeper-0".into(),
            process: 1,
            sent: Timestamp::UNIX_EPOCH,
            call: Call::of(&Method::DELETE, &format!("/api/v1/namespaces/a/pods/x{query}").parse().unwrap()),
            body: String::new(),
            status: Some(StatusCode::OK),
        };
        let audited = ["delete pods/x".to_owned(), "update leases/l".to_owned()];
        assert_eq!(unproxied(&audited, &[write("?dryRun=All"), write("")]), [""; 0]);
        assert_eq!(unproxied(&audited, &[write("?dryRun=All")]), ["past the proxies: delete pods/x"]);
        let twice = [audited[0].clone(), audited[0].clone()];
        assert_eq!(unproxied(&twice, &[write("")]), ["past the proxies: delete pods/x"]);
    }
}
