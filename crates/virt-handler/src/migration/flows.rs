//! Through how many connections the memory of a guest flows, and whether it is packed: pure.

use kubevirt_api::{
    VirtualMachineInstance,
    migration::{MigrationCompression as Wanted, VmimConfigurationOptions},
    quantity::Amount,
};
use launcher_channel::MigrationCompression;

use super::limits::{allows_post_copy, bandwidth_mib};

/// Connections of a guest whose processor time has no limit, as in `KubeVirt`.
const CONNECTIONS: u8 = 8;

/// How memory flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flows {
    /// Besides the one for all else; 0 for that one alone.
    pub(super) connections: u8,
    pub(super) compression: MigrationCompression,
}

impl Flows {
    const ONE: Self = Self {
        connections: 0,
        compression: MigrationCompression::None,
    };
}

/// Each connection has a thread of QEMU in both pods. They would take the time of a guest whose pod has a limit, or
/// whose CPUs are for it alone; such a guest gets one, if its memory is to be packed. QEMU does not combine several
/// connections with post-copy, and is not known to keep a limit of the bandwidth with them, so these go before.
pub(super) fn flows(
    vmi: &VirtualMachineInstance,
    written: Option<&VmimConfigurationOptions>,
) -> Flows {
    if allows_post_copy(written) || bandwidth_mib(written).is_some() {
        return Flows::ONE;
    }
    let experimental = written.and_then(|all| all.experimental.as_ref());
    let wanted = experimental.and_then(|options| options.compression.as_ref());
    let compression = if wanted == Some(&Wanted::Zstd) {
        MigrationCompression::Zstd
    } else {
        MigrationCompression::None
    };
    let connections = match (has_no_spare_cpu(vmi), compression) {
        (false, _) => CONNECTIONS,
        (true, MigrationCompression::Zstd) => 1,
        (true, MigrationCompression::None) => 0,
    };
    Flows {
        connections,
        compression,
    }
}

fn has_no_spare_cpu(vmi: &VirtualMachineInstance) -> bool {
    let domain = &vmi.spec.domain;
    let cpu = domain.cpu.as_ref();
    if cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true)) {
        return true;
    }
    let resources = domain.resources.as_ref();
    let limit = resources.and_then(|resources| resources.limits.get("cpu"));
    // One that is not readable counts as a limit.
    limit.is_some_and(|limit| Amount::parse(limit).map_or(true, |amount| amount.millis() > 0))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn memory_flows_through_several_connections_unless_something_forbids_it() {
        use MigrationCompression::{None, Zstd};
        let zstd = || json!({"experimental": {"compression": "zstd"}});
        let limited = || json!({"resources": {"limits": {"cpu": "2"}}});
        let dedicated = || json!({"cpu": {"dedicatedCpuPlacement": true}});
        let none = || json!({});
        let with = |mut all: Value, name: &str, value: Value| {
            all[name] = value;
            all
        };
        for (domain, settings, connections, compression) in [
            (none(), none(), 8, None),
            (none(), zstd(), 8, Zstd),
            (
                none(),
                json!({"experimental": {"compression": "none"}}),
                8,
                None,
            ),
            (
                none(),
                json!({"experimental": {"compression": "lz4"}}),
                8,
                None,
            ),
            (limited(), none(), 0, None),
            (limited(), zstd(), 1, Zstd),
            (dedicated(), none(), 0, None),
            (dedicated(), zstd(), 1, Zstd),
            (
                json!({"resources": {"limits": {"cpu": "0", "memory": "1Gi"}}}),
                none(),
                8,
                None,
            ),
            (none(), json!({"allowPostCopy": true}), 0, None),
            (none(), with(zstd(), "allowPostCopy", json!(true)), 0, None),
            (
                none(),
                json!({"allowPostCopy": true, "allowWorkloadDisruption": false}),
                8,
                None,
            ),
            (
                none(),
                with(zstd(), "bandwidthPerMigration", json!("64Mi")),
                0,
                None,
            ),
            (none(), json!({"bandwidthPerMigration": "0Mi"}), 8, None),
        ] {
            let vmi = json!({"spec": {"domain": domain}});
            let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
            let written: VmimConfigurationOptions =
                serde_json::from_value(settings.clone()).unwrap();
            let expected = Flows {
                connections,
                compression,
            };
            assert_eq!(flows(&vmi, Some(&written)), expected, "{domain} {settings}");
        }
    }
}
