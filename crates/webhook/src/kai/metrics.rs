//! The metrics of comparisons with KAI-Scheduler's configuration.

use std::collections::BTreeMap;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};

use tenure_policy::kai::Setting;

use super::{CONFIG_MAP, Findings, Object, SHARD};

#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    pub differ: Family<DifferLabels, Gauge>,
    pub issues: Family<IssueLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct DifferLabels {
    pub source: &'static str,
    pub field: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct IssueLabels {
    pub source: &'static str,
}

impl Metrics {
    pub(super) fn count(&self, findings: &BTreeMap<Object, Findings>) {
        for source in [CONFIG_MAP, SHARD] {
            let of_kind = || findings.iter().filter(|((kind, _), _)| *kind == source).map(|(_, found)| found);
            let set = |gauge: &Gauge, count: usize| {
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            for setting in Setting::ALL {
                let labels = DifferLabels { source, field: setting.name() };
                let differs = |found: &&Findings| {
                    found.differences.iter().any(|difference| difference.setting == setting)
                };
                set(&self.differ.get_or_create(&labels), of_kind().filter(differs).count());
            }
            let issues = of_kind().map(|found| found.issues.len()).sum();
            set(&self.issues.get_or_create(&IssueLabels { source }), issues);
        }
    }
}
