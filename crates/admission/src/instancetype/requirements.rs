//! What a preference demands of the VMs that choose it.

use kubevirt_api::{
    domain::Cpu, preference::VirtualMachinePreferenceSpec, quantity::Amount,
    vmi::VirtualMachineInstanceSpec,
};

use super::{
    Choice,
    topology::{Layout, Spread},
};
use crate::{Violation, checks::Origin};

/// Where an instance type is to blame.
const INSTANCETYPE: &str = "spec.instancetype";

/// What is missing. The spec is the completed one.
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
    let wanted = preference.requirements.as_ref()?.cpu.as_ref()?.guest;
    let (field, has) = if let Some(size) = choice.instancetype {
        (INSTANCETYPE.to_owned(), size.cpu.guest)
    } else {
        let (part, count) = counted(Layout::of(Some(preference)));
        let cpu = spec.domain.cpu.clone().unwrap_or_default();
        let field = format!("{}.domain.cpu{part}", Origin::TemplateOfVm.path());
        (field, count(&cpu))
    };
    (has < wanted).then(|| {
        let detail = format!("{has} vCPUs, and the preference demands {wanted}; give more");
        Violation::not_found(field, detail)
    })
}

/// Which part of the CPUs counts for a layout.
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

// What is not given counts as one, as for the guest.
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
    let wanted = &preference.requirements.as_ref()?.memory.as_ref()?.guest;
    let own = spec.domain.memory.as_ref();
    let (field, has) = if let Some(size) = choice.instancetype {
        (INSTANCETYPE.to_owned(), Some(&size.memory.guest))
    } else {
        let field = format!("{}.domain.memory", Origin::TemplateOfVm.path());
        (field, own.and_then(|memory| memory.guest.as_ref()))
    };
    let detail = match has {
        None => format!("no guest memory, and the preference demands {}", wanted.0),
        // What is no size is told elsewhere.
        Some(has) if Amount::parse(has).ok()? >= Amount::parse(wanted).ok()? => return None,
        Some(has) => format!(
            "{} of memory, and the preference demands {}; give more",
            has.0, wanted.0
        ),
    };
    Some(Violation::not_found(field, detail))
}

fn architecture(
    spec: &VirtualMachineInstanceSpec,
    preference: &VirtualMachinePreferenceSpec,
) -> Option<Violation> {
    let wanted = preference.requirements.as_ref()?.architecture.as_deref()?;
    let has = spec.architecture.as_deref().unwrap_or_default();
    (has != wanted).then(|| {
        let field = format!("{}.architecture", Origin::TemplateOfVm.path());
        let detail = format!("{has:?}, and the preference demands {wanted}; use that");
        Violation::not_found(field, detail)
    })
}
