//! The `KubeVirt` object, which describes an installation.
//!
//! All settings are checked at creation as well as at each change, so that an old mistake does not
//! block an unrelated change later.

mod request;

mod certificates;
mod placement;
mod tls;

use kubevirt_api::{
    cluster_config::RoleAggregationStrategy,
    kubevirt::{KubeVirt, KubeVirtPhase, KubeVirtUninstallStrategy},
};
use validation::{Rule, Subject, Violation};

use self::request::{CONFIGURATION, Request, configuration, own_config};
use super::{
    kind::{Check, Kind, Operation, Problem},
    migration_policy,
    related::Lookup,
};

impl Kind for KubeVirt {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "kubevirt.alone",
            Subject::KubeVirt,
            "a cluster has one installation",
            is_only_installation,
        ),
        Rule::new(
            "kubevirt.patches",
            Subject::KubeVirt,
            "patches are JSON",
            patches,
        ),
        Rule::new(
            "kubevirt.certificates-mixed",
            Subject::KubeVirt,
            "current and deprecated certificate settings are not combined",
            certificates::mixed,
        ),
        Rule::new(
            "kubevirt.certificates-durations",
            Subject::KubeVirt,
            "lifetimes of certificates are durations",
            certificates::durations,
        ),
        Rule::new(
            "kubevirt.certificates-renewal",
            Subject::KubeVirt,
            "certificates are renewed within their lifetime",
            certificates::renewal,
        ),
        Rule::new(
            "kubevirt.certificates-order",
            Subject::KubeVirt,
            "no certificate outlives its CA",
            certificates::order,
        ),
        Rule::new(
            "kubevirt.memory-overhead",
            Subject::KubeVirt,
            "the memory overhead ratio is at least 1",
            memory_overhead,
        ),
        Rule::new(
            "kubevirt.template-gate",
            Subject::KubeVirt,
            "templates need the gate Template",
            template_gate,
        ),
        Rule::new(
            "kubevirt.roles-gate",
            Subject::KubeVirt,
            "manual roles need the gate OptOutRoleAggregation",
            roles_gate,
        ),
        Rule::new(
            "kubevirt.downtime-gate",
            Subject::KubeVirt,
            "migrations.maxDowntimeMs needs one of its feature gates",
            downtime_gate,
        ),
        Rule::new(
            "kubevirt.tls-minimum",
            Subject::KubeVirt,
            "ciphers are configurable up to TLS 1.2 only",
            tls::minimum,
        ),
        Rule::new(
            "kubevirt.tls-ciphers",
            Subject::KubeVirt,
            "ciphers are known",
            tls::ciphers,
        ),
        Rule::new(
            "kubevirt.placement",
            Subject::KubeVirt,
            "placement of components is valid for pods",
            placement::check,
        ),
        Rule::new(
            "kubevirt.seccomp",
            Subject::KubeVirt,
            "exactly one seccomp profile is set",
            seccomp,
        ),
        Rule::new(
            "kubevirt.replicas",
            Subject::KubeVirt,
            "the number of replicas is positive",
            replicas,
        ),
        Rule::new(
            "kubevirt.gates-twice",
            Subject::KubeVirt,
            "no gate is both enabled and disabled",
            gates_twice,
        ),
    ];

    const DELETION: &'static [Rule<Check<Self>>] = &[Rule::new(
        "kubevirt.delete",
        Subject::KubeVirt,
        "existing workloads can block the removal",
        removal,
    )];

    fn lookups(request: &Request<'_>) -> Vec<Lookup> {
        match request.operation {
            Operation::Create => vec![Lookup::Installations],
            Operation::Update => Vec::new(),
            Operation::Delete => vec![Lookup::Workloads],
        }
    }

    fn warnings(request: &Request<'_>) -> Vec<String> {
        if request.operation == Operation::Delete {
            return Vec::new();
        }
        let configuration = configuration(request);
        let mut found = own_config(request).gates.warnings();
        let devices = configuration.mediated_devices_configuration;
        let architectures = configuration.architecture_configuration;
        if devices.is_some_and(|devices| {
            let nodes = devices.node_mediated_device_types.iter();
            !devices.mediated_devices_types.is_empty()
                || nodes
                    .into_iter()
                    .any(|node| !node.mediated_devices_types.is_empty())
        }) {
            found.push(format!(
                "mediatedDevicesTypes of {CONFIGURATION}.mediatedDevicesConfiguration is \
                 deprecated; use mediatedDeviceTypes"
            ));
        }
        if architectures.is_some_and(|architectures| architectures.ppc64le.is_some()) {
            found.push(format!(
                "{CONFIGURATION}.architectureConfiguration.ppc64le has no effect; remove it"
            ));
        }
        found
    }
}

fn is_only_installation(request: &Request<'_>) -> Vec<Problem> {
    let other = request
        .related
        .installations
        .first()
        .filter(|_| request.is_create());
    let problem = other.map(|other| {
        Problem::Request(format!(
            "KubeVirt {other} exists already; a cluster can have only one, so change that one"
        ))
    });
    problem.into_iter().collect()
}

fn removal(request: &Request<'_>) -> Vec<Problem> {
    let blocks = request.new.spec.uninstall_strategy.as_ref()
        == Some(&KubeVirtUninstallStrategy::BlockUninstallIfWorkloadsExist);
    let phase = request
        .new
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    let is_deployed = phase == Some(&KubeVirtPhase::Deployed);
    let left = &request.related.workloads;
    if !blocks || !is_deployed || left.is_empty() {
        return Vec::new();
    }
    vec![Problem::Request(format!(
        "there are still {}, and spec.uninstallStrategy is BlockUninstallIfWorkloadsExist; delete \
         them first, or set the strategy to RemoveWorkloads",
        left.join(", ")
    ))]
}

fn patches(request: &Request<'_>) -> Vec<Problem> {
    let components = request.new.spec.customize_components.iter();
    let patches = components.flat_map(|components| components.patches.iter().enumerate());
    let problems = patches.filter_map(|(i, patch)| {
        let error = serde_json::from_str::<serde_json::Value>(&patch.patch).err()?;
        let field = format!("spec.customizeComponents.patches[{i}].patch");
        let detail = format!("invalid JSON ({error}); write the patch as JSON text");
        Some(Violation::not_supported(field, detail).into())
    });
    problems.collect()
}

fn memory_overhead(request: &Request<'_>) -> Vec<Problem> {
    let Some(ratio) = configuration(request).additional_guest_memory_overhead_ratio else {
        return Vec::new();
    };
    if ratio.is_empty()
        || ratio
            .parse::<f64>()
            .is_ok_and(|ratio| ratio >= 1.0 && ratio.is_finite())
    {
        return Vec::new();
    }
    let field = format!("{CONFIGURATION}.additionalGuestMemoryOverheadRatio");
    let detail = format!("{ratio:?} must be a number of 1 or more, such as \"1.2\"");
    vec![Violation::not_supported(field, detail).into()]
}

fn template_gate(request: &Request<'_>) -> Vec<Problem> {
    let deployment = configuration(request).virt_template_deployment;
    if deployment.is_none_or(|deployment| deployment.enabled != Some(true)) {
        return Vec::new();
    }
    requires_gate(request, "Template", "virtTemplateDeployment.enabled")
}

fn roles_gate(request: &Request<'_>) -> Vec<Problem> {
    let strategy = configuration(request).role_aggregation_strategy;
    if strategy != Some(RoleAggregationStrategy::Manual) {
        return Vec::new();
    }
    requires_gate(request, "OptOutRoleAggregation", "roleAggregationStrategy")
}

fn requires_gate(request: &Request<'_>, gate: &str, field: &str) -> Vec<Problem> {
    if own_config(request).has_gate(gate) {
        return Vec::new();
    }
    let detail =
        format!("needs feature gate {gate}, which is off; leave it out or enable the gate");
    vec![Violation::invalid(format!("{CONFIGURATION}.{field}"), detail).into()]
}

fn downtime_gate(request: &Request<'_>) -> Vec<Problem> {
    let downtime = |kubevirt: &KubeVirt| {
        let configuration = kubevirt.spec.configuration.as_ref();
        configuration?.migrations.as_ref()?.max_downtime_ms
    };
    migration_policy::downtime(
        &format!("{CONFIGURATION}.migrations"),
        request.old.and_then(downtime),
        downtime(request.new),
        &own_config(request),
    )
}

fn seccomp(request: &Request<'_>) -> Vec<Problem> {
    let seccomp = configuration(request).seccomp_configuration;
    let Some(profile) = seccomp.and_then(|seccomp| seccomp.virtual_machine_instance_profile) else {
        return Vec::new();
    };
    let field = format!("{CONFIGURATION}.seccompConfiguration.virtualMachineInstanceProfile");
    let Some(custom) = profile.custom_profile else {
        let detail =
            "customProfile is missing; give localhostProfile or runtimeDefaultProfile in it";
        return vec![Violation::invalid(field, detail).into()];
    };
    let is_default = custom.runtime_default_profile == Some(true);
    if custom.localhost_profile.is_none() || !is_default {
        return Vec::new();
    }
    let detail = "localhostProfile and runtimeDefaultProfile are both set; choose one";
    vec![Violation::invalid(format!("{field}.customProfile"), detail).into()]
}

fn replicas(request: &Request<'_>) -> Vec<Problem> {
    let infra = request.new.spec.infra.as_ref();
    if infra.and_then(|infra| infra.replicas) != Some(0) {
        return Vec::new();
    }
    let detail = "0 would stop all requests; use 1 or more, or leave it out";
    vec![Violation::invalid("spec.infra.replicas", detail).into()]
}

fn gates_twice(request: &Request<'_>) -> Vec<Problem> {
    let developer = configuration(request)
        .developer_configuration
        .unwrap_or_default();
    let both = developer
        .feature_gates
        .iter()
        .filter(|gate| developer.disabled_feature_gates.contains(gate));
    let problems = both.map(|gate| {
        let field = format!("{CONFIGURATION}.developerConfiguration.featureGates");
        let detail = format!("{gate} is in disabledFeatureGates, too; remove it from one list");
        Violation::forbidden(field, detail).into()
    });
    problems.collect()
}
