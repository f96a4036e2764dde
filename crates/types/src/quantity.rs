//! The JSON schema of quantities in the custom resources. The schema of the type itself would add
//! forty lines of documentation to each use.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Returns the schema of a map from names of resources to quantities.
pub(crate) fn map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["object", "null"], "additionalProperties": {
        "description": "A Kubernetes quantity, such as 500m, 10 or 1Gi.",
        "x-kubernetes-int-or-string": true,
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    }})
}
