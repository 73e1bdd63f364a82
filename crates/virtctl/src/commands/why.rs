//! `why`: what keeps a machine from running, with evidence and the next command.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use diagnosis::{Cause, Diagnosis, Severity, TABLE, diagnose};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{cli::Output, connect::Cluster, observe::observe, printer::Printer};

/// Not found, or not to be found out.
pub(crate) const UNKNOWN: u8 = 2;

/// The exit code says whether the machine is well.
pub(crate) async fn why(
    cluster: &Cluster,
    printer: Printer,
    name: &str,
    output: Option<Output>,
) -> Result<ExitCode> {
    let namespace = &cluster.namespace;
    let now = Time(Timestamp::now());
    let seen = Box::pin(observe(&cluster.client, (namespace, name), now))
        .await
        .with_context(|| format!("look at {name} in namespace {namespace}"))?;
    let Some(seen) = seen else {
        bail!(
            "there is no VirtualMachine and no VirtualMachineInstance {name:?} in namespace \
             {namespace:?}; `kubectl get vm,vmi --all-namespaces` lists all"
        );
    };
    let found = diagnose(&seen);
    match output {
        Some(Output::Json) => printer.line(&serde_json::to_string_pretty(&found)?),
        Some(Output::Yaml) => printer.line(serde_saphyr::to_string(&found)?.trim_end()),
        None => printer.line(text(&found).trim_end()),
    }
    Ok(if found.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Every cause there is.
pub(crate) fn list(printer: Printer) {
    for rule in TABLE {
        printer.line(&format!(
            "{:26}{:9}{}",
            rule.id,
            word(rule.severity),
            rule.says
        ));
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Broken => "broken",
        Severity::Waiting => "waiting",
        Severity::Off => "off",
        Severity::Notice => "notice",
    }
}

fn text(found: &Diagnosis) -> String {
    let mut out = String::new();
    let first = found.causes.first();
    let state = match first {
        _ if !found.healthy => "is not well",
        Some(cause) if cause.severity == Severity::Off => "is off, as asked",
        _ => "runs",
    };
    let mut line = |text: &str| {
        // A text takes whatever is written to it.
        let _written = writeln!(out, "{}", text.trim_end());
    };
    line(&format!("{}/{} {state}.", found.namespace, found.name));
    line("");
    let width = found
        .path
        .iter()
        .map(|stop| stop.object.len())
        .max()
        .unwrap_or(0);
    for stop in &found.path {
        line(&format!("  {:width$}  {}", stop.object, stop.state));
    }
    if let Some(cause) = first {
        line("");
        detail(cause, &mut line);
    }
    for cause in found.causes.iter().skip(1) {
        line(&format!("Also:      {} [{}]", cause.sentence, cause.id));
    }
    if !found.warnings.is_empty() && !found.healthy {
        line("");
        for warning in &found.warnings {
            let (object, reason) = (&warning.object, &warning.reason);
            line(&format!(
                "Warning:   {object} {reason}: {}",
                warning.message
            ));
        }
    }
    for unread in &found.unread {
        line(&format!("Not seen:  {unread}"));
    }
    out
}

fn detail(cause: &Cause, line: &mut impl FnMut(&str)) {
    line(&format!("Cause:     {} [{}]", cause.sentence, cause.id));
    for evidence in &cause.evidence {
        let (object, field, says) = (&evidence.object, &evidence.field, &evidence.says);
        let place = format!("{object} {field}");
        line(&format!("Evidence:  {}: {says}", place.trim_end()));
    }
    line(&format!("Next:      {}", cause.next));
}

#[cfg(test)]
mod tests {
    use diagnosis::{Evidence, Stop, Warning};

    use super::*;

    fn sick() -> Diagnosis {
        let cause = |id, sentence: &str, evidence: Vec<Evidence>| Cause {
            id,
            severity: Severity::Broken,
            sentence: sentence.to_owned(),
            evidence,
            next: "kubectl -n default get pvc".to_owned(),
        };
        let seen = |object: &str, field: &str, says: &str| Evidence {
            object: object.to_owned(),
            field: field.to_owned(),
            says: says.to_owned(),
        };
        let stop = |object: &str, state: &str| Stop {
            object: object.to_owned(),
            state: state.to_owned(),
        };
        Diagnosis {
            namespace: "default".to_owned(),
            name: "tiny".to_owned(),
            healthy: false,
            path: vec![
                stop("vm/tiny", "Starting, runStrategy Always"),
                stop("pvc/big", "not there"),
            ],
            causes: vec![
                cause(
                    "claim-missing",
                    "The persistent volume claim \"big\" does not exist.",
                    vec![
                        seen("vm/tiny", "spec.template.spec.volumes[0]", "big"),
                        seen("pvc/big", "", "not found"),
                    ],
                ),
                cause("unschedulable", "No node takes the guest.", Vec::new()),
            ],
            warnings: vec![Warning {
                object: "pod/p".to_owned(),
                reason: "FailedMount".to_owned(),
                message: "no volume".to_owned(),
                time: "2026-01-02T03:04:05Z".to_owned(),
            }],
            unread: vec!["nodes: forbidden".to_owned()],
        }
    }

    #[test]
    fn the_first_cause_is_told_in_full_and_the_others_in_a_line() {
        assert_eq!(
            text(&sick()),
            "\
default/tiny is not well.

  vm/tiny  Starting, runStrategy Always
  pvc/big  not there

Cause:     The persistent volume claim \"big\" does not exist. [claim-missing]
Evidence:  vm/tiny spec.template.spec.volumes[0]: big
Evidence:  pvc/big: not found
Next:      kubectl -n default get pvc
Also:      No node takes the guest. [unschedulable]

Warning:   pod/p FailedMount: no volume
Not seen:  nodes: forbidden
"
        );
    }

    #[test]
    fn what_is_well_is_told_in_a_line() {
        let mut well = sick();
        well.healthy = true;
        well.causes.clear();
        well.unread.clear();
        assert!(text(&well).starts_with("default/tiny runs.\n"));
        assert!(!text(&well).contains("Warning"));
    }
}
