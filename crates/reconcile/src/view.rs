//! Views: types with the parts of an object that a controller reads.

use std::fmt::Debug;

use kube::Resource;
use serde::de::DeserializeOwned;

/// A type that a watch can keep in a store.
pub trait View:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> View for K where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

/// Implements `Resource` for a view, which has the field `metadata`, with the kind that it is parsed
/// from.
#[macro_export]
macro_rules! resource_view {
    ($view:ident, $kind:ty, $scope:ident) => {
        impl ::kube::Resource for $view {
            type DynamicType = ();
            type Scope = ::k8s_openapi::$scope;

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::kind(&())
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::group(&())
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::version(&())
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                <$kind as ::kube::Resource>::plural(&())
            }

            fn meta(&self) -> &::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
