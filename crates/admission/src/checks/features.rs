//! Hyper-V enlightenments.

use kubevirt_api::features::{FeatureHyperv, FeatureState};
use validation::Violation;

use super::input::Input;

const PATH: &str = "domain.features.hyperv";

pub(super) fn hyperv_needs(input: &Input<'_>) -> Vec<Violation> {
    let Some(hyperv) = hyperv(input) else {
        return Vec::new();
    };
    let mut found: Vec<_> = missing(hyperv)
        .into_iter()
        .map(|Missing { feature, needs }| {
            let detail = format!("needs {needs}, which is disabled; enable it");
            input.invalid(&format!("{PATH}.{feature}"), detail)
        })
        .collect();
    let requires_vmx = input.cpu().is_some_and(|cpu| {
        cpu.features
            .iter()
            .any(|feature| feature.name == "vmx" && feature.policy.as_deref() == Some("require"))
    });
    if is_on(hyperv.evmcs.as_ref()) && !requires_vmx {
        let detail = "needs the CPU feature vmx with policy require";
        found.push(input.invalid(&format!("{PATH}.evmcs"), detail));
    }
    found
}

pub(super) fn hyperv_passthrough(input: &Input<'_>) -> Vec<Violation> {
    let features = input.spec.domain.features.as_ref();
    let has_passthrough = features
        .and_then(|features| features.hyperv_passthrough.as_ref())
        .is_some_and(|passthrough| passthrough.enabled == Some(true));
    if !has_passthrough || hyperv(input).is_none() {
        return Vec::new();
    }
    let detail = "not supported with hypervPassthrough; choose one";
    vec![input.invalid(PATH, detail)]
}

fn hyperv<'a>(input: &Input<'a>) -> Option<&'a FeatureHyperv> {
    input.spec.domain.features.as_ref()?.hyperv.as_ref()
}

/// Enabled enlightenments whose requirement is disabled.
fn missing(hyperv: &FeatureHyperv) -> Vec<Missing> {
    let vapic = is_on(hyperv.vapic.as_ref());
    let vpindex = is_on(hyperv.vpindex.as_ref());
    let synic = is_on(hyperv.synic.as_ref());
    let timer = hyperv.synictimer.as_ref();
    let timer = timer.is_some_and(|timer| timer.enabled == Some(true));
    let flush = hyperv.tlbflush.as_ref();
    let flush = flush.is_some_and(|flush| flush.enabled == Some(true));
    [
        ("evmcs", "vapic", is_on(hyperv.evmcs.as_ref()), vapic),
        ("ipi", "vpindex", is_on(hyperv.ipi.as_ref()), vpindex),
        ("tlbflush", "vpindex", flush, vpindex),
        ("synic", "vpindex", synic, vpindex),
        ("synictimer", "synic", timer, synic),
    ]
    .into_iter()
    .filter(|(_, _, wanted, satisfied)| *wanted && !satisfied)
    .map(|(feature, needs, ..)| Missing { feature, needs })
    .collect()
}

struct Missing {
    feature: &'static str,
    needs: &'static str,
}

/// A feature that is present is on unless it is disabled.
pub(super) fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}
