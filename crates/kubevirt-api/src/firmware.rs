//! Firmware, boot loader and direct kernel boot.

use crate::tolerant::null_as_default;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Firmware and boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Firmware {
    /// Identity that the guest reads from its firmware; generated when unset and stable from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// BIOS or EFI; BIOS on amd64 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootloader: Option<Bootloader>,
    /// Serial number the guest reads from its firmware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Boots a kernel directly, without boot loader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_boot: Option<KernelBoot>,
    /// ACPI tables taken from volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi: Option<Acpi>,
}

/// The boot loader; one of bios and efi.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Bootloader {
    /// Classic BIOS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bios: Option<Bios>,
    /// EFI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi: Option<Efi>,
}

/// A kernel that is started directly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KernelBoot {
    /// Command line of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_args: Option<String>,
    /// Image that holds kernel and initrd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<KernelBootContainer>,
}

/// ACPI tables from secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Acpi {
    /// Volume with the table SLIC, of a secret or config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slic_name_ref: Option<String>,
    /// Volume with the table MSDM, of a secret or config map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msdm_name_ref: Option<String>,
}

/// `bios` of [`Bootloader`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Bios {
    /// Shows the BIOS's messages on the serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_serial: Option<bool>,
}

/// `efi` of [`Bootloader`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Efi {
    /// Demands signed boot loaders; on when unset on amd64, and needs `features.smm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
    /// Keeps the EFI variables over restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// An image that holds a kernel, an initrd or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KernelBootContainer {
    /// Name of the image.
    #[serde(deserialize_with = "null_as_default")]
    pub image: String,
    /// Secret with the credentials for the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_secret: Option<String>,
    /// Always, Never or `IfNotPresent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["Always", "Never", "IfNotPresent", ""])))]
    pub image_pull_policy: Option<String>,
    /// Absolute path of the kernel in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<String>,
    /// Absolute path of the initrd in the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initrd_path: Option<String>,
}
