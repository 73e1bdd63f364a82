//! `adm log-verbosity`: how much the components log.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::{
    cli::ObjectOutput,
    connect::Cluster,
    failure::Usage,
    objects::{self, text},
    printer::Printer,
};

/// What a component logs without a setting.
const DEFAULT: u64 = 2;
/// A flag without a value shows the verbosity.
const SHOW: &str = "10";

#[derive(Debug, Clone, Args)]
pub struct Adm {
    #[command(subcommand)]
    pub command: AdmCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum AdmCommand {
    /// Show or set how much the components log
    #[command(
        alias = "logVerbosity",
        arg_required_else_help = true,
        after_help = "\
Examples:
  virtctl adm log-verbosity --all
  virtctl adm log-verbosity --virt-handler=6 --virt-launcher=4
  virtctl adm log-verbosity --reset

A flag without a value shows the verbosity; with a value from 0 to 9 it sets it."
    )]
    LogVerbosity(LogVerbosity),
}

#[derive(Debug, Clone, Default, Args)]
pub struct LogVerbosity {
    /// Every component
    #[arg(long, value_name = "0-9", num_args = 0..=1, require_equals = true,
          default_missing_value = SHOW, value_parser = clap::value_parser!(u8).range(0..=10),
          conflicts_with = "reset")]
    pub all: Option<u8>,
    /// Remove the settings of every component
    #[arg(long)]
    pub reset: bool,
    /// virt-api
    #[arg(long, value_name = "0-9", num_args = 0..=1, require_equals = true,
          default_missing_value = SHOW, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub virt_api: Option<u8>,
    /// virt-controller
    #[arg(long, value_name = "0-9", num_args = 0..=1, require_equals = true,
          default_missing_value = SHOW, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub virt_controller: Option<u8>,
    /// virt-handler
    #[arg(long, value_name = "0-9", num_args = 0..=1, require_equals = true,
          default_missing_value = SHOW, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub virt_handler: Option<u8>,
    /// virt-launcher
    #[arg(long, value_name = "0-9", num_args = 0..=1, require_equals = true,
          default_missing_value = SHOW, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub virt_launcher: Option<u8>,
    /// virt-operator
    #[arg(long, value_name = "0-9", num_args = 0..=1, require_equals = true,
          default_missing_value = SHOW, value_parser = clap::value_parser!(u8).range(0..=10))]
    pub virt_operator: Option<u8>,
    /// Print the verbosities as a map, or the object that was changed, in this format
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<ObjectOutput>,
}

/// A component and its field in `logVerbosity`.
const COMPONENTS: [(&str, &str); 5] = [
    ("virt-api", "virtAPI"),
    ("virt-controller", "virtController"),
    ("virt-handler", "virtHandler"),
    ("virt-launcher", "virtLauncher"),
    ("virt-operator", "virtOperator"),
];

impl LogVerbosity {
    /// The flags of the components, in the order of [`COMPONENTS`].
    fn components(&self) -> [Option<u8>; 5] {
        [
            self.virt_api,
            self.virt_controller,
            self.virt_handler,
            self.virt_launcher,
            self.virt_operator,
        ]
        .map(|own| own.or(self.all))
    }
}

/// What the command does.
#[derive(Debug, PartialEq)]
enum Step {
    /// Components and their verbosities.
    Show(Vec<(&'static str, u64)>),
    /// The new value of `logVerbosity`, as a merge patch.
    Set(Value),
}

pub(crate) async fn log_verbosity(
    cluster: &Cluster,
    printer: Printer,
    flags: &LogVerbosity,
) -> Result<()> {
    let installations = objects::list(cluster, &objects::KUBEVIRT.everywhere()).await?;
    let installation = installations
        .first()
        .context("find the KubeVirt object: there is none, so nothing is installed")?;
    match plan(flags, installation)? {
        Step::Show(shown) => match flags.output {
            None => {
                for (component, verbosity) in shown {
                    printer.line(&format!("{component}={verbosity}"));
                }
            }
            Some(ObjectOutput::Name) => printer.object(ObjectOutput::Name, &named(installation))?,
            Some(output) => {
                let map = shown.into_iter();
                let map =
                    map.map(|(component, verbosity)| (component.to_owned(), verbosity.into()));
                printer.object(output, &Value::Object(map.collect()))?;
            }
        },
        Step::Set(verbosity) => {
            let field = |pointer| text(installation, pointer).unwrap_or_default();
            let path =
                objects::KUBEVIRT.named(field("/metadata/namespace"), field("/metadata/name"));
            let developer = json!({"logVerbosity": verbosity});
            let configuration = json!({"developerConfiguration": developer});
            let patch = json!({"spec": {"configuration": configuration}});
            let changed = objects::merge(cluster, &path, &patch).await?;
            match flags.output {
                Some(output) => printer.object(output, &named(&changed))?,
                None => printer.line("The log verbosity was changed"),
            }
        }
    }
    Ok(())
}

/// The object with its kind, which items of lists lack.
fn named(installation: &Value) -> Value {
    let mut named = installation.clone();
    named["apiVersion"] = "kubevirt.io/v1".into();
    named["kind"] = "KubeVirt".into();
    named
}

fn plan(flags: &LogVerbosity, installation: &Value) -> Result<Step, Usage> {
    let flagged: Vec<_> = COMPONENTS
        .iter()
        .zip(flags.components())
        .filter_map(|(component, flag)| Some((component, flag?)))
        .collect();
    let shown = flagged.iter().filter(|(_, value)| *value == 10).count();
    if shown > 0 && (shown < flagged.len() || flags.reset) {
        return Err(Usage::new(
            "a flag without a value shows, and one with a value or --reset sets: do one of both",
        ));
    }
    let current = "/spec/configuration/developerConfiguration/logVerbosity";
    if shown > 0 {
        let shown = flagged.iter().map(|((component, field), _)| {
            let set = installation.pointer(&format!("{current}/{field}"));
            (*component, set.and_then(Value::as_u64).unwrap_or(DEFAULT))
        });
        return Ok(Step::Show(shown.collect()));
    }
    if flagged.is_empty() && !flags.reset {
        return Err(Usage::new(
            "name a component, such as --virt-handler, or --all, or --reset",
        ));
    }
    if flagged.is_empty() {
        return Ok(Step::Set(Value::Null));
    }
    let mut fields = Map::new();
    if flags.reset {
        let set = installation.pointer(current).and_then(Value::as_object);
        let set = set.into_iter().flat_map(Map::keys);
        fields.extend(set.map(|field| (field.clone(), Value::Null)));
    }
    for ((_, field), value) in flagged {
        fields.insert((*field).to_owned(), value.into());
    }
    Ok(Step::Set(fields.into()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, ObjectCommand};

    fn planned(arguments: &str) -> Result<Step, Usage> {
        let words = ["virtctl", "adm", "log-verbosity"].into_iter();
        let cli = Cli::try_parse_from(words.chain(arguments.split(' ')));
        let cli = cli.map_err(|err| Usage::new(err.kind().to_string()))?;
        let Command::Objects(ObjectCommand::Adm(Adm {
            command: AdmCommand::LogVerbosity(flags),
        })) = cli.command
        else {
            panic!("another command");
        };
        let set = json!({"virtAPI": 4, "nodeVerbosity": {"n": 9}});
        let developer = json!({"logVerbosity": set});
        plan(
            &flags,
            &json!({"spec": {"configuration": {"developerConfiguration": developer}}}),
        )
    }

    #[test]
    fn verbosity_is_shown_or_set() {
        let show = |shown: &[(&'static str, u64)]| Step::Show(shown.to_vec());
        for (arguments, step) in [
            (
                "--virt-api --virt-handler",
                show(&[("virt-api", 4), ("virt-handler", 2)]),
            ),
            ("--virt-api=10", show(&[("virt-api", 4)])),
            (
                "--all",
                show(&[
                    ("virt-api", 4),
                    ("virt-controller", 2),
                    ("virt-handler", 2),
                    ("virt-launcher", 2),
                    ("virt-operator", 2),
                ]),
            ),
            (
                "--all=3 --virt-handler=7",
                Step::Set(json!({
                    "virtAPI": 3, "virtController": 3, "virtHandler": 7, "virtLauncher": 3,
                    "virtOperator": 3,
                })),
            ),
            ("--virt-launcher=0", Step::Set(json!({"virtLauncher": 0}))),
            ("--reset", Step::Set(Value::Null)),
            (
                "--reset --virt-handler=7",
                Step::Set(json!({"virtAPI": null, "nodeVerbosity": null, "virtHandler": 7})),
            ),
        ] {
            assert_eq!(planned(arguments).unwrap(), step, "{arguments}");
        }
        for wrong in [
            "--virt-api=1 --virt-handler",
            "--reset --virt-api",
            "--reset --all=1",
            "--virt-api=11",
            "--virt-api 3",
            "-o json",
        ] {
            planned(wrong).unwrap_err();
        }
    }
}
