//! The configuration file, which both servers and the command line read.
//!
//! It is strict: an unknown key or a bad value is refused with its path and line. The one exception is [`Kai`], a file of
//! KAI-Scheduler, which KAI reads leniently. As the file of a server, that is also refused where KAI reads a value as another
//! one than is written.

mod delegation;
mod fields;
mod file;
mod floors;
mod guard;
pub(crate) mod kai;
mod kai_sources;
mod kueue;
mod names;
mod owners;
mod pods_ready;
mod problem;
mod receivers;
mod tenancy;
mod tree;
mod trusted;
mod usage;

use std::collections::BTreeSet;

use crate::{
    delegation::Bounds, expiry::GraceOnChange, floor::Floors, guard::Guarded, message::Receiver,
    notice::NoticePoints, owners::OwnerTable, pod_group::TrustedWriters, ready::PodsReady,
    start::LongestFormation, usage::UsageResources,
};
use fields::{Field, Problems};
use tree::{YamlNode, set};

pub use delegation::DELEGATION_BOUNDS;
pub use fields::nearest;
pub use file::ConfigFile;
pub use floors::{LABEL_KEY, METHOD, POOLS, PREEMPT, RECLAIM};
pub use guard::{EXEMPT_GROUPS, EXEMPT_NAMESPACES, EXEMPT_USERS, SCHEDULERS};
pub use kai::Kai;
pub use kai_sources::{ConfigMapKey, KAI_CONFIG_MAP, KAI_SHARDS, KaiSources};
pub use kueue::{KUEUE_ENABLED, KUEUE_QUEUES, Kueue};
pub use problem::{ConfigError, Problem};
pub use tenancy::TENANCY_WRITERS;
pub use usage::USAGE_RESOURCES;

/// Key of the points before its end at which a workload gets a notice, where its queue has no value.
pub const EXPIRY_NOTICE: &str = "expiryNotice";
/// Key of the switch that has the end of a run noted on its pods, too.
pub const NOTICE_ON_PODS: &str = "noticeOnPods";
/// Key of the time for which a workload runs on when a change of its queue has made it overdue.
pub const GRACE_ON_CHANGE: &str = "graceOnChange";
/// Key of more kinds that can be paused.
pub const OWNERS: &str = "owners";
/// Key of the longest time from the scheduling of its first pod to a workload's start.
pub const LONGEST_FORMATION: &str = "longestFormation";

/// Key of the users that may set when a `PodGroup` started.
pub const TRUSTED_WRITERS: &str = "trustedWriters";

/// Key of the rules for workloads that don't get ready, where their queue has none.
pub const PODS_READY: &str = "waitForPodsReady";

/// Key of the guard: the users whose deletions of pods are held up.
pub const GUARD: &str = "guard";

/// Key of the rules about what tenants may not write.
pub const TENANCY: &str = "tenancy";

/// Key of the configuration for Kueue.
pub const KUEUE: &str = "kueue";

/// Key of the places of KAI-Scheduler's own configuration.
pub const KAI: &str = "kai";

/// Key of the bounds for administrators of a part of the tree.
pub const DELEGATION: &str = "delegation";

/// Key of the resources whose use is counted.
pub const USAGE: &str = "usage";
/// Key of the receivers of messages.
pub const RECEIVERS: &str = "receivers";

const FIELDS: &[&str] = &[
    PREEMPT,
    RECLAIM,
    METHOD,
    LABEL_KEY,
    POOLS,
    EXPIRY_NOTICE,
    NOTICE_ON_PODS,
    GRACE_ON_CHANGE,
    OWNERS,
    LONGEST_FORMATION,
    TRUSTED_WRITERS,
    PODS_READY,
    GUARD,
    TENANCY,
    KUEUE,
    KAI,
    DELEGATION,
    USAGE,
    RECEIVERS,
];

/// The configuration, read and checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The points before its end at which a workload gets a notice, where its queue has no value.
    pub notice: NoticePoints,
    /// True if the end of a run that is told is noted on its pods, too.
    pub notice_on_pods: bool,
    /// The time for which a workload that gets a notice runs on when a change of its queue has made it overdue.
    pub grace_on_change: GraceOnChange,
    /// The owners that can be paused.
    pub table: OwnerTable,
    /// Defaults of floors, and how they are resolved.
    pub floors: Floors,
    /// The longest time from the scheduling of its first pod to a workload's start.
    pub longest_formation: LongestFormation,
    /// The users that may set when a `PodGroup` started.
    pub trusted: TrustedWriters,
    /// The rules for workloads that don't get ready, where their queue has none. None: they are left alone.
    pub pods_ready: Option<PodsReady>,
    /// The users whose deletions of pods are held up.
    pub guarded: Guarded,
    /// The users who may move a `PodGroup` to another queue.
    pub tenancy_writers: BTreeSet<String>,
    /// The configuration for Kueue.
    pub kueue: Kueue,
    /// The configurations of KAI-Scheduler that are compared with the floors.
    pub kai: KaiSources,
    /// The longest floors that queues may have.
    pub bounds: Bounds,
    /// The receivers of messages.
    pub receivers: Vec<Receiver>,
    /// The resources whose use is counted. None: no use is counted.
    pub usage: Option<UsageResources>,
    /// The keys that the file sets: at the top, and within the guard, the tenancy, the delegation, the usage, Kueue
    /// and KAI.
    pub set: BTreeSet<&'static str>,
    /// The number of rows that it adds to the table.
    pub rows: usize,
}

impl Config {
    /// Reads the file of a server: Tenure's own, or KAI-Scheduler's, of which only the floors are used. An empty file
    /// means the defaults.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let root = YamlNode::parse(text)?;
        if kai::is_kai(&root) { Self::of_kai(&root) } else { Self::read(&root) }
    }

    /// Refuses values that KAI reads as another value than the written one, and keys that KAI doesn't know: neither
    /// is intended.
    fn of_kai(root: &YamlNode) -> Result<Self, ConfigError> {
        let Kai { floors, set: written, problems, notes: _ } = Kai::read(root);
        let mut problems = Problems(problems);
        for name in set(root, FIELDS) {
            let line = root.get(name).map_or(root.line, |value| value.line);
            problems.add(line, format!("{name}: must not be in a file of KAI-Scheduler's, which has tiers"));
        }
        if problems.0.is_empty() {
            Ok(Self { floors, set: written, ..Self::default() })
        } else {
            Err(problems.in_order())
        }
    }

    fn read(root: &YamlNode) -> Result<Self, ConfigError> {
        if root.is_null() {
            return Ok(Self::default());
        }
        let mut problems = Problems::default();
        let config = Field { path: String::new(), node: root }.fields(&mut problems).map(|mut fields| {
            let floors = floors::read(&mut fields, &mut problems);
            let notice = fields.take(EXPIRY_NOTICE).and_then(|notice| notice.points(&mut problems));
            let on_pods = fields.take(NOTICE_ON_PODS).and_then(|field| field.boolean(&mut problems));
            let grace = fields.take(GRACE_ON_CHANGE).and_then(|field| field.duration(&mut problems));
            let rules =
                fields.take(OWNERS).map_or_else(Vec::new, |field| owners::read(&field, &mut problems));
            let trusted = fields.take(TRUSTED_WRITERS).map(|field| trusted::read(&field, &mut problems));
            let formation = fields.take(LONGEST_FORMATION).and_then(|field| field.duration(&mut problems));
            let pods_ready =
                fields.take(PODS_READY).and_then(|field| pods_ready::read(&field, &mut problems));
            let guard = fields.take(GUARD);
            let guarded = guard.as_ref().map(|field| guard::read(field, &mut problems));
            let tenancy = fields.take(TENANCY);
            let tenancy_writers = tenancy.as_ref().map(|field| tenancy::read(field, &mut problems));
            let of_kueue = fields.take(KUEUE);
            let kueue = of_kueue.as_ref().map(|field| kueue::read(field, &mut problems)).unwrap_or_default();
            let of_kai = fields.take(KAI);
            let kai = of_kai.as_ref().map(|field| kai_sources::read(field, &mut problems));
            let delegation = fields.take(DELEGATION);
            let bounds = delegation.as_ref().map(|field| delegation::read(field, &mut problems));
            let of_usage = fields.take(USAGE);
            let usage = of_usage.as_ref().and_then(|field| usage::read(field, &mut problems));
            let receivers = fields.take(RECEIVERS).map(|field| receivers::read(&field, &mut problems));
            fields.end(&mut problems);
            let mut set = set(root, FIELDS);
            set.extend(guard.into_iter().flat_map(|field| guard::set(field.node)));
            set.extend(tenancy.into_iter().flat_map(|field| tenancy::set(field.node)));
            set.extend(of_kueue.into_iter().flat_map(|field| kueue::set(field.node)));
            set.extend(of_kai.into_iter().flat_map(|field| kai_sources::set(field.node)));
            set.extend(delegation.into_iter().flat_map(|field| delegation::set(field.node)));
            set.extend(of_usage.and_then(|field| usage::set(field.node)));
            let (rows, table) = (rules.len(), OwnerTable::default().with(rules));
            Self {
                notice: notice.unwrap_or_default(),
                notice_on_pods: on_pods.unwrap_or_default(),
                grace_on_change: grace.map(|of| GraceOnChange(of.to_signed())).unwrap_or_default(),
                rows,
                table: if kueue.enabled { table } else { table.without_workloads() },
                floors,
                longest_formation: formation.map(|of| LongestFormation(of.to_signed())).unwrap_or_default(),
                trusted: trusted.unwrap_or_default(),
                pods_ready,
                guarded: guarded.unwrap_or_default(),
                tenancy_writers: tenancy_writers.unwrap_or_default(),
                kueue,
                kai: kai.unwrap_or_default(),
                bounds: bounds.unwrap_or_default(),
                usage,
                receivers: receivers.unwrap_or_default(),
                set,
            }
        });
        config.filter(|_| problems.0.is_empty()).ok_or_else(|| problems.in_order())
    }
}

#[cfg(test)]
mod tests;
