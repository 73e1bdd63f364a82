//! Instance types and templates that come with the system.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// `commonInstancetypesDeployment` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CommonInstancetypesDeployment {
    /// False does not install them; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `virtTemplateDeployment` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct VirtTemplateDeployment {
    /// Whether it is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub enabled: Option<bool>,
}

/// `instancetype` of [`KubeVirtConfiguration`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InstancetypeConfiguration {
    /// reference keeps a VM bound to its instance type, expand writes the values into the VM,
    /// `expandAll` does so also for VMs made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("nullable" = true)))]
    pub reference_policy: Option<InstancetypeReferencePolicy>,
}

open_enum! {
    /// Values of `referencePolicy`.
    InstancetypeReferencePolicy {
        Reference = "reference",
        Expand = "expand",
        ExpandAll = "expandAll",
    }
}
