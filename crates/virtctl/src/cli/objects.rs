//! Commands that read or change objects, or use a subresource of a VM.

use clap::Subcommand;

use super::Output;
use crate::commands::{
    backup::Backup,
    credentials::Credentials,
    expand::Expand,
    expose::Expose,
    guestfs::Guestfs,
    image_upload::ImageUpload,
    log_verbosity::Adm,
    logs::Logs,
    memory_dump::MemoryDump,
    migrate::{EvacuateCancel, Migrate, MigrateCancel},
    object_graph::ObjectGraph,
    run_vm::Run,
    template::Template,
    top::Top,
    usbredir::UsbRedir,
    vm_export::VmExport,
    volumes::{AddVolume, RemoveVolume},
};

#[derive(Debug, Subcommand)]
pub enum ObjectCommand {
    /// Make a service for ports of a guest
    #[command(after_help = "\
Examples:
  virtctl expose vm myvm --name myvm-ssh --port 22 --type NodePort
  virtctl expose vmirs workers --name workers --port 80 --target-port 8080")]
    Expose(Expose),
    /// Show a VM with the fields of its instance type and preference
    #[command(
        after_help = "Examples:\n  virtctl expand --vm myvm\n  virtctl expand --file myvm.yaml -o json"
    )]
    Expand(Expand),
    /// Change the SSH keys and passwords of a guest
    Credentials(Credentials),
    /// List the host devices that VMs may use
    #[command(after_help = "Example: virtctl permitted-devices -o yaml")]
    PermittedDevices {
        /// Format of the list, instead of lines
        #[arg(long, short, value_enum, value_name = "FORMAT")]
        output: Option<Output>,
    },
    /// Administer the installation
    Adm(Adm),
    /// Show what a guest has written to its serial console since its start
    #[command(after_help = "Example: virtctl logs myvm --follow\n\n\
                      The VM needs logSerialConsole: true under spec.template.spec.domain.devices. \
                      Requires the right to read logs of pods.")]
    Logs(Logs),
    /// Make a VM with its disk and key, and wait until one can log in
    #[command(after_help = "\
Examples:
  virtctl run debian --image quay.io/containerdisks/debian:13 --username debian
  virtctl run web --image https://example.org/debian.qcow2 --size 20Gi --memory 2Gi
  virtctl run test --image quay.io/containerdisks/cirros --console
  virtctl run mine --image ./debian.qcow2

The image must have cloud-init, which gets the key. The address of a disk image needs an importer of data \
volumes in the cluster. A file is uploaded first; its data volume stays when the VM is deleted.")]
    Run(Box<Run>),
    /// Show CPU, memory, disk and network of guests, live
    #[command(after_help = "\
Examples:
  virtctl top
  virtctl top myvm --interval 5
  virtctl top -A -o json | jq -r '.[] | \"\\(.name) \\(.cpuMillicores)\"'

CPU is in percent of one CPU, memory what QEMU has on the node. On a terminal the table is printed again \
until the command is ended; otherwise once. Requires the right to read usage of VMIs, which the role view \
has.")]
    Top(Top),
    /// Open a shell with tools for disks and file systems beside a claim
    #[command(after_help = "\
Example: virtctl guestfs data --vm myvm

Starts a pod with the tools of libguestfs. It has a claim with a file system at /disk, and one in block mode as \
/dev/vda. The pod is removed when the shell ends. No other pod may use the claim: stop the VM first, and start \
it after the end of the shell. Without a terminal, the commands are read from standard input.")]
    Guestfs(Guestfs),
    /// Upload a disk image into a data volume or claim
    #[command(after_help = "\
Examples:
  virtctl image-upload dv debian --size 10Gi --image-path debian.qcow2
  virtctl image-upload pvc files --size 1Gi --archive-path files.tar --uploadproxy-url https://upload.example.org

Works on a single host, and on a cluster with CDI.")]
    ImageUpload(Box<ImageUpload>),
    /// Make, delete and download exports of VMs, snapshots and claims
    #[command(name = "vmexport")]
    VmExport(Box<VmExport>),
    /// Back up running VMs to claims, list backups, and restore them
    Backup(Backup),
    /// Make VMs of templates, and templates of VMs
    Template(Template),
    /// Attach a volume to a running guest
    #[command(
        name = "addvolume",
        after_help = "Example: virtctl addvolume myvm --volume-name data --serial 1234"
    )]
    AddVolume(AddVolume),
    /// Detach a volume from a running guest
    #[command(
        name = "removevolume",
        after_help = "Example: virtctl removevolume myvm --volume-name data"
    )]
    RemoveVolume(RemoveVolume),
    /// Dump the memory of a guest into a claim, and download the dump
    #[command(
        after_help = "Example: virtctl memory-dump get myvm --claim-name dump --create-claim"
    )]
    MemoryDump(MemoryDump),
    /// Move a guest to another node, or to another pod on a single host, while it runs
    #[command(after_help = "Example: virtctl migrate myvm")]
    Migrate(Migrate),
    /// Stop the migration of a guest
    #[command(after_help = "Example: virtctl migrate-cancel myvm")]
    MigrateCancel(MigrateCancel),
    /// Let guests stay on a node that they were to leave
    #[command(after_help = "Example: virtctl evacuate-cancel vm myvm")]
    EvacuateCancel(EvacuateCancel),
    /// Show the objects that a VM consists of and depends on
    #[command(
        name = "objectgraph",
        after_help = "Example: virtctl objectgraph myvm --exclude-optional -o yaml"
    )]
    ObjectGraph(ObjectGraph),
    /// Connect a USB device of this computer to a guest
    #[command(after_help = "Example: virtctl usbredir 0951:1666 myvm\n\n\
                      The guest needs spec.domain.devices.clientPassthrough.")]
    Usbredir(UsbRedir),
}
