//! Lives of the installation's certificates.

use kubevirt_api::{
    duration::Duration,
    kubevirt::{CertConfig, KubeVirtSelfSignConfiguration},
};

use super::Question;
use crate::{Violation, kinds::Fault};

const PATH: &str = "spec.certificateRotateStrategy.selfSigned";
/// Of authorities that are given none.
const AUTHORITY: &str = "168h";
/// Of certificates that are given none.
const SERVER: &str = "24h";

fn settings<'a>(asked: &Question<'a>) -> Option<&'a KubeVirtSelfSignConfiguration> {
    let strategy = asked.new.spec.certificate_rotate_strategy.as_ref()?;
    strategy.self_signed.as_ref()
}

pub(super) fn mixed(asked: &Question<'_>) -> Vec<Fault> {
    let Some(settings) = settings(asked) else {
        return Vec::new();
    };
    let is_old = settings.ca_rotate_interval.is_some()
        || settings.ca_overlap_interval.is_some()
        || settings.cert_rotate_interval.is_some();
    if !is_old || (settings.ca.is_none() && settings.server.is_none()) {
        return Vec::new();
    }
    let detail = "ca and server together with the older intervals; use ca and server only";
    vec![Violation::not_supported(PATH, detail).into()]
}

pub(super) fn durations(asked: &Question<'_>) -> Vec<Fault> {
    let Some(settings) = settings(asked) else {
        return Vec::new();
    };
    let part = |one: &Option<CertConfig>| one.clone().unwrap_or_default();
    let (authority, server) = (part(&settings.ca), part(&settings.server));
    let all = [
        ("caRotateInterval", settings.ca_rotate_interval.as_ref()),
        ("caOverlapInterval", settings.ca_overlap_interval.as_ref()),
        ("certRotateInterval", settings.cert_rotate_interval.as_ref()),
        ("ca.duration", authority.duration.as_ref()),
        ("ca.renewBefore", authority.renew_before.as_ref()),
        ("server.duration", server.duration.as_ref()),
        ("server.renewBefore", server.renew_before.as_ref()),
    ];
    all.into_iter()
        .flat_map(|(field, written)| crate::kinds::duration(&format!("{PATH}.{field}"), written))
        .collect()
}

pub(super) fn renewal(asked: &Question<'_>) -> Vec<Fault> {
    let Some(settings) = settings(asked) else {
        return Vec::new();
    };
    let parts = [
        ("ca", settings.ca.as_ref(), AUTHORITY),
        ("server", settings.server.as_ref(), SERVER),
    ];
    let faults = parts.into_iter().filter_map(|(name, part, life)| {
        let part = part?;
        let renewal = part.renew_before.as_ref()?;
        let life = life_of(part, life);
        // What is no duration is told by its own rule.
        let is_late = renewal.parse().ok()? > life.parse().ok()?;
        let detail = format!(
            "{} is longer than the duration {}; make it shorter",
            renewal.0, life.0
        );
        is_late.then(|| Violation::invalid(format!("{PATH}.{name}.renewBefore"), detail).into())
    });
    faults.collect()
}

pub(super) fn order(asked: &Question<'_>) -> Vec<Fault> {
    let Some(settings) = settings(asked) else {
        return Vec::new();
    };
    let none = CertConfig::default();
    let authority = life_of(settings.ca.as_ref().unwrap_or(&none), AUTHORITY);
    let server = life_of(settings.server.as_ref().unwrap_or(&none), SERVER);
    match (authority.parse(), server.parse()) {
        (Ok(longest), Ok(own)) if own > longest => {
            let detail = format!(
                "{} is longer than the {} of the authority that signs; make it shorter, or \
                 ca.duration longer",
                server.0, authority.0
            );
            vec![Violation::invalid(format!("{PATH}.server.duration"), detail).into()]
        }
        _ => Vec::new(),
    }
}

fn life_of(part: &CertConfig, unset: &str) -> Duration {
    part.duration
        .clone()
        .unwrap_or_else(|| Duration(unset.to_owned()))
}
