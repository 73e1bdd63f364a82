//! How the volumes of a guest would be migrated, and which of them prevent it.

use kubevirt_api::{
    VirtualMachineInstance, vmi_status::VirtualMachineInstanceMigrationMethod, volumes::Volume,
};

use reasons::Reason;

use super::Obstacle;

const READ_WRITE_MANY: &str = "ReadWriteMany";

/// The result for all volumes.
#[derive(Debug)]
pub(super) struct Assessment {
    pub(super) obstacle: Option<Obstacle>,
    pub(super) method: VirtualMachineInstanceMigrationMethod,
}

pub(super) fn assess(vmi: &VirtualMachineInstance) -> Assessment {
    use VirtualMachineInstanceMigrationMethod::{BlockMigration, LiveMigration};
    let migrated = vmi.status.as_ref().map(|status| &status.migrated_volumes);
    let is_migrated = |name: &str| {
        migrated
            .into_iter()
            .flatten()
            .any(|volume| volume.volume_name == name)
    };
    let mut assessment = Assessment {
        obstacle: None,
        method: LiveMigration,
    };
    if migrated.is_some_and(|list| !list.is_empty()) {
        assessment.method = BlockMigration;
    }
    for volume in vmi
        .spec
        .volumes
        .iter()
        .filter(|volume| is_writable(vmi, volume))
    {
        let name = &volume.name;
        let obstacle = match classify(volume) {
            Storage::Claim if is_migrated(name) || is_shared(vmi, name) => continue,
            Storage::Claim => {
                Some("is on a persistent volume claim without access mode ReadWriteMany")
            }
            Storage::HostDisk { shared: true } => continue,
            Storage::HostDisk { shared: false } => Some("is stored on the node"),
            Storage::Copied => None,
        };
        assessment.method = BlockMigration;
        if let (Some(problem), None) = (obstacle, &assessment.obstacle) {
            assessment.obstacle = Some(Obstacle {
                reason: Reason::DisksNotLiveMigratable,
                message: format!("volume {name} {problem}"),
            });
        }
    }
    assessment
}

/// How a volume is migrated.
enum Storage {
    /// A persistent volume claim.
    Claim,
    HostDisk {
        shared: bool,
    },
    /// Belongs to the pod and is copied during the migration.
    Copied,
}

fn classify(volume: &Volume) -> Storage {
    if volume.persistent_volume_claim.is_some() || volume.data_volume.is_some() {
        return Storage::Claim;
    }
    match &volume.host_disk {
        Some(disk) => Storage::HostDisk {
            shared: disk.shared == Some(true),
        },
        None => Storage::Copied,
    }
}

/// Whether the guest can write the volume through a disk; others need no migration.
fn is_writable(vmi: &VirtualMachineInstance, volume: &Volume) -> bool {
    let devices = &vmi.spec.domain.devices;
    let mut disks = devices.disks.iter().filter(|disk| disk.name == volume.name);
    match disks.next() {
        Some(disk) => {
            let read_only = disk.disk.as_ref().and_then(|disk| disk.readonly) == Some(true);
            disk.cdrom.is_none() && !read_only
        }
        None => devices
            .filesystems
            .iter()
            .all(|shared| shared.name != volume.name),
    }
}

fn is_shared(vmi: &VirtualMachineInstance, volume: &str) -> bool {
    let status = vmi.status.as_ref();
    let found = status
        .into_iter()
        .flat_map(|status| &status.volume_status)
        .find(|one| one.name == volume);
    let claim = found.and_then(|one| one.persistent_volume_claim_info.as_ref());
    claim.is_some_and(|claim| {
        claim
            .access_modes
            .iter()
            .any(|mode| mode == READ_WRITE_MANY)
    })
}
