//! Lifetimes of the installation's certificates.

use kubevirt_api::{
    duration::Duration,
    kubevirt::{CertConfig, KubeVirtSelfSignConfiguration},
};
use validation::Violation;

use super::request::Request;
use crate::kinds::{kind::Problem, refusals::duration};

const PATH: &str = "spec.certificateRotateStrategy.selfSigned";
/// Default lifetime of a CA.
const CA_LIFETIME: &str = "168h";
/// Default lifetime of a certificate.
const SERVER_LIFETIME: &str = "24h";

fn settings<'a>(request: &Request<'a>) -> Option<&'a KubeVirtSelfSignConfiguration> {
    let strategy = request.new.spec.certificate_rotate_strategy.as_ref()?;
    strategy.self_signed.as_ref()
}

pub(super) fn mixed(request: &Request<'_>) -> Vec<Problem> {
    let Some(settings) = settings(request) else {
        return Vec::new();
    };
    let is_old = settings.ca_rotate_interval.is_some()
        || settings.ca_overlap_interval.is_some()
        || settings.cert_rotate_interval.is_some();
    if !is_old || (settings.ca.is_none() && settings.server.is_none()) {
        return Vec::new();
    }
    let detail =
        "ca and server are set together with the deprecated intervals; use only ca and server";
    vec![Violation::not_supported(PATH, detail).into()]
}

pub(super) fn durations(request: &Request<'_>) -> Vec<Problem> {
    let Some(settings) = settings(request) else {
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
        .flat_map(|(field, written)| duration(&format!("{PATH}.{field}"), written))
        .collect()
}

pub(super) fn renewal(request: &Request<'_>) -> Vec<Problem> {
    let Some(settings) = settings(request) else {
        return Vec::new();
    };
    let parts = [
        ("ca", settings.ca.as_ref(), CA_LIFETIME),
        ("server", settings.server.as_ref(), SERVER_LIFETIME),
    ];
    let problems = parts.into_iter().filter_map(|(name, part, default)| {
        let part = part?;
        let renewal = part.renew_before.as_ref()?;
        let lifetime = lifetime(part, default);
        // Another rule reports malformed durations.
        let is_late = renewal.parse().ok()? > lifetime.parse().ok()?;
        let detail = format!(
            "{} is longer than the duration {}; make it shorter",
            renewal.0, lifetime.0
        );
        is_late.then(|| Violation::invalid(format!("{PATH}.{name}.renewBefore"), detail).into())
    });
    problems.collect()
}

pub(super) fn order(request: &Request<'_>) -> Vec<Problem> {
    let Some(settings) = settings(request) else {
        return Vec::new();
    };
    let none = CertConfig::default();
    let authority = lifetime(settings.ca.as_ref().unwrap_or(&none), CA_LIFETIME);
    let server = lifetime(settings.server.as_ref().unwrap_or(&none), SERVER_LIFETIME);
    match (authority.parse(), server.parse()) {
        (Ok(longest), Ok(own)) if own > longest => {
            let detail = format!(
                "{} is longer than the {} of the signing CA; make it shorter, or ca.duration \
                 longer",
                server.0, authority.0
            );
            vec![Violation::invalid(format!("{PATH}.server.duration"), detail).into()]
        }
        _ => Vec::new(),
    }
}

fn lifetime(part: &CertConfig, unset: &str) -> Duration {
    part.duration
        .clone()
        .unwrap_or_else(|| Duration(unset.to_owned()))
}
