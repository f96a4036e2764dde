//! The schema of a quantity without the forty lines of documentation that come with each use of the type.

use std::borrow::Cow;

use schemars::{JsonSchema, SchemaGenerator, json_schema};

/// Stands in for `Quantity` in `#[schemars(with = …)]`.
pub(crate) struct Schema;

impl JsonSchema for Schema {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ShortQuantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({
            "description": "A Kubernetes quantity, such as 500m, 10 or 1Gi.",
            "x-kubernetes-int-or-string": true,
            "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
        })
    }
}
