//! Configuration files, files of the kubectl plugin, and objects as watches show them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_index::PlacementIndex;
use tenure_policy::{
    config::{Config, ConfigFile},
    kai::KaiDefaults,
};
use tenure_types::{
    room::PodWithRoom,
    runai::conversion::{to_v2, to_v3alpha1},
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
    let v2 = to_v2(&queue).map_err(|error| error.to_string())?;
    let v3alpha1 = to_v3alpha1(&queue).map_err(|error| error.to_string())?;
    let (there, back) = if queue["apiVersion"] == json!("scheduling.run.ai/v2") {
        assert_eq!(v2, queue, "of its own version");
        (v3alpha1.clone(), to_v2(&v3alpha1))
    } else {
        assert_eq!(v3alpha1, queue, "of its own version");
        (v2.clone(), to_v3alpha1(&v2))
    };
    assert_eq!(back.expect("what was converted converts back"), queue, "by way of {there}");
    Ok(there["apiVersion"].as_str().unwrap_or_default().to_owned())
}
