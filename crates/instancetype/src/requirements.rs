//! Requirements that a preference places on the VMs that choose it.

use kubevirt_api::{
    domain::Cpu, preference::VirtualMachinePreferenceSpec, quantity::Amount,
    vmi::VirtualMachineInstanceSpec,
};
use validation::Violation;

use crate::{
    target::{Choice, TEMPLATE_PATH},
    topology::{Layout, Spread},
};

/// Field to report when the instance type is too small.
const INSTANCETYPE: &str = "spec.instancetype";
// Tools search messages for these words.
const FAILURE: &str = "failure checking preference requirements";
const CPU: &str = "insufficient CPU resources";
const MEMORY: &str = "insufficient Memory resources";

/// Violations of the requirements; `spec` is the completed template.
pub fn unmet(spec: &VirtualMachineInstanceSpec, choice: Choice<'_>) -> Vec<Violation> {
    let Some(preference) = choice.preference else {
        return Vec::new();
    };
    [
        cpus(spec, choice, preference),
        memory(spec, choice, preference),
        architecture(spec, preference),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cpus(
    spec: &VirtualMachineInstanceSpec,
    choice: Choice<'_>,
    preference: &VirtualMachinePreferenceSpec,
) -> Option<Violation> {
    let required = preference.requirements.as_ref()?.cpu.as_ref()?.guest;
    let (field, has) = if let Some(size) = choice.instancetype {
        (INSTANCETYPE.to_owned(), size.cpu.guest)
    } else {
        let (part, count) = counted(Layout::of(Some(preference)));
        let cpu = spec.domain.cpu.clone().unwrap_or_default();
        let field = format!("{TEMPLATE_PATH}.domain.cpu{part}");
        (field, count(&cpu))
    };
    (has < required).then(|| {
        let detail = format!(
            "{FAILURE}: {CPU}: {has} vCPUs, but the preference requires {required}; give more"
        );
        Violation::not_found(field, detail)
    })
}

/// The topology fields that count as vCPUs in a layout.
fn counted(layout: Layout) -> (&'static str, fn(&Cpu) -> u32) {
    match layout {
        Layout::Sockets => (".sockets", sockets),
        Layout::Cores => (".cores", cores),
        Layout::Threads => (".threads", threads),
        Layout::Spread(Spread::SocketsCores(_)) => {
            ("", |cpu| sockets(cpu).saturating_mul(cores(cpu)))
        }
        Layout::Spread(Spread::CoresThreads(_)) => {
            ("", |cpu| cores(cpu).saturating_mul(threads(cpu)))
        }
        Layout::Spread(Spread::SocketsCoresThreads(_)) | Layout::Any => ("", |cpu| {
            sockets(cpu)
                .saturating_mul(cores(cpu))
                .saturating_mul(threads(cpu))
        }),
    }
}

// A missing field counts as one, as in the guest.
fn sockets(cpu: &Cpu) -> u32 {
    cpu.sockets.unwrap_or(1).max(1)
}

fn cores(cpu: &Cpu) -> u32 {
    cpu.cores.unwrap_or(1).max(1)
}

fn threads(cpu: &Cpu) -> u32 {
    cpu.threads.unwrap_or(1).max(1)
}

fn memory(
    spec: &VirtualMachineInstanceSpec,
    choice: Choice<'_>,
    preference: &VirtualMachinePreferenceSpec,
) -> Option<Violation> {
    let required = &preference.requirements.as_ref()?.memory.as_ref()?.guest;
    let own = spec.domain.memory.as_ref();
    let (field, has) = if let Some(size) = choice.instancetype {
        (INSTANCETYPE.to_owned(), Some(&size.memory.guest))
    } else {
        let field = format!("{TEMPLATE_PATH}.domain.memory");
        (field, own.and_then(|memory| memory.guest.as_ref()))
    };
    let detail = match has {
        None => format!(
            "{FAILURE}: {MEMORY}: no guest memory, but the preference requires {}; set it",
            required.0
        ),
        // Another rule reports malformed quantities.
        Some(has) if Amount::parse(has).ok()? >= Amount::parse(required).ok()? => return None,
        Some(has) => format!(
            "{FAILURE}: {MEMORY}: {}, but the preference requires {}; give more",
            has.0, required.0
        ),
    };
    Some(Violation::not_found(field, detail))
}

fn architecture(
    spec: &VirtualMachineInstanceSpec,
    preference: &VirtualMachinePreferenceSpec,
) -> Option<Violation> {
    let required = preference.requirements.as_ref()?.architecture.as_deref()?;
    let has = spec.architecture.as_deref().unwrap_or_default();
    (has != required).then(|| {
        let field = format!("{TEMPLATE_PATH}.architecture");
        let detail =
            format!("{FAILURE}: {has:?}, but the preference requires {required}; use that");
        Violation::not_found(field, detail)
    })
}
