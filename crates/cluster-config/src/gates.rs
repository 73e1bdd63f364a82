//! Feature gates: one table with the stage of each; the stage implies the default.
//!
//! Gates that are not in the table are always off.

use std::collections::BTreeSet;

/// Maturity of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless listed.
    Alpha,
    /// On unless listed as disabled.
    Beta,
    /// Generally available: always on; listing the gate has no effect.
    Ga,
    /// Off unless listed; will be removed.
    Deprecated,
    /// Removed: listing the gate has no effect, and the fields it enabled are refused.
    Discontinued,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    pub name: &'static str,
    pub stage: Stage,
}

use Stage::{Alpha, Beta, Deprecated, Discontinued, Ga};

/// All gates.
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
    gate("SuspendToClaim", Alpha),
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
    gate("AutoResourceLimitsGate", Ga),
    gate("BochsDisplayForEFIGuests", Ga),
    gate("CPUNodeDiscovery", Ga),
    gate("ClusterProfiler", Ga),
    gate("CommonInstancetypesDeploymentGate", Ga),
    gate("DisableCustomSELinuxPolicy", Ga),
    gate("DynamicPodInterfaceNaming", Ga),
    gate("EnableVirtioFsConfigVolumes", Ga),
    gate("ExpandDisks", Ga),
    gate("GPU", Ga),
    gate("HotplugNICs", Ga),
    gate("InstancetypeReferencePolicy", Ga),
    gate("LibvirtHooksServerAndClient", Ga),
    gate("LiveMigration", Ga),
    gate("LiveUpdateNADRef", Ga),
    gate("MigrationPriorityQueue", Ga),
    gate("NUMA", Ga),
    gate("NetworkBindingPlugins", Ga),
    gate("NonRoot", Ga),
    gate("PSA", Ga),
    gate("PanicDevices", Ga),
    gate("PersistentReservation", Ga),
    gate("SRIOVLiveMigration", Ga),
    gate("SecureExecution", Ga),
    gate("VMExport", Ga),
    gate("VMLiveUpdateFeatures", Ga),
    gate("VMPersistentState", Ga),
    gate("VideoConfig", Ga),
    gate("VmiMemoryOverheadReport", Ga),
    gate("VolumeMigration", Ga),
    gate("VolumesUpdateStrategy", Ga),
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

/// The gates that the administrator enabled and disabled.
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
            Some(Ga) => true,
            Some(Alpha | Deprecated) => is_listed,
            Some(Beta) => is_listed || !self.disabled.contains(name),
        }
    }

    pub fn is_listed(&self, name: &str) -> bool {
        self.listed.contains(name)
    }

    /// The known gates that the administrator listed.
    pub fn listed(&self) -> impl Iterator<Item = &'static Gate> + '_ {
        self.listed.iter().filter_map(|name| find(name))
    }

    /// Warnings about listed gates that have no effect or will be removed.
    pub fn warnings(&self) -> Vec<String> {
        self.listed().filter_map(Gate::warning).collect()
    }
}

pub fn find(name: &str) -> Option<&'static Gate> {
    ALL.iter().find(|gate| gate.name == name)
}

impl Gate {
    /// Warning for an administrator who lists the gate.
    pub fn warning(&self) -> Option<String> {
        let name = self.name;
        match self.stage {
            Alpha | Beta => None,
            Ga => Some(format!(
                "feature gate {name} is always on; remove it from the list"
            )),
            Deprecated => Some(format!(
                "feature gate {name} is deprecated and will be removed; {}",
                replacement(name)
            )),
            Discontinued => Some(format!(
                "feature gate {name} was discontinued and has no effect; remove it from the list"
            )),
        }
    }
}

/// The remedy for a deprecated gate.
fn replacement(name: &str) -> &'static str {
    match name {
        "DisableMDEVConfiguration" => "use mediatedDevicesConfiguration.enabled: false instead",
        "HotplugVolumes" => {
            "use DeclarativeHotplugVolumes, which is on by default: edit the volumes of the VM"
        }
        _ => "do not rely on it",
    }
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
    fn stage_determines_the_effect_of_listing_a_gate() {
        for (name, default, listed, disabled, both) in [
            ("HostDisk", false, true, false, true),
            ("Snapshot", true, true, false, true),
            ("LiveMigration", true, true, true, true),
            ("HotplugVolumes", false, true, false, true),
            ("Macvtap", false, false, false, false),
            ("Nonsense", false, false, false, false),
        ] {
            assert_eq!(gates(&[], &[]).is_on(name), default, "{name}");
            assert_eq!(gates(&[name], &[]).is_on(name), listed, "{name}");
            assert_eq!(gates(&[], &[name]).is_on(name), disabled, "{name}");
            assert_eq!(gates(&[name], &[name]).is_on(name), both, "{name}");
        }
    }

    #[test]
    fn listing_an_outdated_gate_is_a_warning() {
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
