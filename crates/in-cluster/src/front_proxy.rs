//! Whom the API server forwards requests for: what it publishes about its own front proxy.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serving::Trust;
use virt_api::FrontProxy;

/// Every API server writes it; the role `extension-apiserver-authentication-reader` may read it.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The authority of the proxy's certificate, and the names that count.
pub(crate) async fn read(client: &Client) -> Result<(Trust, FrontProxy)> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let data = api
        .get(NAME)
        .await
        .with_context(|| format!("read {NAMESPACE}/{NAME}"))?
        .data
        .unwrap_or_default();
    let text = |key: &str| data.get(key).map(String::as_str);
    let authority = text("requestheader-client-ca-file").with_context(|| {
        format!(
            "{NAMESPACE}/{NAME} names no authority of a front proxy: the API server must have \
             --requestheader-client-ca-file for aggregated APIs"
        )
    })?;
    let names = match text("requestheader-allowed-names") {
        Some(list) => serde_json::from_str(list).context("read the names of front proxies")?,
        None => Vec::new(),
    };
    Ok((Trust::from_pem(authority), FrontProxy { names }))
}
