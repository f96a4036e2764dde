//! When a workload started: the clock of its floor.

use jiff::Timestamp;

/// When the pods of a workload show that it started: when enough of them were scheduled, by subgroup. None if too few
/// are.
///
/// `minimums` has the least number of pods of each subgroup, and `scheduled` the number of a pod's subgroup and when the
/// pod was scheduled; pods that have ended, or are about to, are not among them.
pub fn shown(minimums: &[u32], scheduled: &[(usize, Timestamp)]) -> Option<Timestamp> {
    let of_subgroup = |(place, minimum): (usize, &u32)| {
        let mut times: Vec<Timestamp> =
            scheduled.iter().filter(|(of, _)| *of == place).map(|(_, at)| *at).collect();
        times.sort_unstable();
        let last = usize::try_from(*minimum).ok()?.checked_sub(1)?;
        Some(times.get(last).copied())
    };
    let first = scheduled.iter().map(|(_, at)| *at).min()?;
    // a subgroup that needs no pod doesn't keep the others from having started
    minimums.iter().enumerate().filter_map(of_subgroup).try_fold(first, |latest, at| Some(latest.max(at?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(minimums: &[u32], scheduled: &[(usize, i64)]) -> Option<i64> {
        let at = |second| Timestamp::from_second(second).unwrap();
        let scheduled: Vec<_> = scheduled.iter().map(|(of, second)| (*of, at(*second))).collect();
        shown(minimums, &scheduled).map(Timestamp::as_second)
    }

    #[test]
    fn it_starts_when_the_last_pod_that_it_takes_is_scheduled() {
        assert_eq!(started(&[1], &[(0, 5)]), Some(5));
        assert_eq!(started(&[2], &[(0, 9), (0, 5), (0, 7)]), Some(7));
        assert_eq!(started(&[2], &[(0, 5)]), None);
        assert_eq!(started(&[1], &[]), None);
    }

    #[test]
    fn every_subgroup_has_to_start() {
        assert_eq!(started(&[1, 2], &[(0, 5), (1, 6), (1, 8)]), Some(8));
        assert_eq!(started(&[1, 2], &[(0, 5), (0, 6), (1, 8)]), None);
        assert_eq!(started(&[1, 0], &[(0, 5)]), Some(5));
        assert_eq!(started(&[0], &[(0, 5), (0, 4)]), Some(4));
    }
}
