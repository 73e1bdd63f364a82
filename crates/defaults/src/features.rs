//! Defaults of features and timers: a feature that is present is enabled, with its dependencies.

use kubevirt_api::{
    domain::{CpuFeature, DomainSpec},
    features::{FeatureHyperv, FeatureState},
    vmi::VirtualMachineInstanceSpec,
};

use crate::machine::architecture;

const SPINLOCK_RETRIES: u32 = 4096;

pub(crate) fn set_acpi(spec: &mut VirtualMachineInstanceSpec) {
    let default = architecture(spec) != "s390x";
    let features = spec.domain.features.get_or_insert_default();
    let acpi = features.acpi.get_or_insert_default();
    acpi.enabled.get_or_insert(default);
}

pub(crate) fn set_present(spec: &mut VirtualMachineInstanceSpec) {
    let features = spec.domain.features.get_or_insert_default();
    for state in [&mut features.smm, &mut features.pvspinlock]
        .into_iter()
        .flatten()
    {
        enable(state);
    }
    if let Some(apic) = &mut features.apic {
        apic.enabled.get_or_insert(true);
    }
    features.hyperv.iter_mut().for_each(enable_present);
}

/// Enables the enlightenments that others depend on. Explicitly disabled ones stay disabled; a check
/// reports the contradiction.
pub(crate) fn complete_hyperv(domain: &mut DomainSpec) {
    let features = domain.features.as_mut();
    let Some(hyperv) = features.and_then(|features| features.hyperv.as_mut()) else {
        return;
    };
    let evmcs = is_on(hyperv.evmcs.as_ref());
    if evmcs {
        enable(hyperv.vapic.get_or_insert_default());
    }
    let timer = hyperv.synictimer.as_ref();
    if timer.is_some_and(|timer| timer.enabled == Some(true)) {
        enable(hyperv.synic.get_or_insert_default());
    }
    let flush = hyperv.tlbflush.as_ref();
    let needs_vpindex = is_on(hyperv.ipi.as_ref())
        || is_on(hyperv.synic.as_ref())
        || flush.is_some_and(|flush| flush.enabled == Some(true));
    if needs_vpindex {
        enable(hyperv.vpindex.get_or_insert_default());
    }
    if evmcs {
        require_vmx(domain);
    }
}

fn enable_present(hyperv: &mut FeatureHyperv) {
    let states = [
        &mut hyperv.relaxed,
        &mut hyperv.vapic,
        &mut hyperv.vpindex,
        &mut hyperv.runtime,
        &mut hyperv.synic,
        &mut hyperv.reset,
        &mut hyperv.frequencies,
        &mut hyperv.reenlightenment,
        &mut hyperv.ipi,
        &mut hyperv.evmcs,
    ];
    states.into_iter().flatten().for_each(enable);
    if let Some(vendor) = &mut hyperv.vendorid {
        vendor.enabled.get_or_insert(true);
    }
    if let Some(flush) = &mut hyperv.tlbflush {
        flush.enabled.get_or_insert(true);
        [&mut flush.direct, &mut flush.extended]
            .into_iter()
            .flatten()
            .for_each(enable);
    }
    if let Some(timer) = &mut hyperv.synictimer {
        timer.enabled.get_or_insert(true);
        timer.direct.iter_mut().for_each(enable);
    }
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && *spinlocks.enabled.get_or_insert(true)
    {
        spinlocks.spinlocks.get_or_insert(SPINLOCK_RETRIES);
    }
}

fn enable(state: &mut FeatureState) {
    state.enabled.get_or_insert(true);
}

fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled == Some(true))
}

fn require_vmx(domain: &mut DomainSpec) {
    let features = &mut domain.cpu.get_or_insert_default().features;
    if !features.iter().any(|feature| feature.name == "vmx") {
        features.push(CpuFeature {
            name: "vmx".to_owned(),
            policy: Some("require".to_owned()),
        });
    }
}

pub(crate) fn set_timers(domain: &mut DomainSpec) {
    let Some(timer) = domain.clock.as_mut().and_then(|clock| clock.timer.as_mut()) else {
        return;
    };
    let present = [
        timer.hpet.as_mut().map(|timer| &mut timer.present),
        timer.kvm.as_mut().map(|timer| &mut timer.present),
        timer.pit.as_mut().map(|timer| &mut timer.present),
        timer.rtc.as_mut().map(|timer| &mut timer.present),
        timer.hyperv.as_mut().map(|timer| &mut timer.present),
    ];
    for present in present.into_iter().flatten() {
        present.get_or_insert(true);
    }
}
