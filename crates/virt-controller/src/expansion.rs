//! A VM with its instance type and preference applied, for copies of it: these may give it what a copy cannot have.

use cluster_config::ClusterConfig;
use cluster_view::sizes::{self, FindError};
use defaults::{Environment, expand};
use error_chain::error_chain;
use instancetype::{Choice, reference};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kubevirt_api::VirtualMachine;
use kubevirt_api::instancetype::VirtualMachineInstancetypeSpec;
use kubevirt_api::preference::VirtualMachinePreferenceSpec;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

/// The outer error is one of the API server; the inner one says why they cannot be applied.
type Found<T> = Result<Result<T, String>, Box<kube::Error>>;

/// `place` is a client, and the namespace of the VM.
pub(crate) async fn expanded(
    place: (&Client, &str),
    cluster: &ClusterConfig,
    now: Timestamp,
    vm: &Value,
) -> Found<Value> {
    let read = match VirtualMachine::deserialize(vm) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let status = read.status.unwrap_or_default();
    let size = reference::instancetype(
        read.spec.instancetype.as_ref(),
        status.instancetype_ref.as_ref(),
    );
    let preference = reference::preference(
        read.spec.preference.as_ref(),
        status.preference_ref.as_ref(),
    );
    let size = match spec::<VirtualMachineInstancetypeSpec>(place, size).await? {
        Ok(size) => size,
        Err(message) => return Ok(Err(message)),
    };
    let preference = match spec::<VirtualMachinePreferenceSpec>(place, preference).await? {
        Ok(preference) => preference,
        Err(message) => return Ok(Err(message)),
    };
    let choice = Choice {
        instancetype: size.as_ref(),
        preference: preference.as_ref(),
    };
    let env = Environment {
        now: &Time(now),
        new_uuid: &Uuid::new_v4,
    };
    let expanded = expand(vm, choice, cluster, env);
    Ok(expanded.map_err(|violations| {
        let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
        all.join("; ")
    }))
}

async fn spec<T: DeserializeOwned>(
    (client, namespace): (&Client, &str),
    reference: Option<reference::Reference>,
) -> Found<Option<T>> {
    let Some(reference) = reference else {
        return Ok(Ok(None));
    };
    match sizes::find(client, namespace, &reference).await {
        Ok(found) => Ok(Ok(Some(found.spec))),
        Err(FindError::Unavailable { source, .. }) => Err(source),
        Err(error) => Ok(Err(error_chain(&error))),
    }
}
