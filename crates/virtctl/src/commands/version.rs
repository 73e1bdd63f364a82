//! `version`.

use anyhow::{Context, Result};
use kubevirt_api::COMPATIBLE_VERSION;
use serde_json::{Value, json};

use crate::{cli::Output, connect::Cluster, printer::Printer, subresource};

pub(crate) fn client() -> Value {
    json!({
        "gitVersion": COMPATIBLE_VERSION,
        "ferrovirtVersion": concat!("v", env!("CARGO_PKG_VERSION")),
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
            printer.line(&format!("Client Version: {}", shown(&client)));
            if let Some(server) = &server {
                printer.line(&format!("Server Version: {}", shown(server)));
            }
        }
    }
    Ok(())
}

/// The version of `KubeVirt` that the program is compatible with; `KubeVirt` itself has no other.
fn shown(version: &Value) -> String {
    let compatible = version["gitVersion"].as_str().unwrap_or("unknown");
    match version["ferrovirtVersion"].as_str() {
        Some(own) => format!("{compatible} (Ferrovirt {own})"),
        None => compatible.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_version_is_beside_the_compatible_one() {
        let own = concat!("(Ferrovirt v", env!("CARGO_PKG_VERSION"), ")");
        assert_eq!(shown(&client()), format!("v1.9.0 {own}"));
        assert_eq!(shown(&json!({"gitVersion": "v1.8.2"})), "v1.8.2");
    }
}
