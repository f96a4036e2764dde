//! Counts the resource-seconds that preemptors waited for because of floors.
//!
//! A scheduler offers victims on many nodes, but would preempt only those of one node. So when a
//! request gets no victims, only the pods of one node count: the node whose floors end first, where
//! the preemptor waits. Each pod counts once at a time, for any number of preemptors, until its
//! floor or its run ends.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use tenure_index::{KeptPod, Uid};
use tokio::time::{MissedTickBehavior, interval};

use super::Extender;

/// The most pods that are counted at a time: more than preemptors want in any cluster.
const MOST: usize = 10_000;

/// The time between two counts. The count of a pod that ends may lack up to this time.
const BETWEEN: Duration = Duration::from_secs(1);

/// The resource whose requests are in thousandths.
const CPU: &str = "cpu";

/// The pods that floors keep from preemptors at the moment.
#[derive(Debug, Default)]
pub struct KeptPods(HashMap<Uid, CountedPod>);

/// A pod that a floor keeps from a preemptor.
#[derive(Debug)]
struct CountedPod {
    queue: String,
    /// The requests of the resources that are counted, in whole units: cores and not thousandths.
    amounts: Vec<(String, f64)>,
    /// The time up to which it has been counted.
    counted: Timestamp,
    /// The end of the floor.
    until: Timestamp,
}

impl KeptPods {
    /// Adds pods that a preemptor could not have. `resources` are those that are counted. A pod
    /// that is known already counts until the later end.
    pub fn add(&mut self, pods: Vec<KeptPod<'_>>, now: Timestamp, resources: &BTreeSet<String>) {
        for KeptPod { uid, queue, requests, until } in pods {
            if let Some(known) = self.0.get_mut(&uid) {
                known.until = known.until.max(until);
                continue;
            }
            let amount = |name: &String| {
                let units = requests.of(name);
                #[expect(clippy::cast_precision_loss, reason = "no pod requests so much")]
                let amount = units as f64 / if name == CPU { 1000.0 } else { 1.0 };
                (units > 0).then(|| (name.clone(), amount))
            };
            let amounts: Vec<_> = resources.iter().filter_map(amount).collect();
            if !amounts.is_empty() && self.0.len() < MOST {
                self.0.insert(uid, CountedPod { queue, amounts, counted: now, until });
            }
        }
    }

    /// Calls `count` with queue, resource and resource-seconds for the time since the last count.
    /// Forgets pods that have ended, and pods whose floor has ended.
    pub fn count(
        &mut self,
        now: Timestamp,
        is_running: impl Fn(Uid) -> bool,
        mut count: impl FnMut(&str, &str, f64),
    ) {
        self.0.retain(|uid, pod| {
            if !is_running(*uid) {
                return false;
            }
            let seconds = pod.until.min(now).duration_since(pod.counted).as_secs_f64();
            if seconds > 0.0 {
                for (resource, amount) in &pod.amounts {
                    count(&pod.queue, resource, amount * seconds);
                }
                pod.counted = now;
            }
            now < pod.until
        });
    }
}

impl Extender {
    /// Counts the resources that floors keep from preemptors, and drops the series of queues that
    /// are gone. Never ends.
    pub async fn count_kept(&self) {
        let mut labels = HashSet::new();
        let mut ticks = interval(BETWEEN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.kept.lock().0.is_empty() && labels.is_empty() {
                continue;
            }
            let now = self.sight.clock.now();
            self.sight.queues.with(|queues| {
                let count = |queue: &str, resource: &str, amount| {
                    labels.insert((queue.to_owned(), resource.to_owned()));
                    self.metrics.kept_by_floor(queue, resource, amount);
                };
                self.sight.placement.with(|index| {
                    self.kept.lock().count(now, |uid| index.is_running(uid), count);
                });
                labels.retain(|(queue, resource)| {
                    let exists = queues.tree().find(queue).is_some();
                    if !exists {
                        self.metrics.forget_kept(queue, resource);
                    }
                    exists
                });
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_policy::victims::Requests;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn gpus(count: i64) -> Requests {
        Requests::of_pod([("cpu".into(), 1500), ("nvidia.com/gpu".into(), count)])
    }

    fn kept(uid: &str, requests: &'static Requests, until: i64) -> KeptPod<'static> {
        KeptPod { uid: Uid::of(uid), queue: "research".to_owned(), requests, until: at(until) }
    }

    fn leak(requests: Requests) -> &'static Requests {
        Box::leak(Box::new(requests))
    }

    /// What is counted at each of these times.
    fn counted(pods: &mut KeptPods, times: &[i64], running: &[&str]) -> f64 {
        let running: HashSet<Uid> = running.iter().map(|uid| Uid::of(uid)).collect();
        let mut sum = 0.0;
        for time in times {
            pods.count(at(*time), |uid| running.contains(&uid), |_, _, amount| sum += amount);
        }
        sum
    }

    fn resources(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_pod_counts_from_the_first_refusal_until_its_floor_ends_and_once_however_many_want_it() {
        let of = leak(gpus(8));
        let mut pods = KeptPods::default();
        let gpu = resources(&["nvidia.com/gpu"]);
        pods.add(vec![kept("a", of, 10)], at(0), &gpu);
        pods.add(vec![kept("a", of, 10)], at(3), &gpu);
        assert!((counted(&mut pods, &[2, 5, 8, 20, 30], &["a"]) - 80.0).abs() < 1e-9);
        assert!(pods.0.is_empty());
    }

    #[test]
    fn a_later_floor_goes_on_and_no_second_counts_twice() {
        let of = leak(gpus(1));
        let mut pods = KeptPods::default();
        let gpu = resources(&["nvidia.com/gpu"]);
        pods.add(vec![kept("a", of, 10)], at(0), &gpu);
        let first = counted(&mut pods, &[4], &["a"]);
        pods.add(vec![kept("a", of, 20)], at(4), &gpu);
        let rest = counted(&mut pods, &[12, 25], &["a"]);
        assert!((first + rest - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_pod_that_has_ended_counts_no_further() {
        let of = leak(gpus(1));
        let mut pods = KeptPods::default();
        pods.add(vec![kept("a", of, 100)], at(0), &resources(&["nvidia.com/gpu"]));
        assert!((counted(&mut pods, &[5], &["a"]) - 5.0).abs() < 1e-9);
        assert!(counted(&mut pods, &[6, 50], &[]).abs() < 1e-9);
        assert!(pods.0.is_empty());
    }

    #[test]
    fn resources_count_that_are_configured_and_processors_as_whole_ones() {
        let (of, none) = (leak(gpus(0)), leak(Requests::default()));
        let mut pods = KeptPods::default();
        pods.add(vec![kept("a", of, 10)], at(0), &resources(&["nvidia.com/gpu"]));
        pods.add(vec![kept("b", none, 10)], at(0), &resources(&["cpu"]));
        assert!(pods.0.is_empty(), "they have none");
        pods.add(vec![kept("a", of, 10)], at(0), &resources(&["cpu"]));
        assert!((counted(&mut pods, &[10], &["a"]) - 15.0).abs() < 1e-9);
    }

    #[test]
    fn no_more_pods_are_kept_in_mind_than_preemptors_want_anywhere() {
        let of = leak(gpus(1));
        let mut pods = KeptPods::default();
        let gpu = resources(&["nvidia.com/gpu"]);
        for number in 0..=MOST {
            pods.add(vec![kept(&number.to_string(), of, 10)], at(0), &gpu);
        }
        assert_eq!(pods.0.len(), MOST);
    }
}
