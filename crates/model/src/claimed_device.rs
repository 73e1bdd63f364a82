//! Devices that the drivers of resource claims allocated to a pod, as files in the pod describe them.
//!
//! A file holds the same description once for each version that its driver knows. It is not trusted: an
//! address is read as numbers, and anything else is refused.

use std::collections::BTreeMap;

use kubevirt_api::vmi::VirtualMachineInstanceResourceClaim;
use serde::Deserialize;
use serde_json::Value;

use crate::{DeviceAddress, MediatedUuid, PciAddress};

/// The directory of the files in a pod.
pub const METADATA_DIRECTORY: &str = "var/run/kubernetes.io/dra-device-attributes";
/// The end of their names; the begin is that of the driver.
pub const METADATA_SUFFIX: &str = "-metadata.json";

const VERSION: &str = "metadata.resource.k8s.io/v1alpha1";
const PCI: &str = "resource.kubernetes.io/pciBusID";
const MEDIATED: &str = "mdevUUID";

/// Why a description names no device that a guest can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    #[error("it is no JSON object with apiVersion {VERSION}")]
    Format,
    #[error("it does not describe the request")]
    NoRequest,
    #[error("it names {0} devices; a request has to be for one")]
    NotOne(usize),
    #[error("its device has neither the attribute {PCI} nor {MEDIATED}")]
    NoAddress,
    #[error("the address of its device is neither a PCI address nor a UUID")]
    BadAddress,
}

/// The directory of a request's files, below [`METADATA_DIRECTORY`]. `None` if the claim is not known, or a name has
/// characters that names do not have.
pub fn metadata_directory(
    claims: &[VirtualMachineInstanceResourceClaim],
    claim: &str,
    request: &str,
) -> Option<String> {
    let claim = claims.iter().find(|own| own.name == claim)?;
    let given = claim.resource_claim_name.as_deref();
    let (kind, name) = match given.filter(|name| !name.is_empty()) {
        Some(name) => ("resourceclaims", name),
        None => ("resourceclaimtemplates", claim.name.as_str()),
    };
    let is_name = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        text.bytes().all(plain) && text.bytes().any(|byte| byte != b'.')
    };
    (is_name(name) && is_name(request)).then(|| format!("{kind}/{name}/{request}"))
}

/// The address of a request's device.
pub fn claimed_device(metadata: &[u8], request: &str) -> Result<DeviceAddress, InvalidMetadata> {
    let requests = requests(metadata)?;
    let mut found = requests.into_iter().filter(|one| one.is_for(request));
    let devices = found.next().ok_or(InvalidMetadata::NoRequest)?.devices;
    let [device] = devices.as_slice() else {
        return Err(InvalidMetadata::NotOne(devices.len()));
    };
    let text = |name: &str| {
        let attribute = device.attributes.get(name)?;
        attribute.get("string")?.as_str()
    };
    let address = match (text(MEDIATED), text(PCI)) {
        (Some(uuid), _) => MediatedUuid::parse(uuid).map(DeviceAddress::Mediated),
        (None, Some(address)) => PciAddress::parse(address).map(DeviceAddress::Pci),
        (None, None) => return Err(InvalidMetadata::NoAddress),
    };
    address.ok_or(InvalidMetadata::BadAddress)
}

#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    requests: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    #[serde(default)]
    attributes: BTreeMap<String, Value>,
}

impl Described {
    /// One of several alternatives has the name `request/alternative`.
    fn is_for(&self, request: &str) -> bool {
        self.name.split('/').next() == Some(request)
    }
}

/// Of the first description in a version that we know.
fn requests(metadata: &[u8]) -> Result<Vec<Described>, InvalidMetadata> {
    for version in serde_json::Deserializer::from_slice(metadata).into_iter::<Value>() {
        let version = version.map_err(|_| InvalidMetadata::Format)?;
        if version.get("apiVersion").and_then(Value::as_str) == Some(VERSION) {
            let description = serde_json::from_value::<Description>(version);
            return Ok(description.map_err(|_| InvalidMetadata::Format)?.requests);
        }
    }
    Err(InvalidMetadata::Format)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UUID: &str = "aa618089-8b16-4d01-a136-25a0f3c73123";

    fn metadata(name: &str, devices: &[Value]) -> String {
        let newer = json!({"apiVersion": "metadata.resource.k8s.io/v9", "requests": 1});
        let requests = json!([{"name": "other"}, {"name": name, "devices": devices}]);
        let own = json!({"apiVersion": VERSION, "kind": "DeviceMetadata", "requests": requests});
        format!("{newer}\n{own}\n")
    }

    fn device(attributes: &Value) -> Value {
        json!({"driver": "gpu.example.com", "pool": "a", "name": "gpu-0", "attributes": attributes})
    }

    #[test]
    fn device_of_a_request_is_found_by_its_attributes() {
        let pci =
            json!({PCI: {"string": "0000:81:01.0"}, "model": {"string": "x"}, "cores": {"int": 7}});
        let slice = json!({PCI: {"string": "0000:81:00.0"}, MEDIATED: {"string": UUID}});
        for (name, devices, expected) in [
            ("gpu", vec![device(&pci)], Ok("0000:81:01.0")),
            ("gpu/large", vec![device(&pci)], Ok("0000:81:01.0")),
            ("gpu", vec![device(&slice)], Ok(UUID)),
            ("gpus", vec![device(&pci)], Err(InvalidMetadata::NoRequest)),
            ("gpu", vec![], Err(InvalidMetadata::NotOne(0))),
            (
                "gpu",
                vec![device(&pci), device(&pci)],
                Err(InvalidMetadata::NotOne(2)),
            ),
            (
                "gpu",
                vec![device(&json!({PCI: {"int": 3}}))],
                Err(InvalidMetadata::NoAddress),
            ),
            (
                "gpu",
                vec![device(&json!({PCI: {"string": "../0000:81:01.0"}}))],
                Err(InvalidMetadata::BadAddress),
            ),
            (
                "gpu",
                vec![device(&json!({MEDIATED: {"string": "\"/><x"}}))],
                Err(InvalidMetadata::BadAddress),
            ),
        ] {
            let text = metadata(name, &devices);
            let found = claimed_device(text.as_bytes(), "gpu");
            let found = found.map(|address| address.to_string());
            assert_eq!(found, expected.map(ToOwned::to_owned), "{text}");
        }
    }

    #[test]
    fn text_without_a_known_version_is_refused() {
        for text in ["", "{}", "[]", "{\"apiVersion\": 1} x", "\u{0}"] {
            let found = claimed_device(text.as_bytes(), "gpu");
            assert_eq!(found, Err(InvalidMetadata::Format), "{text}");
        }
        let text = json!({"apiVersion": VERSION, "requests": {}}).to_string();
        let found = claimed_device(text.as_bytes(), "gpu");
        assert_eq!(found, Err(InvalidMetadata::Format));
    }

    #[test]
    fn directory_is_that_of_a_claim_or_of_its_template() {
        let claim = |name: &str, claim: Option<&str>| VirtualMachineInstanceResourceClaim {
            name: name.to_owned(),
            resource_claim_name: claim.map(ToOwned::to_owned),
            ..VirtualMachineInstanceResourceClaim::default()
        };
        let claims = [
            claim("own", Some("shared-gpu")),
            claim("made", None),
            claim("bad", Some("..")),
        ];
        for (name, request, expected) in [
            ("own", "gpu", Some("resourceclaims/shared-gpu/gpu")),
            ("made", "gpu", Some("resourceclaimtemplates/made/gpu")),
            ("other", "gpu", None),
            ("bad", "gpu", None),
            ("own", "../gpu", None),
            ("own", "", None),
        ] {
            let found = metadata_directory(&claims, name, request);
            assert_eq!(found.as_deref(), expected, "{name} {request}");
        }
    }
}
