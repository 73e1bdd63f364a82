//! Paths inside the launcher pod: the one place that defines them. Every crate that mounts, makes
//! or opens such a file takes its path from here.

use crate::{CloudInitFormat, SeedPart};

/// Files and sockets that belong to this guest alone.
pub const PRIVATE: &str = "/var/run/kubevirt-private";
pub const PUBLIC: &str = "/var/run/kubevirt";
/// The directory of the launcher's own socket.
pub const SOCKETS: &str = "/var/run/kubevirt/sockets";
pub const LIBVIRT_RUNTIME: &str = "/var/run/libvirt";
/// Overlays and seeds, which are lost with the pod.
pub const EPHEMERAL_DISKS: &str = "/var/run/kubevirt-ephemeral-disks";
/// Mounted images of the VMI's hotplugged disks.
pub const HOTPLUG_DISKS: &str = "/var/run/kubevirt/hotplug-disks";
/// Name of the pod's volume for them.
pub const HOTPLUG_VOLUME: &str = "hotplug-disks";
/// The directory of the socket of a pod that brings hotplugged volumes.
pub const ATTACHMENT: &str = "/path";
/// The volumes in such a pod, by name.
pub const ATTACHED_VOLUMES: &str = "/volumes";
/// Sockets of hook sidecars, each in a directory of its own.
pub const HOOKS: &str = "/var/run/kubevirt-hooks";
/// Sockets of the servers of shared filesystems.
pub const VIRTIOFS_CONTAINERS: &str = "/var/run/kubevirt/virtiofs-containers";
/// libvirt's state directory.
pub const LIBVIRT: &str = "/var/run/kubevirt-private/libvirt";
/// The part of it that belongs to QEMU's driver.
pub const LIBVIRT_QEMU: &str = "/var/run/kubevirt-private/libvirt/qemu";
/// Firmware variables.
pub const NVRAM: &str = "/var/run/kubevirt-private/libvirt/qemu/nvram";
/// The contents of the software TPM.
pub const SWTPM: &str = "/var/run/kubevirt-private/libvirt/qemu/swtpm";
/// Metadata of the claim that keeps a guest's own state.
pub const STATE_METADATA: &str = "/var/run/kubevirt-private/backend-storage-meta";
/// Certificates of the software TPM.
pub const SWTPM_LOCAL_CA: &str = "/var/run/kubevirt-private/var/lib/swtpm-localca";
/// The directory of the disk with metrics of the node.
pub const DOWNWARD_METRICS: &str = "/var/run/kubevirt-private/downwardmetric-disk";
/// That disk; a guest has one at most.
pub const DOWNWARD_METRICS_DISK: &str = "/var/run/kubevirt-private/downwardmetric-disk/vhostmd0";
/// The directory of the socket below, of the node and of the pod.
pub const RESERVATIONS: &str = "/var/run/kubevirt/daemons/pr";
/// The socket of the helper that makes persistent reservations for QEMU.
pub const RESERVATIONS_SOCKET: &str = "/var/run/kubevirt/daemons/pr/pr-helper.sock";
/// The socket of the port on which the guest asks for metrics of the node.
pub const DOWNWARD_METRICS_SOCKET: &str =
    "/var/run/kubevirt-private/downwardmetrics-channel/downwardmetrics.sock";
/// The root of the image of a kernel boot container.
pub const KERNEL_BOOT: &str = "/var/run/kubevirt-kernel-boot";
/// Name of the disk image in the filesystem of a claim.
pub const CLAIM_IMAGE: &str = "disk.img";
/// The image with the token of a service account; a guest has one at most.
pub const SERVICE_ACCOUNT_IMAGE: &str =
    "/var/run/kubevirt-private/service-account-disk/service-account.iso";
/// The directory of that token.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The writable overlay of a container disk or an ephemeral claim.
pub fn overlay(volume: &str) -> String {
    format!("{EPHEMERAL_DISKS}/disk-data/{volume}/disk.qcow2")
}

/// The root of a container disk's image, by the index of the volume among the VMI's volumes.
pub fn image_volume(index: usize) -> String {
    format!("/var/run/kubevirt-image-volume/disk_{index}")
}

pub fn empty_disk(volume: &str) -> String {
    format!("{LIBVIRT_RUNTIME}/empty-disks/{volume}.qcow2")
}

/// The directory of a disk's image: a claim's filesystem, or a directory of the node.
pub fn disk_directory(volume: &str) -> String {
    format!("{PRIVATE}/vmi-disks/{volume}")
}

/// A claim that the guest shares as a filesystem.
pub fn filesystem(volume: &str) -> String {
    format!("{PRIVATE}/filesystems/{volume}")
}

/// A volume that was attached while the guest runs: the directory of its image, or its device.
pub fn hotplugged(volume: &str) -> String {
    format!("{HOTPLUG_DISKS}/{volume}")
}

/// The socket of the server of a shared filesystem.
pub fn filesystem_socket(volume: &str) -> String {
    format!("{VIRTIOFS_CONTAINERS}/{volume}.sock")
}

/// The container of a hook sidecar, and its directory below [`HOOKS`].
pub fn hook_sidecar(index: usize) -> String {
    format!("hook-sidecar-{index}")
}

/// Whether a container is that of a hook sidecar.
pub fn is_hook_sidecar(container: &str) -> bool {
    let index = container.strip_prefix("hook-sidecar-");
    index.is_some_and(|index| index.parse::<usize>().is_ok())
}

/// The directory of a sidecar's socket, in the guest's own container.
pub fn hook_directory(container: &str) -> String {
    format!("{HOOKS}/{container}")
}

/// The socket of the process that connects an interface to the pod's network.
pub fn passt_socket(interface: &str) -> String {
    format!("{PRIVATE}/passt-{interface}.sock")
}

/// The device of a claim in block mode.
pub fn device(volume: &str) -> String {
    format!("/dev/{volume}")
}

/// A mounted secret, by the name of the pod's volume.
pub fn secret(pod_volume: &str) -> String {
    format!("{PRIVATE}/secret/{pod_volume}")
}

/// Name of the pod's volume that mounts the secret of a credential.
pub fn credential_volume(secret: &str) -> String {
    format!("{secret}-access-cred")
}

impl SeedPart {
    /// Name of the pod's volume that mounts the secret of a cloud-init volume: one volume may have
    /// two secrets.
    pub fn pod_volume(self, volume: &str) -> String {
        match self {
            Self::UserData => format!("{volume}-udata"),
            Self::NetworkData => format!("{volume}-ndata"),
        }
    }

    /// The directory of that secret.
    pub fn secret_directory(self, volume: &str) -> String {
        secret(&self.pod_volume(volume))
    }
}

/// The image of a cloud-init seed.
pub fn seed(namespace: &str, vmi: &str, format: CloudInitFormat) -> String {
    let file_name = match format {
        CloudInitFormat::NoCloud => "noCloud.iso",
        CloudInitFormat::ConfigDrive => "configdrive.iso",
    };
    format!("{EPHEMERAL_DISKS}/cloud-init-data/{namespace}/{vmi}/{file_name}")
}

/// The Ignition configuration of a guest.
pub fn ignition(namespace: &str, vmi: &str) -> String {
    format!("{EPHEMERAL_DISKS}/ignition-data/{namespace}/{vmi}/data.ign")
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

/// Devices of a client that a guest can have at a time.
pub const USB_SLOTS: usize = 4;

/// The socket of a USB device that a client redirects, by its slot.
pub fn usb_socket(vmi_uid: &str, slot: usize) -> String {
    format!("{PRIVATE}/{vmi_uid}/virt-usbredir-{slot}")
}

/// The EFI variables of a guest that does not keep them.
pub fn nvram(vmi: &str) -> String {
    format!("{LIBVIRT_QEMU}/nvram/{vmi}_VARS.fd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launcher_listens_in_the_mounted_directory() {
        let socket = launcher_channel::SOCKET_PATH;
        let parent = socket.rsplit_once('/').map(|(parent, _)| parent);
        assert_eq!(parent, Some(SOCKETS));
    }

    #[test]
    fn helper_for_reservations_is_in_its_mounted_directory() {
        let parent = RESERVATIONS_SOCKET.rsplit_once('/');
        assert_eq!(parent.map(|(parent, _)| parent), Some(RESERVATIONS));
    }

    #[test]
    fn disk_with_metrics_is_in_its_mounted_directory() {
        let parent = DOWNWARD_METRICS_DISK.rsplit_once('/');
        assert_eq!(parent.map(|(parent, _)| parent), Some(DOWNWARD_METRICS));
    }

    #[test]
    fn launcher_knows_hotplugged_disks_and_hooks_by_their_directories() {
        assert_eq!(launcher_channel::HOTPLUG_DISKS, HOTPLUG_DISKS);
        assert_eq!(launcher_channel::HOOKS, HOOKS);
        let parent = launcher_channel::ATTACHMENT_SOCKET.rsplit_once('/');
        assert_eq!(parent.map(|(parent, _)| parent), Some(ATTACHMENT));
    }
}
