//! cloud-init seeds.

use k8s_openapi::api::core::v1::LocalObjectReference;
use kubevirt_api::volumes as wire;

/// A cloud-init seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudInit<'a> {
    pub format: CloudInitFormat,
    pub user_data: SeedData<'a>,
    pub network_data: SeedData<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudInitFormat {
    NoCloud,
    ConfigDrive,
}

/// The ways to give data to cloud-init. Admission permits one of them; where there are several, the
/// first one counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeedData<'a> {
    pub text: Option<&'a str>,
    pub base64: Option<&'a str>,
    /// Name of a secret that the pod mounts.
    pub secret: Option<&'a str>,
}

/// The data that a seed can take from a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedPart {
    UserData,
    NetworkData,
}

impl<'a> CloudInit<'a> {
    pub(super) fn no_cloud(source: &'a wire::CloudInitNoCloudSource) -> Self {
        Self {
            format: CloudInitFormat::NoCloud,
            user_data: SeedData {
                text: source.user_data.as_deref(),
                base64: source.user_data_base64.as_deref(),
                secret: name_of(source.secret_ref.as_ref()),
            },
            network_data: SeedData {
                text: source.network_data.as_deref(),
                base64: source.network_data_base64.as_deref(),
                secret: name_of(source.network_data_secret_ref.as_ref()),
            },
        }
    }

    pub(super) fn config_drive(source: &'a wire::CloudInitConfigDriveSource) -> Self {
        Self {
            format: CloudInitFormat::ConfigDrive,
            user_data: SeedData {
                text: source.user_data.as_deref(),
                base64: source.user_data_base64.as_deref(),
                secret: name_of(source.secret_ref.as_ref()),
            },
            network_data: SeedData {
                text: source.network_data.as_deref(),
                base64: source.network_data_base64.as_deref(),
                secret: name_of(source.network_data_secret_ref.as_ref()),
            },
        }
    }
}

fn name_of(reference: Option<&LocalObjectReference>) -> Option<&str> {
    reference.map(|reference| reference.name.as_str())
}
