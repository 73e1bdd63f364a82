//! `logs`: what a guest has written to its serial console since its start.
//!
//! The launcher copies the console into its own log, if the VMI asks for that.

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};
use kubevirt_api::labels;
use serde_json::Value;

use crate::{
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
    subresource::plain,
};

/// The container of `KubeVirt`'s own pods that logs the console alone.
const CONSOLE_CONTAINER: &str = "guest-console-log";
const COMPUTE_CONTAINER: &str = "compute";
/// Begins a line of the guest in the launcher's log.
const MARK: &str = "guest console | ";

#[derive(Debug, Clone, Args)]
pub struct Logs {
    /// Name of the VM or VMI
    pub vmi: String,
    /// Wait for further output
    #[arg(long, short)]
    pub follow: bool,
}

pub(crate) async fn logs(cluster: &Cluster, printer: Printer, flags: &Logs) -> Result<()> {
    let name = &flags.vmi;
    let vmi = objects::find(cluster, &objects::VMI.named(&cluster.namespace, name)).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let label = format!("{}={}", labels::VMI_ID, launcher_pod::label_value(name));
    let found = pods.list(&ListParams::default().labels(&label)).await;
    let newest = found
        .map_err(plain)?
        .items
        .into_iter()
        .max_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let Some(pod) = newest else {
        bail!("{name} has no pod, so it does not run: `virtctl why {name}` explains why");
    };
    let source = Source::of(&pod);
    if let (Source::Launcher, Some(vmi)) = (source, &vmi) {
        check_logged(name, vmi)?;
    }
    let params = LogParams {
        container: Some(source.container().to_owned()),
        follow: flags.follow,
        ..LogParams::default()
    };
    let log = pods
        .log_stream(&pod.name_any(), &params)
        .await
        .map_err(plain)?;
    let mut lines = log.lines();
    while let Some(line) = lines.try_next().await.context("read the log")? {
        if let Some(output) = source.output(&line) {
            printer.line(&output);
        }
    }
    Ok(())
}

fn check_logged(name: &str, vmi: &Value) -> Result<()> {
    let devices = &vmi["spec"]["domain"]["devices"];
    if devices["logSerialConsole"] != true {
        bail!(
            "the console of {name} is not logged: set logSerialConsole: true under \
             spec.template.spec.domain.devices of the VM, and restart it"
        );
    }
    Ok(())
}

/// Where the output of the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A container with nothing else.
    Console,
    /// Lines of the launcher's log.
    Launcher,
}

impl Source {
    fn of(pod: &Pod) -> Self {
        let spec = pod.spec.iter();
        let mut containers = spec.flat_map(|spec| {
            let init = spec.init_containers.iter().flatten();
            spec.containers.iter().chain(init)
        });
        if containers.any(|container| container.name == CONSOLE_CONTAINER) {
            Self::Console
        } else {
            Self::Launcher
        }
    }

    fn container(self) -> &'static str {
        match self {
            Self::Console => CONSOLE_CONTAINER,
            Self::Launcher => COMPUTE_CONTAINER,
        }
    }

    /// The guest's output in a line, if there is any.
    fn output(self, line: &str) -> Option<String> {
        if self == Self::Console {
            return Some(line.to_owned());
        }
        if line.starts_with('{') {
            let record: Value = serde_json::from_str(line).ok()?;
            let message = text(&record, "/fields/message").or(text(&record, "/message"))?;
            return message.strip_prefix(MARK).map(ToOwned::to_owned);
        }
        let (_, output) = line.split_once(MARK)?;
        Some(output.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn output_of_the_guest_is_found_in_text_and_json() {
        let launcher = Source::Launcher;
        let text = "2026-11-22T12:00:00Z  INFO guest{name=a}: guest console | login: a | b";
        assert_eq!(launcher.output(text).as_deref(), Some("login: a | b"));
        let json = json!({"level": "INFO", "fields": {"message": "guest console | \"hello\""}});
        assert_eq!(
            launcher.output(&json.to_string()).as_deref(),
            Some("\"hello\"")
        );
        let flat = json!({"message": "guest console | x"}).to_string();
        assert_eq!(launcher.output(&flat).as_deref(), Some("x"));
        for other in [
            "the guest started",
            "{\"fields\": {\"message\": \"started\"}}",
            "{broken",
        ] {
            assert_eq!(launcher.output(other), None, "{other}");
        }
        assert_eq!(Source::Console.output("any").as_deref(), Some("any"));
    }

    #[test]
    fn source_follows_from_the_containers() {
        let pod = |names: &[&str]| -> Pod {
            let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            serde_json::from_value(json!({"spec": {"containers": containers}})).unwrap()
        };
        assert_eq!(Source::of(&pod(&["compute"])), Source::Launcher);
        assert_eq!(
            Source::of(&pod(&["compute", "guest-console-log"])),
            Source::Console
        );
    }

    #[test]
    fn console_that_is_not_logged_is_an_error_with_a_remedy() {
        let vmi = |logged| {
            let domain = json!({"devices": {"logSerialConsole": logged}});
            json!({"spec": {"domain": domain}})
        };
        check_logged("a", &vmi(true)).unwrap();
        for other in [vmi(false), json!({"spec": {}})] {
            let error = check_logged("a", &other).unwrap_err().to_string();
            assert!(error.contains("set logSerialConsole: true"), "{error}");
        }
    }
}
