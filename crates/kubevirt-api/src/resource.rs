//! The kinds as resources of `kube`: group, version, plural, and the envelope with `apiVersion` and
//! `kind`.
//!
//! Objects read in another version are written back in the one named here: all versions of a kind
//! share one schema.

/// The version of `KubeVirt` whose API and behaviour this is. Clients compare it with their own version.
pub const COMPATIBLE_VERSION: &str = "v1.9.0";

pub const GROUP: &str = "kubevirt.io";
pub const VERSION: &str = "v1";
pub const API_VERSION: &str = "kubevirt.io/v1";

/// Makes a struct with `metadata`, `spec` and, where given, `status: Option<..>` into a kind.
///
/// ```text
/// kind!(VirtualMachine {
///     group: "kubevirt.io",
///     version: "v1",
///     plural: "virtualmachines",
///     scope: NamespaceResourceScope,
///     spec: VirtualMachineSpec,
///     status: VirtualMachineStatus,
/// });
/// ```
macro_rules! kind {
    ($type:ident {
        group: $group:literal,
        version: $version:literal,
        plural: $plural:literal,
        scope: $scope:ident,
        spec: $spec:ty
        $(, status: $status:ty)? $(,)?
    }) => {
        impl $type {
            pub const KIND: &'static str = stringify!($type);
            pub const PLURAL: &'static str = $plural;
            pub const GROUP: &'static str = $group;
            pub const VERSION: &'static str = $version;
            pub const API_VERSION: &'static str = concat!($group, "/", $version);

            /// An object with nothing but a name and a spec.
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta::default();
                metadata.name = Some(name.to_owned());
                Self {
                    metadata,
                    spec,
                    $(status: None::<$status>,)?
                }
            }
        }

        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                Self::KIND.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                Self::GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                Self::VERSION.into()
            }

            fn api_version((): &()) -> std::borrow::Cow<'_, str> {
                Self::API_VERSION.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                Self::PLURAL.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl kube::core::object::HasSpec for $type {
            type Spec = $spec;

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        $(
            impl kube::core::object::HasStatus for $type {
                type Status = $status;

                fn status(&self) -> Option<&$status> {
                    self.status.as_ref()
                }

                fn status_mut(&mut self) -> &mut Option<$status> {
                    &mut self.status
                }
            }
        )?

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;

                let mut object = serializer.serialize_struct(Self::KIND, 5)?;
                object.serialize_field("apiVersion", Self::API_VERSION)?;
                object.serialize_field("kind", Self::KIND)?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                $(
                    let status: Option<&$status> = self.status.as_ref();
                    match status {
                        Some(status) => object.serialize_field("status", status)?,
                        None => object.skip_field("status")?,
                    }
                )?
                object.end()
            }
        }
    };
}

pub(crate) use kind;
