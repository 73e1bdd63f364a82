//! Probes that reach the guest over the network, by way of the pod's address.

use k8s_openapi::api::core::v1;
use kubevirt_api::vmi::Probe;

use crate::PodError;

/// A guest needs longer to answer than a process.
const EXTRA_DELAY: i32 = 10;

pub(crate) fn render(field: &str, probe: Option<&Probe>) -> Result<Option<v1::Probe>, PodError> {
    let Some(probe) = probe else { return Ok(None) };
    if probe.exec.is_some() {
        return Err(PodError::unsupported(format!("{field}.exec")));
    }
    if probe.guest_agent_ping.is_some() {
        return Err(PodError::unsupported(format!("{field}.guestAgentPing")));
    }
    Ok(Some(v1::Probe {
        http_get: probe.http_get.clone(),
        tcp_socket: probe.tcp_socket.clone(),
        initial_delay_seconds: Some(probe.initial_delay_seconds.unwrap_or(0) + EXTRA_DELAY),
        timeout_seconds: probe.timeout_seconds,
        period_seconds: probe.period_seconds,
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        ..v1::Probe::default()
    }))
}
