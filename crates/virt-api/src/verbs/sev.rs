//! `sev/*`: the attestation of guests whose memory the host cannot read (AMD SEV).
//!
//! No guest runs with it yet, so each verb ends with the refusal that `KubeVirt` has for a guest that did not ask for
//! attestation, or is not far enough.

use cluster_config::ClusterConfig;
use kubevirt_api::{
    VirtualMachineInstance,
    confidential::{SEVSecretOptions, SEVSessionOptions},
    domain::Sev,
    vmi_status::VirtualMachineInstancePhase as Phase,
};

use super::{
    body,
    contract::{Answer, Contract},
    entry::{Entry, Level, Object},
    guest,
    missing::{Checks, Missing, NO_CHECKS, get, update},
};
use crate::refusal::Refusal;

const GATE: &str = "WorkloadEncryptionSEV";
const FIELD: &str = "spec.domain.launchSecurity.sev.attestation";
const INSTEAD: &str = "Let the guest attest itself from inside";
const READ: &[u16] = &[400, 500];
const CHANGE: &[u16] = &[400, 409];

const CHECKS: Checks = Checks {
    cluster: Some(gate),
    ..NO_CHECKS
};

pub(super) const CERTIFICATES: Entry = view(
    "sev/fetchcertchain",
    Contract::new(Answer::Object("SEVPlatformInfo"), READ),
    &Missing {
        checks: Checks {
            vmi: Some(has_platform),
            ..CHECKS
        },
        instead: INSTEAD,
    },
);
pub(super) const MEASUREMENT: Entry = view(
    "sev/querylaunchmeasurement",
    Contract::new(Answer::Object("SEVMeasurementInfo"), READ),
    &Missing {
        checks: Checks {
            vmi: Some(waits_for_owner),
            ..CHECKS
        },
        instead: INSTEAD,
    },
);
pub(super) const SESSION: Entry = update(
    Object::Vmi,
    "sev/setupsession",
    Contract::new(Answer::Accepted, CHANGE).with_body("SEVSessionOptions"),
    &Missing {
        checks: Checks {
            body: Some(session),
            vmi: Some(takes_session),
            ..CHECKS
        },
        instead: INSTEAD,
    },
);
pub(super) const SECRET: Entry = update(
    Object::Vmi,
    "sev/injectlaunchsecret",
    Contract::new(Answer::Done, CHANGE).with_body("SEVSecretOptions"),
    &Missing {
        checks: Checks {
            body: Some(secret),
            vmi: Some(waits_for_owner),
            ..CHECKS
        },
        instead: INSTEAD,
    },
);

const fn view(name: &'static str, contract: Contract, missing: &'static Missing) -> Entry {
    Entry {
        level: Level::View,
        ..get(Object::Vmi, name, contract, missing)
    }
}

fn gate(config: &ClusterConfig) -> Result<(), Refusal> {
    if config.has_gate(GATE) {
        return Ok(());
    }
    let message = format!("'{GATE}' feature gate is not enabled");
    Err(Refusal::bad_request(message))
}

fn session(body: &[u8]) -> Result<(), Refusal> {
    let options: SEVSessionOptions = body::parse(body).map_err(Refusal::bad_request)?;
    let is_empty = |text: Option<String>| text.is_none_or(|text| text.is_empty());
    if is_empty(options.session) {
        return Err(Refusal::bad_request("Session blob is required"));
    }
    if is_empty(options.dh_cert) {
        return Err(Refusal::bad_request("DH cert is required"));
    }
    Ok(())
}

fn secret(body: &[u8]) -> Result<(), Refusal> {
    let options = body::parse::<SEVSecretOptions>(body);
    options.map(drop).map_err(Refusal::bad_request)
}

fn has_platform(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if !matches!(guest::phase(vmi), Phase::Scheduled | Phase::Running) {
        return Err(Refusal::conflict("VMI is not assigned to a node yet"));
    }
    attested(vmi).map(drop)
}

fn takes_session(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if guest::phase(vmi) != Phase::Scheduled {
        return Err(Refusal::conflict("VMI is not in Scheduled phase"));
    }
    let sev = attested(vmi)?;
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if is_set(&sev.session) || is_set(&sev.dh_cert) {
        return Err(Refusal::conflict("Session already defined"));
    }
    Ok(())
}

fn waits_for_owner(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    guest::require_running(vmi)?;
    attested(vmi)?;
    if guest::is_paused(vmi) {
        return Ok(());
    }
    Err(Refusal::conflict("VMI is not paused"))
}

fn attested(vmi: &VirtualMachineInstance) -> Result<&Sev, Refusal> {
    let security = vmi.spec.domain.launch_security.as_ref();
    let sev = security.and_then(|security| security.sev.as_ref());
    sev.filter(|sev| sev.attestation.is_some()).ok_or_else(|| {
        let advice = "not set: set it to {} and restart the guest";
        Refusal::conflict("Attestation not requested for VMI").because(FIELD, advice)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn gate_that_is_off_is_refused_as_by_kubevirt() {
        let config = |off: &[&str]| {
            let written = json!({"developerConfiguration": {"disabledFeatureGates": off}});
            ClusterConfig::from_kubevirt(&serde_json::from_value(written).unwrap())
        };
        gate(&config(&[])).unwrap();
        let refusal = gate(&config(&[GATE])).unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), &*refusal.message),
            (400, "'WorkloadEncryptionSEV' feature gate is not enabled")
        );
    }

    #[test]
    fn session_needs_its_two_parts() {
        let message = |body: Value| {
            let refusal = session(body.to_string().as_bytes()).err()?;
            assert_eq!(refusal.code, 400);
            Some(refusal.message)
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(
            session(b"").unwrap_err().message,
            "Session blob is required"
        );
        assert_eq!(
            message(json!({"session": ""})),
            is("Session blob is required")
        );
        assert_eq!(
            message(json!({"session": "YQ=="})),
            is("DH cert is required")
        );
        assert_eq!(message(json!({"session": "YQ==", "dhCert": "YQ=="})), None);
        secret(b"").unwrap();
        assert_eq!(secret(b"{\"header\": 1}").unwrap_err().code, 400);
    }

    #[test]
    fn guests_are_refused_with_the_texts_of_kubevirt() {
        type Check = fn(&VirtualMachineInstance) -> Result<(), Refusal>;
        let vmi = |phase: &str, sev: Value, paused: bool| {
            let status = if paused { "True" } else { "False" };
            let value = json!({
                "spec": {"domain": {"devices": {}, "launchSecurity": {"sev": sev}}},
                "status": {"phase": phase, "conditions": [{"type": "Paused", "status": status}]},
            });
            serde_json::from_value::<VirtualMachineInstance>(value).unwrap()
        };
        let attested = || json!({"attestation": {}});
        let (plain, with) = (json!({}), attested());
        let set = json!({"attestation": {}, "session": "YQ=="});
        let none = "Attestation not requested for VMI";
        let (platform, takes, waits): (Check, Check, Check) =
            (has_platform, takes_session, waits_for_owner);
        for (check, phase, sev, paused, expected) in [
            (
                platform,
                "Scheduling",
                &with,
                false,
                "VMI is not assigned to a node yet",
            ),
            (platform, "Running", &plain, false, none),
            (platform, "Scheduled", &with, false, ""),
            (
                takes,
                "Running",
                &with,
                false,
                "VMI is not in Scheduled phase",
            ),
            (takes, "Scheduled", &plain, false, none),
            (takes, "Scheduled", &set, false, "Session already defined"),
            (takes, "Scheduled", &with, false, ""),
            (waits, "Scheduled", &with, true, "VMI is not running"),
            (waits, "Running", &plain, true, none),
            (waits, "Running", &with, false, "VMI is not paused"),
            (waits, "Running", &with, true, ""),
        ] {
            let refusal = check(&vmi(phase, sev.clone(), paused)).err();
            let message = refusal.as_ref().map_or("", |refusal| &*refusal.message);
            // What is after a colon is ours.
            let text = message.split(": ").next().unwrap_or_default();
            assert_eq!(text, expected, "{phase} {sev}");
            assert!(refusal.is_none_or(|refusal| refusal.code == 409));
        }
    }
}
