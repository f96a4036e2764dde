//! The policies of the chart name every field of a pod that Tenure reads its queue or its group from.

#![allow(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{collections::BTreeSet, fs};

use tenure_types::{
    keys::EVIDENCE_ANNOTATION,
    podgroup::{PodField, PodGroupKind},
};

fn chart() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/tenure/templates/tenancy/queues.yaml");
    fs::read_to_string(file).unwrap()
}

/// The keys in the variables of this name, a policy each.
fn keys(chart: &str, variable: &str) -> Vec<BTreeSet<String>> {
    let start = format!("- name: {variable}\n");
    let lists = chart.split(&start).skip(1);
    lists
        .map(|rest| serde_json::from_str(&rest[rest.find('[').unwrap()..=rest.find(']').unwrap()]).unwrap())
        .collect()
}

fn expected(fields: &BTreeSet<PodField>) -> [BTreeSet<String>; 2] {
    let (mut labels, mut annotations) = (BTreeSet::new(), BTreeSet::new());
    for field in fields {
        match field {
            PodField::Label(key) => labels.insert((*key).to_owned()),
            PodField::Annotation(key) => annotations.insert((*key).to_owned()),
            PodField::SchedulingGroup => false,
        };
    }
    [labels, annotations]
}

#[test]
fn every_key_that_names_a_queue_or_a_group_is_fixed_once_bound() {
    let chart = chart();
    let [labels, mut annotations] = expected(&PodField::all());
    annotations.insert(EVIDENCE_ANNOTATION.to_owned());
    assert_eq!(keys(&chart, "labels").first(), Some(&labels));
    assert_eq!(keys(&chart, "annotations").first(), Some(&annotations));
}

#[test]
fn every_key_that_names_a_queue_satisfies_a_namespace_that_requires_one() {
    let chart = chart();
    let [labels, annotations] = expected(&PodField::of_queues());
    assert_eq!(keys(&chart, "labels").get(1), Some(&labels));
    assert_eq!(keys(&chart, "annotations").get(1), Some(&annotations));
}

#[test]
fn the_queue_of_every_kind_of_pod_group_that_has_one_is_fixed() {
    let kinds = PodGroupKind::ALL.into_iter().filter(|kind| kind.names_queue());
    let groups: Vec<_> = kinds.map(PodGroupKind::group).collect();
    let rule = format!("- apiGroups: [{}]\n", groups.join(", "));
    assert!(chart().contains(&rule), "{rule}");
}
