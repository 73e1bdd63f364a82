//! `version`.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{cli::Output, connect::Cluster, printer::Printer, subresource};

pub(crate) fn client() -> Value {
    json!({
        "gitVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Without a cluster, prints only the client's version.
pub(crate) async fn version(
    cluster: Option<&Cluster>,
    printer: Printer,
    output: Option<Output>,
) -> Result<()> {
    let client = client();
    let server = match cluster {
        Some(cluster) => Some(
            subresource::version(cluster)
                .await
                .context("read the server's version")?,
        ),
        None => None,
    };
    let mut all = json!({"clientVersion": client});
    if let Some(server) = &server {
        all["serverVersion"] = server.clone();
    }
    match output {
        Some(Output::Json) => printer.line(&serde_json::to_string_pretty(&all)?),
        Some(Output::Yaml) => printer.line(serde_saphyr::to_string(&all)?.trim_end()),
        None => {
            let version =
                |value: &Value| value["gitVersion"].as_str().unwrap_or("unknown").to_owned();
            printer.line(&format!("Client Version: {}", version(&client)));
            if let Some(server) = &server {
                printer.line(&format!("Server Version: {}", version(server)));
            }
        }
    }
    Ok(())
}
