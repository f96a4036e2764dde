//! The fields of a v3alpha1 spec that v2 doesn't have: one row each.
//!
//! From the rows follow the annotations that hold the fields in v2, and the ways to read them from
//! a spec or from annotations. A field that has no row doesn't compile.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    v2,
    v3alpha1::{MaxDurationAction, OnReversal, OverCeiling, QueueExtensions, QueueSpec, WaitForPodsReady},
};
use crate::{ExtendedDuration, Written, keys, projection::text};

/// The type of a field that v2 has as an annotation.
pub trait OwnField: DeserializeOwned + PartialEq {
    /// The expected text of the annotation, as messages continue "must be …".
    const EXPECTED: &'static str;
    /// The first character of the annotation's JSON, of a map or a list. None: the annotation holds
    /// the text of the field.
    const OPENS: Option<char>;

    /// Reads the annotation. An error says what would be right.
    fn from_annotation(text: &str) -> Result<Self, String> {
        let Some(opens) = Self::OPENS else {
            return serde_json::from_value(text.into()).map_err(|_| format!("must be {}", Self::EXPECTED));
        };
        let read = || serde_json::from_str(text).map_err(|error| error.to_string());
        let value = if text.trim_start().starts_with(opens) {
            read()
        } else {
            // serde would read a list in place of a map, field by field
            Err(if opens == '{' { "not an object".into() } else { "not a list".into() })
        };
        value.map_err(|error| format!("must be {}: {error}", Self::EXPECTED))
    }

    /// Reads the field of a stored object. A value of the wrong shape was never admitted, and
    /// counts as absent.
    fn from_json(value: Value) -> Option<Self> {
        serde_json::from_value(value).unwrap_or_default()
    }
}

/// Any text. A review says whether the text is a duration.
impl<D> OwnField for Written<D>
where
    Self: DeserializeOwned + PartialEq,
{
    const EXPECTED: &'static str = "a duration";
    const OPENS: Option<char> = None;

    fn from_annotation(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn from_json(value: Value) -> Option<Self> {
        text(value).map(Self::from)
    }
}

macro_rules! own_field {
    ($($field:ty: $opens:expr, $expected:literal;)*) => {$(
        impl OwnField for $field {
            const EXPECTED: &'static str = $expected;
            const OPENS: Option<char> = $opens;
        }
    )*};
}

own_field! {
    MaxDurationAction: None, "Pause or Requeue";
    OnReversal: None, "Pause or DeletePods";
    OverCeiling: None, "Warn or Refuse";
    Vec<Written<ExtendedDuration>>: Some('['), r#"JSON, a list of durations such as ["1h","10m"]"#;
    WaitForPodsReady: Some('{'), r#"JSON, what spec.waitForPodsReady is in v3alpha1, such as {"timeout":"5m"}"#;
    QueueExtensions: Some('{'), r#"JSON, what spec.extensions is in v3alpha1, such as {"maxTotal":"8h"}"#;
}

/// Reads the fields that v2 doesn't have, from a spec or from annotations.
pub trait OwnFields {
    /// Reads the field of this name, or the annotation that holds it.
    fn read<T: OwnField>(&mut self, field: &'static str, annotation: &'static str) -> Option<T>;
}

macro_rules! own_fields {
    ($($field:ident: $name:literal = $annotation:expr,)*) => {
        /// The fields of a v3alpha1 spec that v2 doesn't have, and the annotations that hold them
        /// there.
        pub const SPEC_ANNOTATIONS: [(&str, &str); [$($name),*].len()] = [$(($name, $annotation)),*];

        impl QueueSpec {
            /// Completes a spec of v2. Floors stay as they are written, in Go's grammar.
            pub fn complete(spec: &v2::QueueSpec, own: &mut impl OwnFields) -> Self {
                let v2::QueueSpec {
                    display_name, parent_queue, priority, preempt_min_runtime, reclaim_min_runtime, resources,
                } = spec;
                // a field that is added needs a row
                Self {
                    $($field: own.read($name, $annotation),)*
                    display_name: display_name.clone(),
                    parent_queue: parent_queue.clone(),
                    // its range is KAI's affair
                    priority: priority.and_then(|priority| priority.try_into().ok()),
                    preempt_min_runtime: preempt_min_runtime.as_ref().map(|text| text.as_str().into()),
                    reclaim_min_runtime: reclaim_min_runtime.as_ref().map(|text| text.as_str().into()),
                    resources: resources.clone(),
                }
            }

            /// True if a text is the JSON of a field, which is set: in any layout.
            pub fn is_json_of(&self, field: &str, text: &str) -> bool {
                fn same<T: OwnField>(text: &str, field: Option<&T>) -> bool {
                    T::OPENS.is_some() && serde_json::from_str::<T>(text).is_ok_and(|value| Some(&value) == field)
                }
                match field {
                    $($name => same(text, self.$field.as_ref()),)*
                    _ => false,
                }
            }
        }

        /// Returns the first character of the JSON in the annotation of a field. None: the
        /// annotation holds the text of the field.
        pub(super) fn opens(field: &str) -> Option<char> {
            fn of<T: OwnField>(_: impl Fn(QueueSpec) -> Option<T>) -> Option<char> {
                T::OPENS
            }
            match field {
                $($name => of(|spec| spec.$field),)*
                _ => None,
            }
        }
    };
}

own_fields! {
    max_duration: "maxDuration" = keys::MAX_DURATION_ANNOTATION,
    expiry_notice: "expiryNotice" = "tenure.dev/expiry-notice",
    expiry_notices: "expiryNotices" = "tenure.dev/expiry-notices",
    max_duration_action: "maxDurationAction" = "tenure.dev/max-duration-action",
    requeue_delay: "requeueDelay" = "tenure.dev/requeue-delay",
    on_reversal: "onReversal" = "tenure.dev/on-reversal",
    over_ceiling: "overCeiling" = "tenure.dev/over-ceiling",
    wait_for_pods_ready: "waitForPodsReady" = keys::QUEUE_WAIT_FOR_PODS_READY_ANNOTATION,
    extensions: "extensions" = "tenure.dev/extensions",
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;
    use crate::runai::v3alpha1::Queue;

    #[test]
    fn each_row_has_the_name_of_its_field_and_the_annotation_that_follows_from_it() {
        let crd = serde_json::to_value(Queue::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let known = schema["properties"]["spec"]["properties"].as_object().unwrap();
        for (field, annotation) in SPEC_ANNOTATIONS {
            assert!(known.contains_key(field), "{field}");
            let kebab = field.chars().flat_map(|of| {
                let dash = of.is_ascii_uppercase().then_some('-');
                dash.into_iter().chain([of.to_ascii_lowercase()])
            });
            assert_eq!(annotation, format!("tenure.dev/{}", kebab.collect::<String>()));
        }
    }
}
