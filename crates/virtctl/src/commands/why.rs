//! `why`: the cause that keeps a VM from running, with evidence, remedy and the next command.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use diagnosis::{Cause, Diagnosis, Severity, TABLE, diagnose};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use observation::{Target, observe};

use crate::{
    away::{self, Away},
    changes::Changes,
    cli::{Kind, Output, Why},
    connect::Cluster,
    printer::Printer,
    subresource::plain,
};

/// The exit code if the VM does not exist or cannot be read.
pub(crate) const UNKNOWN: u8 = 2;

/// A question about a VM or VMI, and the format of the answer.
#[derive(Clone, Copy, Debug)]
struct Question<'a> {
    name: &'a str,
    output: Option<Output>,
}

/// The name of a VM or VMI that may be written with its kind, as the evidence shows it.
fn plain_name(name: &str) -> Result<&str> {
    let Some((kind, plain)) = name.split_once('/') else {
        return Ok(name);
    };
    if Kind::from_str(kind, true).is_ok() && !plain.is_empty() {
        return Ok(plain);
    }
    bail!("{name:?} does not name a VM or VMI; write NAME, vm/NAME or vmi/NAME")
}

/// Prints the diagnosis; the exit code reports whether the VM is healthy.
pub(crate) async fn why(cluster: &Cluster, printer: Printer, arguments: &Why) -> Result<ExitCode> {
    let question = Question {
        name: plain_name(arguments.name.as_deref().unwrap_or_default())?,
        output: arguments.output,
    };
    if arguments.watch {
        return watch(cluster, printer, question).await;
    }
    let Some(found) = ask(cluster, question.name).await? else {
        bail!(missing(cluster, question.name));
    };
    printer.line(rendered(&found, question.output)?.trim_end());
    Ok(if found.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the diagnosis whenever it changes, until the VM is healthy.
async fn watch(cluster: &Cluster, printer: Printer, question: Question<'_>) -> Result<ExitCode> {
    let mut changes = Changes::of(cluster, question.name);
    let mut before = String::new();
    let mut away = Away::default();
    loop {
        let found = match away::answer(ask(cluster, question.name)).await {
            Ok(found) => found,
            // The first answer is needed at once.
            Err(error) if before.is_empty() => return Err(error),
            Err(error) => {
                away.pause(printer, error).await?;
                continue;
            }
        };
        away.is_over(printer);
        let Some(found) = found else {
            let name = question.name;
            if before.is_empty() {
                bail!(missing(cluster, name));
            }
            bail!("{name} was deleted");
        };
        // Repeated events change only the times of warnings, which the text does not have.
        let now = text(&found);
        if now != before {
            match question.output {
                Some(Output::Yaml) => printer.line("---"),
                None if !before.is_empty() => printer.line(""),
                None | Some(Output::Json) => {}
            }
            printer.line(one_document(&found, question.output)?.trim_end());
        }
        if found.healthy {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
        changes.next().await;
    }
}

/// The diagnosis; `None` if there is neither a VM nor a VMI.
async fn ask(cluster: &Cluster, name: &str) -> Result<Option<Diagnosis>> {
    let namespace = &cluster.namespace;
    let now = Time(Timestamp::now());
    let target = Target { namespace, name };
    let observed = Box::pin(observe(&cluster.client, target, now))
        .await
        .map_err(plain)
        .with_context(|| format!("read {name} in namespace {namespace}"))?;
    Ok(observed.as_ref().map(diagnose))
}

fn missing(cluster: &Cluster, name: &str) -> String {
    let namespace = &cluster.namespace;
    format!(
        "there is no VirtualMachine and no VirtualMachineInstance {name:?} in namespace \
         {namespace:?}; `kubectl get vm,vmi --all-namespaces` lists all"
    )
}

fn rendered(found: &Diagnosis, output: Option<Output>) -> Result<String> {
    Ok(match output {
        Some(Output::Json) => serde_json::to_string_pretty(found)?,
        Some(Output::Yaml) => serde_saphyr::to_string(found)?,
        None => text(found),
    })
}

/// One of several answers: JSON on one line, so that programs can read line by line.
fn one_document(found: &Diagnosis, output: Option<Output>) -> Result<String> {
    match output {
        Some(Output::Json) => Ok(serde_json::to_string(found)?),
        output => rendered(found, output),
    }
}

/// Prints every known cause.
pub(crate) fn list(printer: Printer) {
    for rule in TABLE {
        printer.line(&format!(
            "{:26}{:9}{}",
            rule.id,
            severity(rule.severity),
            rule.summary
        ));
    }
}

fn severity(severity: Severity) -> &'static str {
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
        _ if !found.healthy => "is not healthy",
        Some(cause) if cause.severity == Severity::Off => "is off, as requested",
        _ => "runs",
    };
    let mut line = |text: &str| {
        // Writing to a string does not fail.
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
        line(&format!("Not read:  {unread}"));
    }
    out
}

fn detail(cause: &Cause, line: &mut impl FnMut(&str)) {
    line(&format!("Cause:     {} [{}]", cause.sentence, cause.id));
    for evidence in &cause.evidence {
        let (object, field, value) = (&evidence.object, &evidence.field, &evidence.value);
        let path = format!("{object} {field}");
        line(&format!("Evidence:  {}: {value}", path.trim_end()));
    }
    if let Some(reason) = cause.reason {
        line(&format!("Reason:    {reason}"));
    }
    if let Some(remedy) = cause.remedy {
        line(&format!("Remedy:    {remedy}"));
    }
    line(&format!("Next:      {}", cause.next));
}

#[cfg(test)]
mod tests {
    use diagnosis::{Evidence, PathEntry, Warning};

    use super::*;

    fn unhealthy() -> Diagnosis {
        let cause = |id, sentence: &str, evidence: Vec<Evidence>| Cause {
            id,
            severity: Severity::Broken,
            sentence: sentence.to_owned(),
            reason: Some("FailedPvcNotFound"),
            remedy: Some("Create the claim that the message names."),
            evidence,
            next: "kubectl -n default get pvc".to_owned(),
        };
        let evidence = |object: &str, field: &str, value: &str| Evidence {
            object: object.to_owned(),
            field: field.to_owned(),
            value: value.to_owned(),
        };
        let entry = |object: &str, state: &str| PathEntry {
            object: object.to_owned(),
            state: state.to_owned(),
        };
        Diagnosis {
            namespace: "default".to_owned(),
            name: "tiny".to_owned(),
            healthy: false,
            path: vec![
                entry("vm/tiny", "Starting, runStrategy Always"),
                entry("pvc/big", "does not exist"),
            ],
            causes: vec![
                cause(
                    "claim-missing",
                    "The persistent volume claim \"big\" does not exist.",
                    vec![
                        evidence("vm/tiny", "spec.template.spec.volumes[0]", "big"),
                        evidence("pvc/big", "", "not found"),
                    ],
                ),
                cause("unschedulable", "No node can take the guest.", Vec::new()),
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
    fn first_cause_is_printed_in_full_and_others_in_one_line() {
        assert_eq!(
            text(&unhealthy()),
            "\
default/tiny is not healthy.

  vm/tiny  Starting, runStrategy Always
  pvc/big  does not exist

Cause:     The persistent volume claim \"big\" does not exist. [claim-missing]
Evidence:  vm/tiny spec.template.spec.volumes[0]: big
Evidence:  pvc/big: not found
Reason:    FailedPvcNotFound
Remedy:    Create the claim that the message names.
Next:      kubectl -n default get pvc
Also:      No node can take the guest. [unschedulable]

Warning:   pod/p FailedMount: no volume
Not read:  nodes: forbidden
"
        );
    }

    #[test]
    fn name_may_have_its_kind() {
        for name in ["tiny", "vm/tiny", "VMI/tiny", "virtualmachines/tiny"] {
            assert_eq!(plain_name(name).unwrap(), "tiny");
        }
        for name in ["pod/tiny", "vm/", "/tiny"] {
            assert!(plain_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn answers_of_a_watch_are_one_line_of_json() {
        let json = one_document(&unhealthy(), Some(Output::Json)).unwrap();
        assert_eq!(json.lines().count(), 1, "{json}");
        let yaml = one_document(&unhealthy(), Some(Output::Yaml)).unwrap();
        assert!(yaml.contains('\n'), "{yaml}");
    }

    #[test]
    fn healthy_vm_is_printed_in_one_line() {
        let mut healthy = unhealthy();
        healthy.healthy = true;
        healthy.causes.clear();
        healthy.unread.clear();
        assert!(text(&healthy).starts_with("default/tiny runs.\n"));
        assert!(!text(&healthy).contains("Warning"));
    }
}
