//! Metrics of the node for the guest: where its launcher offers them. Pure.

use domain_xml::RenderError;
use launcher_channel::DownwardMetrics;
use model::{Supported, VolumeSource, paths};

/// `None` for a guest that does not ask for metrics.
pub(super) fn of(
    guest: &Supported<'_>,
    node: &str,
) -> Result<Option<DownwardMetrics>, RenderError> {
    let mut sources = guest.volumes.iter().map(|volume| volume.source);
    let has_disk = sources.any(|source| source == VolumeSource::DownwardMetrics);
    let has_port = guest.vmi.spec.domain.devices.downward_metrics.is_some();
    if !has_disk && !has_port {
        return Ok(None);
    }
    Ok(Some(DownwardMetrics {
        node: node.to_owned(),
        virtual_cpus: guest.topology.vcpus(),
        memory_bytes: domain_xml::memory_bytes(guest)?,
        disk: has_disk.then(|| paths::DOWNWARD_METRICS_DISK.to_owned()),
        port: has_port.then(|| paths::DOWNWARD_METRICS_SOCKET.to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use kubevirt_api::VirtualMachineInstance;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn metrics_are_offered_where_the_guest_asks_for_them() {
        let volume = || json!([{"name": "m", "downwardMetrics": {}}]);
        let disk = paths::DOWNWARD_METRICS_DISK;
        let port = paths::DOWNWARD_METRICS_SOCKET;
        for (devices, volumes, expected) in [
            (json!({}), json!([]), None),
            (
                json!({}),
                json!([{"name": "e", "emptyDisk": {"capacity": "1Gi"}}]),
                None,
            ),
            (json!({}), volume(), Some((Some(disk), None))),
            (
                json!({"downwardMetrics": {}}),
                json!([]),
                Some((None, Some(port))),
            ),
            (
                json!({"downwardMetrics": {}}),
                volume(),
                Some((Some(disk), Some(port))),
            ),
        ] {
            let found = metrics_of(&devices, &volumes);
            let places = found
                .as_ref()
                .map(|one| (one.disk.as_deref(), one.port.as_deref()));
            assert_eq!(places, expected, "{devices} {volumes}");
            if let Some(found) = found {
                let limits = (found.node.as_str(), found.virtual_cpus, found.memory_bytes);
                assert_eq!(limits, ("n1", 6, 128 << 20));
            }
        }
    }

    fn metrics_of(devices: &Value, volumes: &Value) -> Option<DownwardMetrics> {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {
            "domain": {
                "cpu": {"sockets": 2, "cores": 3},
                "memory": {"guest": "128Mi"},
                "devices": devices,
            },
            "volumes": volumes,
        }}))
        .unwrap();
        of(&Supported::of(&vmi).unwrap(), "n1").unwrap()
    }
}
