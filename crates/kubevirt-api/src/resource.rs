//! How the two kinds present themselves to `kube`: group, version, plural, and the envelope of
//! `apiVersion` and `kind` around what the structs hold.
//!
//! Objects read as v1alpha3 are written back as v1: both versions share one schema.

use std::borrow::Cow;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    vm::{VirtualMachine, VirtualMachineSpec},
    vm_status::VirtualMachineStatus,
    vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec},
    vmi_status::VirtualMachineInstanceStatus,
};

pub const GROUP: &str = "kubevirt.io";
pub const VERSION: &str = "v1";
pub const API_VERSION: &str = "kubevirt.io/v1";

macro_rules! kind {
    ($type:ident, $spec:ident, $status:ident, $kind:literal, $plural:literal) => {
        impl $type {
            pub const KIND: &'static str = $kind;
            pub const PLURAL: &'static str = $plural;

            /// An object with nothing but a name and a spec.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = ObjectMeta {
                    name: Some(name.to_owned()),
                    ..ObjectMeta::default()
                };
                Self {
                    metadata,
                    spec,
                    status: None,
                }
            }
        }

        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                Self::KIND.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn api_version((): &()) -> Cow<'_, str> {
                API_VERSION.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                Self::PLURAL.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
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

        impl kube::core::object::HasStatus for $type {
            type Status = $status;

            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }

            fn status_mut(&mut self) -> &mut Option<$status> {
                &mut self.status
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let fields = if self.status.is_some() { 5 } else { 4 };
                let mut object = serializer.serialize_struct(Self::KIND, fields)?;
                object.serialize_field("apiVersion", API_VERSION)?;
                object.serialize_field("kind", Self::KIND)?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                match &self.status {
                    Some(status) => object.serialize_field("status", status)?,
                    None => object.skip_field("status")?,
                }
                object.end()
            }
        }
    };
}

kind!(
    VirtualMachine,
    VirtualMachineSpec,
    VirtualMachineStatus,
    "VirtualMachine",
    "virtualmachines"
);
kind!(
    VirtualMachineInstance,
    VirtualMachineInstanceSpec,
    VirtualMachineInstanceStatus,
    "VirtualMachineInstance",
    "virtualmachineinstances"
);
