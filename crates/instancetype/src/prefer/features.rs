//! Preferred CPU and platform features.

use kubevirt_api::{features::FeatureHyperv, preference::FeaturePreferences};

use crate::target::{Preference, Target, fill};

pub(super) fn set_acpi(target: &mut Target<'_>, preference: &Preference) {
    if let Some(FeaturePreferences {
        preferred_acpi: Some(acpi),
        ..
    }) = &preference.features
    {
        let features = target.spec.domain.features.get_or_insert_default();
        features.acpi = Some(acpi.clone());
    }
}

pub(super) fn set_features(target: &mut Target<'_>, preference: &Preference) {
    let Some(wanted) = &preference.features else {
        return;
    };
    let features = target.spec.domain.features.get_or_insert_default();
    fill(&mut features.apic, wanted.preferred_apic.as_ref());
    fill(&mut features.kvm, wanted.preferred_kvm.as_ref());
    fill(
        &mut features.pvspinlock,
        wanted.preferred_pvspinlock.as_ref(),
    );
    fill(&mut features.smm, wanted.preferred_smm.as_ref());
}

pub(super) fn set_hyperv(target: &mut Target<'_>, preference: &Preference) {
    let wanted = preference.features.as_ref();
    let Some(wanted) = wanted.and_then(|features| features.preferred_hyperv.as_ref()) else {
        return;
    };
    let features = target.spec.domain.features.get_or_insert_default();
    let passthrough = features.hyperv_passthrough.as_ref();
    // Passthrough and single enlightenments are mutually exclusive; the template chose passthrough.
    if passthrough.is_some_and(|passthrough| passthrough.enabled != Some(false)) {
        return;
    }
    complete(features.hyperv.get_or_insert_default(), wanted);
}

fn complete(own: &mut FeatureHyperv, wanted: &FeatureHyperv) {
    fill(&mut own.relaxed, wanted.relaxed.as_ref());
    fill(&mut own.vapic, wanted.vapic.as_ref());
    fill(&mut own.spinlocks, wanted.spinlocks.as_ref());
    fill(&mut own.vpindex, wanted.vpindex.as_ref());
    fill(&mut own.runtime, wanted.runtime.as_ref());
    fill(&mut own.synic, wanted.synic.as_ref());
    fill(&mut own.synictimer, wanted.synictimer.as_ref());
    fill(&mut own.reset, wanted.reset.as_ref());
    fill(&mut own.vendorid, wanted.vendorid.as_ref());
    fill(&mut own.frequencies, wanted.frequencies.as_ref());
    fill(&mut own.reenlightenment, wanted.reenlightenment.as_ref());
    fill(&mut own.tlbflush, wanted.tlbflush.as_ref());
    fill(&mut own.ipi, wanted.ipi.as_ref());
    fill(&mut own.evmcs, wanted.evmcs.as_ref());
}
