//! Reads the part of a configuration file about floors.

use std::collections::BTreeMap;

use super::fields::{Field, Fields, Problems};
use crate::{
    floor::{Floors, NodePool, ReclaimResolveMethod, UnknownMethod},
    owners::is_subdomain,
};

/// The default floor against preemption.
pub const PREEMPT: &str = "defaultPreemptMinRuntime";
/// The default floor against reclaim.
pub const RECLAIM: &str = "defaultReclaimMinRuntime";
/// The queue at which the search for a floor against reclaim begins.
pub const METHOD: &str = "reclaimResolveMethod";
/// Node label whose value is the name of the pool.
pub const LABEL_KEY: &str = "nodePoolLabelKey";
/// Defaults of node pools.
pub const POOLS: &str = "nodePools";

const LABEL_KEY_EXPECTED: &str = "must be the key of a label, such as kai.scheduler/node-pool: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, and possibly the name of a domain and '/' before it";
const POOL_EXPECTED: &str = "must be the value of a label, such as a100: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";

/// Takes the fields that are about floors.
pub fn read(fields: &mut Fields<'_>, problems: &mut Problems) -> Floors {
    let defaults = Floors::default();
    let mut duration = |name| fields.take(name).and_then(|field| field.duration(problems));
    let (preempt, reclaim) = (duration(PREEMPT), duration(RECLAIM));
    Floors {
        preempt: preempt.unwrap_or(defaults.preempt),
        reclaim: reclaim.unwrap_or(defaults.reclaim),
        method: fields.take(METHOD).and_then(|field| method(&field, problems)).unwrap_or_default(),
        node_pool_label_key: fields
            .take(LABEL_KEY)
            .and_then(|field| label_key(&field, problems))
            .unwrap_or(defaults.node_pool_label_key),
        node_pools: fields.take(POOLS).map(|field| node_pools(&field, problems)).unwrap_or_default(),
    }
}

fn method(field: &Field<'_>, problems: &mut Problems) -> Option<ReclaimResolveMethod> {
    let expected = UnknownMethod.to_string();
    let text = field.text(&expected, problems)?;
    text.parse().map_err(|_| field.refuse(expected, problems)).ok()
}

fn label_key(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.text(LABEL_KEY_EXPECTED, problems)?;
    if is_label_key(text) {
        return Some(text.into());
    }
    field.refuse(LABEL_KEY_EXPECTED, problems);
    None
}

fn node_pools(field: &Field<'_>, problems: &mut Problems) -> BTreeMap<String, NodePool> {
    let mut pools = BTreeMap::new();
    for item in field.list(problems) {
        let Some(mut fields) = item.fields(problems) else { continue };
        let name = fields.require("name", problems);
        let mut duration = |name| fields.take(name).and_then(|field| field.duration(problems));
        let pool = NodePool { preempt: duration(PREEMPT), reclaim: duration(RECLAIM) };
        fields.end(problems);
        let Some(name) = name else { continue };
        match name.text(POOL_EXPECTED, problems) {
            Some(text) if !is_label_part(text) => name.refuse(POOL_EXPECTED, problems),
            Some(text) if pools.contains_key(text) => name.refuse("is the name of another pool", problems),
            Some(text) => {
                pools.insert(text.to_owned(), pool);
            }
            None => {}
        }
    }
    pools
}

/// A qualified name, as the API server has them in labels.
fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_label_part(name),
        None => is_label_part(text),
    }
}

fn is_label_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(inner)
        && text.ends_with(inner)
        && text.chars().all(|c| inner(c) || matches!(c, '-' | '_' | '.'))
}
