//! A `PodDisruptionBudget`, reduced to the fields that Tenure reads. The placement index of the
//! webhook holds them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::policy::v1 as policy,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::Resource;
use serde::Deserialize;
use serde_json::Value;

use super::slim;
use crate::tolerant::TolerantObject;

/// A `PodDisruptionBudget`, reduced to the fields that Tenure reads.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = policy::PodDisruptionBudget)]
#[serde(default)]
pub struct PodDisruptionBudget {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The pods that the budget is for.
    pub spec: BudgetSpec,
    /// The disruptions that the budget allows.
    pub status: BudgetStatus,
}

impl TolerantObject for PodDisruptionBudget {}

/// The `spec` of a [`PodDisruptionBudget`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BudgetSpec {
    /// Selects the pods that the budget is for.
    pub selector: Option<LabelSelector>,
}

/// The `status` of a [`PodDisruptionBudget`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// The number of disruptions that are allowed now.
    pub disruptions_allowed: Option<i32>,
    /// The names of pods whose disruption is counted already. The times beside the names may be
    /// any.
    pub disrupted_pods: Option<BTreeMap<String, Value>>,
}
