//! Objects of any kind as resources of the API, for clients that name the kind at run time. Other
//! projections inherit from the type of which they are a projection.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
};

use super::{Owner, WholeObject};
use crate::podgroup::PodGroup;

/// Implements `Resource` for objects of a kind known at run time. `metadata_only`: the API server
/// leaves out the rest.
macro_rules! of_any_kind {
    ($object:ty, metadata_only: $metadata_only:literal) => {
        impl Resource for $object {
            type DynamicType = ApiResource;
            type Scope = DynamicResourceScope;

            fn kind(of: &ApiResource) -> Cow<'_, str> {
                of.kind.as_str().into()
            }

            fn group(of: &ApiResource) -> Cow<'_, str> {
                of.group.as_str().into()
            }

            fn version(of: &ApiResource) -> Cow<'_, str> {
                of.version.as_str().into()
            }

            fn plural(of: &ApiResource) -> Cow<'_, str> {
                of.plural.as_str().into()
            }

            fn metadata_api() -> bool {
                $metadata_only
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

of_any_kind!(Owner, metadata_only: true);
of_any_kind!(WholeObject, metadata_only: false);
of_any_kind!(PodGroup, metadata_only: false);
