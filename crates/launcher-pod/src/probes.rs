//! Probes: those that go over the network reach the guest by the pod's address; the others run a
//! program in the pod that asks the guest's agent.

use k8s_openapi::api::core::v1::{self, ExecAction};
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi::Probe;

/// A guest needs longer to answer than a process.
const EXTRA_DELAY: i32 = 10;
/// What the program in the pod gets on top of what the guest gets.
const EXTRA_TIME: i32 = 1;
const PROGRAM: &str = "virt-probe";
const USUAL_TIMEOUT: i32 = 1;

pub(crate) fn render(vmi: &VirtualMachineInstance, probe: Option<&Probe>) -> Option<v1::Probe> {
    let probe = probe?;
    let timeout = probe.timeout_seconds.filter(|seconds| *seconds > 0);
    let command = command(vmi, probe, timeout.unwrap_or(USUAL_TIMEOUT));
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
            Some(timeout.unwrap_or(USUAL_TIMEOUT).saturating_add(EXTRA_TIME))
        } else {
            probe.timeout_seconds
        },
        period_seconds: probe.period_seconds,
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        ..v1::Probe::default()
    })
}

fn command(vmi: &VirtualMachineInstance, probe: &Probe, timeout: i32) -> Option<Vec<String>> {
    let meta = &vmi.metadata;
    let domain = format!(
        "{}_{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    let mut words: Vec<String> = [
        PROGRAM,
        "--domainName",
        &domain,
        "--timeoutSeconds",
        &timeout.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(exec) = &probe.exec {
        let mut asked = exec.command.iter().flatten().cloned();
        words.extend(["--command".to_owned(), asked.next().unwrap_or_default()]);
        words.push("--".to_owned());
        words.extend(asked);
    } else if probe.guest_agent_ping.is_some() {
        words.push("--guestAgentPing".to_owned());
    } else {
        return None;
    }
    Some(words)
}
