//! Resolution of and connections to other servers: webhooks, aggregated APIs.
//!
//! Invariant: a server is called at the address in the Endpoints of its service, and must present a
//! certificate for `<service>.<namespace>.svc` signed by the given authority.

use std::collections::HashMap;

use apimachinery::Status;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use error_chain::error_chain;
use parking_lot::Mutex;
use serde_json::Value;
use serving::{HttpsClient, Target, Trust};

use crate::{api::Api, error::ApiError, store::Collection};

/// The address of a service's port.
pub(crate) async fn resolve(
    api: &Api,
    namespace: &str,
    service: &str,
    port: u16,
) -> Result<Target, ApiError> {
    let unavailable =
        |why: &str| Status::service_unavailable(format!("service {namespace}/{service}: {why}"));
    let load = async |plural: &str| -> Result<Option<Value>, ApiError> {
        let key = Collection::new("", plural).key(namespace, service);
        Ok(api
            .store
            .get(&key)
            .await?
            .map(|stored| stored.parse())
            .transpose()?)
    };
    let Some(object) = load("services").await? else {
        return Err(unavailable("not found").into());
    };
    let Some(endpoints) = load("endpoints").await? else {
        return Err(unavailable("has no endpoints").into());
    };
    let ports = object["spec"]["ports"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let Some(wanted) = ports.iter().find(|entry| entry["port"] == port) else {
        return Err(unavailable(&format!("has no port {port}")).into());
    };
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let ready = subset["addresses"]
            .as_array()
            .and_then(|addresses| addresses.first());
        let Some(ip) = ready.and_then(|address| address["ip"].as_str()) else {
            continue;
        };
        let entries = subset["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let found = match entries {
            [only] => Some(only),
            many => many.iter().find(|entry| entry["name"] == wanted["name"]),
        };
        let number = found.and_then(|entry| entry["port"].as_u64());
        if let Some(number) = number.and_then(|number| u16::try_from(number).ok()) {
            let mut target = Target::host(ip, number);
            target.server_name = format!("{service}.{namespace}.svc");
            return Ok(target);
        }
    }
    Err(unavailable("has no ready endpoint").into())
}

/// The client identity of our requests to another server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClientIdentity {
    Anonymous,
    FrontProxy,
}

/// Clients by trusted authority and identity. A cached client reuses its TLS sessions.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<HashMap<(String, ClientIdentity), HttpsClient>>);

impl Clients {
    /// After a change of our own certificate.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

/// Enough for a few webhooks and APIs; a changed `caBundle` leaves an unused entry.
const MAX_CLIENTS: usize = 16;

/// A client that trusts a `caBundle` as in objects: base64-encoded PEM.
pub(crate) fn client(
    api: &Api,
    ca_bundle: &str,
    presents: ClientIdentity,
) -> Result<HttpsClient, ApiError> {
    let mut clients = api.clients.0.lock();
    let key = (ca_bundle.to_owned(), presents);
    if let Some(client) = clients.get(&key) {
        return Ok(client.clone());
    }
    let client = new_client(api, ca_bundle, presents)?;
    if clients.len() >= MAX_CLIENTS {
        clients.clear();
    }
    clients.insert(key, client.clone());
    Ok(client)
}

fn new_client(
    api: &Api,
    ca_bundle: &str,
    presents: ClientIdentity,
) -> Result<HttpsClient, ApiError> {
    let wrong = |why: &str| ApiError::from(Status::service_unavailable(format!("caBundle: {why}")));
    let pem = STANDARD
        .decode(ca_bundle)
        .map_err(|_| wrong("is not base64"))?;
    let pem = String::from_utf8(pem).map_err(|_| wrong("is not PEM"))?;
    let identity = match presents {
        ClientIdentity::Anonymous => None,
        ClientIdentity::FrontProxy => api.certificates.read().front_proxy.clone(),
    };
    HttpsClient::new(&Trust::from_pem(pem), identity.as_ref(), api.tasks.clone())
        .map_err(|error| wrong(&error_chain(&error)))
}
