//! `vsock`: a port of the guest, reached without a network.

use cluster_config::ClusterConfig;
use kubevirt_api::VirtualMachineInstance;

use super::{
    Level, StreamVerb,
    contract::{Answer, Contract},
    entry::Entry,
    guest, on_vmi, query,
};
use crate::refusal::Refusal;

const GATE: &str = "VSOCK";
const FIELD: &str = "spec.domain.devices.autoattachVSOCK";

#[derive(Debug)]
pub(super) struct Vsock;

pub(super) const ENTRY: Entry = Entry {
    level: Level::Component,
    ..on_vmi::stream_entry::<Vsock>()
};

impl StreamVerb for Vsock {
    const NAME: &'static str = "vsock";
    const CONTRACT: Contract = Contract::new(Answer::Websocket, &[400])
        .with_query(&[("port", "integer"), ("tls", "boolean")]);

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        if vmi.spec.domain.devices.autoattach_vsock != Some(true) {
            let advice = "not true: set it, list the feature gate VSOCK, and restart the guest";
            return Err(Refusal::bad_request("VSOCK is not attached.").because(FIELD, advice));
        }
        guest::require_guest(vmi)?;
        let status = vmi.status.as_ref();
        if status.and_then(|status| status.vsock_cid).is_none() {
            let advice = "the guest has no address yet: try again";
            return Err(Refusal::bad_request("VSOCK is not attached.").because(FIELD, advice));
        }
        Ok(())
    }

    fn admit_cluster(config: &ClusterConfig) -> Result<(), Refusal> {
        if config.has_gate(GATE) {
            return Ok(());
        }
        let message = format!("'{GATE}' feature gate is not enabled");
        Err(Refusal::bad_request(message))
    }

    /// Without `tls`, `KubeVirt` encrypts.
    fn node_request(query: Option<&str>) -> Result<String, Refusal> {
        let port = query::value(query, "port");
        let number = port.and_then(|text| text.parse::<u32>().ok());
        let number = number.filter(|number| *number < u32::MAX).ok_or_else(|| {
            Refusal::bad_request(format!(
                "query parameter port: {:?} is not a port of the vsock: give a number",
                port.unwrap_or_default()
            ))
        })?;
        let is_given = query::value(query, "tls").is_some_and(|value| !value.is_empty());
        let tls = !is_given || query::flag(query, "tls")?;
        Ok(format!("{}?port={number}&tls={tls}", Self::NAME))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_running_guest_with_an_address_is_reached() {
        let code = |attach: &Value, status: &Value| {
            let spec = json!({"domain": {"devices": {"autoattachVSOCK": attach}}});
            let vmi = serde_json::from_value(json!({"spec": spec, "status": status})).unwrap();
            let refusal = Vsock::admit(&vmi).err()?;
            Some((refusal.code.as_u16(), refusal.message))
        };
        let (on, running) = (json!(true), json!({"phase": "Running", "VSOCKCID": 3}));
        let not_attached = || Some((400, "VSOCK is not attached.".to_owned()));
        assert_eq!(code(&on, &running), None);
        assert_eq!(code(&json!(false), &running), not_attached());
        assert_eq!(code(&Value::Null, &running), not_attached());
        assert_eq!(code(&on, &json!({"phase": "Running"})), not_attached());
        let (code, message) = code(&on, &json!({"phase": "Scheduling"})).unwrap();
        assert_eq!(code, 400);
        assert!(message.starts_with("VMI is not running: "), "{message}");
    }

    #[test]
    fn gate_must_be_on() {
        let config = |gates: &[&str]| {
            let written = json!({"developerConfiguration": {"featureGates": gates}});
            ClusterConfig::from_kubevirt(&serde_json::from_value(written).unwrap())
        };
        Vsock::admit_cluster(&config(&[GATE])).unwrap();
        assert_eq!(
            Vsock::admit_cluster(&config(&[])).unwrap_err().message,
            "'VSOCK' feature gate is not enabled"
        );
    }

    #[test]
    fn port_is_a_number_and_tls_is_the_default() {
        let request = |query| {
            let request = Vsock::node_request(Some(query));
            request.map_err(|refusal| refusal.code.as_u16())
        };
        for (query, expected) in [
            ("port=1024&tls=false", "vsock?port=1024&tls=false"),
            ("tls=0&port=70000", "vsock?port=70000&tls=false"),
            ("port=1024", "vsock?port=1024&tls=true"),
            ("port=1024&tls=", "vsock?port=1024&tls=true"),
            ("port=1024&tls=true", "vsock?port=1024&tls=true"),
        ] {
            assert_eq!(request(query), Ok(expected.to_owned()), "{query}");
        }
        for (query, code) in [
            ("tls=false", 400),
            ("port=&tls=false", 400),
            ("port=-1&tls=false", 400),
            ("port=4294967295&tls=false", 400),
            ("port=1024&tls=maybe", 400),
        ] {
            assert_eq!(request(query), Err(code), "{query}");
        }
    }
}
