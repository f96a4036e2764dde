//! Errors and warnings about a Queue or a `PriorityClass` that is created or changed.
//!
//! `crate::review` calls this module for the admission webhook and for `kubectl tenure validate`,
//! so both find the same. A review depends only on the object, on the queues that the caller knows,
//! and on the configured floors. A finding that needs a look-up at the API server is left to the
//! caller: see [`Findings::find_parent`].

pub mod priority_class;

use std::{collections::BTreeMap, fmt::Display};

use jiff::SignedDuration;
use tenure_types::{
    ExtendedDuration,
    duration::for_people,
    runai::{
        FLOOR_ANNOTATIONS, QueueVersion, SPEC_ANNOTATIONS, v2,
        v3alpha1::{self, MaxDurationAction, OnReversal},
    },
    tensorstack::v1beta1,
};

use crate::{
    field::FieldError,
    floor::Floors,
    inheritance::{BrokenAncestry, EffectiveValues, Inheritance},
    queue::{self, RunaiQueue},
    tree::{self, Inherited},
};

/// The findings about an object under review. An error is a reason to deny the object; a warning
/// isn't.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The reasons to deny the object, each with its field, value and rule.
    pub errors: Vec<FieldError>,
    /// Values that are allowed but probably not intended.
    pub warnings: Vec<String>,
    /// The `spec.parentQueue` that isn't among the known queues. `warnings` has a warning about
    /// this parent. None: there is no such warning.
    pub missing_parent: Option<String>,
}

impl Findings {
    /// Removes the warning about a missing parent. The webhook calls this if the API server has the
    /// parent, which the webhook's own watch hasn't seen yet.
    pub fn find_parent(&mut self) {
        if let Some(parent) = self.missing_parent.take() {
            let warning = missing(&parent);
            self.warnings.retain(|other| *other != warning);
        }
    }
}

/// Returns the warning about a missing parent. [`Findings::find_parent`] finds the warning by its
/// text.
fn missing(parent: &str) -> String {
    format!(
        "spec.parentQueue: queue {parent:?} doesn't exist: until it does, this queue counts as a top-level queue"
    )
}

impl From<FieldError> for Findings {
    fn from(error: FieldError) -> Self {
        Self { errors: vec![error], ..Self::default() }
    }
}

/// A queue of the run.ai family under review. Each field is read once, by the constructors.
#[derive(Clone, Debug, PartialEq)]
pub struct RunaiSubject {
    /// The API version in which the object is written.
    pub version: QueueVersion,
    /// `metadata.name`. Empty: the name is to be generated.
    pub name: String,
    /// `metadata.annotations`.
    annotations: BTreeMap<String, String>,
    /// `spec` as of v3alpha1. For a v2 queue, annotations set the fields that v2 lacks.
    pub spec: v3alpha1::QueueSpec,
    /// The queue, as decisions need it. A field that can't be read counts as unset.
    pub queue: RunaiQueue,
    /// The errors of the queue's own fields, which are found without other queues.
    errors: Vec<FieldError>,
}

impl RunaiSubject {
    /// Reads a queue of v3alpha1. Errors in fields are kept for [`Self::review`].
    pub fn new(name: String, spec: v3alpha1::QueueSpec, annotations: BTreeMap<String, String>) -> Self {
        let (queue, errors) = RunaiQueue::read(&spec);
        Self { version: QueueVersion::V3alpha1, name, annotations, spec, queue, errors }
    }

    /// Reads a queue of v2, the version of KAI-Scheduler. An error in a field that an annotation
    /// stands for names the annotation.
    pub fn new_v2(name: String, spec: &v2::QueueSpec, annotations: BTreeMap<String, String>) -> Self {
        let (version, mut errors) = (QueueVersion::V2, Vec::new());
        let spec = queue::v2::as_v3alpha1(spec, &annotations, &mut errors);
        let queue = RunaiQueue::read_as(version, &spec, &mut errors);
        Self { version, name, annotations, spec, queue, errors }
    }

    /// Reviews the queue against the known queues and the configured floors. The known queues may
    /// lack this queue, or have an older version of it.
    ///
    /// A cycle that this queue closes is an error. A missing parent and a stored cycle among the
    /// ancestors are warnings, which a change of other queues removes.
    pub fn review(&self, queues: &Inheritance<'_>) -> Findings {
        let Self { version, name, annotations, spec, queue, errors } = self;
        let (mut errors, mut warnings, mut missing_parent) = (errors.clone(), Vec::new(), None);
        match queues.broken_ancestry(name, queue) {
            None => {
                warnings.extend(runai_warnings(*version, name, queue, &queues.above(queue), queues.floors));
            }
            Some(BrokenAncestry::Missing(parent)) => {
                warnings.push(missing(parent));
                missing_parent = Some(parent.to_owned());
            }
            Some(BrokenAncestry::CycleAbove(parent)) => warnings.push(format!(
                "spec.parentQueue: the ancestors of queue {parent:?} form a cycle: the limits of all its queues apply here until it is broken"
            )),
            Some(BrokenAncestry::Cycle(chain)) => {
                let parent = queue.parent.as_deref().unwrap_or_default();
                errors.push(FieldError::invalid("spec.parentQueue", parent, cycle_detail(name, &chain)));
            }
        }
        warnings.extend(match version {
            QueueVersion::V3alpha1 => leftovers(name, spec, annotations),
            QueueVersion::V2 => queue::v2::without_effect(spec, annotations),
        });
        Findings { errors, warnings, missing_parent }
    }
}

/// Returns a warning for each annotation that has no effect in v3alpha1, where a field has its
/// place. An annotation that is the JSON of the field, in any layout, gets no warning.
fn leftovers(name: &str, spec: &v3alpha1::QueueSpec, annotations: &BTreeMap<String, String>) -> Vec<String> {
    let warning = |(field, key)| {
        annotations.get(key).filter(|text| !spec.is_json_of(field, text)).map(|_| format!(
            "metadata.annotations[{key}]: has no effect in v3alpha1: set spec.{field}, and remove the annotation: kubectl annotate queues.v3alpha1.scheduling.run.ai {name} {key}-"
        ))
    };
    SPEC_ANNOTATIONS.into_iter().chain(FLOOR_ANNOTATIONS).filter_map(warning).collect()
}

/// Reviews a queue of the tensorstack family. `system_namespace` is the one namespace in which
/// queues of this family count.
pub fn tensorstack(namespace: &str, spec: &v1beta1::QueueSpec, system_namespace: &str) -> Findings {
    let (queue, errors) = RunaiQueue::read_t9k(spec);
    let outside = (namespace != system_namespace).then(|| {
        format!("metadata.namespace: queues count only in namespace {system_namespace:?}: this one, in {namespace:?}, has no effect")
    });
    let notice = queue.nearest.notice.map(|notice| notice.longest());
    let early = notice.zip(queue.ceiling).filter(|(notice, ceiling)| notice >= ceiling);
    let early = early.map(|(notice, ceiling)| not_before_the_start("spec.expiryNotice", notice, ceiling));
    let short = queue.ceiling.and_then(|own| too_short("spec.maxDuration", own.to_signed(), own));
    let warnings = outside.into_iter().chain(short).chain(early).collect();
    Findings { errors, warnings, missing_parent: None }
}

/// A shorter ceiling gets a warning: most pods take longer to get ready.
const SHORT: SignedDuration = SignedDuration::from_secs(10);

/// Returns the warning about a ceiling that is shorter than `SHORT`. `written` is the value that
/// the message shows. None: the ceiling isn't too short.
fn too_short(path: &str, ceiling: SignedDuration, written: impl Display) -> Option<String> {
    (ceiling < SHORT).then(|| {
        format!(
            "{path}: {written} is less than {}: most pods take longer to start, and workloads end before they do anything",
            for_people(SHORT)
        )
    })
}

/// Returns the warning about a notice that is at least as long as the ceiling.
fn not_before_the_start(path: &str, notice: impl Display, ceiling: impl Display) -> String {
    format!(
        "{path}: {notice} is no shorter than maxDuration, {ceiling}: workloads get the notice as soon as they start"
    )
}

/// Returns the detail of the error about a cycle. `chain` has the ancestors on the way back to the
/// queue. Empty: the queue names itself as its parent.
fn cycle_detail(name: &str, chain: &[&str]) -> String {
    if chain.is_empty() {
        return "a queue can't be its own parent".into();
    }
    format!("a queue can't be its own ancestor: {name} -> {} -> {name}", tree::way(chain))
}

/// Returns the warnings about a queue whose ancestors all exist and form no cycle. `above` has the
/// values that the queue inherits.
fn runai_warnings(
    version: QueueVersion,
    name: &str,
    queue: &RunaiQueue,
    above: &EffectiveValues<'_>,
    floors: &Floors,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let ceiling_path = version.path("maxDuration");
    warnings.extend(queue.ceiling.and_then(|own| too_short(&ceiling_path, own.to_signed(), own)));
    let longer = queue.ceiling.zip(above.ceiling).filter(|(own, (_, least))| own > least);
    warnings.extend(longer.map(|(own, (ancestor, least))| {
        format!("{ceiling_path}: {own} is longer than {least} of ancestor {ancestor:?}: {least} applies")
    }));
    let effective = above.below(name, queue, floors);
    warnings.extend(action_warnings(version, queue, effective.nearest.action.unwrap_or_default()));
    if queue.extensions.is_some()
        && let Some(above) = above.without_extensions
    {
        let field = version.path("extensions");
        warnings.push(format!(
            "{field}: ancestor {above:?} has a maxDuration and allows no extensions: none is granted until it has extensions too"
        ));
    }
    if let Some((of, ceiling)) = effective.ceiling {
        let notice = effective.nearest.notice.map(|notice| notice.longest());
        if let Some(notice) = notice.filter(|notice| *notice >= ceiling) {
            warnings.push(not_before_the_start(&version.path("expiryNotice"), notice, ceiling));
        }
        warnings.extend(floor_warnings(&ceiling_path, name, &effective, (of, ceiling), floors));
    }
    warnings
}

/// Returns a warning for each field of the queue that has no effect with the action at its ceiling.
fn action_warnings(version: QueueVersion, queue: &RunaiQueue, action: MaxDurationAction) -> Vec<String> {
    let delays = queue.nearest.requeue_delay.is_some() && action == MaxDurationAction::Pause;
    let deletes =
        queue.nearest.on_reversal == Some(OnReversal::DeletePods) && action == MaxDurationAction::Requeue;
    let without_effect = |field, needed| {
        let path = version.path(field);
        format!("{path}: has no effect unless maxDurationAction is {needed}: here it is {action:?}")
    };
    let delays = delays.then(|| without_effect("requeueDelay", "Requeue"));
    delays.into_iter().chain(deletes.then(|| without_effect("onReversal", "Pause"))).collect()
}

/// Returns a warning for each floor that is longer than the effective ceiling, which queue `of`
/// sets. A default floor counts where no queue on the path to the root sets that floor.
fn floor_warnings(
    ceiling_path: &str,
    name: &str,
    effective: &EffectiveValues<'_>,
    (of, ceiling): (&str, ExtendedDuration),
    floors: &Floors,
) -> Vec<String> {
    let effect = |floor: ExtendedDuration| match effective.longest_run {
        Some(longest) if longest >= floor => "a time slice lasts until the floor ends",
        _ => "workloads end before the floor does",
    };
    let warning = |field: Inherited| match field.pick(effective.preempt, effective.reclaim) {
        // if this queue sets both, the errors of its own fields say so already
        Some((from, floor)) if floor > ceiling && (from, of) != (name, name) => Some(format!(
            "spec.{}: {floor} of queue {from:?} is longer than the effective maxDuration, {ceiling} of queue {of:?}: {}",
            field.name(),
            effect(floor)
        )),
        None => {
            let default = field.pick(floors.preempt, floors.reclaim);
            let whose = if of == name { String::new() } else { format!(" of ancestor {of:?}") };
            (default > ceiling).then(|| {
                format!(
                    "{ceiling_path}: {ceiling}{whose} is shorter than the default {}, {default}: {}",
                    field.name(),
                    effect(default)
                )
            })
        }
        Some(_) => None,
    };
    Inherited::ALL.into_iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tree::QueueTree;

    fn tree(queues: &[(&str, Value)]) -> QueueTree {
        let read = |spec: &Value| RunaiQueue::read(&serde_json::from_value(spec.clone()).unwrap()).0;
        queues.iter().map(|(name, spec)| (name, read(spec))).collect()
    }

    fn review(name: &str, spec: Value, queues: &[(&str, Value)]) -> (Vec<String>, Vec<String>) {
        review_with(&Floors::default(), name, spec, queues)
    }

    fn review_with(
        floors: &Floors,
        name: &str,
        spec: Value,
        queues: &[(&str, Value)],
    ) -> (Vec<String>, Vec<String>) {
        let queue = RunaiSubject::new(name.into(), serde_json::from_value(spec).unwrap(), BTreeMap::new());
        let tree = tree(queues);
        let findings = queue.review(&Inheritance::new(&tree, floors));
        (findings.errors.iter().map(ToString::to_string).collect(), findings.warnings)
    }

    #[test]
    fn refuses_a_queue_that_is_its_own_parent() {
        let (errors, _) = review("a", json!({"parentQueue": "a"}), &[]);
        assert_eq!(errors, ["spec.parentQueue: Invalid value: \"a\": a queue can't be its own parent"]);
    }

    #[test]
    fn refuses_a_cycle_and_names_it() {
        let queues =
            [("a", json!({})), ("b", json!({"parentQueue": "a"})), ("c", json!({"parentQueue": "b"}))];
        let (errors, _) = review("a", json!({"parentQueue": "c"}), &queues);
        let expected =
            "spec.parentQueue: Invalid value: \"c\": a queue can't be its own ancestor: a -> c -> b -> a";
        assert_eq!(errors, [expected]);
    }

    #[test]
    fn refuses_a_new_queue_that_closes_a_cycle() {
        let (errors, _) = review("a", json!({"parentQueue": "b"}), &[("b", json!({"parentQueue": "a"}))]);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn warns_of_a_stored_cycle_above_and_never_hangs() {
        let queues = [("b", json!({"parentQueue": "c"})), ("c", json!({"parentQueue": "b"}))];
        let (errors, warnings) = review("a", json!({"parentQueue": "b"}), &queues);
        assert!(errors.is_empty());
        let expected = "spec.parentQueue: the ancestors of queue \"b\" form a cycle: the limits of all its queues apply here until it is broken";
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn warns_of_a_parent_that_does_not_exist() {
        let (errors, warnings) = review("a", json!({"parentQueue": "b"}), &[]);
        assert!(errors.is_empty());
        assert!(warnings[0].starts_with("spec.parentQueue: queue \"b\" doesn't exist"), "{warnings:?}");
    }

    #[test]
    fn warns_of_a_ceiling_above_an_ancestors() {
        let queues = [("root", json!({"maxDuration": "1h"})), ("team", json!({"parentQueue": "root"}))];
        let (errors, warnings) = review("leaf", json!({"parentQueue": "team", "maxDuration": "2h"}), &queues);
        assert!(errors.is_empty());
        assert_eq!(warnings, ["spec.maxDuration: 2h is longer than 1h of ancestor \"root\": 1h applies"]);
    }

    #[test]
    fn warns_of_a_ceiling_in_which_hardly_a_pod_starts() {
        let expected = "spec.maxDuration: 1ns is less than 10s: most pods take longer to start, and workloads end before they do anything";
        assert_eq!(review("a", json!({"maxDuration": "1ns"}), &[]), (vec![], vec![expected.to_owned()]));
        assert_eq!(review("a", json!({"maxDuration": "10s"}), &[]), (vec![], vec![]));
        let spec = |ceiling: &str| serde_json::from_value(json!({"maxDuration": ceiling})).unwrap();
        let t9k = |ceiling: &str| tensorstack("t9k-system", &spec(ceiling), "t9k-system").warnings;
        assert!(t9k("9s")[0].starts_with("spec.maxDuration: 9s is less than 10s"), "{:?}", t9k("9s"));
        assert_eq!(t9k("10s"), Vec::<String>::new());
    }

    #[test]
    fn warns_of_a_floor_above_the_effective_ceiling() {
        let queues = [("root", json!({"maxDuration": "1h"}))];
        let (errors, warnings) =
            review("leaf", json!({"parentQueue": "root", "reclaimMinRuntime": "2h"}), &queues);
        assert!(errors.is_empty());
        assert!(warnings[0].starts_with("spec.reclaimMinRuntime: 2h of queue \"leaf\""), "{warnings:?}");
    }

    #[test]
    fn warns_of_an_inherited_floor_above_the_own_ceiling() {
        let queues = [("root", json!({"preemptMinRuntime": "2h"}))];
        let (errors, warnings) = review("leaf", json!({"parentQueue": "root", "maxDuration": "1h"}), &queues);
        assert!(errors.is_empty());
        assert!(warnings[0].starts_with("spec.preemptMinRuntime: 2h of queue \"root\""), "{warnings:?}");
    }

    #[test]
    fn warns_of_a_default_floor_above_the_effective_ceiling() {
        let floors = Floors { preempt: "10m".parse().unwrap(), ..Floors::default() };
        let review = |name, spec, queues: &[(&str, Value)]| review_with(&floors, name, spec, queues);
        let own = "spec.maxDuration: 5m is shorter than the default preemptMinRuntime, 10m: workloads end before the floor does";
        assert_eq!(review("a", json!({"maxDuration": "5m"}), &[]), (vec![], vec![own.to_owned()]));
        let root = [("root", json!({"maxDuration": "5m"}))];
        let (_, warnings) = review("leaf", json!({"parentQueue": "root"}), &root);
        assert!(
            warnings[0].starts_with("spec.maxDuration: 5m of ancestor \"root\" is shorter"),
            "{warnings:?}"
        );
        for spec in [
            json!({"maxDuration": "10m"}),
            json!({"maxDuration": "5m", "preemptMinRuntime": "1m"}),
            json!({}),
        ] {
            assert_eq!(review("a", spec, &[]), (vec![], vec![]));
        }
    }

    #[test]
    fn warns_of_a_notice_that_comes_with_the_start() {
        let (errors, warnings) = review("a", json!({"maxDuration": "1h", "expiryNotice": "60m"}), &[]);
        assert!(errors.is_empty());
        assert!(warnings[0].starts_with("spec.expiryNotice: 60m is no shorter"), "{warnings:?}");
        assert_eq!(review("a", json!({"maxDuration": "1h", "expiryNotice": "59m"}), &[]), (vec![], vec![]));
    }

    #[test]
    fn a_list_of_notices_is_read_as_the_text_is_and_refused_beside_it() {
        let notices = |spec: Value| RunaiQueue::read(&serde_json::from_value(spec).unwrap()).0.nearest.notice;
        assert_eq!(
            notices(json!({"expiryNotices": ["10m", "1h"]})),
            notices(json!({"expiryNotice": "1h,10m"}))
        );
        assert!(notices(json!({"expiryNotices": ["10m"]})).is_some());
        for (spec, complaint) in [
            (json!({"expiryNotices": ["1h", "soon"]}), "must be a list of up to 8 durations"),
            (json!({"expiryNotices": []}), "must be a list of up to 8 durations"),
            (json!({"expiryNotices": ["1h", "0s"]}), "must be a list of up to 8 durations"),
            (json!({"expiryNotice": "1h", "expiryNotices": ["1h"]}), "can't be set beside spec.expiryNotice"),
        ] {
            let (errors, _) = review("a", spec, &[]);
            assert!(errors[0].starts_with("spec.expiryNotices: Invalid value: ["), "{errors:?}");
            assert!(errors[0].contains(complaint), "{errors:?}");
        }
    }

    #[test]
    fn admits_a_good_child_without_a_word() {
        let queues = [("root", json!({"maxDuration": "2h", "preemptMinRuntime": "5m"}))];
        let found = review("leaf", json!({"parentQueue": "root", "maxDuration": "1h"}), &queues);
        assert_eq!(found, (vec![], vec![]));
    }

    #[test]
    fn warns_of_a_delay_that_no_time_slice_follows() {
        let warning =
            "spec.requeueDelay: has no effect unless maxDurationAction is Requeue: here it is Pause";
        let root = |action: &str| [("root", json!({"maxDurationAction": action}))];
        let delayed = json!({"parentQueue": "root", "requeueDelay": "5m"});
        let mut paused = delayed.clone();
        paused["maxDurationAction"] = json!("Pause");
        for (spec, action, expected) in [
            (delayed.clone(), "Requeue", vec![]),
            (delayed, "Pause", vec![warning.to_owned()]),
            (paused, "Requeue", vec![warning.to_owned()]),
        ] {
            assert_eq!(review("a", spec, &root(action)), (vec![], expected));
        }
        let whole = json!({"maxDurationAction": "Requeue", "requeueDelay": "5m", "waitForPodsReady": {}});
        assert_eq!(review("a", whole, &[]), (vec![], vec![]));
    }

    #[test]
    fn warns_where_no_pause_is_undone_because_workloads_come_back_by_themselves() {
        let warning = "spec.onReversal: has no effect unless maxDurationAction is Pause: here it is Requeue";
        let root = |action: &str| [("root", json!({"maxDurationAction": action}))];
        let says = |what: &str| json!({"parentQueue": "root", "onReversal": what});
        for (spec, action, expected) in [
            (says("DeletePods"), "Pause", vec![]),
            (says("DeletePods"), "Requeue", vec![warning.to_owned()]),
            (says("Pause"), "Requeue", vec![]),
        ] {
            assert_eq!(review("a", spec, &root(action)), (vec![], expected));
        }
    }

    #[test]
    fn a_time_slice_does_not_end_before_a_floor() {
        let leaf = json!({"parentQueue": "root", "maxDuration": "1h", "maxDurationAction": "Requeue"});
        let (errors, warnings) =
            review("leaf", leaf.clone(), &[("root", json!({"reclaimMinRuntime": "2h"}))]);
        assert!(errors.is_empty());
        assert!(warnings[0].ends_with(": a time slice lasts until the floor ends"), "{warnings:?}");
        let floors = Floors { reclaim: "2h".parse().unwrap(), ..Floors::default() };
        let (_, warnings) = review_with(&floors, "leaf", leaf, &[("root", json!({}))]);
        assert!(warnings[0].ends_with(": a time slice lasts until the floor ends"), "{warnings:?}");
    }

    #[test]
    fn a_ceiling_of_an_ancestor_ends_before_a_floor_of_a_child() {
        let floor = json!({"parentQueue": "root", "reclaimMinRuntime": "2h"});
        let requeues =
            json!({"parentQueue": "root", "reclaimMinRuntime": "2h", "maxDurationAction": "Requeue"});
        for (root, leaf) in [
            (json!({"maxDuration": "1h", "maxDurationAction": "Requeue"}), floor),
            (json!({"maxDuration": "1h"}), requeues),
        ] {
            let (errors, warnings) = review("leaf", leaf, &[("root", root)]);
            assert!(errors.is_empty());
            assert!(warnings[0].ends_with(": workloads end before the floor does"), "{warnings:?}");
        }
    }

    #[test]
    fn warns_of_an_annotation_that_only_v2_heeds_and_says_what_to_do() {
        let annotations = BTreeMap::from([("tenure.dev/max-duration".to_owned(), "1h".to_owned())]);
        let queue = RunaiSubject::new("a".into(), v3alpha1::QueueSpec::default(), annotations);
        let expected = "metadata.annotations[tenure.dev/max-duration]: has no effect in v3alpha1: set spec.maxDuration, and remove the annotation: kubectl annotate queues.v3alpha1.scheduling.run.ai a tenure.dev/max-duration-";
        let (tree, floors) = (QueueTree::default(), Floors::default());
        let findings = queue.review(&Inheritance::new(&tree, &floors));
        assert_eq!(findings, Findings { warnings: vec![expected.to_owned()], ..Findings::default() });
    }

    #[test]
    fn an_annotation_that_is_only_how_a_field_is_laid_out_draws_no_warning() {
        let annotated = "tenure.dev/wait-for-pods-ready".to_owned();
        let annotations = &BTreeMap::from([(annotated, "{ \"timeout\": \"5m\" }".to_owned())]);
        let (tree, floors) = (QueueTree::default(), Floors::default());
        let warnings = |spec: Value| {
            let spec = serde_json::from_value(spec).unwrap();
            let queue = RunaiSubject::new("a".into(), spec, annotations.clone());
            queue.review(&Inheritance::new(&tree, &floors)).warnings
        };
        let has_warning =
            |warnings: &[String]| warnings.iter().any(|warning| warning.contains("remove the annotation"));
        assert!(!has_warning(&warnings(json!({"waitForPodsReady": {"timeout": "5m"}}))));
        assert!(has_warning(&warnings(json!({"waitForPodsReady": {"timeout": "9m"}}))));
        assert!(has_warning(&warnings(json!({}))));
    }

    #[test]
    fn a_queue_of_v2_is_reviewed_as_one_of_v3alpha1_and_its_annotations_are_named() {
        let found = |spec: Value, annotations: &[(&str, &str)], queues: &[(&str, Value)]| {
            let annotations = annotations
                .iter()
                .map(|(key, text)| (format!("tenure.dev/{key}"), (*text).to_owned()))
                .collect();
            let spec = serde_json::from_value(spec).unwrap();
            let queue = RunaiSubject::new_v2("leaf".into(), &spec, annotations);
            let (tree, floors) = (tree(queues), Floors::default());
            let Findings { errors, warnings, .. } = queue.review(&Inheritance::new(&tree, &floors));
            [errors.iter().map(ToString::to_string).collect(), warnings].concat()
        };
        let root = [("root", json!({"maxDuration": "1h"}))];
        for (spec, annotations, queues, expected) in [
            (json!({"parentQueue": "leaf"}), &[][..], &[][..], "a queue can't be its own parent"),
            (json!({"parentQueue": "gone"}), &[], &[], "queue \"gone\" doesn't exist"),
            (
                json!({"parentQueue": "root"}),
                &[("max-duration", "2h")],
                &root,
                "metadata.annotations[tenure.dev/max-duration]: 2h is longer than 1h of ancestor \"root\"",
            ),
            (
                json!({}),
                &[("max-duration", "1h"), ("expiry-notice", "60m")],
                &[],
                "metadata.annotations[tenure.dev/expiry-notice]: 60m is no shorter than maxDuration",
            ),
            (
                json!({}),
                &[("requeue-delay", "5m")],
                &[],
                "metadata.annotations[tenure.dev/requeue-delay]: has no effect unless maxDurationAction is Requeue",
            ),
            (json!({}), &[("preempt-min-runtime", "2d")], &[], "\"2d\" has no effect"),
        ] {
            let found = found(spec, annotations, queues);
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
        assert_eq!(found(json!({"parentQueue": "root"}), &[("max-duration", "30m")], &root), [""; 0]);
    }

    /// The time that it takes to review all queues of a tree, each of which has the parent that a number stands for.
    fn time_of(parent: impl Fn(usize) -> Option<usize>) -> std::time::Duration {
        let floors = Floors { reclaim: "2h".parse().unwrap(), ..Floors::default() };
        let queue = |number: usize| {
            let parent = parent(number).map(|parent| format!("q{parent}"));
            let spec = json!({
                "parentQueue": parent, "maxDuration": "1h", "maxDurationAction": "Requeue", "expiryNotice": "1m",
            });
            (format!("q{number}"), serde_json::from_value::<v3alpha1::QueueSpec>(spec).unwrap())
        };
        let queues: Vec<_> = (0..50_000).map(queue).collect();
        let tree: QueueTree = queues.iter().map(|(name, spec)| (name, RunaiQueue::read(spec).0)).collect();
        let inheritance = Inheritance::new(&tree, &floors);
        let begun = std::time::Instant::now();
        for (name, spec) in &queues {
            let queue = RunaiSubject::new(name.clone(), spec.clone(), BTreeMap::new());
            let found = queue.review(&inheritance);
            assert_eq!((found.errors.len(), found.warnings.len()), (0, 1), "{found:?}");
        }
        begun.elapsed()
    }

    #[test]
    fn a_long_chain_takes_hardly_longer_than_as_many_queues_side_by_side() {
        let side_by_side = time_of(|number| (number > 0).then_some(0));
        for chain in [
            time_of(|number| number.checked_sub(1)),
            time_of(|number| Some(number + 1).filter(|next| *next < 50_000)),
        ] {
            // each queue by itself would take some ten thousand times as long
            assert!(chain < side_by_side.saturating_mul(50), "{chain:?} and {side_by_side:?}");
        }
    }

    #[test]
    fn warns_of_a_tensorstack_queue_outside_the_system_namespace() {
        let spec = v1beta1::QueueSpec::default();
        assert_eq!(tensorstack("t9k-system", &spec, "t9k-system").warnings.len(), 0);
        assert_eq!(tensorstack("default", &spec, "t9k-system").warnings.len(), 1);
    }
}
