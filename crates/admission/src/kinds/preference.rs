//! Preferences, namespaced and cluster-wide, with the same rules.

use kubevirt_api::preference::{
    CpuPreferences, PreferredCpuTopology, SpreadAcross, VirtualMachineClusterPreference,
    VirtualMachinePreference, VirtualMachinePreferenceSpec,
};
use validation::{Rule, Subject, Violation};

use super::kind::{Check, Kind, Problem, TypedRequest};

/// Default ratio of `spread`.
const RATIO: u32 = 2;

macro_rules! preference {
    ($kind:ident) => {
        impl Kind for $kind {
            const RULES: &'static [Rule<Check<Self>>] = &[
                Rule::new(
                    "preference.topology",
                    Subject::Preference,
                    "preferredCPUTopology is known",
                    |request| topology(&request.new.spec),
                ),
                Rule::new(
                    "preference.spread-across",
                    Subject::Preference,
                    "spreadOptions.across is known",
                    |request| across(&request.new.spec),
                ),
                Rule::new(
                    "preference.spread-ratio",
                    Subject::Preference,
                    "coresThreads is spread by two threads per core",
                    |request| ratio(&request.new.spec),
                ),
            ];

            fn warnings(request: &TypedRequest<'_, Self>) -> Vec<String> {
                warnings(&request.new.spec)
            }
        }
    };
}

preference!(VirtualMachinePreference);
preference!(VirtualMachineClusterPreference);

fn topology(spec: &VirtualMachinePreferenceSpec) -> Vec<Problem> {
    let Some(topology) = chosen(spec).filter(|topology| !topology.is_known()) else {
        return Vec::new();
    };
    let known: Vec<&str> = PreferredCpuTopology::KNOWN
        .iter()
        .copied()
        .filter(|value| replacement(value).is_none())
        .collect();
    let detail = format!(
        "{:?} is unknown; use one of {}",
        topology.as_str(),
        known.join(", ")
    );
    vec![Violation::invalid("spec.cpu.preferredCPUTopology", detail).into()]
}

fn across(spec: &VirtualMachinePreferenceSpec) -> Vec<Problem> {
    let Some(across) = spread_across(spec).filter(|across| !across.is_known()) else {
        return Vec::new();
    };
    let known = SpreadAcross::KNOWN.join(", ");
    let detail = format!("{:?} is unknown; use one of {known}", across.as_str());
    vec![Violation::invalid("spec.cpu.spreadOptions.across", detail).into()]
}

fn ratio(spec: &VirtualMachinePreferenceSpec) -> Vec<Problem> {
    if !matches!(spread_across(spec), Some(SpreadAcross::CoresThreads)) {
        return Vec::new();
    }
    let options = spec
        .cpu
        .as_ref()
        .and_then(|cpu| cpu.spread_options.as_ref());
    let given = options
        .and_then(|options| options.ratio)
        .or(spec.prefer_spread_socket_to_core_ratio)
        .filter(|ratio| *ratio != 0)
        .unwrap_or(RATIO);
    if given == RATIO {
        return Vec::new();
    }
    let detail = format!("{given} threads per core are not supported; use 2, or leave it out");
    vec![Violation::invalid("spec.cpu.spreadOptions.ratio", detail).into()]
}

/// The levels that vCPUs are spread over, if set and the topology is `spread`.
fn spread_across(spec: &VirtualMachinePreferenceSpec) -> Option<&SpreadAcross> {
    use PreferredCpuTopology::{PreferSpread, Spread};

    chosen(spec).filter(|topology| matches!(topology, Spread | PreferSpread))?;
    let options = spec.cpu.as_ref()?.spread_options.as_ref()?;
    options
        .across
        .as_ref()
        .filter(|across| !across.as_str().is_empty())
}

fn chosen(spec: &VirtualMachinePreferenceSpec) -> Option<&PreferredCpuTopology> {
    let cpu: &CpuPreferences = spec.cpu.as_ref()?;
    cpu.preferred_cpu_topology
        .as_ref()
        .filter(|topology| !topology.as_str().is_empty())
}

fn warnings(spec: &VirtualMachinePreferenceSpec) -> Vec<String> {
    let old = chosen(spec).map(PreferredCpuTopology::as_str);
    let new = old.and_then(replacement);
    old.zip(new)
        .map(|(old, new)| {
            format!("{old} of spec.cpu.preferredCPUTopology is deprecated; use {new}")
        })
        .into_iter()
        .collect()
}

/// The current name of a deprecated value.
fn replacement(value: &str) -> Option<String> {
    value.strip_prefix("prefer").map(str::to_lowercase)
}
