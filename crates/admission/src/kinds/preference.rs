//! Preferences, of a namespace and of the cluster: one list of rules for both.

use kubevirt_api::preference::{
    CpuPreferences, PreferredCpuTopology, SpreadAcross, VirtualMachineClusterPreference,
    VirtualMachinePreference, VirtualMachinePreferenceSpec,
};

use super::{Asked, Check, Fault, Kind};
use crate::{Violation, rules::Rule};

/// Cores for each socket when nothing is said.
const RATIO: u32 = 2;

macro_rules! preference {
    ($kind:ident) => {
        impl Kind for $kind {
            const RULES: &'static [Rule<Check<Self>>] = &[
                Rule::new(
                    "preference.topology",
                    "4",
                    "preferredCPUTopology is a known word",
                    |asked| topology(&asked.new.spec),
                ),
                Rule::new(
                    "preference.spread-across",
                    "4",
                    "spreadOptions.across is a known word",
                    |asked| across(&asked.new.spec),
                ),
                Rule::new(
                    "preference.spread-ratio",
                    "4",
                    "a core has two threads",
                    |asked| ratio(&asked.new.spec),
                ),
            ];

            fn warnings(asked: &Asked<'_, Self>) -> Vec<String> {
                warnings(&asked.new.spec)
            }
        }
    };
}

preference!(VirtualMachinePreference);
preference!(VirtualMachineClusterPreference);

fn topology(spec: &VirtualMachinePreferenceSpec) -> Vec<Fault> {
    let Some(topology) = chosen(spec).filter(|topology| !topology.is_known()) else {
        return Vec::new();
    };
    let known: Vec<&str> = PreferredCpuTopology::KNOWN
        .iter()
        .copied()
        .filter(|word| replacement(word).is_none())
        .collect();
    let detail = format!(
        "{:?} is unknown; use one of {}",
        topology.as_str(),
        known.join(", ")
    );
    vec![Violation::invalid("spec.cpu.preferredCPUTopology", detail).into()]
}

fn across(spec: &VirtualMachinePreferenceSpec) -> Vec<Fault> {
    let Some(across) = spread_across(spec).filter(|across| !across.is_known()) else {
        return Vec::new();
    };
    let known = SpreadAcross::KNOWN.join(", ");
    let detail = format!("{:?} is unknown; use one of {known}", across.as_str());
    vec![Violation::invalid("spec.cpu.spreadOptions.across", detail).into()]
}

fn ratio(spec: &VirtualMachinePreferenceSpec) -> Vec<Fault> {
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
    let detail = format!("{given} threads for each core do not exist; use 2, or leave it out");
    vec![Violation::invalid("spec.cpu.spreadOptions.ratio", detail).into()]
}

/// Over what vCPUs are spread, when they are and something is said about it.
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

/// What is written today instead of an older word.
fn replacement(word: &str) -> Option<String> {
    word.strip_prefix("prefer").map(str::to_lowercase)
}
