//! Probes: network probes reach the guest at the pod's address; the others run a program in the pod
//! that calls the guest agent.

use k8s_openapi::api::core::v1::{self, ExecAction};
use kubevirt_api::vmi::Probe;
use model::Guest;

/// Seconds of initial delay added, since a guest starts slower than a process.
const EXTRA_DELAY: i32 = 10;
/// Seconds that the program in the pod gets beyond the timeout of the command in the guest.
const EXTRA_TIME: i32 = 1;
const PROGRAM: &str = "virt-probe";
const DEFAULT_TIMEOUT: i32 = 1;
/// Flag of the program in a pod that a guest migrates to.
const AWAITS_GUEST: &str = "--awaitsGuest";

/// Lets the probes of a pod succeed until the guest has come from another pod.
pub(crate) fn await_guest(container: &mut v1::Container) {
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    for probe in probes.into_iter().flatten() {
        let command = probe.exec.as_mut().and_then(|exec| exec.command.as_mut());
        if let Some(command) =
            command.filter(|command| command.first().is_some_and(|program| program == PROGRAM))
        {
            command.insert(1, AWAITS_GUEST.to_owned());
        }
    }
}

pub(crate) fn render(guest: &Guest<'_>, probe: Option<&Probe>) -> Option<v1::Probe> {
    let probe = probe?;
    let timeout = probe.timeout_seconds.filter(|seconds| *seconds > 0);
    let command = command(guest, probe, timeout.unwrap_or(DEFAULT_TIMEOUT));
    let has_own_timeout = command.is_some() && probe.exec.is_some();
    Some(v1::Probe {
        http_get: probe.http_get.clone(),
        tcp_socket: probe.tcp_socket.clone(),
        exec: command.map(|command| ExecAction {
            command: Some(command),
        }),
        initial_delay_seconds: Some(
            probe
                .initial_delay_seconds
                .unwrap_or(0)
                .saturating_add(EXTRA_DELAY),
        ),
        timeout_seconds: if has_own_timeout {
            Some(
                timeout
                    .unwrap_or(DEFAULT_TIMEOUT)
                    .saturating_add(EXTRA_TIME),
            )
        } else {
            probe.timeout_seconds
        },
        period_seconds: probe.period_seconds,
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        ..v1::Probe::default()
    })
}

fn command(guest: &Guest<'_>, probe: &Probe, timeout: i32) -> Option<Vec<String>> {
    let mut arguments: Vec<String> = [
        PROGRAM,
        "--domainName",
        &guest.domain_name(),
        "--timeoutSeconds",
        &timeout.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(exec) = &probe.exec {
        let mut command = exec.command.iter().flatten().cloned();
        arguments.extend(["--command".to_owned(), command.next().unwrap_or_default()]);
        arguments.push("--".to_owned());
        arguments.extend(command);
    } else if probe.guest_agent_ping.is_some() {
        arguments.push("--guestAgentPing".to_owned());
    } else {
        return None;
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn probes_by_the_agent_await_the_guest_of_a_migration() {
        let exec = |words: &[&str]| json!({"exec": {"command": words}});
        let probes = |agent: &[&str]| -> v1::Container {
            serde_json::from_value(json!({
                "name": "compute",
                "livenessProbe": exec(agent),
                "readinessProbe": exec(&["other"]),
                "startupProbe": {"tcpSocket": {"port": 22}},
            }))
            .unwrap()
        };
        let mut container = probes(&["virt-probe", "--domainName", "n_a", "--command", "x", "--"]);
        await_guest(&mut container);
        let words = [
            "virt-probe",
            "--awaitsGuest",
            "--domainName",
            "n_a",
            "--command",
            "x",
            "--",
        ];
        assert_eq!(container, probes(&words));
    }
}
