//! Projections as resources of the API.

use std::borrow::Cow;

use k8s_openapi::{
    api::{core::v1 as core, policy::v1 as policy},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource,
    core::{ApiResource, DynamicResourceScope},
};

use super::{
    Event, Namespace, Node, Owner, Pod, PodDisruptionBudget, RunaiQueueObject, RunaiQueueV2Object,
    TensorstackQueueObject, WholeObject,
};
use crate::{podgroup::PodGroup, room::PodWithRoom, runai, tensorstack};

/// Implements `Resource` for a projection: it is the same resource as the type that it is a projection of.
macro_rules! projection_of {
    ($projection:ty, $scope:ty, $group:expr, $version:expr, $kind:expr, $plural:expr) => {
        impl Resource for $projection {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
    ($projection:ty, $whole:ty) => {
        projection_of!(
            $projection,
            <$whole as Resource>::Scope,
            <$whole>::group(&()),
            <$whole>::version(&()),
            <$whole>::kind(&()),
            <$whole>::plural(&())
        );
    };
}

projection_of!(Pod, core::Pod);
projection_of!(PodWithRoom, core::Pod);
projection_of!(Node, core::Node);
projection_of!(Namespace, core::Namespace);
projection_of!(Event, core::Event);
projection_of!(PodDisruptionBudget, policy::PodDisruptionBudget);
projection_of!(RunaiQueueObject, runai::v3alpha1::Queue);
projection_of!(RunaiQueueV2Object, runai::v2::Queue);
projection_of!(TensorstackQueueObject, tensorstack::v1beta1::Queue);

/// Implements `Resource` for objects whose kind is known at run time. `metadata_only` asks the API server to leave out
/// everything else.
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
