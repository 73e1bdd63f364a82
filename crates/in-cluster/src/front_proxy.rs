//! The authority and names of the API server's front proxy, as it publishes them.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serving::Trust;
use virt_api::FrontProxy;

/// Every API server writes this config map; the role `extension-apiserver-authentication-reader` may read it.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The authority of the proxy's certificate, and its permitted names.
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
            "{NAMESPACE}/{NAME} has no authority of a front proxy: start the API server with \
             --requestheader-client-ca-file, which aggregated APIs need"
        )
    })?;
    let names = match text("requestheader-allowed-names") {
        Some(list) => serde_json::from_str(list).context("read the names of front proxies")?,
        None => Vec::new(),
    };
    Ok((Trust::from_pem(authority), FrontProxy { names }))
}
