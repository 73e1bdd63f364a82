//! Translation of QEMU guest agent reports into API types: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, ConditionValue},
    guest_agent::{
        GuestAgentCommandInfo, VirtualMachineInstanceFileSystem,
        VirtualMachineInstanceFileSystemDisk, VirtualMachineInstanceFileSystemInfo,
        VirtualMachineInstanceFileSystemList, VirtualMachineInstanceGuestAgentInfo,
        VirtualMachineInstanceGuestOSUserList, VirtualMachineInstanceGuestOsUser,
    },
    vmi_status::{
        VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Condition,
        VirtualMachineInstanceGuestOsInfo, VirtualMachineInstanceNetworkInterface,
    },
};
use launcher_channel::{
    Agent, AgentCredentials, AgentFileSystem, AgentInterface, AgentOs, AgentReport, AgentUser,
};

/// Limit of interfaces in the status that only the guest agent reports.
const MAX_GUEST_ONLY_INTERFACES: usize = 10;

/// `None` if the report is empty: an empty map must not be applied.
pub(super) fn os_info(os: AgentOs) -> Option<VirtualMachineInstanceGuestOsInfo> {
    let info = os_to_api(os);
    (info != VirtualMachineInstanceGuestOsInfo::default()).then_some(info)
}

fn os_to_api(os: AgentOs) -> VirtualMachineInstanceGuestOsInfo {
    VirtualMachineInstanceGuestOsInfo {
        name: os.name,
        kernel_release: os.kernel_release,
        version: os.version,
        pretty_name: os.pretty_name,
        version_id: os.version_id,
        kernel_version: os.kernel_version,
        machine: os.machine,
        id: os.id,
    }
}

pub(super) fn set_conditions(
    list: &mut Vec<VirtualMachineInstanceCondition>,
    agent: Option<&Agent>,
    now: &Time,
) {
    let credentials = agent.and_then(|agent| agent.credentials.as_ref());
    set_credentials(list, credentials, now);
    let Some(agent) = agent else {
        conditions::remove(list, &Condition::AgentConnected);
        conditions::remove(list, &Condition::AgentVersionNotSupported);
        return;
    };
    conditions::set(
        list,
        Condition::AgentConnected,
        &ConditionValue::holds(),
        now,
    );
    if agent.missing.is_empty() {
        conditions::remove(list, &Condition::AgentVersionNotSupported);
    } else {
        let message = format!(
            "the guest agent does not support {}",
            agent.missing.join(", ")
        );
        let value = ConditionValue {
            message: &message,
            ..ConditionValue::holds()
        };
        conditions::set(list, Condition::AgentVersionNotSupported, &value, now);
    }
}

fn set_credentials(
    list: &mut Vec<VirtualMachineInstanceCondition>,
    credentials: Option<&AgentCredentials>,
    now: &Time,
) {
    let kind = Condition::AccessCredentialsSynchronized;
    let value = match credentials {
        // Without an agent the last result stays valid: the guest keeps its keys and passwords.
        None => return,
        Some(AgentCredentials::Set) => ConditionValue::holds(),
        Some(AgentCredentials::Failed(message)) => ConditionValue::fails("", message),
    };
    conditions::set(list, kind, &value, now);
}

/// The domain's interfaces, completed with the guest agent's report, and those that only the agent
/// reports.
pub(super) fn interfaces(
    vmi: &VirtualMachineInstance,
    domain: &[VirtualMachineInstanceNetworkInterface],
    agent: Option<&Agent>,
) -> Vec<VirtualMachineInstanceNetworkInterface> {
    let reported = agent.map_or(&[][..], |agent| &agent.interfaces);
    let mut all = domain.to_vec();
    let mut guest_only = Vec::new();
    for interface in reported {
        let same = |one: &&mut VirtualMachineInstanceNetworkInterface| {
            let mac = one.mac.as_ref().map(|mac| mac.to_lowercase());
            mac.is_some() && mac == interface.mac
        };
        match all.iter_mut().find(same) {
            Some(known) => {
                known.interface_name = Some(interface.name.clone());
                known.info_source = Some("domain, guest-agent".to_owned());
                // Behind address translation nothing outside reaches the guest's own address.
                if !is_masqueraded(vmi, known.name.as_deref()) {
                    known.ip_addresses.clone_from(&interface.addresses);
                    known.ip_address = interface.addresses.first().cloned();
                }
            }
            None if guest_only.len() < MAX_GUEST_ONLY_INTERFACES => {
                guest_only.push(guest_only_interface(interface));
            }
            None => {}
        }
    }
    all.extend(guest_only);
    all
}

fn is_masqueraded(vmi: &VirtualMachineInstance, name: Option<&str>) -> bool {
    let interfaces = &vmi.spec.domain.devices.interfaces;
    let found = interfaces
        .iter()
        .find(|one| Some(one.name.as_str()) == name);
    found.is_some_and(|interface| interface.masquerade.is_some())
}

fn guest_only_interface(interface: &AgentInterface) -> VirtualMachineInstanceNetworkInterface {
    VirtualMachineInstanceNetworkInterface {
        mac: interface.mac.clone(),
        ip_address: interface.addresses.first().cloned(),
        ip_addresses: interface.addresses.clone(),
        interface_name: Some(interface.name.clone()),
        info_source: Some("guest-agent".to_owned()),
        ..VirtualMachineInstanceNetworkInterface::default()
    }
}

/// The response of `guestosinfo`.
pub(crate) fn info(report: AgentReport) -> VirtualMachineInstanceGuestAgentInfo {
    let commands = report
        .commands
        .into_iter()
        .map(|command| GuestAgentCommandInfo {
            name: command.name,
            enabled: Some(command.enabled),
        });
    VirtualMachineInstanceGuestAgentInfo {
        guest_agent_version: report.version,
        supported_commands: commands.collect(),
        hostname: report.host_name,
        os: report.os.map(os_to_api),
        timezone: report.timezone,
        user_list: report.users.into_iter().map(user).collect(),
        fs_info: Some(VirtualMachineInstanceFileSystemInfo {
            disks: report.file_systems.into_iter().map(file_system).collect(),
        }),
        fs_freeze_status: report.freeze,
        ..VirtualMachineInstanceGuestAgentInfo::default()
    }
}

/// The response of `userlist`.
pub(crate) fn users(report: AgentReport) -> VirtualMachineInstanceGuestOSUserList {
    VirtualMachineInstanceGuestOSUserList {
        items: report.users.into_iter().map(user).collect(),
        ..VirtualMachineInstanceGuestOSUserList::default()
    }
}

/// The response of `filesystemlist`.
pub(crate) fn file_systems(report: AgentReport) -> VirtualMachineInstanceFileSystemList {
    VirtualMachineInstanceFileSystemList {
        items: report.file_systems.into_iter().map(file_system).collect(),
        ..VirtualMachineInstanceFileSystemList::default()
    }
}

fn user(user: AgentUser) -> VirtualMachineInstanceGuestOsUser {
    VirtualMachineInstanceGuestOsUser {
        user_name: user.name,
        domain: user.domain,
        login_time: user.login_time,
    }
}

fn file_system(file_system: AgentFileSystem) -> VirtualMachineInstanceFileSystem {
    let disks = file_system.disks.into_iter();
    VirtualMachineInstanceFileSystem {
        disk_name: file_system.device,
        mount_point: file_system.mount_point,
        file_system_type: file_system.kind,
        used_bytes: file_system.used_bytes,
        total_bytes: file_system.total_bytes,
        disk: disks
            .map(|disk| VirtualMachineInstanceFileSystemDisk {
                serial: disk.serial,
                bus_type: disk.bus,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi() -> VirtualMachineInstance {
        serde_json::from_value(json!({"spec": {"domain": {"devices": {"interfaces": [
            {"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}},
        ]}}}}))
        .unwrap()
    }

    fn domain(name: &str, mac: &str) -> VirtualMachineInstanceNetworkInterface {
        VirtualMachineInstanceNetworkInterface {
            name: Some(name.to_owned()),
            mac: Some(mac.to_owned()),
            ip_address: Some("10.244.0.5".to_owned()),
            ip_addresses: vec!["10.244.0.5".to_owned()],
            info_source: Some("domain".to_owned()),
            ..VirtualMachineInstanceNetworkInterface::default()
        }
    }

    fn reported(name: &str, mac: &str, address: &str) -> AgentInterface {
        AgentInterface {
            name: name.to_owned(),
            mac: Some(mac.to_owned()),
            addresses: vec![address.to_owned()],
        }
    }

    #[test]
    fn agent_adds_names_and_addresses_except_behind_masquerade() {
        let agent = Agent {
            interfaces: vec![
                reported("eth1", "02:00:00:00:00:0b", "192.168.1.7"),
                reported("eth0", "02:00:00:00:00:0a", "10.0.2.2"),
                reported("docker0", "02:42:00:00:00:01", "172.17.0.1"),
            ],
            ..Agent::default()
        };
        let known = [
            domain("default", "02:00:00:00:00:0A"),
            domain("lan", "02:00:00:00:00:0b"),
        ];
        let all = interfaces(&vmi(), &known, Some(&agent));
        let lines: Vec<_> = all
            .iter()
            .map(|one| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                [
                    &one.name,
                    &one.interface_name,
                    &one.ip_address,
                    &one.info_source,
                ]
                .map(text)
                .join(" ")
            })
            .collect();
        assert_eq!(
            lines,
            [
                "default eth0 10.244.0.5 domain, guest-agent",
                "lan eth1 192.168.1.7 domain, guest-agent",
                " docker0 172.17.0.1 guest-agent",
            ]
        );
        assert_eq!(interfaces(&vmi(), &known, None), known);
    }

    #[test]
    fn number_of_guest_only_interfaces_is_bounded() {
        let agent = Agent {
            interfaces: vec![reported("x", "02:00:00:00:00:ff", "10.0.0.1"); 64],
            ..Agent::default()
        };
        assert_eq!(
            interfaces(&vmi(), &[], Some(&agent)).len(),
            MAX_GUEST_ONLY_INTERFACES
        );
    }

    #[test]
    fn credentials_are_reported_and_stay_without_an_agent() {
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        let kind = Condition::AccessCredentialsSynchronized;
        let with = |credentials| Agent {
            credentials: Some(credentials),
            ..Agent::default()
        };
        let mut list = Vec::new();
        set_conditions(&mut list, Some(&Agent::default()), &now);
        assert!(conditions::find(&list, &kind).is_none());
        let failed = with(AgentCredentials::Failed("no such user".to_owned()));
        set_conditions(&mut list, Some(&failed), &now);
        let found = conditions::find(&list, &kind).unwrap();
        assert_eq!(found.message.as_deref(), Some("no such user"));
        assert!(!conditions::is_true(&list, &kind));
        set_conditions(&mut list, Some(&with(AgentCredentials::Set)), &now);
        set_conditions(&mut list, None, &now);
        assert!(conditions::is_true(&list, &kind));
    }

    #[test]
    fn conditions_follow_the_guest_agent() {
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        let mut list = Vec::new();
        set_conditions(&mut list, Some(&Agent::default()), &now);
        assert!(conditions::is_true(&list, &Condition::AgentConnected));
        assert!(conditions::find(&list, &Condition::AgentVersionNotSupported).is_none());
        let old = Agent {
            missing: vec!["guest-get-users".to_owned()],
            ..Agent::default()
        };
        set_conditions(&mut list, Some(&old), &now);
        let condition = conditions::find(&list, &Condition::AgentVersionNotSupported).unwrap();
        assert_eq!(
            condition.message.as_deref(),
            Some("the guest agent does not support guest-get-users")
        );
        set_conditions(&mut list, None, &now);
        assert!(list.is_empty());
    }
}
