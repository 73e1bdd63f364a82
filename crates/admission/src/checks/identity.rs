//! Identity, scheduling and lifecycle of a guest.

use cluster_config::gates::Stage;
use kubevirt_api::{
    annotations, labels,
    vmi::{EvictionStrategy, StartStrategy},
};
use model::HookSidecar;
use validation::Violation;

use super::{
    input::{Input, Occasion, Origin, Requester, count, gate_is_off, given, repeated},
    names::{dns_label_problem, dns_subdomain_problem},
};

const ARCHITECTURES: &[&str] = &["amd64", "arm64", "s390x"];

pub(super) fn labels(input: &Input<'_>) -> Vec<Violation> {
    if input.requester == Requester::Component {
        return Vec::new();
    }
    labels::RESERVED_ON_VMI
        .iter()
        .filter(|key| input.labels.contains_key(**key))
        .map(|key| {
            Violation::not_supported(
                format!("{}.labels", input.metadata_path()),
                format!("label {key} is reserved for the system; remove it"),
            )
        })
        .collect()
}

pub(super) fn annotations(input: &Input<'_>) -> Vec<Violation> {
    [
        (annotations::IGNITION_DATA, "ExperimentalIgnitionSupport"),
        (annotations::HOOK_SIDECARS, "Sidecar"),
    ]
    .into_iter()
    .filter(|(key, gate)| input.annotations.contains_key(*key) && !input.config.has_gate(gate))
    .map(|(key, gate)| {
        Violation::invalid(
            format!("{}.annotations", input.metadata_path()),
            format!("annotation {key} {}", gate_is_off(gate)),
        )
    })
    .collect()
}

pub(super) fn hook_sidecars(input: &Input<'_>) -> Vec<Violation> {
    if !input.config.has_gate("Sidecar") {
        return Vec::new();
    }
    let problem = HookSidecar::all(Some(input.annotations)).err();
    problem
        .map(|problem| {
            Violation::invalid(
                format!("{}.annotations", input.metadata_path()),
                format!("annotation {}: {problem}", annotations::HOOK_SIDECARS),
            )
        })
        .into_iter()
        .collect()
}

pub(super) fn hostname(input: &Input<'_>) -> Vec<Violation> {
    given(input.spec.hostname.as_deref())
        .and_then(dns_label_problem)
        .map(|problem| input.invalid("hostname", problem))
        .into_iter()
        .collect()
}

pub(super) fn subdomain(input: &Input<'_>) -> Vec<Violation> {
    given(input.spec.subdomain.as_deref())
        .and_then(dns_subdomain_problem)
        .map(|problem| input.invalid("subdomain", problem))
        .into_iter()
        .collect()
}

pub(super) fn service_account(input: &Input<'_>) -> Vec<Violation> {
    given(input.spec.service_account_name.as_deref())
        .and_then(dns_subdomain_problem)
        .map(|problem| input.invalid("serviceAccountName", problem))
        .into_iter()
        .collect()
}

/// The pod runs as one service account, and the volume contains the token of that account.
pub(super) fn service_account_volume(input: &Input<'_>) -> Vec<Violation> {
    let Some(own) = given(input.spec.service_account_name.as_deref()) else {
        return Vec::new();
    };
    let volumes = input.spec.volumes.iter();
    volumes
        .filter_map(|volume| {
            given(
                volume
                    .service_account
                    .as_ref()?
                    .service_account_name
                    .as_deref(),
            )
        })
        .filter(|of_volume| *of_volume != own)
        .map(|of_volume| {
            let detail = format!("{own:?}, but a volume names {of_volume:?}; use the same account");
            input.invalid("serviceAccountName", detail)
        })
        .collect()
}

pub(super) fn architecture(input: &Input<'_>) -> Vec<Violation> {
    let name = input.architecture();
    if input.origin != Origin::Vmi || ARCHITECTURES.contains(&name) {
        return Vec::new();
    }
    let choices = ARCHITECTURES.join(", ");
    vec![input.invalid(
        "architecture",
        format!("{name:?} is unknown; use one of {choices}"),
    )]
}

/// A listed gate that was discontinued suggests that the administrator expects the feature.
pub(super) fn discontinued(input: &Input<'_>) -> Vec<Violation> {
    if input.occasion != Occasion::Creation {
        return Vec::new();
    }
    let interfaces = &input.spec.domain.devices.interfaces;
    let gates = input.config.gates.listed();
    gates
        .filter(|gate| gate.stage == Stage::Discontinued)
        .filter(|gate| match gate.name {
            "Macvtap" => interfaces.iter().any(|one| one.macvtap.is_some()),
            "Passt" | "PasstIPStackMigration" => interfaces.iter().any(|one| one.passt.is_some()),
            _ => false,
        })
        .map(|gate| {
            let name = gate.name;
            let detail = format!(
                "the feature gate {name} was discontinued with the binding that this guest uses; use \
                 another binding, such as masquerade: {{}}"
            );
            input.invalid("domain.devices.interfaces", detail)
        })
        .collect()
}

pub(super) fn eviction_strategy(input: &Input<'_>) -> Vec<Violation> {
    let strategy = input.spec.eviction_strategy.as_ref();
    let unknown = strategy.filter(|strategy| !strategy.is_known());
    unknown
        .map(|strategy| {
            let choices = EvictionStrategy::KNOWN.join(", ");
            let detail = format!("{:?} is unknown; use one of {choices}", strategy.as_str());
            input.invalid("evictionStrategy", detail)
        })
        .into_iter()
        .collect()
}

pub(super) fn start_strategy(input: &Input<'_>) -> Vec<Violation> {
    let Some(start) = &input.spec.start_strategy else {
        return Vec::new();
    };
    if *start != StartStrategy::Paused {
        let detail = format!(
            "{:?} is unknown; use Paused or leave it out",
            start.as_str()
        );
        return vec![input.invalid("startStrategy", detail)];
    }
    if input.spec.liveness_probe.is_some() {
        let detail = "a guest that starts paused would fail its livenessProbe; remove one of them";
        return vec![input.invalid("startStrategy", detail)];
    }
    Vec::new()
}

pub(super) fn grace_period(input: &Input<'_>) -> Vec<Violation> {
    input
        .spec
        .termination_grace_period_seconds
        .filter(|seconds| *seconds < 0)
        .map(|seconds| {
            let detail = format!("{seconds} is negative; use 0 (power off immediately) or more");
            input.invalid("terminationGracePeriodSeconds", detail)
        })
        .into_iter()
        .collect()
}

pub(super) fn resource_claims(input: &Input<'_>) -> Vec<Violation> {
    let claims = &input.spec.resource_claims;
    let mut found = Vec::new();
    for i in repeated(claims, |claim| &claim.name) {
        let detail = "another resource claim has this name; names must be unique";
        found.push(input.duplicate(&format!("resourceClaims[{i}].name"), detail));
    }
    for (i, claim) in claims.iter().enumerate() {
        let path = format!("resourceClaims[{i}]");
        if claim.name.is_empty() {
            let detail = "empty; give the resource claim a name for devices to refer to";
            found.push(input.required(&format!("{path}.name"), detail));
        } else if let Some(problem) = dns_label_problem(&claim.name) {
            found.push(input.invalid(&format!("{path}.name"), problem));
        }
        let sources = [
            ("resourceClaimName", claim.resource_claim_name.as_deref()),
            (
                "resourceClaimTemplateName",
                claim.resource_claim_template_name.as_deref(),
            ),
        ];
        let is_given = sources.map(|(_, name)| given(name).is_some());
        if count(&is_given) != 1 {
            let detail = "give exactly one of resourceClaimName and resourceClaimTemplateName";
            found.push(input.invalid(&path, detail));
        }
        for (field, name) in sources {
            if let Some(problem) = given(name).and_then(dns_subdomain_problem) {
                found.push(input.invalid(&format!("{path}.{field}"), problem));
            }
        }
    }
    found
}
