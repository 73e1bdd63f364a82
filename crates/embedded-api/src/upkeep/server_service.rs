//! The service `kubernetes`, by which pods reach this server, with its endpoints.
//!
//! It is written at the start, before any client is served, and again whenever it changes.

use std::{net::SocketAddrV4, sync::Arc, time::Duration};

use apimachinery::meta;
use serde_json::{Map, Value, json};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    services,
    store::Key,
    verbs::{
        Call, Live,
        delete::{self, Options},
        write::{self, Ownership},
    },
};

const RETRY: Duration = Duration::from_secs(5);
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
/// The port of the service, whatever port this server listens on.
const PORT: u16 = 443;
const PORT_NAME: &str = "https";

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    let mut retry = Some(Instant::now());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            event = live.recv() => match event {
                Ok(event) if !is_ours(&event.key) => continue,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
        }
        retry = match confine_pass(ensure(&api)).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, "restoring the service `kubernetes` failed, will retry");
                Some(Instant::now() + RETRY)
            }
        };
    }
}

fn is_ours(key: &Key) -> bool {
    let collection = (&*key.collection.group, &*key.collection.plural);
    (&*key.namespace, &*key.name) == (NAMESPACE, NAME)
        && matches!(
            collection,
            ("", "services" | "endpoints") | ("discovery.k8s.io", "endpointslices")
        )
}

/// At the start: services of an older version may have the address of this one.
pub(crate) async fn bootstrap(api: &Api) -> Result<(), ApiError> {
    Box::pin(services::repair(api)).await?;
    ensure(api).await
}

async fn ensure(api: &Api) -> Result<(), ApiError> {
    let Some(server) = api.services.server else {
        return Ok(());
    };
    let address = api.services.first().to_string();
    let service = Wanted {
        group: "",
        plural: "services",
        object: service(&address, server.port()),
        // The range depends on that of the pods, which may change between two starts.
        replace_when_different: Some("/spec/clusterIP"),
    };
    let endpoints = Wanted {
        group: "",
        plural: "endpoints",
        object: endpoints(server),
        replace_when_different: None,
    };
    let slice = Wanted {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        object: slice(server),
        replace_when_different: Some("/addressType"),
    };
    for wanted in [service, endpoints, slice] {
        Box::pin(restore(api, wanted)).await?;
    }
    Ok(())
}

/// An object that must exist.
#[derive(Debug)]
struct Wanted {
    group: &'static str,
    plural: &'static str,
    object: Value,
    /// An immutable field.
    replace_when_different: Option<&'static str>,
}

async fn restore(api: &Api, wanted: Wanted) -> Result<(), ApiError> {
    let Some(kind) = api.registry.find(wanted.group, "v1", wanted.plural) else {
        return Ok(());
    };
    let call = Call::internal(Arc::clone(&kind), NAMESPACE, Some(NAME));
    let mut object = wanted.object;
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.clone().into();
    if let Some(stored) = api.store.get(&call.key(NAME)).await? {
        let live = Live::of(&stored, &kind)?;
        let is_other = |field: &str| live.object.pointer(field) != object.pointer(field);
        if !wanted.replace_when_different.is_some_and(is_other) {
            let restored = merged(&live.object, &object);
            if restored == live.object {
                return Ok(());
            }
            let done = write::update(api, &call, &live, restored, Ownership::Compute).await;
            return ignore_races(done.map(drop));
        }
        delete::delete_named(api, &call, NAME, &Options::default()).await?;
    }
    meta::set(&mut object, "name", NAME);
    meta::set(&mut object, "namespace", NAMESPACE);
    let done = write::create(api, &call, object, Ownership::Compute).await;
    ignore_races(done.map(drop))
}

/// The event of the other write triggers another run.
fn ignore_races(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if error.is_taken() || error.is_conflict() || error.is_not_found() => Ok(()),
        done => done,
    }
}

/// The live object with the wanted fields; other fields stay, such as labels of users.
fn merged(live: &Value, wanted: &Value) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let mut out: Map<String, Value> = live.clone();
            for (field, value) in wanted {
                let value = merged(live.get(field).unwrap_or(&Value::Null), value);
                out.insert(field.clone(), value);
            }
            Value::Object(out)
        }
        _ => wanted.clone(),
    }
}

fn service(address: &str, port: u16) -> Value {
    json!({
        "metadata": {"labels": {"component": "apiserver", "provider": NAME}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "sessionAffinity": "None",
            "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": port}],
        },
    })
}

fn endpoints(server: SocketAddrV4) -> Value {
    json!({
        "metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{
            "addresses": [{"ip": server.ip().to_string()}],
            "ports": [{"name": PORT_NAME, "port": server.port(), "protocol": "TCP"}],
        }],
    })
}

fn slice(server: SocketAddrV4) -> Value {
    json!({
        "metadata": {"labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [server.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": PORT_NAME, "port": server.port(), "protocol": "TCP"}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_others_stay() {
        let live = json!({"metadata": {"labels": {"a": "b"}, "uid": "u"}, "subsets": []});
        let server = "10.244.0.1:6443".parse().expect("an address");
        let restored = merged(&live, &endpoints(server));
        assert_eq!(restored["metadata"]["labels"]["a"], "b");
        assert_eq!(restored["metadata"]["uid"], "u");
        assert_eq!(restored["subsets"][0]["addresses"][0]["ip"], "10.244.0.1");
        assert_eq!(merged(&restored, &endpoints(server)), restored);
    }
}
