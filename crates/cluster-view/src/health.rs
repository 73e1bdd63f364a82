//! The answer of a component's `/healthz`, in the format of `KubeVirt`.
//!
//! Tools that change the configuration read `config-resource-version` until it has reached their change.

use std::time::Duration;

use error_chain::error_chain;
use kube::Client;
use serde_json::{Value, json};

use crate::Configuration;

/// A client of `/healthz` waits only a few seconds itself.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the API server answers, and the JSON that reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    pub is_healthy: bool,
    pub body: Value,
}

/// Asks the API server for its version. `configurations` are those of all components in this process; the oldest
/// version counts.
pub async fn health(client: &Client, configurations: &[Configuration]) -> Health {
    let answer = tokio::time::timeout(TIMEOUT, client.apiserver_version()).await;
    let error = match answer {
        Ok(Ok(version)) => {
            return Health {
                is_healthy: true,
                body: json!({
                    "apiserver": {"connectivity": "ok", "version": version},
                    "config-resource-version": oldest(configurations),
                }),
            };
        }
        Ok(Err(error)) => error_chain(&error),
        Err(_elapsed) => format!("no answer within {} s", TIMEOUT.as_secs()),
    };
    Health {
        is_healthy: false,
        body: json!({"apiserver": {"connectivity": "failed", "error": error}}),
    }
}

/// The lowest version, by number.
fn oldest(configurations: &[Configuration]) -> String {
    let versions = configurations.iter().map(Configuration::resource_version);
    let oldest = versions.min_by_key(|version| version.parse().unwrap_or(u64::MAX));
    oldest.unwrap_or_default()
}
