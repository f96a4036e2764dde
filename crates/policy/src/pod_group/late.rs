//! The queue of a pod whose `PodGroup` names another queue than the pod. The index asks this for
//! ceilings and for floors.

use tenure_types::ExtendedDuration;

/// True if a ceiling is shorter than another. None: no ceiling.
pub fn is_shorter(ceiling: Option<ExtendedDuration>, other: Option<ExtendedDuration>) -> bool {
    ceiling.is_some_and(|ceiling| other.is_none_or(|other| ceiling < other))
}

/// True if the queue that a group names counts for a pod that names a queue itself. `made` is the
/// creation of the group and `scheduled` the scheduling of the pod, in milliseconds since the
/// epoch. None: it isn't known, and the group counts.
///
/// `late` is called if the group was created after the pod was scheduled. Any tenant may create the
/// group that a running pod names, and so could move the pod to a queue that suits the tenant
/// better. For ceilings such a group counts if the ceiling of its queue is [shorter](is_shorter)
/// than that of the pod's own queue: so the group can only end a run earlier. For floors it never
/// counts. A longer floor would keep room from other workloads. Even a shorter floor isn't
/// harmless, since the queue also decides which preemptors are of the same queue.
pub fn group_counts(made: Option<i64>, scheduled: Option<i64>, late: impl FnOnce() -> bool) -> bool {
    let is_late = made.zip(scheduled).is_some_and(|(made, scheduled)| made > scheduled);
    !is_late || late()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_was_made_after_the_pod_was_scheduled_ends_a_run_earlier_and_changes_no_floor() {
        let hours = |hours: i64| format!("{hours}h").parse().ok();
        let shorter = |own, of_group| is_shorter(of_group, own);
        for (late, counts) in [
            (shorter(hours(2), hours(1)), true),
            (shorter(None, hours(1)), true),
            (shorter(hours(1), hours(1)), false),
            (shorter(hours(1), hours(2)), false),
            (shorter(hours(1), None), false),
            (shorter(None, None), false),
            (false, false),
        ] {
            assert_eq!(group_counts(Some(2), Some(1), || late), counts, "{late:?}");
            for (made, scheduled) in
                [(Some(1), Some(1)), (Some(1), Some(2)), (None, Some(1)), (Some(1), None)]
            {
                assert!(group_counts(made, scheduled, || late), "{made:?} {scheduled:?}");
            }
        }
    }
}
