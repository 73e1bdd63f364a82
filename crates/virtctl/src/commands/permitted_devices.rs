//! `permitted-devices`: host devices that VMs may use.

use anyhow::Result;
use serde_json::Value;

use crate::{connect::Cluster, objects, printer::Printer};

pub(crate) async fn permitted_devices(cluster: &Cluster, printer: Printer) -> Result<()> {
    let installations = objects::list(cluster, &objects::KUBEVIRT.everywhere()).await?;
    for line in lines(&installations) {
        printer.line(&line);
    }
    Ok(())
}

fn lines(installations: &[Value]) -> Vec<String> {
    let names = |lists: &[&str]| {
        let mut names = vec![];
        for installation in installations {
            let permitted = &installation["spec"]["configuration"]["permittedHostDevices"];
            for list in lists {
                let devices = permitted[*list].as_array().into_iter().flatten();
                names.extend(devices.filter_map(|device| device["resourceName"].as_str()));
            }
        }
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let mut lines = vec!["Permitted Devices:".to_owned(), "Host Devices:".to_owned()];
    lines.extend(names(&["pciHostDevices", "usb"]));
    lines.push("GPU Devices:".to_owned());
    lines.extend(names(&["mediatedDevices"]));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_are_listed_by_resource_name() {
        let devices = json!({
            "pciHostDevices": [{"resourceName": "a/nic"}],
            "usb": [{"resourceName": "b/stick"}],
            "mediatedDevices": [{"resourceName": "c/gpu"}],
        });
        let installation = json!({"spec": {"configuration": {"permittedHostDevices": devices}}});
        let expected = [
            "Permitted Devices:",
            "Host Devices:",
            "a/nic",
            "b/stick",
            "GPU Devices:",
            "c/gpu",
        ];
        assert_eq!(lines(&[installation]), expected);
        assert_eq!(lines(&[]).len(), 3);
    }
}
