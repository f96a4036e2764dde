//! A trace that runs for real, with keeper, webhook and kube-scheduler, and is then replayed by `simulate`: the same runs are cut,
//! and no run is preempted that a floor protects. The estimate of `--schedule` is printed beside what happened.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    pin::pin,
    time::Duration,
};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tenure_tests::{
    DEADLINE, World, fixtures,
    plugin::plugin_prints,
    scheduling::{self, Arena},
    workloads::{distinct, in_runai_queue, workload},
};
use tokio::time::{Instant, interval, sleep_until, timeout};

/// The size of a trace, in whole seconds.
#[derive(Clone, Copy)]
struct Scale {
    jobs: u32,
    /// The number of jobs that run at once.
    room: u32,
    /// The time between two submissions.
    pace: Duration,
    floor: i64,
    /// The ceilings of the two queues.
    ceilings: [i64; 2],
    /// No job is that near to its ceiling.
    apart: i64,
}

/// A job of the trace.
struct Planned {
    name: String,
    queue: usize,
    is_urgent: bool,
    seconds: i64,
}

/// What was seen of a run: a pod of a job.
struct Seen {
    pod: String,
    job: usize,
    submit: Timestamp,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    preempted: bool,
}

const CLASSES: [(&str, i32); 2] = [("usual", 100), ("urgent", 1000)];
const HEADERS: &str = "id,submit,start,end,gpus,queue,user,priority,state\n";

/// Times that near to a ceiling may fall on either side of it.
const BOUNDARY: i64 = 2;

impl Scale {
    /// Jobs by a generator of random numbers of its own: most are short, some are longer than their ceiling.
    fn plan(self) -> Vec<Planned> {
        let mut state = 7_u64;
        let mut next = |below: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(state >> 33).unwrap() % below
        };
        let [short, long] = self.ceilings;
        let planned = (0..self.jobs).map(|number| {
            let seconds = match next(10) {
                0..7 => 2 + next(short / 2),
                7..9 => short / 2 + next(short),
                _ => short + next(2 * long - short),
            };
            let queue = usize::try_from(next(2)).unwrap();
            let ceiling = self.ceilings[queue];
            let seconds = match seconds - ceiling {
                over if over.abs() >= self.apart => seconds,
                ..=0 => ceiling - self.apart,
                _ => ceiling + self.apart,
            };
            Planned { name: format!("job-{number}"), queue, is_urgent: next(7) == 0, seconds }
        });
        planned.collect()
    }

    fn queues(self, names: &[String; 2]) -> [Value; 2] {
        let floor = format!("{}s", self.floor);
        [0, 1].map(|queue| {
            json!({
                "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": names[queue]},
                "spec": {
                    "maxDuration": format!("{}s", self.ceilings[queue]),
                    "preemptMinRuntime": floor, "reclaimMinRuntime": floor,
                },
            })
        })
    }
}

/// A trace that runs.
struct Running<'w> {
    arena: Arena<'w>,
    names: [String; 2],
    jobs: Vec<Planned>,
    runs: BTreeMap<String, Seen>,
}

impl<'w> Running<'w> {
    async fn new(world: &'w World, scale: Scale) -> Self {
        const OF_NODE: u32 = 20;
        let arena = Arena::new(world, scale.room.min(OF_NODE)).await;
        for node in 1..scale.room.div_ceil(OF_NODE) {
            arena.add_node(&format!("{}-{node}", arena.node()), OF_NODE).await;
        }
        let names = ["short", "long"].map(|name| format!("{}-{name}", arena.node()));
        for queue in scale.queues(&names) {
            arena.namespace.create(&queue).await;
        }
        for (name, priority) in CLASSES {
            arena.class(name, priority, "PreemptLowerPriority", &[]).await;
        }
        Self { arena, names, jobs: scale.plan(), runs: BTreeMap::new() }
    }

    fn object(&self, Planned { name, queue, is_urgent, .. }: &Planned) -> Job {
        let node = self.arena.node();
        let spec = json!({
            "nodeSelector": {"arena": node},
            "priorityClassName": format!("{node}-{}", CLASSES[usize::from(*is_urgent)].0),
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "example.com/image", "resources": {"requests": {"cpu": "1"}}}],
        });
        let labels = in_runai_queue(&self.names[*queue]);
        let mut job = distinct(workload("Job", node, name, &labels, &spec), name);
        // a run that is preempted begins again at once
        let rule =
            json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
        job["spec"]["podFailurePolicy"] = json!({"rules": [rule]});
        serde_json::from_value(job).unwrap()
    }

    fn see(&mut self, pod: &Pod, is_gone: bool) {
        let Some(job) = pod.labels().get("app").and_then(|app| app.strip_prefix("job-")?.parse().ok()) else {
            return;
        };
        let submit = pod.creation_timestamp().unwrap().0;
        let run = self.runs.entry(pod.uid().unwrap()).or_insert(Seen {
            pod: pod.name_any(),
            job,
            submit,
            start: None,
            end: None,
            preempted: false,
        });
        let conditions =
            pod.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        for condition in conditions.filter(|of| of.status == "True") {
            match condition.type_.as_str() {
                "PodScheduled" => run.start = condition.last_transition_time.as_ref().map(|time| time.0),
                "DisruptionTarget" if condition.reason.as_deref() == Some("PreemptionByScheduler") => {
                    run.preempted = true;
                    run.end = run.end.or(condition.last_transition_time.as_ref().map(|time| time.0));
                }
                _ => {}
            }
        }
        if is_gone {
            run.end = run.end.or(Some(Timestamp::now()));
        }
    }

    /// Ends the runs that have run for their time, as their containers would.
    async fn complete(&mut self, pods: &Api<Pod>, now: Timestamp) {
        for (uid, run) in &mut self.runs {
            let job = &self.jobs[run.job];
            let due = run.start.map(|start| start + SignedDuration::from_secs(job.seconds));
            if run.end.is_some() || due.is_none_or(|due| due > now) {
                continue;
            }
            // the uid has it fail where the pod is gone, and another has its name
            let succeeded = json!({"metadata": {"uid": uid}, "status": {"phase": "Succeeded"}});
            let patched =
                pods.patch_status(&run.pod, &PatchParams::default(), &Patch::Merge(&succeeded)).await;
            if patched.is_ok() {
                run.end = Some(now);
            }
        }
    }

    /// Submits all jobs, and waits until each has been completed or cut.
    async fn run(&mut self, pace: Duration) {
        let client = self.arena.world.cluster.client().unwrap();
        let pods: Api<Pod> = Api::namespaced(client.clone(), self.arena.node());
        let jobs: Api<Job> = Api::namespaced(client, self.arena.node());
        let mut events = pin!(watcher(pods.clone(), watcher::Config::default()).default_backoff());
        let (mut tick, mut submitted, begin) = (interval(Duration::from_millis(200)), 0, Instant::now());
        let (mut finished, mut listed) = (BTreeSet::new(), BTreeSet::new());
        while finished.len() < self.jobs.len() {
            let next = begin + pace * u32::try_from(submitted).unwrap();
            tokio::select! {
                event = events.next() => match event.unwrap() {
                    Ok(watcher::Event::Apply(pod)) => self.see(&pod, false),
                    Ok(watcher::Event::InitApply(pod)) => {
                        listed.extend(pod.uid());
                        self.see(&pod, false);
                    }
                    // what was deleted while there was no watch isn't told
                    Ok(watcher::Event::InitDone) => {
                        let gone = self.runs.iter_mut().filter(|(uid, _)| !listed.contains(*uid));
                        gone.for_each(|(_, run)| run.end = run.end.or(Some(Timestamp::now())));
                        listed.clear();
                    }
                    Ok(watcher::Event::Delete(pod)) => self.see(&pod, true),
                    _ => {}
                },
                _ = tick.tick() => {
                    self.complete(&pods, Timestamp::now()).await;
                    let ended = self.runs.values().filter(|run| run.end.is_some() && !run.preempted);
                    finished.extend(ended.map(|run| run.job));
                }
                () = sleep_until(next), if submitted < self.jobs.len() => {
                    jobs.create(&PostParams::default(), &self.object(&self.jobs[submitted])).await.unwrap();
                    submitted += 1;
                }
            }
        }
    }

    /// The jobs of which an event says that the keeper has paused them.
    async fn cut(&self) -> BTreeSet<String> {
        let events = self.arena.namespace.events().await;
        events.iter().map(|event| event.split([':', '/']).nth(1).unwrap().to_owned()).collect()
    }

    fn line(&self, id: &str, job: usize, [submit, start, end]: [Timestamp; 3], state: &str) -> String {
        let Planned { queue, is_urgent, .. } = &self.jobs[job];
        let priority = CLASSES[usize::from(*is_urgent)].1;
        format!("{id},{submit},{start},{end},1,{},user,{priority},{state}\n", self.names[*queue])
    }

    /// The runs as they were. Of a run that was cut it has the end that it would have had.
    fn record(&self) -> String {
        let mut text = HEADERS.to_owned();
        for (number, run) in self.runs.values().enumerate() {
            let Some(start) = run.start else { continue };
            let whole = start + SignedDuration::from_secs(self.jobs[run.job].seconds);
            let (end, state) = match run.end {
                Some(end) if run.preempted => (end, "PREEMPTED"),
                _ => (whole, "COMPLETED"),
            };
            let id = format!("{}/{number}", self.jobs[run.job].name);
            text += &self.line(&id, run.job, [run.submit, start, end.max(start)], state);
        }
        text
    }

    /// The trace as it was planned: each job starts when it is submitted.
    fn trace(&self) -> String {
        let mut text = HEADERS.to_owned();
        for (job, planned) in self.jobs.iter().enumerate() {
            let submits = self.runs.values().filter(|run| run.job == job).map(|run| run.submit);
            let submit = submits.min().unwrap();
            let end = submit + SignedDuration::from_secs(planned.seconds);
            text += &self.line(&planned.name, job, [submit, submit, end], "COMPLETED");
        }
        text
    }

    /// The waits of all jobs for their first start, in seconds.
    fn waits(&self) -> Vec<i64> {
        let of_job = |job| {
            let runs = self.runs.values().filter(|run| run.job == job);
            let first = runs.filter_map(|run| Some((run.submit, run.start?))).min().unwrap();
            first.1.duration_since(first.0).as_secs()
        };
        let mut waits: Vec<i64> = (0..self.jobs.len()).map(of_job).collect();
        waits.sort_unstable();
        waits
    }
}

/// What a trace has shown.
struct Played {
    /// The number of jobs that the replay judges otherwise, near to their ceiling.
    near: usize,
    /// The number of jobs that were cut, and that of the estimate.
    cut: [i64; 2],
    /// The median of the waits in seconds, and that of the estimate.
    wait: [i64; 2],
}

/// Runs a trace, and compares.
async fn play(name: &str, scale: Scale) -> Played {
    let values = [scheduling::EXTENDER, &["webhook.failurePolicy=Ignore"]].concat();
    let world = Box::pin(World::installed(name, &values)).await.unwrap();
    fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
    world.tenure.start_webhook(&world.cluster).await.unwrap();
    world.tenure.start_keeper().await.unwrap();
    scheduling::configure(&world, &json!({})).await.unwrap();
    let mut running = Box::pin(Running::new(&world, scale)).await;
    // more is submitted than there is room for
    let limit = scale.pace * scale.jobs * 2 + DEADLINE * 8;
    timeout(limit, running.run(scale.pace)).await.unwrap();

    let directory = world.cluster.directory();
    let path = |name: &str| directory.join(name).display().to_string();
    let queues = scale.queues(&running.names).map(|queue| queue.to_string()).join("\n---\n");
    for (name, text) in
        [("queues.yaml", &queues), ("record.csv", &running.record()), ("trace.csv", &running.trace())]
    {
        fs::write(path(name), text).unwrap();
    }
    let (queues, record, trace) = (path("queues.yaml"), path("record.csv"), path("trace.csv"));
    let simulate = async |arguments: &[&str]| {
        let arguments = [&["simulate", "--queues", &queues, "--trace"], arguments].concat();
        plugin_prints(&world, "default", &arguments).await
    };

    // the same runs are cut
    let replayed = simulate(&[&record, "-o", "csv"]).await;
    let replayed = replayed.lines().filter(|line| line.ends_with(",CUT"));
    let replayed: BTreeSet<String> =
        replayed.map(|line| line.split('/').next().unwrap().to_owned()).collect();
    let cut = running.cut().await;
    let near = |job: &&String| {
        let job = running.jobs.iter().find(|of| of.name == **job).unwrap();
        (job.seconds - scale.ceilings[job.queue]).abs() <= BOUNDARY
    };
    let differing: Vec<&String> = replayed.symmetric_difference(&cut).collect();
    let (near, far): (Vec<&String>, Vec<&String>) = differing.into_iter().partition(near);
    println!("{} cut; {} differ within {BOUNDARY} s of their ceiling: {near:?}", cut.len(), near.len());
    assert!(far.is_empty(), "{far:?}: {}", directory.display());
    assert!(!cut.is_empty());

    // no run was preempted that a floor protects
    let report: Value = serde_json::from_str(&simulate(&[&record, "-o", "json"]).await).unwrap();
    let preempted = running.runs.values().filter(|run| run.preempted && run.start.is_some()).count();
    println!("{preempted} preempted");
    assert_eq!(
        (&report["total"]["preempted"], &report["total"]["preemptionsAvoided"]),
        (&json!(preempted), &json!(0))
    );

    let capacity = scale.room.to_string();
    let estimate = simulate(&[&trace, "--schedule", "--capacity", &capacity, "-o", "json"]).await;
    let estimate: Value = serde_json::from_str(&estimate).unwrap();
    let waits = running.waits();
    let of_model = &estimate["schedules"][1];
    let percentile = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
    println!(
        "waits: p50 {} s, p95 {} s; estimated {}, {}",
        percentile(50),
        percentile(95),
        of_model["waitP50"],
        of_model["waitP95"]
    );
    println!(
        "mean of waits: {} s; {} cut, estimated {}",
        waits.iter().sum::<i64>() / i64::from(scale.jobs),
        cut.len(),
        of_model["cut"]
    );
    Played {
        near: near.len(),
        cut: [i64::try_from(cut.len()).unwrap(), of_model["cut"].as_i64().unwrap()],
        wait: [percentile(50), of_model["waitP50"].as_i64().unwrap()],
    }
}

#[tokio::test]
async fn the_runs_of_a_trace_that_ran_are_cut_and_protected_as_a_replay_says() {
    let scale = Scale {
        jobs: 40,
        room: 8,
        pace: Duration::from_millis(500),
        floor: 4,
        ceilings: [20, 40],
        apart: 10,
    };
    Box::pin(play("replayed", scale)).await;
}

#[tokio::test]
#[ignore = "takes half an hour"]
async fn a_thousand_jobs_of_a_trace_run_as_they_are_replayed() {
    let scale = Scale {
        jobs: 1000,
        room: 80,
        pace: Duration::from_secs(1),
        floor: 30,
        ceilings: [180, 360],
        apart: 3,
    };
    let Played { near, cut: [cut, estimated], wait } = Box::pin(play("thousand", scale)).await;
    assert!(near <= 10, "{near}");
    assert!((cut - estimated).abs() * 100 <= 2 * cut, "cut {cut}, estimated {estimated}");
    let [real, estimated] = wait;
    assert!((real - estimated).abs() * 10 <= real, "median {real} s, estimated {estimated} s");
}
