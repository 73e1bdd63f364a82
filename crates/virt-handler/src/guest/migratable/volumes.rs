//! How the volumes of a guest would be migrated, and which of them prevent it.

use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstanceMigrationMethod};
use model::{Guest, Storage, Target, VolumeMoves, VolumeSource};

use reasons::Reason;

use super::{Obstacle, Reach};

const READ_WRITE_MANY: &str = "ReadWriteMany";

/// The result for all volumes.
#[derive(Debug)]
pub(super) struct Assessment {
    pub(super) obstacle: Option<Obstacle>,
    pub(super) method: VirtualMachineInstanceMigrationMethod,
}

pub(super) fn assess(vmi: &VirtualMachineInstance, reach: Reach) -> Assessment {
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
    let guest = Guest::of(vmi);
    let volumes = guest.volumes.iter();
    for volume in volumes.filter(|volume| is_writable(&guest, volume.name)) {
        let name = volume.name;
        let obstacle = match volume.source.storage() {
            // Both pods have the same files.
            Storage::Claim(_) | Storage::Host(_) if reach == Reach::OwnNode => continue,
            Storage::Claim(_) if is_migrated(name) || is_shared(vmi, name) => continue,
            Storage::Claim(_) => {
                Some("is on a persistent volume claim without access mode ReadWriteMany")
            }
            Storage::Host(disk) if disk.is_shared => continue,
            Storage::Host(_) => Some("is stored on the node"),
            // Copied during the migration.
            Storage::OverlaidClaim(_) | Storage::Pod => None,
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

/// The disks that the migration copies to other claims, by their names in the guest.
pub(crate) fn moved_disks(vmi: &VirtualMachineInstance) -> Vec<String> {
    let moves = claims_left(vmi);
    let status = vmi.status.iter();
    let all = status.flat_map(|status| &status.volume_status);
    all.filter(|volume| !volume.target.is_empty() && moves.contains_key(&volume.name))
        .map(|volume| volume.target.clone())
        .collect()
}

/// The disks that are copied to the other pod, by their names in the guest.
pub(crate) fn copied_disks(vmi: &VirtualMachineInstance) -> Vec<String> {
    let guest = Guest::of(vmi);
    let moves = claims_left(vmi);
    let is_copied = |name: &str| {
        if moves.contains_key(name) {
            return true;
        }
        let mut volumes = guest.volumes.iter();
        let volume = volumes.find(|volume| volume.name == name);
        volume.is_some_and(|volume| {
            is_writable(&guest, name)
                && matches!(
                    volume.source.storage(),
                    Storage::OverlaidClaim(_) | Storage::Pod
                )
        })
    };
    let status = vmi.status.iter();
    let all = status.flat_map(|status| &status.volume_status);
    all.filter(|volume| !volume.target.is_empty() && is_copied(&volume.name))
        .map(|volume| volume.target.clone())
        .collect()
}

/// The volumes whose claims the guest leaves: for others of its VMI, or for those of another VMI.
fn claims_left(vmi: &VirtualMachineInstance) -> VolumeMoves {
    if model::migration_end(vmi).is_some() {
        model::written_claims(vmi)
    } else {
        model::carried_volumes(vmi)
    }
}

/// Whether the guest can write the volume through a disk; others need no migration.
fn is_writable(guest: &Guest<'_>, volume: &str) -> bool {
    let source = guest.volume(volume).map(|volume| volume.source);
    // The launcher of each pod writes its own.
    if source == Some(VolumeSource::DownwardMetrics) {
        return false;
    }
    let mut disks = guest.disks.iter();
    match disks.find(|disk| disk.name() == volume) {
        Some(disk) => match disk.target {
            Target::Disk => !disk.is_read_only,
            Target::Lun { .. } => true,
            Target::CdRom { .. } => false,
        },
        None => !guest.is_filesystem(volume),
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
