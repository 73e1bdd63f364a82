//! Liveness and readiness probes.

use validation::Violation;

use super::input::{Input, count};

pub(super) fn probes(input: &Input<'_>) -> Vec<Violation> {
    let has_pod_network = input
        .spec
        .networks
        .iter()
        .any(|network| network.pod.is_some());
    let probes = [
        ("readinessProbe", &input.spec.readiness_probe),
        ("livenessProbe", &input.spec.liveness_probe),
    ];
    let mut found = Vec::new();
    for (field, probe) in probes {
        let Some(probe) = probe else { continue };
        let by_network = probe.http_get.is_some() || probe.tcp_socket.is_some();
        let given = [
            probe.exec.is_some(),
            probe.guest_agent_ping.is_some(),
            probe.http_get.is_some(),
            probe.tcp_socket.is_some(),
        ];
        match count(&given) {
            1 => {}
            0 => {
                let detail = "no check; give httpGet, tcpSocket, exec or guestAgentPing";
                found.push(input.required(field, detail));
            }
            _ => found.push(input.invalid(field, "several checks; choose one")),
        }
        if by_network && !has_pod_network {
            let detail = "httpGet and tcpSocket need the pod network; add a network with pod: {}";
            found.push(input.invalid(field, detail));
        }
    }
    found
}
