//! The end of a pod's run by the ceiling of its queue: exemptions, clocks, deadlines, and ceilings
//! that a workload notes itself.
//!
//! The index computes deadlines with this module. The keeper and `kubectl tenure` check exemptions
//! with it. Owner references and annotations alone exempt no pod, because any tenant may write
//! them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_types::{ExtendedDuration, Grammar, projection::Pod};

use crate::{naming::could_exist, start::second_down};

pub use crate::family::{Family, FamilyRow, PerFamily};

/// The value of priority class `system-cluster-critical`. Pods of this priority or a higher one are
/// exempt, unless another threshold is configured.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The pods that Tenure manages. By default: pods below the system-critical priority, of all
/// schedulers, outside `kube-system`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Pods of this priority or a higher one are exempt.
    pub priority_threshold: i32,
    /// The schedulers whose pods count; pods of other schedulers are exempt. Empty: all schedulers
    /// count.
    pub schedulers: Vec<String>,
    /// Pods of these namespaces are exempt.
    pub exempt_namespaces: Vec<String>,
}

/// The namespace of the cluster's own pods.
pub const KUBE_SYSTEM: &str = "kube-system";

impl Default for Scope {
    fn default() -> Self {
        Self {
            priority_threshold: SYSTEM_CRITICAL_PRIORITY,
            schedulers: Vec::new(),
            exempt_namespaces: vec![KUBE_SYSTEM.into()],
        }
    }
}

/// The reason why a pod is never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// The pod's priority reaches the threshold.
    Priority,
    /// A `DaemonSet` controls the pod.
    DaemonSet,
    /// The pod mirrors a static pod of a kubelet. A deletion of the mirror stops nothing.
    StaticPod,
    /// The pod is in an exempt namespace.
    Namespace,
    /// The pod is being deleted already.
    Terminating,
    /// All containers of the pod have ended.
    Finished,
    /// The pod's scheduler isn't among those that count.
    Scheduler,
}

/// Returns the reason why a pod is never touched. None: its queue's ceiling applies. Owner
/// references and annotations don't count here, because any tenant may write them: the exemption of
/// a [claimed] owner holds once that owner was found.
pub fn exemption(pod: &Pod, scope: &Scope) -> Option<Exemption> {
    if pod.metadata.deletion_timestamp.is_some() {
        Some(Exemption::Terminating)
    } else if pod.is_finished() {
        Some(Exemption::Finished)
    } else {
        standing_exemption(pod, scope)
    }
}

/// Like [`exemption`], but doesn't exempt pods that have ended or are terminating.
pub fn standing_exemption(pod: &Pod, scope: &Scope) -> Option<Exemption> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let scheduler = pod.spec.scheduler_name.as_deref().unwrap_or("default-scheduler");
    if scope.exempt_namespaces.iter().any(|exempt| exempt == namespace) {
        Some(Exemption::Namespace)
    } else if pod.spec.priority.unwrap_or(0) >= scope.priority_threshold {
        Some(Exemption::Priority)
    } else if !scope.schedulers.is_empty() && scope.schedulers.iter().all(|name| name != scheduler) {
        Some(Exemption::Scheduler)
    } else {
        None
    }
}

/// Returns the exemption that a pod claims by its controller reference. The exemption holds only if
/// that owner exists, because any tenant may write an owner reference. None: the pod claims none, or
/// names a further owner. If the garbage collector can't look one of its owners up, it keeps the pod
/// when the controller is deleted.
pub fn claimed(pod: &Pod) -> Option<Exemption> {
    let controller = pod.controller()?;
    let is_only = pod.metadata.owner_references.as_ref().is_some_and(|all| all.len() == 1);
    let exemption = exemption_by(controller).filter(|_| is_only)?;
    (exemption != Exemption::StaticPod || pod.is_mirror()).then_some(exemption)
}

/// Returns the exemption that a controller gives its pods if it exists. A node exempts only mirrors
/// of static pods. None: the pods of this kind aren't exempt, or the garbage collector can't look the
/// controller up by this version or name.
pub fn exemption_by(controller: &OwnerReference) -> Option<Exemption> {
    let exemption = match (controller.api_version.as_str(), controller.kind.as_str()) {
        ("apps/v1", "DaemonSet") => Exemption::DaemonSet,
        ("v1", "Node") => Exemption::StaticPod,
        _ => return None,
    };
    could_exist(controller).then_some(exemption)
}

/// The two clocks that a ceiling can run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The pod's `creationTimestamp`, from which ceilings of the tensorstack family run: they
    /// include pending time.
    pub created: Timestamp,
    /// The earlier of the workload's start and the pod's scheduling, from which ceilings of the
    /// run.ai family run. None: the pod is pending.
    pub started: Option<Timestamp>,
}

impl Clocks {
    /// Returns the time from which a ceiling of a family runs. None: the run hasn't begun.
    pub const fn since(self, family: Family) -> Option<Timestamp> {
        match family {
            Family::Tensorstack => Some(self.created),
            Family::Runai => self.started,
        }
    }
}

/// The time for which a workload with notices runs on after a change of its queue has made it
/// overdue. The default is one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceOnChange(pub ExtendedDuration);

impl Default for GraceOnChange {
    fn default() -> Self {
        Self(ExtendedDuration::of(SignedDuration::from_mins(1)))
    }
}

/// A change of queues that may have moved the ends of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// The time at which the change was seen.
    pub at: Timestamp,
    /// The time for which a run that the change has made overdue goes on, if the run gets a notice.
    pub grace: GraceOnChange,
}

impl PolicyChange {
    /// Returns the time before which a run doesn't end although the change has moved its end from
    /// `before` to `after`. `before` and `after` are None for a run without an end. None: the run
    /// ends at `after`, because the change hasn't shortened it or `after` is late enough.
    ///
    /// With a notice, the result is the time of the change plus the grace; without one, the time of
    /// the change. The result is never later than `before`: no matter how often queues change, no
    /// run ends later than without the changes. `since` is the start of the run. A change doesn't
    /// shorten a run that hasn't started, or that started at or after the change in whole seconds.
    pub fn earliest_end(
        self,
        since: Option<Timestamp>,
        before: Option<Timestamp>,
        after: Option<Timestamp>,
        has_notice: bool,
    ) -> Option<Timestamp> {
        let after = after?;
        let is_younger = since.is_none_or(|since| since >= second_down(self.at));
        if is_younger || before.is_some_and(|before| before <= after) {
            return None;
        }
        let grace = if has_notice { self.grace.0.to_signed() } else { SignedDuration::ZERO };
        let end = self.at.checked_add(grace).unwrap_or(Timestamp::MAX);
        let end = before.map_or(end, |before| before.min(end));
        (end > after).then_some(end)
    }
}

/// Returns the last instant at which a pod may run, and the family whose ceiling sets this
/// deadline. Of two ceilings, the stricter counts. The deadline is exceeded when `now` is later;
/// equality doesn't exceed it. None: no ceiling ends the run.
pub fn deadline(clocks: Clocks, ceilings: PerFamily<Option<SignedDuration>>) -> Option<(Timestamp, Family)> {
    // a deadline that no timestamp can hold is none
    let end = |family| Some((clocks.since(family)?.checked_add(ceilings[family]?).ok()?, family));
    Family::ALL.into_iter().filter_map(end).min()
}

/// The reading of a workload's own ceiling, the value of
/// [`tenure_types::keys::MAX_DURATION_ANNOTATION`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCeiling {
    /// The ceiling that counts: at least one second. None: the text has no effect.
    pub counts: Option<ExtendedDuration>,
    /// The rule that the text breaks, and the effect of the text. None: the text is right.
    pub error: Option<String>,
}

/// Reads a workload's own ceiling, in the grammar of a queue's `maxDuration`.
///
/// Spellings of versions that took more than this grammar, such as `2h 30m` and `10 days`, still
/// count, with an error: a run that was to be short must not become a long one.
pub fn own_ceiling(text: &str) -> OwnCeiling {
    let read = text.parse::<ExtendedDuration>();
    let former = || Some(ExtendedDuration::of(humantime::parse_duration(text).ok()?.try_into().ok()?));
    let counts = read.clone().ok().or_else(former).filter(|own| own.to_signed().as_secs() > 0);
    let error = match (read, counts) {
        (Ok(_), Some(_)) => None,
        (Ok(_), None) => Some("must be at least a second: it has no effect".into()),
        (Err(_), Some(own)) => {
            Some(format!("must be {}: it counts as {own}, write that", ExtendedDuration::EXPECTED))
        }
        (Err(error), None) => {
            // a tenant's text may be long
            let why: String = error.to_string().chars().take(80).collect();
            Some(format!("must be {}: {why}: it has no effect", ExtendedDuration::EXPECTED))
        }
    };
    OwnCeiling { counts, error }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_change_of_queues_moves_an_end_that_is_past_by_the_grace_and_never_beyond_the_old_one() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let change = PolicyChange {
            at: at(100),
            grace: GraceOnChange(ExtendedDuration::of(SignedDuration::from_secs(60))),
        };
        let end = |before: Option<i64>, after: Option<i64>, has_notice| {
            change.earliest_end(Some(at(0)), before.map(at), after.map(at), has_notice)
        };
        assert_eq!(end(Some(500), Some(50), true), Some(at(160)));
        assert_eq!(end(None, Some(50), true), Some(at(160)), "it had none");
        assert_eq!(end(Some(130), Some(50), true), Some(at(130)), "the old end comes first");
        assert_eq!(end(Some(500), Some(120), true), Some(at(160)), "too soon for a notice");
        assert_eq!(end(Some(500), Some(200), true), None, "in time for a notice");
        assert_eq!(end(Some(500), Some(50), false), Some(at(100)), "not before the change");
        assert_eq!(end(Some(500), Some(600), true), None, "it got longer");
        assert_eq!((end(Some(50), Some(50), true), end(Some(90), None, true)), (None, None));
        let change = PolicyChange { at: at(100) + SignedDuration::from_millis(900), ..change };
        let started = |since: i64| change.earliest_end(Some(at(since)), None, Some(at(104)), true);
        assert_eq!(
            (started(100), started(101)),
            (None, None),
            "it started after the change, in whole seconds"
        );
        assert!(started(99).is_some());
    }

    #[test]
    fn a_family_is_known_by_the_group_of_its_queues() {
        assert_eq!(Family::of("scheduler.tensorstack.dev"), Some(Family::Tensorstack));
        assert_eq!(Family::of("scheduling.run.ai"), Some(Family::Runai));
        assert_eq!(Family::of("scheduling.k8s.io"), None);
    }

    fn exemption_of(pod: Value) -> Option<Exemption> {
        exemption(&serde_json::from_value(pod).unwrap(), &Scope::default())
    }

    fn claimed_of(api_version: &str, kind: &str, annotations: &Value) -> Option<Exemption> {
        let pod = json!({"metadata": {"annotations": annotations, "ownerReferences": [
            {"apiVersion": api_version, "kind": kind, "name": "n", "uid": "u", "controller": true}
        ]}});
        assert_eq!(exemption_of(pod.clone()), None, "a claim is not an exemption");
        claimed(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn what_a_pod_says_of_its_owner_is_a_claim() {
        let mirror = || json!({"kubernetes.io/config.mirror": "x"});
        assert_eq!(claimed_of("apps/v1", "ReplicaSet", &json!(null)), None);
        assert_eq!(claimed_of("apps/v1", "DaemonSet", &json!(null)), Some(Exemption::DaemonSet));
        assert_eq!(claimed_of("example.com/v1", "DaemonSet", &json!(null)), None);
        assert_eq!(claimed_of("v1", "Node", &mirror()), Some(Exemption::StaticPod));
        assert_eq!(claimed_of("v1", "Node", &json!(null)), None);
        assert_eq!(claimed_of("example.com/v1", "Node", &mirror()), None);
        assert_eq!(
            claimed(&serde_json::from_value(json!({"metadata": {"annotations": mirror()}})).unwrap()),
            None
        );
    }

    /// Otherwise the pod would be exempt for good once the owner is deleted.
    #[test]
    fn an_owner_exempts_no_pod_that_the_garbage_collector_would_keep_without_it() {
        let owner = |version: &str, name: &str, controller: bool| {
            json!({
                "apiVersion": version, "kind": "DaemonSet", "name": name, "uid": "u",
                "controller": controller,
            })
        };
        let claimed = |owners: Value| {
            claimed(&serde_json::from_value(json!({"metadata": {"ownerReferences": owners}})).unwrap())
        };
        let controller = owner("apps/v1", "n", true);
        assert_eq!(claimed(json!([controller])), Some(Exemption::DaemonSet));
        for (version, name) in [("apps/v9", "n"), ("apps/v1", "no/name"), ("apps/v1", "..")] {
            assert_eq!(claimed(json!([owner(version, name, true)])), None, "{version} {name}");
        }
        assert_eq!(claimed(json!([controller, owner("example.com/v1", "n", false)])), None);
    }

    #[test]
    fn exempt_is_what_has_ended_and_what_is_in_an_exempt_namespace() {
        assert_eq!(exemption_of(json!({})), None);
        assert_eq!(
            exemption_of(json!({"metadata": {"namespace": "kube-system"}})),
            Some(Exemption::Namespace)
        );
        assert_eq!(exemption_of(json!({"metadata": {"namespace": "team"}})), None);
        let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(exemption_of(terminating), Some(Exemption::Terminating));
        assert_eq!(exemption_of(json!({"status": {"phase": "Succeeded"}})), Some(Exemption::Finished));
        assert_eq!(exemption_of(json!({"status": {"phase": "Failed"}})), Some(Exemption::Finished));
        assert_eq!(exemption_of(json!({"status": {"phase": "Pending"}})), None);
    }

    #[test]
    fn exempt_is_a_priority_at_or_above_the_threshold() {
        for (priority, exempt) in
            [(0, false), (1_999_999_999, false), (2_000_000_000, true), (2_000_001_000, true)]
        {
            let found = exemption_of(json!({"spec": {"priority": priority}}));
            assert_eq!(found, exempt.then_some(Exemption::Priority), "{priority}");
        }
    }

    const CREATED: &str = "2026-01-01T00:00:00Z";

    fn deadline_of(
        started: Option<&str>,
        tensorstack: Option<i64>,
        runai: Option<i64>,
    ) -> Option<(String, Family)> {
        let clocks =
            Clocks { created: CREATED.parse().unwrap(), started: started.map(|text| text.parse().unwrap()) };
        let seconds = |n: Option<i64>| n.map(SignedDuration::from_secs);
        let ceilings = PerFamily::new(|family| match family {
            Family::Tensorstack => seconds(tensorstack),
            Family::Runai => seconds(runai),
        });
        deadline(clocks, ceilings).map(|(at, family)| (at.to_string(), family))
    }

    #[test]
    fn exempt_are_pods_of_schedulers_that_do_not_count() {
        let scope = Scope { schedulers: vec!["t9k-scheduler".into()], ..Scope::default() };
        let of = |spec: Value| exemption(&serde_json::from_value(json!({"spec": spec})).unwrap(), &scope);
        assert_eq!(of(json!({"schedulerName": "t9k-scheduler"})), None);
        assert_eq!(of(json!({"schedulerName": "default-scheduler"})), Some(Exemption::Scheduler));
        assert_eq!(of(json!({})), Some(Exemption::Scheduler));
        assert_eq!(exemption_of(json!({"spec": {"schedulerName": "any"}})), None);
    }

    #[test]
    fn an_own_ceiling_is_written_as_that_of_a_queue() {
        for good in ["90s", "2h30m", "1.5d", "2w"] {
            let counts = good.parse::<ExtendedDuration>().unwrap();
            assert_eq!(own_ceiling(good), OwnCeiling { counts: Some(counts), error: None }, "{good}");
            assert_eq!(counts.to_string(), good);
        }
        for bad in ["", "soon", "-5m", "10", "0s", "1us", "999ms", "0 s", "9999999999999y"] {
            let OwnCeiling { counts, error } = own_ceiling(bad);
            assert!(counts.is_none() && error.is_some(), "{bad}");
        }
    }

    #[test]
    fn an_own_ceiling_in_a_former_spelling_counts_and_is_reported_with_the_right_one() {
        for (text, right) in
            [("2h 30m", "2h30m"), ("10 days", "10d"), ("1day", "1d"), ("10 s", "10s"), ("1y", "365d6h")]
        {
            let OwnCeiling { counts, error } = own_ceiling(text);
            assert_eq!(counts, right.parse().ok(), "{text}");
            let error = error.unwrap();
            assert!(error.starts_with("must be a duration such as 90m, 1h30m or 7d"), "{error}");
            assert!(error.ends_with(&format!(": it counts as {right}, write that")), "{error}");
        }
    }

    #[test]
    fn tensorstack_counts_from_the_creation() {
        let expected = Some(("2026-01-01T00:00:10Z".into(), Family::Tensorstack));
        assert_eq!(deadline_of(None, Some(10), None), expected);
    }

    #[test]
    fn runai_counts_from_the_start_and_not_before() {
        assert_eq!(deadline_of(None, None, Some(10)), None);
        let expected = Some(("2026-01-01T01:00:10Z".into(), Family::Runai));
        assert_eq!(deadline_of(Some("2026-01-01T01:00:00Z"), None, Some(10)), expected);
    }

    #[test]
    fn the_stricter_of_two_families_counts() {
        let started = Some("2026-01-01T00:00:05Z");
        assert_eq!(deadline_of(started, Some(10), Some(10)).unwrap().1, Family::Tensorstack);
        assert_eq!(deadline_of(started, Some(10), Some(4)).unwrap().1, Family::Runai);
    }

    #[test]
    fn no_ceiling_is_no_deadline_and_neither_is_one_beyond_the_end_of_time() {
        assert_eq!(deadline_of(Some(CREATED), None, None), None);
        assert_eq!(deadline_of(None, Some(i64::MAX), None), None);
    }
}
