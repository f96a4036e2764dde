//! Configuration files, files of the kubectl plugin, and objects as watches show them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json, value::to_raw_value};
use tenure_index::{PlacementIndex, UsageLedger};
use tenure_policy::{
    config::{Config, ConfigFile},
    extension::{self, Allowance, ExtensionDecision, GoingRun, RequestedRun},
    kai::KaiDefaults,
    usage::UsageResources,
};
use tenure_types::{
    ExtendedDuration,
    extension::Extension,
    room::PodWithRoom,
    runai::{QueueVersion, conversion::convert},
    usage_record::UsageRecord,
};

use crate::{Outcome, text};

pub fn config(input: &[u8]) -> Outcome {
    let text = text(input)?;
    let file = ConfigFile::parse(text);
    let read = Config::parse(text).map_err(|error| error.to_string())?;
    assert!(file.is_ok(), "a file that the servers take is good: {file:?}");
    Ok(format!("{:?}", read.set))
}

pub fn kai_config(input: &[u8]) -> Outcome {
    let data = BTreeMap::from([("config.yaml".to_owned(), text(input)?.to_owned())]);
    let read = KaiDefaults::of_config_map(&data, "config.yaml")?;
    Ok(format!("{} issues", read.issues.len()))
}

pub fn documents(input: &[u8]) -> Outcome {
    let read = tenure_cli::objects("f", text(input)?).map_err(|error| error.to_string())?;
    let read = read.iter().map(|found| format!("{} {}", found.source, found.kind));
    Ok(read.collect::<Vec<_>>().join(", "))
}

/// A pod as a watch shows it, taken into the index of the extender.
pub fn pod(input: &[u8]) -> Outcome {
    let pod: PodWithRoom = serde_json::from_slice(input).map_err(|error| error.to_string())?;
    let mut index = PlacementIndex::default();
    index.apply_pod(pod.clone());
    index.apply_pod(pod);
    assert!(index.pods() <= 1, "{}", index.pods());
    Ok(format!("{} pods", index.pods()))
}

/// A Queue of either version is the same after it was converted to the other version and back.
pub fn round_trip(input: &[u8]) -> Outcome {
    let queue: Value = serde_json::from_slice(input).map_err(|error| error.to_string())?;
    let converted = |queue: &Value, to| {
        let raw = to_raw_value(queue).map_err(|error| error.to_string())?;
        let converted = convert(&raw, to).map_err(|error| error.to_string())?;
        serde_json::to_value(converted).map_err(|error| error.to_string())
    };
    let v2 = converted(&queue, QueueVersion::V2)?;
    let v3alpha1 = converted(&queue, QueueVersion::V3alpha1)?;
    let (there, back) = if queue["apiVersion"] == json!("scheduling.run.ai/v2") {
        assert_eq!(v2, queue, "of its own version");
        (v3alpha1.clone(), converted(&v3alpha1, QueueVersion::V2))
    } else {
        assert_eq!(v3alpha1, queue, "of its own version");
        (v2.clone(), converted(&v2, QueueVersion::V3alpha1))
    };
    assert_eq!(back.expect("what was converted converts back"), queue, "by way of {there}");
    Ok(there["apiVersion"].as_str().unwrap_or_default().to_owned())
}

/// A request for more time, which any tenant may write. No more is granted than a run may get.
pub fn extension(input: &[u8]) -> Outcome {
    let read: Extension = serde_json::from_slice(input).map_err(|error| error.to_string())?;
    let [auto_approve, max_total] = [1, 4].map(SignedDuration::from_hours).map(ExtendedDuration::of);
    let allowance = Allowance { auto_approve, max_total, max_count: Some(3) };
    let run = GoingRun {
        queue: "q".into(),
        limited_by: None,
        has_ceiling: true,
        allowance,
        count: 0,
        total: SignedDuration::ZERO,
        is_denied: false,
    };
    let granted = read.granted().map(ExtendedDuration::to_signed);
    assert!(allowance.total(granted) <= max_total.to_signed());
    let decision = extension::decide(&read, &RequestedRun::Going(run));
    if let ExtensionDecision::Grant(time) = decision {
        assert!(time <= auto_approve.to_signed(), "{time}");
    }
    let event = extension::event(&read)
        .map_or_else(String::new, |(reason, message)| format!(", {reason:?}: {message}"));
    assert!(!extension::no_such_target(&read).is_empty());
    Ok(format!("{decision:?}{event}"))
}

/// The record of usage, which an administrator may put back. What is written of it reads back as the same.
pub fn usage_record(input: &[u8]) -> Outcome {
    let read: UsageRecord = serde_json::from_slice(input).map_err(|error| error.to_string())?;
    let resources = UsageResources::from(["nvidia.com/gpu".to_owned()]);
    let written = UsageLedger::restore(read, resources.clone()).record().expect("a record");
    let again = serde_json::to_vec(&written).expect("a record");
    let again = serde_json::from_slice(&again).expect("what is written reads back");
    let mut ledger = UsageLedger::restore(again, resources);
    assert_eq!(ledger.record().as_ref(), Some(&written));
    ledger.begin_list();
    ledger.end_list("2".into(), Timestamp::MAX);
    Ok(format!("{} queues, {} notes, {} gaps", written.queues.len(), written.notes.len(), written.gaps))
}
