//! The schema of a quantity without the forty lines of documentation that come with each use of the type.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Returns the schema of quantities by name.
pub(crate) fn map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["object", "null"], "additionalProperties": {
        "description": "A Kubernetes quantity, such as 500m, 10 or 1Gi.",
        "x-kubernetes-int-or-string": true,
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    }})
}
