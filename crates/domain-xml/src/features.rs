//! Features of the machine and of the hypervisor.

use kubevirt_api::features::{FeatureHyperv, FeatureState, Features};

use model::{Architecture, Guest};

use crate::element::Element;
use crate::{Acceleration, Input};

/// Cache of translated code of an emulated guest, in MiB. QEMU's default of 1 GiB costs about 30 MB
/// more per guest and gains nothing for small ones.
const TB_CACHE: u32 = 32;

pub(crate) fn render(input: &Input<'_>) -> Option<Element> {
    let given = input.guest.vmi.spec.domain.features.as_ref();
    let guest = input.guest;
    let is_amd64 = guest.architecture == Architecture::Amd64;
    let features = Element::new("features")
        .children(render_switches(given, guest.architecture))
        .children(given.and_then(render_hyperv))
        .children(render_kvm(given, guest.has_dedicated_cpus() && is_amd64))
        .children(
            given
                .and_then(|f| f.pvspinlock.as_ref())
                .map(|s| state("pvspinlock", s.enabled)),
        )
        .children(is_amd64.then(|| Element::new("vmport").attr("state", "off")))
        .children(has_no_counters(guest).then(|| Element::new("pmu").attr("state", "off")))
        .children((input.facts.acceleration == Acceleration::Emulation).then(tcg));
    (!features.is_empty()).then_some(features)
}

/// Features that are present or absent.
fn render_switches(features: Option<&Features>, architecture: Architecture<'_>) -> Vec<Element> {
    let on = |state: Option<Option<bool>>| state.is_some_and(|enabled| enabled != Some(false));
    let acpi = features.and_then(|features| features.acpi.as_ref());
    let acpi = acpi.is_none_or(|acpi| acpi.enabled != Some(false));
    let apic = features.and_then(|features| features.apic.as_ref());
    let apic = on(apic.map(|apic| apic.enabled));
    let smm = features.and_then(|features| features.smm.as_ref());
    let smm = on(smm.map(|smm| smm.enabled));
    // Machines of s390x have none of them.
    if architecture == Architecture::S390x {
        return Vec::new();
    }
    [("acpi", acpi), ("apic", apic), ("smm", smm)]
        .into_iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| match name {
            "smm" => Element::new("smm").attr("state", "on"),
            name => Element::new(name),
        })
        .collect()
}

fn render_kvm(features: Option<&Features>, has_own_cpus: bool) -> Option<Element> {
    let given = features.and_then(|features| features.kvm.as_ref());
    let hidden = given.map(|kvm| state("hidden", Some(kvm.hidden == Some(true))));
    let dedicated = has_own_cpus.then(|| state("hint-dedicated", Some(true)));
    let kvm = Element::new("kvm").children(hidden).children(dedicated);
    (!kvm.is_empty()).then_some(kvm)
}

/// Performance counters cost realtime guests their latency; TDX does not permit them.
fn has_no_counters(guest: &Guest<'_>) -> bool {
    let domain = &guest.vmi.spec.domain;
    let security = domain.launch_security.as_ref();
    guest.is_realtime() || security.is_some_and(|security| security.tdx.is_some())
}

fn render_hyperv(features: &Features) -> Option<Element> {
    if features
        .hyperv_passthrough
        .as_ref()
        .is_some_and(|p| p.enabled == Some(true))
    {
        return Some(Element::new("hyperv").attr("mode", "passthrough"));
    }
    let hyperv = features.hyperv.as_ref()?;
    let plain = |name, feature: &Option<FeatureState>| {
        feature.as_ref().map(|feature| state(name, feature.enabled))
    };
    let parts = [
        plain("relaxed", &hyperv.relaxed),
        plain("vapic", &hyperv.vapic),
        spinlocks(hyperv),
        plain("vpindex", &hyperv.vpindex),
        plain("runtime", &hyperv.runtime),
        plain("synic", &hyperv.synic),
        stimer(hyperv),
        plain("reset", &hyperv.reset),
        vendor_id(hyperv),
        plain("frequencies", &hyperv.frequencies),
        plain("reenlightenment", &hyperv.reenlightenment),
        tlbflush(hyperv),
        plain("ipi", &hyperv.ipi),
        plain("evmcs", &hyperv.evmcs),
    ];
    Some(Element::new("hyperv").children(parts.into_iter().flatten()))
}

fn spinlocks(hyperv: &FeatureHyperv) -> Option<Element> {
    let feature = hyperv.spinlocks.as_ref()?;
    Some(state("spinlocks", feature.enabled).attr_if("retries", feature.spinlocks))
}

fn stimer(hyperv: &FeatureHyperv) -> Option<Element> {
    let feature = hyperv.synictimer.as_ref()?;
    let direct = feature
        .direct
        .as_ref()
        .map(|direct| state("direct", direct.enabled));
    Some(state("stimer", feature.enabled).children(direct))
}

fn vendor_id(hyperv: &FeatureHyperv) -> Option<Element> {
    let feature = hyperv.vendorid.as_ref()?;
    Some(state("vendor_id", feature.enabled).attr_if("value", feature.vendorid.as_ref()))
}

fn tlbflush(hyperv: &FeatureHyperv) -> Option<Element> {
    let feature = hyperv.tlbflush.as_ref()?;
    let part = |name, part: &Option<FeatureState>| part.as_ref().map(|p| state(name, p.enabled));
    let parts = [
        part("direct", &feature.direct),
        part("extended", &feature.extended),
    ];
    Some(state("tlbflush", feature.enabled).children(parts.into_iter().flatten()))
}

/// A feature that is present is on unless disabled.
fn state(name: &'static str, enabled: Option<bool>) -> Element {
    let state = if enabled == Some(false) { "off" } else { "on" };
    Element::new(name).attr("state", state)
}

fn tcg() -> Element {
    let cache = Element::new("tb-cache").attr("unit", "MiB").text(TB_CACHE);
    Element::new("tcg").child(cache)
}
