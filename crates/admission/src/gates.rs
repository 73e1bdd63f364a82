//! Feature gates: one table with stages, from which the defaults follow.
//!
//! Who needs a gate asks [`Gates::is_on`]. Names that are not in the table are always off.

use std::collections::BTreeSet;

use kubevirt_api::vmi::VirtualMachineInstanceSpec;

/// How far a feature has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless listed.
    Alpha,
    /// On unless listed as disabled.
    Beta,
    /// Always on; the name means nothing any more.
    Generally,
    /// Off unless listed, and going away.
    Deprecated,
    /// Gone: the name has no effect, and what it was for is refused.
    Discontinued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub stage: Stage,
}

use Stage::{Alpha, Beta, Deprecated, Discontinued, Generally};

/// Every gate.
pub const ALL: &[Gate] = &[
    gate("AlignCPUs", Alpha),
    gate("CPUManager", Alpha),
    gate("ConfigurableHypervisor", Alpha),
    gate("ContainerPathVolumes", Alpha),
    gate("CrossArchitectureVirtualization", Alpha),
    gate("DownwardMetrics", Alpha),
    gate("EnableVirtioFsStorageVolumes", Alpha),
    gate("ExperimentalIgnitionSupport", Alpha),
    gate("FirmwareAutoSelection", Alpha),
    gate("GraceIOVirtualization", Alpha),
    gate("HostDevices", Alpha),
    gate("HostDisk", Alpha),
    gate("HypervStrictCheck", Alpha),
    gate("IOMMUFD", Alpha),
    gate("IncrementalBackup", Alpha),
    gate("MigrationDowntimeTuning", Alpha),
    gate("MigrationStallDetection", Alpha),
    gate("NetworkDevicesWithDRA", Alpha),
    gate("OCIExport", Alpha),
    gate("ObjectGraph", Alpha),
    gate("PCINUMAAwareTopology", Alpha),
    gate("Plugins", Alpha),
    gate("PortRangesSpec", Alpha),
    gate("ReservedOverheadMemlock", Alpha),
    gate("Root", Alpha),
    gate("Sidecar", Alpha),
    gate("UtilityVolumes", Alpha),
    gate("VGPULiveMigration", Alpha),
    gate("VMStatsCollector", Alpha),
    gate("VSOCK", Alpha),
    gate("WorkloadEncryptionTDX", Alpha),
    gate("DecentralizedLiveMigration", Beta),
    gate("DeclarativeHotplugVolumes", Beta),
    gate("ExternalNetResourceInjection", Beta),
    gate("GPUsWithDRA", Beta),
    gate("HostDevicesWithDRA", Beta),
    gate("ImageVolume", Beta),
    gate("KubevirtSeccompProfile", Beta),
    gate("NodeRestriction", Beta),
    gate("OptOutRoleAggregation", Beta),
    gate("PasstBinding", Beta),
    gate("PodSecondaryInterfaceNamingUpgrade", Beta),
    gate("RebootPolicy", Beta),
    gate("Snapshot", Beta),
    gate("Template", Beta),
    gate("WorkloadEncryptionSEV", Beta),
    gate("AutoResourceLimitsGate", Generally),
    gate("BochsDisplayForEFIGuests", Generally),
    gate("CPUNodeDiscovery", Generally),
    gate("ClusterProfiler", Generally),
    gate("CommonInstancetypesDeploymentGate", Generally),
    gate("DisableCustomSELinuxPolicy", Generally),
    gate("DynamicPodInterfaceNaming", Generally),
    gate("EnableVirtioFsConfigVolumes", Generally),
    gate("ExpandDisks", Generally),
    gate("GPU", Generally),
    gate("HotplugNICs", Generally),
    gate("InstancetypeReferencePolicy", Generally),
    gate("LibvirtHooksServerAndClient", Generally),
    gate("LiveMigration", Generally),
    gate("LiveUpdateNADRef", Generally),
    gate("MigrationPriorityQueue", Generally),
    gate("NUMA", Generally),
    gate("NetworkBindingPlugins", Generally),
    gate("NonRoot", Generally),
    gate("PSA", Generally),
    gate("PanicDevices", Generally),
    gate("PersistentReservation", Generally),
    gate("SRIOVLiveMigration", Generally),
    gate("SecureExecution", Generally),
    gate("VMExport", Generally),
    gate("VMLiveUpdateFeatures", Generally),
    gate("VMPersistentState", Generally),
    gate("VideoConfig", Generally),
    gate("VmiMemoryOverheadReport", Generally),
    gate("VolumeMigration", Generally),
    gate("VolumesUpdateStrategy", Generally),
    gate("DisableMDEVConfiguration", Deprecated),
    gate("DockerSELinuxMCSWorkaround", Deprecated),
    gate("HotplugVolumes", Deprecated),
    gate("MultiArchitecture", Deprecated),
    gate("ExperimentalVirtiofsSupport", Discontinued),
    gate("Macvtap", Discontinued),
    gate("Passt", Discontinued),
    gate("PasstIPStackMigration", Discontinued),
];

const fn gate(name: &'static str, stage: Stage) -> Gate {
    Gate { name, stage }
}

/// What the administrator wrote about gates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    listed: BTreeSet<String>,
    disabled: BTreeSet<String>,
}

impl Gates {
    pub fn new(
        listed: impl IntoIterator<Item = String>,
        disabled: impl IntoIterator<Item = String>,
    ) -> Self {
        Self {
            listed: listed.into_iter().collect(),
            disabled: disabled.into_iter().collect(),
        }
    }

    pub fn is_on(&self, name: &str) -> bool {
        let is_listed = self.listed.contains(name);
        match find(name).map(|gate| gate.stage) {
            None | Some(Discontinued) => false,
            Some(Generally) => true,
            Some(Alpha | Deprecated) => is_listed,
            Some(Beta) => is_listed || !self.disabled.contains(name),
        }
    }

    pub fn is_listed(&self, name: &str) -> bool {
        self.listed.contains(name)
    }

    /// Names that the administrator listed and that are in the table.
    pub fn listed(&self) -> impl Iterator<Item = &'static Gate> + '_ {
        self.listed.iter().filter_map(|name| find(name))
    }

    /// What the administrator should know about the names listed.
    pub fn warnings(&self) -> Vec<String> {
        self.listed().filter_map(warning).collect()
    }
}

pub fn find(name: &str) -> Option<&'static Gate> {
    ALL.iter().find(|gate| gate.name == name)
}

fn warning(gate: &Gate) -> Option<String> {
    let name = gate.name;
    match gate.stage {
        Alpha | Beta => None,
        Generally => Some(format!(
            "feature gate {name} is always on by now; take it off the list"
        )),
        Deprecated => Some(format!(
            "feature gate {name} is deprecated and will go; {}",
            successor(name)
        )),
        Discontinued => Some(format!(
            "feature gate {name} was discontinued and has no effect; take it off the list"
        )),
    }
}

/// What to use instead of a deprecated gate.
fn successor(name: &str) -> &'static str {
    match name {
        "DisableMDEVConfiguration" => "use mediatedDevicesConfiguration.enabled: false instead",
        "HotplugVolumes" => {
            "use DeclarativeHotplugVolumes, which is on by default: edit the volumes of the VM"
        }
        _ => "do not rely on it",
    }
}

/// Warnings about deprecated gates that are listed and that this guest makes use of.
pub(crate) fn deprecated_in_use(
    spec: &VirtualMachineInstanceSpec,
    gates: &Gates,
    default_architecture: &str,
) -> Vec<String> {
    let is_hotpluggable = spec.volumes.iter().any(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        let data_volume = volume.data_volume.as_ref();
        claim.is_some_and(|claim| claim.hotpluggable == Some(true))
            || data_volume.is_some_and(|source| source.hotpluggable == Some(true))
    });
    let is_foreign = spec
        .architecture
        .as_deref()
        .is_some_and(|own| !own.is_empty() && own != default_architecture);
    gates
        .listed()
        .filter(|gate| gate.stage == Deprecated)
        .filter(|gate| match gate.name {
            "HotplugVolumes" => is_hotpluggable,
            "MultiArchitecture" => is_foreign,
            _ => false,
        })
        .filter_map(warning)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(listed: &[&str], disabled: &[&str]) -> Gates {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (listed, disabled): (Vec<String>, Vec<String>) = (owned(listed), owned(disabled));
        Gates::new(listed, disabled)
    }

    #[test]
    fn a_stage_says_what_listing_does() {
        for (name, unsaid, listed, disabled, both) in [
            ("HostDisk", false, true, false, true),
            ("Snapshot", true, true, false, true),
            ("LiveMigration", true, true, true, true),
            ("HotplugVolumes", false, true, false, true),
            ("Macvtap", false, false, false, false),
            ("Nonsense", false, false, false, false),
        ] {
            assert_eq!(gates(&[], &[]).is_on(name), unsaid, "{name}");
            assert_eq!(gates(&[name], &[]).is_on(name), listed, "{name}");
            assert_eq!(gates(&[], &[name]).is_on(name), disabled, "{name}");
            assert_eq!(gates(&[name], &[name]).is_on(name), both, "{name}");
        }
    }

    #[test]
    fn names_of_the_past_bring_warnings() {
        let found = gates(
            &["HostDisk", "Snapshot", "NUMA", "HotplugVolumes", "Passt"],
            &[],
        );
        let warnings = found.warnings().join("\n");
        assert_eq!(found.warnings().len(), 3, "{warnings}");
        for name in ["NUMA", "HotplugVolumes", "Passt"] {
            assert!(warnings.contains(name), "{warnings}");
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = ALL.iter().map(|gate| gate.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
