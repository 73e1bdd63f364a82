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
