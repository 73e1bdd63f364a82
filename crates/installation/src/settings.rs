//! Settings of an installation.

/// The differences between installations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub namespace: String,
    /// Image with the program `ferrovirt` and nothing else.
    pub image: String,
    /// Image of the virtual machines' pods.
    pub launcher_image: String,
    /// Replicas of virt-api and of virt-controller.
    pub replicas: u8,
}

impl Settings {
    /// The settings of `deploy/ferrovirt.yaml`.
    pub fn usual() -> Self {
        Self {
            namespace: "kubevirt".to_owned(),
            image: "docker.io/ferrovirt/ferrovirt:devel".to_owned(),
            launcher_image: "docker.io/ferrovirt/virt-launcher:devel".to_owned(),
            replicas: 2,
        }
    }
}
