//! The object that describes an installation.
//!
//! Its settings are checked when it is made as well as when it is changed, so that nobody learns
//! of an old mistake at an unrelated change.

mod certificates;
mod placement;
mod tls;

use kubevirt_api::{
    cluster_config::{KubeVirtConfiguration, RoleAggregationStrategy},
    kubevirt::{KubeVirt, KubeVirtPhase, KubeVirtUninstallStrategy},
};

use super::{Asked, Check, Fault, Kind, Need, Operation, migration_policy};
use crate::{ClusterConfig, Violation, rules::Rule};

type Question<'a> = Asked<'a, KubeVirt>;

const CONFIGURATION: &str = "spec.configuration";

impl Kind for KubeVirt {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new("kubevirt.alone", "4", "there is one installation", is_alone),
        Rule::new("kubevirt.patches", "4", "patches are JSON", patches),
        Rule::new(
            "kubevirt.certificates-mixed",
            "4",
            "old and new fields of certificates are not mixed",
            certificates::mixed,
        ),
        Rule::new(
            "kubevirt.certificates-durations",
            "4",
            "lives of certificates are durations",
            certificates::durations,
        ),
        Rule::new(
            "kubevirt.certificates-renewal",
            "4",
            "certificates are renewed within their lives",
            certificates::renewal,
        ),
        Rule::new(
            "kubevirt.certificates-order",
            "4",
            "no certificate outlives its authority",
            certificates::order,
        ),
        Rule::new(
            "kubevirt.memory-overhead",
            "4",
            "the ratio of memory overhead is a number from 1",
            memory_overhead,
        ),
        Rule::new(
            "kubevirt.template-gate",
            "4",
            "templates need the gate Template",
            template_gate,
        ),
        Rule::new(
            "kubevirt.roles-gate",
            "4",
            "manual roles need the gate OptOutRoleAggregation",
            roles_gate,
        ),
        Rule::new(
            "kubevirt.downtime-gate",
            "4",
            "migrations.maxDowntimeMs needs one of its gates",
            downtime_gate,
        ),
        Rule::new(
            "kubevirt.tls-minimum",
            "4",
            "ciphers are chosen up to TLS 1.2 only",
            tls::minimum,
        ),
        Rule::new(
            "kubevirt.tls-ciphers",
            "4",
            "ciphers are known",
            tls::ciphers,
        ),
        Rule::new(
            "kubevirt.placement",
            "4",
            "components are placed as Kubernetes allows",
            placement::check,
        ),
        Rule::new(
            "kubevirt.seccomp",
            "4",
            "one seccomp profile is chosen",
            seccomp,
        ),
        Rule::new(
            "kubevirt.replicas",
            "4",
            "components have replicas",
            replicas,
        ),
        Rule::new(
            "kubevirt.gates-twice",
            "4",
            "no gate is on and off",
            gates_twice,
        ),
    ];

    const REMOVAL: &'static [Rule<Check<Self>>] = &[Rule::new(
        "kubevirt.delete",
        "4",
        "workloads may hold back the removal",
        removal,
    )];

    fn needs(asked: &Question<'_>) -> Vec<Need> {
        match asked.operation {
            Operation::Create => vec![Need::Installations],
            Operation::Update => Vec::new(),
            Operation::Delete => vec![Need::Workloads],
        }
    }

    fn warnings(asked: &Question<'_>) -> Vec<String> {
        if asked.operation == Operation::Delete {
            return Vec::new();
        }
        let configuration = configuration(asked);
        let mut found = own_gates(asked).gates.warnings();
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

fn configuration(asked: &Question<'_>) -> KubeVirtConfiguration {
    asked.new.spec.configuration.clone().unwrap_or_default()
}

/// The gates that this very object sets.
fn own_gates(asked: &Question<'_>) -> ClusterConfig {
    ClusterConfig::from_kubevirt(&configuration(asked))
}

fn is_alone(asked: &Question<'_>) -> Vec<Fault> {
    let other = asked.among.installations.first().filter(|_| asked.is_new());
    let fault = other.map(|other| {
        Fault::Plain(format!(
            "KubeVirt {other} exists already, and a cluster has one; change that one"
        ))
    });
    fault.into_iter().collect()
}

fn removal(asked: &Question<'_>) -> Vec<Fault> {
    let blocks = asked.new.spec.uninstall_strategy.as_ref()
        == Some(&KubeVirtUninstallStrategy::BlockUninstallIfWorkloadsExist);
    let phase = asked
        .new
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    let is_deployed = phase == Some(&KubeVirtPhase::Deployed);
    let left = &asked.among.workloads;
    if !blocks || !is_deployed || left.is_empty() {
        return Vec::new();
    }
    vec![Fault::Plain(format!(
        "there are still {}, and spec.uninstallStrategy is BlockUninstallIfWorkloadsExist; delete \
         them first, or set it to RemoveWorkloads",
        left.join(", ")
    ))]
}

fn patches(asked: &Question<'_>) -> Vec<Fault> {
    let components = asked.new.spec.customize_components.iter();
    let patches = components.flat_map(|components| components.patches.iter().enumerate());
    let faults = patches.filter_map(|(i, patch)| {
        let error = serde_json::from_str::<serde_json::Value>(&patch.patch).err()?;
        let field = format!("spec.customizeComponents.patches[{i}].patch");
        let detail = format!("no JSON ({error}); write the patch as JSON text");
        Some(Violation::not_supported(field, detail).into())
    });
    faults.collect()
}

fn memory_overhead(asked: &Question<'_>) -> Vec<Fault> {
    let Some(ratio) = configuration(asked).additional_guest_memory_overhead_ratio else {
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

fn template_gate(asked: &Question<'_>) -> Vec<Fault> {
    let deployment = configuration(asked).virt_template_deployment;
    let is_wanted = deployment.is_some_and(|deployment| deployment.enabled == Some(true));
    gated(
        asked,
        is_wanted,
        "Template",
        "virtTemplateDeployment.enabled",
    )
}

fn roles_gate(asked: &Question<'_>) -> Vec<Fault> {
    let is_wanted =
        configuration(asked).role_aggregation_strategy == Some(RoleAggregationStrategy::Manual);
    gated(
        asked,
        is_wanted,
        "OptOutRoleAggregation",
        "roleAggregationStrategy",
    )
}

fn gated(asked: &Question<'_>, is_wanted: bool, gate: &str, field: &str) -> Vec<Fault> {
    if !is_wanted || own_gates(asked).has_gate(gate) {
        return Vec::new();
    }
    let detail = format!("needs feature gate {gate}, which is off; leave it out or switch it on");
    vec![Violation::invalid(format!("{CONFIGURATION}.{field}"), detail).into()]
}

fn downtime_gate(asked: &Question<'_>) -> Vec<Fault> {
    let downtime = |kubevirt: &KubeVirt| {
        let configuration = kubevirt.spec.configuration.as_ref();
        configuration?.migrations.as_ref()?.max_downtime_ms
    };
    migration_policy::downtime(
        &format!("{CONFIGURATION}.migrations"),
        asked.old.and_then(downtime),
        downtime(asked.new),
        &own_gates(asked),
    )
}

fn seccomp(asked: &Question<'_>) -> Vec<Fault> {
    let seccomp = configuration(asked).seccomp_configuration;
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
    let detail = "localhostProfile together with runtimeDefaultProfile; choose one";
    vec![Violation::invalid(format!("{field}.customProfile"), detail).into()]
}

fn replicas(asked: &Question<'_>) -> Vec<Fault> {
    let infra = asked.new.spec.infra.as_ref();
    if infra.and_then(|infra| infra.replicas) != Some(0) {
        return Vec::new();
    }
    let detail = "0 would leave nobody to answer; use 1 or more, or leave it out";
    vec![Violation::invalid("spec.infra.replicas", detail).into()]
}

fn gates_twice(asked: &Question<'_>) -> Vec<Fault> {
    let developer = configuration(asked)
        .developer_configuration
        .unwrap_or_default();
    let both = developer
        .feature_gates
        .iter()
        .filter(|gate| developer.disabled_feature_gates.contains(gate));
    let faults = both.map(|gate| {
        let field = format!("{CONFIGURATION}.developerConfiguration.featureGates");
        let detail = format!("{gate} is in disabledFeatureGates as well; take it off one list");
        Violation::forbidden(field, detail).into()
    });
    faults.collect()
}
