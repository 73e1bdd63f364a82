//! Settings of launcher pods from the administrator's configuration.

use kubevirt_api::cluster_config::{
    KubeVirtConfiguration, PermittedHostDevices, SupportContainerType,
    VirtualMachineInstanceProfile,
};

use crate::{Ratio, Settings};

/// The empty file name stands for the container runtime's own profile.
const RUNTIME_DEFAULT: &str = "";

impl Settings {
    /// These settings, with the administrator's in their place. Values that are empty or not numbers
    /// change nothing; admission refuses them.
    #[must_use]
    pub fn configured(mut self, written: &KubeVirtConfiguration) -> Self {
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(policy) = text(&written.image_pull_policy) {
            self.image_pull_policy = policy;
        }
        if let Some(ratio) = text(&written.additional_guest_memory_overhead_ratio)
            && let Ok(ratio) = Ratio::parse(&ratio)
        {
            self.overhead_ratio = ratio;
        }
        self.runtime_class = text(&written.default_runtime_class).or(self.runtime_class);
        self.selinux_type = text(&written.selinux_launcher_type).or(self.selinux_type);
        if let Some(developer) = &written.developer_configuration {
            self.node_selectors.extend(developer.node_selectors.clone());
            let verbosity = developer.log_verbosity.as_ref();
            self.log_verbosity = verbosity
                .and_then(|all| all.virt_launcher)
                .or(self.log_verbosity);
            let positive = |number: Option<i64>| {
                let number = u32::try_from(number?).ok();
                number.filter(|number| *number > 0)
            };
            if let Some(ratio) = positive(developer.cpu_allocation_ratio) {
                self.cpu_allocation_ratio = ratio;
            }
            if let Some(percent) = positive(developer.memory_overcommit) {
                self.memory_overcommit_percent = percent;
            }
        }
        let seccomp = written.seccomp_configuration.as_ref();
        if let Some(profile) = seccomp.and_then(|it| it.virtual_machine_instance_profile.as_ref()) {
            self.seccomp_profile = profile_of(profile).or(self.seccomp_profile);
        }
        if let Some(permitted) = &written.permitted_host_devices {
            self.permitted_devices = Some(names_of(permitted).into_iter().collect());
        }
        if let Some(network) = &written.network {
            self.binding_plugins.extend(network.binding.clone());
        }
        for helper in &written.support_container_resources {
            let own = match helper.type_ {
                SupportContainerType::ContainerDisk => &mut self.container_disk_resources,
                SupportContainerType::Sidecar => &mut self.hook_sidecar_resources,
                _ => continue,
            };
            *own = Some(helper.resources.clone());
        }
        self
    }
}

/// The file of a profile on the nodes; `None` is the runtime's own profile.
fn profile_of(profile: &VirtualMachineInstanceProfile) -> Option<String> {
    let file = profile.custom_profile.as_ref()?.localhost_profile.clone();
    file.filter(|file| file != RUNTIME_DEFAULT)
}

/// Resource names of the devices that guests may request.
fn names_of(permitted: &PermittedHostDevices) -> Vec<String> {
    let pci = permitted.pci_host_devices.iter();
    let mediated = permitted.mediated_devices.iter();
    let usb = permitted.usb.iter();
    pci.map(|one| one.resource_name.clone())
        .chain(mediated.map(|one| one.resource_name.clone()))
        .chain(usb.map(|one| one.resource_name.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Acceleration;

    fn defaults() -> Settings {
        Settings::defaults("launcher:1", Acceleration::Kvm)
    }

    fn configured(written: serde_json::Value) -> Settings {
        defaults().configured(&serde_json::from_value(written).expect("a configuration"))
    }

    #[test]
    fn every_configured_value_sets_its_setting() {
        type Change = fn(&mut Settings);
        let cases: [(serde_json::Value, Change); 12] = [
            (json!({"imagePullPolicy": "Always"}), |all| {
                all.image_pull_policy = "Always".to_owned();
            }),
            (
                json!({"additionalGuestMemoryOverheadRatio": "1.5"}),
                |all| all.overhead_ratio = Ratio::parse("1.5").expect("a number"),
            ),
            (json!({"defaultRuntimeClass": "kata"}), |all| {
                all.runtime_class = Some("kata".to_owned());
            }),
            (json!({"selinuxLauncherType": "spc_t"}), |all| {
                all.selinux_type = Some("spc_t".to_owned());
            }),
            (
                json!({"developerConfiguration": {"nodeSelectors": {"a": "b"}}}),
                |all| all.node_selectors = [("a".to_owned(), "b".to_owned())].into(),
            ),
            (
                json!({"developerConfiguration": {"cpuAllocationRatio": 4}}),
                |all| all.cpu_allocation_ratio = 4,
            ),
            (
                json!({"developerConfiguration": {"memoryOvercommit": 150}}),
                |all| all.memory_overcommit_percent = 150,
            ),
            (
                json!({"seccompConfiguration": {"virtualMachineInstanceProfile": {
                    "customProfile": {"localhostProfile": "vm.json"}}}}),
                |all| all.seccomp_profile = Some("vm.json".to_owned()),
            ),
            (
                json!({"permittedHostDevices": {
                    "pciHostDevices": [{"pciVendorSelector": "10de:1", "resourceName": "v/a"}],
                    "mediatedDevices": [{"mdevNameSelector": "m", "resourceName": "v/b"}],
                    "usb": [{"resourceName": "v/c"}]}}),
                |all| {
                    let names = ["v/a", "v/b", "v/c"].map(str::to_owned);
                    all.permitted_devices = Some(names.into());
                },
            ),
            (
                json!({"network": {"binding": {"mine": {"domainAttachmentType": "tap"}}}}),
                |all| {
                    let plugin = json!({"domainAttachmentType": "tap"});
                    let plugin = serde_json::from_value(plugin).expect("a plug-in");
                    all.binding_plugins.insert("mine".to_owned(), plugin);
                },
            ),
            (
                json!({"supportContainerResources": [
                    {"type": "virtiofs", "resources": {"limits": {"cpu": "7"}}},
                    {"type": "container-disk", "resources": {"limits": {"cpu": "2"}}}]}),
                |all| {
                    let given = json!({"limits": {"cpu": "2"}});
                    let given = serde_json::from_value(given).expect("resources");
                    all.container_disk_resources = Some(given);
                },
            ),
            (
                json!({"supportContainerResources": [
                    {"type": "sidecar", "resources": {"limits": {"cpu": "3"}}}]}),
                |all| {
                    let given = json!({"limits": {"cpu": "3"}});
                    let given = serde_json::from_value(given).expect("resources");
                    all.hook_sidecar_resources = Some(given);
                },
            ),
        ];
        for (written, change) in cases {
            let mut expected = defaults();
            change(&mut expected);
            assert_ne!(expected, defaults(), "{written}");
            assert_eq!(configured(written.clone()), expected, "{written}");
        }
    }

    #[test]
    fn empty_and_invalid_values_change_nothing() {
        for written in [
            json!({}),
            json!({"imagePullPolicy": "", "defaultRuntimeClass": "", "selinuxLauncherType": ""}),
            json!({"additionalGuestMemoryOverheadRatio": "much"}),
            json!({"developerConfiguration": {"cpuAllocationRatio": 0, "memoryOvercommit": -5}}),
            json!({"seccompConfiguration": {"virtualMachineInstanceProfile": {
                "customProfile": {"runtimeDefaultProfile": true}}}}),
        ] {
            assert_eq!(configured(written.clone()), defaults(), "{written}");
        }
    }

    #[test]
    fn empty_list_of_devices_permits_none() {
        let all = configured(json!({"permittedHostDevices": {}}));
        assert_eq!(all.permitted_devices, Some([].into()));
    }
}
