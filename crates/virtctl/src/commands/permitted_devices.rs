//! `permitted-devices`: host devices that VMs may use.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{cli::Output, connect::Cluster, objects, printer::Printer};

const HOST_DEVICES: [&str; 2] = ["pciHostDevices", "usb"];
const GPUS: [&str; 1] = ["mediatedDevices"];

pub(crate) async fn permitted_devices(
    cluster: &Cluster,
    printer: Printer,
    output: Option<Output>,
) -> Result<()> {
    let installations = objects::list(cluster, &objects::KUBEVIRT.everywhere()).await?;
    if let Some(output) = output {
        let devices = json!({
            "hostDevices": names(&installations, &HOST_DEVICES),
            "gpuDevices": names(&installations, &GPUS),
        });
        return printer.object(output.into(), &devices);
    }
    for line in lines(&installations) {
        printer.line(&line);
    }
    Ok(())
}

fn lines(installations: &[Value]) -> Vec<String> {
    let mut lines = vec!["Permitted Devices:".to_owned(), "Host Devices:".to_owned()];
    lines.extend(names(installations, &HOST_DEVICES));
    lines.push("GPU Devices:".to_owned());
    lines.extend(names(installations, &GPUS));
    lines
}

/// The names of resources in these lists.
fn names(installations: &[Value], lists: &[&str]) -> Vec<String> {
    let mut names = vec![];
    for installation in installations {
        let permitted = &installation["spec"]["configuration"]["permittedHostDevices"];
        for list in lists {
            let devices = permitted[*list].as_array().into_iter().flatten();
            names.extend(devices.filter_map(|device| device["resourceName"].as_str()));
        }
    }
    names.into_iter().map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
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
