//! Devices of the node that the guest drives itself, as the VMI requests them.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::devices::VgpuOptions;

/// An element of `gpus` or `hostDevices`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDevice<'a> {
    pub list: HostDeviceList,
    /// Position in its list.
    pub index: usize,
    pub name: &'a str,
    pub source: DeviceSource<'a>,
    /// What the VMI says about the screen of a virtual GPU.
    pub display: Option<Display>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostDeviceList {
    Gpus,
    HostDevices,
}

/// Where the device comes from; admission refuses devices with none or with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceSource<'a> {
    /// A resource that a device plugin offers.
    Resource(&'a str),
    /// A request in one of the VMI's resource claims.
    Claim {
        claim: &'a str,
        request: Option<&'a str>,
    },
    Missing,
}

/// The screen of a virtual GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Display {
    pub is_enabled: bool,
    /// Whether the VMI turns it on by name: options that leave it to the default ask for no screen where
    /// the device has none.
    pub is_explicit: bool,
    /// A picture before the guest's driver is loaded.
    pub has_boot_picture: bool,
}

impl<'a> HostDevice<'a> {
    /// GPUs first; devices of one resource are allocated in this order.
    pub(crate) fn all(vmi: &'a VirtualMachineInstance) -> Vec<Self> {
        let devices = &vmi.spec.domain.devices;
        let gpus = devices.gpus.iter().enumerate();
        let gpus = gpus.map(|(index, gpu)| Self {
            list: HostDeviceList::Gpus,
            index,
            name: &gpu.name,
            source: DeviceSource::of(
                gpu.device_name.as_deref(),
                gpu.claim_name.as_deref(),
                gpu.request_name.as_deref(),
            ),
            display: gpu.virtual_gpu_options.as_ref().and_then(Display::of),
        });
        let others = devices.host_devices.iter().enumerate();
        let others = others.map(|(index, device)| Self {
            list: HostDeviceList::HostDevices,
            index,
            name: &device.name,
            source: DeviceSource::of(
                device.device_name.as_deref(),
                device.claim_name.as_deref(),
                device.request_name.as_deref(),
            ),
            display: None,
        });
        gpus.chain(others).collect()
    }

    /// Path of one of its members in the VMI.
    pub fn field(&self, member: &str) -> String {
        let list = match self.list {
            HostDeviceList::Gpus => "gpus",
            HostDeviceList::HostDevices => "hostDevices",
        };
        format!("spec.domain.devices.{list}[{}].{member}", self.index)
    }
}

impl<'a> DeviceSource<'a> {
    fn of(resource: Option<&'a str>, claim: Option<&'a str>, request: Option<&'a str>) -> Self {
        let given = |text: Option<&'a str>| text.filter(|text| !text.is_empty());
        match (given(resource), given(claim)) {
            (Some(resource), _) => Self::Resource(resource),
            (None, Some(claim)) => Self::Claim {
                claim,
                request: given(request),
            },
            (None, None) => Self::Missing,
        }
    }
}

impl Display {
    /// Both are on unless the VMI turns them off.
    fn of(options: &VgpuOptions) -> Option<Self> {
        let display = options.display.as_ref()?;
        let is_enabled = display.enabled != Some(false);
        let picture = display.ram_fb.as_ref();
        Some(Self {
            is_enabled,
            is_explicit: display.enabled == Some(true),
            has_boot_picture: is_enabled
                && picture.is_none_or(|picture| picture.enabled != Some(false)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn devices(devices: Value) -> VirtualMachineInstance {
        let mut vmi = json!({"spec": {"domain": {}}});
        vmi["spec"]["domain"]["devices"] = devices;
        serde_json::from_value(vmi).expect("a VMI")
    }

    #[test]
    fn gpus_come_before_host_devices() {
        let vmi = devices(json!({
            "hostDevices": [{"name": "stick", "deviceName": "a/usb"}],
            "gpus": [{"name": "x", "deviceName": ""}, {"name": "card", "claimName": "c", "requestName": "r"}],
        }));
        let all = HostDevice::all(&vmi);
        let described: Vec<_> = all
            .iter()
            .map(|one| (one.field("deviceName"), one.source))
            .collect();
        let path = |end: &str| format!("spec.domain.devices.{end}.deviceName");
        let claim = DeviceSource::Claim {
            claim: "c",
            request: Some("r"),
        };
        assert_eq!(
            described,
            [
                (path("gpus[0]"), DeviceSource::Missing),
                (path("gpus[1]"), claim),
                (path("hostDevices[0]"), DeviceSource::Resource("a/usb")),
            ]
        );
    }

    #[test]
    fn screen_of_a_virtual_gpu_is_on_unless_turned_off() {
        for (options, expected) in [
            (json!(null), None),
            (json!({}), None),
            (json!({"display": {}}), Some((true, false, true))),
            (
                json!({"display": {"enabled": true, "ramFB": {"enabled": false}}}),
                Some((true, true, false)),
            ),
            (
                json!({"display": {"enabled": false, "ramFB": {"enabled": true}}}),
                Some((false, false, false)),
            ),
        ] {
            let vmi = devices(json!({"gpus": [{"name": "g", "virtualGPUOptions": options}]}));
            let display = HostDevice::all(&vmi)[0].display;
            let found = display.map(|one| (one.is_enabled, one.is_explicit, one.has_boot_picture));
            assert_eq!(found, expected, "{options}");
        }
    }
}
