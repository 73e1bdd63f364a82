//! Translation of QEMU guest agent reports into API types: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    conditions::{self, ConditionValue},
    guest_agent::{
        GuestAgentCommandInfo, VirtualMachineInstanceFileSystem,
        VirtualMachineInstanceFileSystemDisk, VirtualMachineInstanceFileSystemInfo,
        VirtualMachineInstanceFileSystemList, VirtualMachineInstanceGuestAgentInfo,
        VirtualMachineInstanceGuestOSUserList, VirtualMachineInstanceGuestOsUser,
    },
    vmi_status::{
        VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Condition,
        VirtualMachineInstanceGuestOsInfo,
    },
};
use launcher_channel::{Agent, AgentCredentials, AgentFileSystem, AgentOs, AgentReport, AgentUser};

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
    use super::*;

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
