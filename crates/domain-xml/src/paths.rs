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
