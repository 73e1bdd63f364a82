//! Where things are inside the launcher pod. Whoever makes a file that the domain names takes
//! the path from here.

/// The single-guest secrets and sockets of the pod.
pub const PRIVATE: &str = "/var/run/kubevirt-private";
/// The unpacked image of a kernel boot container.
pub const KERNEL_BOOT: &str = "/var/run/kubevirt-kernel-boot";

/// The writable overlay of a container disk.
pub fn overlay(volume: &str) -> String {
    format!("/var/run/kubevirt-ephemeral-disks/disk-data/{volume}/disk.qcow2")
}

/// The root of a container disk's image, by the index of the volume among the VMI's volumes.
pub fn image_volume(index: usize) -> String {
    format!("/var/run/kubevirt-image-volume/disk_{index}")
}

pub fn empty_disk(volume: &str) -> String {
    format!("/var/run/libvirt/empty-disks/{volume}.qcow2")
}

/// Name of the image in the filesystem of a claim.
pub const CLAIM_IMAGE: &str = "disk.img";
/// The image with the token of a service account; a guest has one at most.
pub const SERVICE_ACCOUNT_IMAGE: &str =
    "/var/run/kubevirt-private/service-account-disk/service-account.iso";
/// Where the pod has that token.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The directory of a disk's image: a claim's filesystem, or a directory of the node.
pub fn disk_directory(volume: &str) -> String {
    format!("{PRIVATE}/vmi-disks/{volume}")
}

/// A claim that is a device.
pub fn device(volume: &str) -> String {
    format!("/dev/{volume}")
}

/// Files of other objects that become disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilesOf {
    ConfigMap,
    Secret,
    DownwardApi,
    Sysprep,
}

impl FilesOf {
    fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "config-map",
            Self::Secret => "secret",
            Self::DownwardApi => "downwardapi",
            Self::Sysprep => "sysprep",
        }
    }

    /// Where the pod has the files.
    pub fn directory(self, volume: &str) -> String {
        format!("{PRIVATE}/{}/{volume}", self.word())
    }

    /// The image that is made of them.
    pub fn image(self, volume: &str) -> String {
        format!("{PRIVATE}/{}-disks/{volume}.iso", self.word())
    }
}

/// A cloud-init seed; `file_name` is `noCloud.iso` or `configdrive.iso`.
pub fn seed(namespace: &str, vmi: &str, file_name: &str) -> String {
    format!("/var/run/kubevirt-ephemeral-disks/cloud-init-data/{namespace}/{vmi}/{file_name}")
}

/// A file of the kernel boot container, by its path in the image.
pub fn kernel_boot_file(path: &str) -> String {
    format!("{KERNEL_BOOT}/{}", path.trim_start_matches('/'))
}

pub fn serial_socket(vmi_uid: &str) -> String {
    format!("{PRIVATE}/{vmi_uid}/virt-serial0")
}

pub fn serial_log(vmi_uid: &str) -> String {
    format!("{PRIVATE}/{vmi_uid}/virt-serial0-log")
}

pub fn vnc_socket(vmi_uid: &str) -> String {
    format!("{PRIVATE}/{vmi_uid}/virt-vnc")
}

/// The EFI variables of a guest that does not keep them.
pub fn nvram(vmi: &str) -> String {
    format!("{PRIVATE}/libvirt/qemu/nvram/{vmi}_VARS.fd")
}
