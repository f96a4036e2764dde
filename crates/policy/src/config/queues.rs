//! The queues that a configuration names. A value that names a missing queue has no effect, and an
//! admin who mistyped the name wouldn't notice. So both servers and `kubectl tenure status` look for
//! such values.

use std::collections::BTreeSet;

use super::Config;
use crate::expiry::Family;

/// A queue that a value of the configuration names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfiguredQueue {
    /// The path of the value.
    pub value: &'static str,
    /// The name of the queue.
    pub queue: String,
}

impl Config {
    /// Returns the queues of a family that the configuration names.
    pub fn queues(&self, family: Family) -> BTreeSet<ConfiguredQueue> {
        let named = |value, queue: &String| ConfiguredQueue { value, queue: queue.clone() };
        let default = match family {
            Family::Tensorstack => "tenancy.defaultQueue.tensorstack",
            Family::Runai => "tenancy.defaultQueue.runai",
        };
        let mut all: BTreeSet<_> =
            self.default_queues[family].iter().map(|queue| named(default, queue)).collect();
        if family == Family::Runai {
            all.extend(self.kueue_queues.0.iter().map(|(_, queue)| named("kueue.queues", queue)));
            all.extend(self.bounds.0.keys().map(|queue| named("delegation.bounds", queue)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_that_the_configuration_names_is_known_once_by_the_path_of_its_value() {
        let text = "\
tenancy: {defaultQueue: {runai: shared, tensorstack: rest}}
kueue: {queues: [{localQueue: main, queue: two-days}, {clusterQueue: gpu, queue: two-days}]}
delegation: {bounds: [{queue: research, preemptMinRuntime: 2h}]}
";
        let config = Config::parse(text).unwrap();
        let of = |family| -> Vec<String> {
            config.queues(family).iter().map(|of| format!("{} {}", of.value, of.queue)).collect()
        };
        assert_eq!(of(Family::Tensorstack), ["tenancy.defaultQueue.tensorstack rest"]);
        assert_eq!(
            of(Family::Runai),
            ["delegation.bounds research", "kueue.queues two-days", "tenancy.defaultQueue.runai shared"]
        );
        for family in Family::ALL {
            assert!(Config::default().queues(family).is_empty());
        }
    }
}
