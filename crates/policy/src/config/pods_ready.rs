//! Reads the rules for workloads that don't get ready, with the field names of a Queue.

use serde::de::DeserializeOwned;
use tenure_types::{
    ExtendedDuration, Written,
    runai::v3alpha1::{RequeuingStrategy, WaitForPodsReady},
};

use super::{
    fields::{DURATION, Field, Problems},
    tree::YamlNode,
};
use crate::{queue::wait_for_pods_ready, ready::PodsReady};

/// None if it is no map, which is a problem.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Option<PodsReady> {
    let mut fields = field.fields(problems)?;
    let either = "must be true or false";
    let enable = value(fields.take("enable"), either, problems);
    let timeout = written(fields.take("timeout"), problems);
    let count_from = value(fields.take("countFrom"), "must be Scheduled (the default) or Creation", problems);
    let recovery_timeout = written(fields.take("recoveryTimeout"), problems);
    let requeuing_strategy =
        fields.take("requeuingStrategy").and_then(|strategy| read_strategy(&strategy, problems));
    let block_admission = value(fields.take("blockAdmission"), either, problems);
    fields.end(problems);
    let wait = WaitForPodsReady {
        enable,
        timeout,
        count_from,
        recovery_timeout,
        requeuing_strategy,
        block_admission,
    };
    let mut errors = Vec::new();
    wait_for_pods_ready(&field.path, &wait, &mut errors);
    for error in errors {
        problems.add(line_of(field.node, &error.field), error);
    }
    Some(PodsReady::from(&wait))
}

fn read_strategy(field: &Field<'_>, problems: &mut Problems) -> Option<RequeuingStrategy> {
    let mut fields = field.fields(problems)?;
    let number = "must be a whole number";
    let strategy = RequeuingStrategy {
        timestamp: value(fields.take("timestamp"), "must be Eviction (the default) or Creation", problems),
        backoff_limit_count: value(fields.take("backoffLimitCount"), number, problems),
        backoff_base_seconds: value(fields.take("backoffBaseSeconds"), number, problems),
        backoff_factor: value(
            fields.take("backoffFactor"),
            "must be a decimal number in quotes, such as \"1.5\"",
            problems,
        ),
        backoff_max_seconds: value(fields.take("backoffMaxSeconds"), number, problems),
        on_capacity: value(fields.take("onCapacity"), "must be true or false", problems),
        backoff_limit_timeout: value(fields.take("backoffLimitTimeout"), number, problems),
    };
    fields.end(problems);
    Some(strategy)
}

/// Returns a duration as it is written. It is checked later, like those of queues.
fn written(field: Option<Field<'_>>, problems: &mut Problems) -> Option<Written<ExtendedDuration>> {
    field?.text(DURATION, problems).map(Written::from)
}

fn value<T: DeserializeOwned>(
    field: Option<Field<'_>>,
    expected: &str,
    problems: &mut Problems,
) -> Option<T> {
    let field = field?;
    serde_json::from_value(field.node.to_json()).map_err(|_| field.refuse(expected, problems)).ok()
}

/// Returns the line of a field by its path, which begins with the block's own.
fn line_of(block: &YamlNode, path: &str) -> u64 {
    let mut keys = path.split('.').skip(1);
    keys.try_fold(block, |node, key| node.get(key)).map_or(block.line, |node| node.line)
}
