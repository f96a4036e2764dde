//! The meaning of a Queue's spec. Specs are read here and nowhere else, so that the webhook and the
//! index understand them alike.
//!
//! A stored field that can't be read counts as unset, and its error is returned beside the queue:
//! admission refuses the object, and the index logs the error.

mod durations;
mod ready;
mod tensorstack;
pub mod v2;

use std::collections::BTreeMap;

use tenure_types::{
    ExtendedDuration, Written,
    runai::{
        self, QueueVersion,
        v3alpha1::{
            self, MaxDurationAction, OnReversal, OverCeiling, QueueExtensions, QueueResource, QueueResources,
        },
    },
};

use crate::{
    extension::Allowance, field::FieldError, notice::NoticePoints, owner_table::is_subdomain,
    ready::PodsReady,
};

use durations::{duration, floor, floor_v2, points, positive};
use ready::at_least;
pub(crate) use ready::wait_for_pods_ready;

/// The remedy for a ceiling of zero: the ceiling of an ancestor may still count.
const NO_OWN_LIMIT: &str = "leave it out for no limit of its own";

/// A queue of the run.ai family, as decisions need it. A queue of T9k is one as well: it is at the
/// top, and has only a ceiling and a notice. A field that can't be read counts as unset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunaiQueue {
    /// The name of the parent, which may not exist. None: the queue is at the top.
    pub parent: Option<String>,
    /// `preemptMinRuntime`. Zero is a value. None: inherited.
    pub preempt_floor: Option<ExtendedDuration>,
    /// `reclaimMinRuntime`. Zero is a value. None: inherited.
    pub reclaim_floor: Option<ExtendedDuration>,
    /// `maxDuration`, never zero. None: the queue sets no limit.
    pub ceiling: Option<ExtendedDuration>,
    /// `extensions`. None: the queue allows no extensions if it has a ceiling, and has no say
    /// otherwise.
    pub extensions: Option<Allowance>,
    /// The fields of which the nearest value counts.
    pub nearest: NearestFields,
}

/// The fields of which the nearest value on the way to the root counts, each by itself. None:
/// inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NearestFields {
    /// `expiryNotice` or `expiryNotices`. Zero is a value: no notices.
    pub notice: Option<NoticePoints>,
    /// `maxDurationAction`.
    pub action: Option<MaxDurationAction>,
    /// `requeueDelay`. Zero is a value.
    pub requeue_delay: Option<ExtendedDuration>,
    /// `onReversal`.
    pub on_reversal: Option<OnReversal>,
    /// `overCeiling`.
    pub over_ceiling: Option<OverCeiling>,
    /// `waitForPodsReady`: the block is inherited as a whole.
    pub pods_ready: Option<PodsReady>,
}

/// A floor that a queue may have, or inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// `preemptMinRuntime`
    Preempt,
    /// `reclaimMinRuntime`
    Reclaim,
}

impl RunaiQueue {
    /// Returns the extensions that the queue allows. A queue that has only a ceiling allows no
    /// time. None: the queue has no say.
    pub fn allowance(&self) -> Option<Allowance> {
        self.extensions.or_else(|| self.ceiling.map(|_| Allowance::default()))
    }

    /// Reads a spec, and returns the queue and the errors of its own fields. Checks that need other
    /// queues are in [`crate::admission`].
    pub fn read(spec: &v3alpha1::QueueSpec) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        (Self::read_as(QueueVersion::V3alpha1, spec, &mut errors), errors)
    }

    /// Reads a spec of KAI-Scheduler's version, v2, with the annotations that stand for Tenure's
    /// own fields. The path in an error is that of the annotation.
    pub fn read_v2(
        spec: &runai::v2::QueueSpec,
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let spec = v2::as_v3alpha1(spec, annotations, &mut errors);
        (Self::read_as(QueueVersion::V2, &spec, &mut errors), errors)
    }

    /// Reads the spec of an object of any version. A spec of v2 is converted by [`v2::as_v3alpha1`]
    /// before. Errors are added to `errors`.
    pub(crate) fn read_as(
        version: QueueVersion,
        spec: &v3alpha1::QueueSpec,
        errors: &mut Vec<FieldError>,
    ) -> Self {
        let floor = match version {
            QueueVersion::V3alpha1 => floor,
            QueueVersion::V2 => floor_v2,
        };
        // a field that is added must be read here
        let v3alpha1::QueueSpec {
            display_name: _,
            parent_queue,
            priority: _,
            preempt_min_runtime,
            reclaim_min_runtime,
            max_duration,
            expiry_notice,
            expiry_notices,
            max_duration_action,
            requeue_delay,
            on_reversal,
            over_ceiling,
            wait_for_pods_ready: wait,
            extensions: allowed,
            resources,
        } = spec;
        let path = |field| version.path(field);
        let queue = Self {
            parent: parent(parent_queue.as_deref(), errors),
            preempt_floor: floor("spec.preemptMinRuntime", preempt_min_runtime.as_ref(), errors),
            reclaim_floor: floor("spec.reclaimMinRuntime", reclaim_min_runtime.as_ref(), errors),
            ceiling: positive(&path("maxDuration"), max_duration.as_ref(), NO_OWN_LIMIT, errors),
            nearest: NearestFields {
                notice: duration(&path("expiryNotice"), expiry_notice.as_ref(), errors)
                    .or_else(|| points(&path("expiryNotices"), expiry_notices.as_deref(), errors))
                    .map(NoticePoints::from),
                action: *max_duration_action,
                requeue_delay: duration(&path("requeueDelay"), requeue_delay.as_ref(), errors),
                on_reversal: *on_reversal,
                over_ceiling: *over_ceiling,
                pods_ready: wait.as_ref().map(PodsReady::from),
            },
            extensions: allowed.as_ref().map(|of| extensions(&path("extensions"), of, errors)),
        };
        if let (Some(_), Some(list)) = (expiry_notice, expiry_notices) {
            let texts: Vec<&str> = list.iter().map(Written::as_str).collect();
            let detail = format!("can't be set beside {}: leave one of them out", path("expiryNotice"));
            errors.push(FieldError::invalid(path("expiryNotices"), texts, detail));
        }
        queue.floors_under_ceiling(spec, errors);
        if let Some(wait) = wait {
            wait_for_pods_ready(&path("waitForPodsReady"), wait, errors);
        }
        if let Some(QueueResources { cpu, gpu, memory }) = resources {
            for (name, of) in [("cpu", cpu), ("gpu", gpu), ("memory", memory)] {
                errors.extend(of.iter().flat_map(|of| resource(name, of)));
            }
        }
        queue
    }

    fn floors_under_ceiling(&self, spec: &v3alpha1::QueueSpec, errors: &mut Vec<FieldError>) {
        let Some((ceiling, limit)) = self.ceiling.zip(spec.max_duration.as_ref()) else { return };
        for floor in Inherited::ALL {
            let longer = floor.of(self).filter(|floor| *floor > ceiling);
            if let Some((_, written)) = longer.zip(floor.written(spec)) {
                let detail =
                    format!("must not be longer than the queue's own maxDuration, {}", limit.as_str());
                errors.push(FieldError::invalid(format!("spec.{}", floor.name()), written, detail));
            }
        }
    }
}

impl NearestFields {
    /// Returns these values, with those of the queue above in place of missing ones.
    #[must_use]
    pub fn or(self, above: Self) -> Self {
        Self {
            notice: self.notice.or(above.notice),
            action: self.action.or(above.action),
            requeue_delay: self.requeue_delay.or(above.requeue_delay),
            on_reversal: self.on_reversal.or(above.on_reversal),
            over_ceiling: self.over_ceiling.or(above.over_ceiling),
            pods_ready: self.pods_ready.or(above.pods_ready),
        }
    }

    /// Returns the time for which a workload stays paused after its time slice. None: the ceiling
    /// isn't a time slice, and the workload stays paused until a user resumes it.
    pub fn slice_delay(&self) -> Option<ExtendedDuration> {
        let delay = self.requeue_delay.unwrap_or_default();
        (self.action == Some(MaxDurationAction::Requeue)).then_some(delay)
    }
}

impl Inherited {
    /// Both floors.
    pub const ALL: [Self; 2] = [Self::Preempt, Self::Reclaim];

    /// Returns the one of two values that belongs to this floor.
    pub fn pick<T>(self, preempt: T, reclaim: T) -> T {
        match self {
            Self::Preempt => preempt,
            Self::Reclaim => reclaim,
        }
    }

    /// Returns the name of the field.
    pub fn name(self) -> &'static str {
        self.pick("preemptMinRuntime", "reclaimMinRuntime")
    }

    /// Returns the queue's own value. None: the floor is inherited.
    pub fn of(self, queue: &RunaiQueue) -> Option<ExtendedDuration> {
        self.pick(queue.preempt_floor, queue.reclaim_floor)
    }

    /// Returns the queue's own value as its spec has it.
    pub fn written(self, spec: &v3alpha1::QueueSpec) -> Option<&str> {
        self.pick(&spec.preempt_min_runtime, &spec.reclaim_min_runtime).as_ref().map(Written::as_str)
    }
}

/// Reads a parent. An empty name means the top, as it does for KAI. A bad name that got stored
/// stays: no queue has it.
fn parent(name: Option<&str>, errors: &mut Vec<FieldError>) -> Option<String> {
    let name = name.filter(|name| !name.is_empty())?;
    if !is_subdomain(name) {
        let detail = "must be the name of a queue: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters";
        errors.push(FieldError::invalid("spec.parentQueue", name, detail));
    }
    Some(name.into())
}

/// Reads a block `extensions` at this path. A time that is left out or can't be read allows none. A
/// count that is left out is no limit.
fn extensions(path: &str, of: &QueueExtensions, errors: &mut Vec<FieldError>) -> Allowance {
    let QueueExtensions { auto_approve, max_total, max_count } = of;
    let mut time = |field: &str, written: Option<&Written<ExtendedDuration>>| {
        let read = duration(&format!("{path}.{field}"), written, errors);
        read.unwrap_or_default()
    };
    let (auto, total) = (time("autoApprove", auto_approve.as_ref()), time("maxTotal", max_total.as_ref()));
    if auto > total {
        let text = auto_approve.as_ref().map_or("", Written::as_str);
        let most = max_total.as_ref().map_or("0s, as it is left out", Written::as_str);
        let detail = format!("must not be longer than maxTotal, {most}");
        errors.push(FieldError::invalid(format!("{path}.autoApprove"), text, detail));
    }
    at_least(0, &format!("{path}.maxCount"), *max_count, errors);
    Allowance {
        auto_approve: auto.min(total),
        max_total: total,
        max_count: max_count.map(|count| count.try_into().unwrap_or(0)),
    }
}

/// The value that means no limit, in the quota and in the limit of a resource.
const NO_LIMIT: f64 = -1.0;

/// The longest name of a queue, in characters: pods name their queue by a label.
const LONGEST_NAME: usize = 63;

/// Returns the error of a name that can't be the value of a label. None: the name is short enough.
pub(crate) fn too_long(name: &str) -> Option<FieldError> {
    let detail = || {
        format!(
            "must be at most {LONGEST_NAME} characters: pods name their queue by a label, and that is the longest value of one"
        )
    };
    (name.len() > LONGEST_NAME).then(|| FieldError::invalid("metadata.name", name, detail()))
}

/// Returns the errors of one resource: negative values, other than -1 where that means no limit.
fn resource(of: &str, &QueueResource { quota, over_quota_weight, limit }: &QueueResource) -> Vec<FieldError> {
    let unless_unlimited = |value: Option<f64>| value.filter(|value| *value != NO_LIMIT);
    let error = |(name, value, detail): (_, Option<f64>, _)| {
        let value = value.filter(|value| *value < 0.0)?;
        Some(FieldError::invalid(format!("spec.resources.{of}.{name}"), value, detail))
    };
    [
        ("quota", unless_unlimited(quota), "must be at least 0, or -1 for no limit"),
        ("overQuotaWeight", over_quota_weight, "must be at least 0"),
        ("limit", unless_unlimited(limit), "must be at least 0, or -1 for no limit"),
    ]
    .into_iter()
    .filter_map(error)
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_types::{runai::v3alpha1::WaitForPodsReady, tensorstack::v1beta1};

    use super::*;

    fn runai(spec: Value) -> (RunaiQueue, Vec<String>) {
        let (queue, errors) = RunaiQueue::read(&serde_json::from_value(spec).unwrap());
        (queue, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_good_spec_is_read_whole() {
        let (queue, errors) =
            runai(json!({"parentQueue": "a.b-c", "preemptMinRuntime": "0s", "maxDuration": "1d"}));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(queue.parent.as_deref(), Some("a.b-c"));
        assert_eq!(queue.preempt_floor, Some("0s".parse().unwrap()));
        assert_eq!(queue.reclaim_floor, None);
        assert_eq!(queue.ceiling, Some("24h".parse().unwrap()));
    }

    #[test]
    fn every_bad_field_is_named_with_its_value_and_the_rule() {
        let (queue, errors) = runai(json!({
            "parentQueue": "Not A Name",
            "preemptMinRuntime": "10 s",
            "maxDuration": "0s",
            "requeueDelay": "-1s",
            "waitForPodsReady": {
                "timeout": "0", "blockAdmission": true,
                "requeuingStrategy": {"backoffFactor": "0.5", "backoffBaseSeconds": 0, "backoffLimitTimeout": 600},
            },
            "resources": {"gpu": {"quota": -2.0}},
        }));
        let pods_ready = Some(PodsReady::from(&WaitForPodsReady::default()));
        let nearest = NearestFields { pods_ready, ..NearestFields::default() };
        let unset = RunaiQueue { parent: Some("Not A Name".into()), nearest, ..RunaiQueue::default() };
        assert_eq!(queue, unset);
        let expected = [
            "spec.parentQueue: Invalid value: \"Not A Name\": must be the name of a queue",
            "spec.preemptMinRuntime: Invalid value: \"10 s\": must be a duration such as 90m, 1h30m or 7d (units: w, d, h, m, s, ms, us, ns): unknown unit \" s\"",
            "spec.maxDuration: Invalid value: \"0s\": must be greater than zero",
            "spec.requeueDelay: Invalid value: \"-1s\": must be a duration",
            "spec.waitForPodsReady.timeout: Invalid value: \"0\": must be greater than zero",
            "spec.waitForPodsReady.blockAdmission: Invalid value: true: must be false or left out",
            "spec.waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: 0: must be at least 1",
            "spec.waitForPodsReady.requeuingStrategy.backoffLimitTimeout: Invalid value: 600: must be left out: set backoffLimitCount",
            "spec.waitForPodsReady.requeuingStrategy.backoffFactor: Invalid value: \"0.5\": must be a decimal number",
            "spec.resources.gpu.quota: Invalid value: -2.0: must be at least 0, or -1 for no limit",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error} should start with {expected}");
        }
    }

    #[test]
    fn extensions_without_a_total_allow_none_and_no_more_is_approved_at_once_than_in_all() {
        let read = |of: Value| {
            let (queue, errors) = runai(json!({"extensions": of}));
            (queue.extensions.unwrap(), errors)
        };
        let hours = |hours| ExtendedDuration::of(jiff::SignedDuration::from_hours(hours));
        let (allowance, errors) = read(json!({"autoApprove": "2h", "maxTotal": "1d", "maxCount": 3}));
        assert_eq!(errors, [""; 0]);
        assert_eq!(allowance, Allowance { auto_approve: hours(2), max_total: hours(24), max_count: Some(3) });
        assert_eq!(read(json!({})), (Allowance::default(), vec![]));
        let (allowance, errors) = read(json!({"autoApprove": "2h"}));
        assert_eq!(allowance, Allowance::default());
        let expected = "spec.extensions.autoApprove: Invalid value: \"2h\": must not be longer than maxTotal, 0s, as it is left out";
        assert_eq!(errors, [expected]);
        let (_, errors) = read(json!({"autoApprove": "soon", "maxTotal": "1 h", "maxCount": -1}));
        assert_eq!(errors.len(), 3, "{errors:?}");
    }

    #[test]
    fn quantities_less_than_nothing_are_refused() {
        let gpu = |field: &str, value: f64| runai(json!({"resources": {"gpu": {field: value}}})).1;
        for field in ["quota", "limit"] {
            assert_eq!(gpu(field, -1.0), Vec::<String>::new(), "no limit");
            assert_eq!(gpu(field, 0.0), Vec::<String>::new());
            let expected = format!(
                "spec.resources.gpu.{field}: Invalid value: -0.5: must be at least 0, or -1 for no limit"
            );
            assert_eq!(gpu(field, -0.5), [expected]);
        }
        assert_eq!(gpu("overQuotaWeight", -1.0).len(), 1);
        let requests = json!({"cpu": "-4", "memory": "-1Gi", "nvidia.com/gpu": "8", "zero": "-0"});
        let spec = serde_json::from_value(json!({"quota": {"requests": requests}})).unwrap();
        let errors: Vec<String> = RunaiQueue::read_t9k(&spec).1.iter().map(ToString::to_string).collect();
        let expected = [("cpu", "-4"), ("memory", "-1Gi")].map(|(name, value)| {
            format!("spec.quota.requests[{name}]: Invalid value: \"{value}\": must not be negative")
        });
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_name_that_no_label_can_have_is_too_long() {
        assert_eq!(too_long(&"a".repeat(63)), None);
        let error = too_long(&"a".repeat(64)).unwrap();
        assert_eq!(error.field, "metadata.name");
        assert!(error.detail.starts_with("must be at most 63 characters"), "{error}");
    }

    #[test]
    fn a_negative_floor_is_refused_and_protects_nobody_where_it_is_stored() {
        let (queue, errors) = runai(json!({"preemptMinRuntime": "-2d", "reclaimMinRuntime": "-5x"}));
        assert_eq!((queue.preempt_floor, queue.reclaim_floor), (Some(ExtendedDuration::ZERO), None));
        assert_eq!(errors.len(), 2, "{errors:?}");
        let spec =
            serde_json::from_value(json!({"preemptMinRuntime": "-5s", "reclaimMinRuntime": "2d"})).unwrap();
        let (queue, errors) = RunaiQueue::read_v2(&spec, &BTreeMap::new());
        assert_eq!((queue.preempt_floor, queue.reclaim_floor), (Some(ExtendedDuration::ZERO), None));
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    #[test]
    fn a_floor_of_nothing_is_admitted_in_either_version() {
        let (queue, errors) = runai(json!({"preemptMinRuntime": "0s"}));
        assert_eq!((queue.preempt_floor, errors), (Some(ExtendedDuration::ZERO), vec![]));
        let spec = serde_json::from_value(json!({"preemptMinRuntime": "0s"})).unwrap();
        let (queue, errors) = RunaiQueue::read_v2(&spec, &BTreeMap::new());
        assert_eq!((queue.preempt_floor, errors), (Some(ExtendedDuration::ZERO), vec![]));
    }

    #[test]
    fn the_first_delay_is_at_most_the_longest() {
        let strategy = |base: i32, max: i32| {
            let strategy = json!({"backoffBaseSeconds": base, "backoffMaxSeconds": max});
            runai(json!({"waitForPodsReady": {"requeuingStrategy": strategy}})).1
        };
        assert_eq!(strategy(60, 60), [""; 0]);
        assert_eq!(
            strategy(61, 60),
            [
                "spec.waitForPodsReady.requeuingStrategy.backoffBaseSeconds: Invalid value: 61: must not be more than backoffMaxSeconds, 60"
            ]
        );
        assert_eq!(strategy(1, 0).len(), 1, "said once");
    }

    #[test]
    fn own_floors_are_at_most_the_own_ceiling() {
        assert!(runai(json!({"preemptMinRuntime": "60m", "maxDuration": "1h"})).1.is_empty());
        let (_, errors) =
            runai(json!({"preemptMinRuntime": "61m", "reclaimMinRuntime": "1h1ns", "maxDuration": "1h"}));
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    #[test]
    fn a_tensorstack_ceiling_may_be_empty_but_not_zero() {
        let read = |text: &str| {
            RunaiQueue::read_t9k(&v1beta1::QueueSpec {
                max_duration: Some(text.into()),
                ..Default::default()
            })
        };
        assert_eq!(read(""), (RunaiQueue::default(), vec![]));
        assert_eq!(read("10s").0.ceiling, Some("10s".parse().unwrap()));
        for bad in ["0", "0s", "1.5h", "10 s"] {
            let (queue, errors) = read(bad);
            assert_eq!((queue.ceiling, errors.len()), (None, 1), "{bad}");
        }
    }

    #[test]
    fn a_tensorstack_priority_is_from_0_to_100() {
        for (priority, errors) in [(-1, 1), (0, 0), (100, 0), (101, 1)] {
            let spec = v1beta1::QueueSpec { priority: Some(priority), ..Default::default() };
            assert_eq!(RunaiQueue::read_t9k(&spec).1.len(), errors, "{priority}");
        }
    }
}
