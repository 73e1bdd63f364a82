//! The command line of `create` and its output.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use secrecy::SecretString;

use super::{clone::Clone, instancetype::Instancetype, preference::Preference, vm::Vm};
use crate::{
    cli::{Connection, ObjectOutput},
    failure::Usage,
    printer::Printer,
    random,
};

#[derive(Debug, Args)]
pub struct Create {
    #[command(subcommand)]
    pub kind: Kind,
    /// Format of the manifest
    #[arg(long, short, global = true, value_enum, default_value = "yaml")]
    pub output: ObjectOutput,
}

#[derive(Debug, Subcommand)]
pub enum Kind {
    /// Print the manifest of a VM
    #[command(after_help = super::vm::EXAMPLES)]
    Vm(Box<Vm>),
    /// Print the manifest of an instance type
    #[command(
        after_help = "Example:\n  virtctl create instancetype --name small --cpu 2 --memory 4Gi | kubectl apply -f -"
    )]
    Instancetype(Instancetype),
    /// Print the manifest of a preference
    #[command(
        after_help = "Example:\n  virtctl create preference --name cores --cpu-topology cores | kubectl apply -f -"
    )]
    Preference(Preference),
    /// Print the manifest of a clone of a VM or of its snapshot
    #[command(
        after_help = "Example:\n  virtctl create clone --source-name web --target-name web2 | kubectl apply -f -"
    )]
    Clone(Clone),
}

/// What a manifest depends on besides its own flags.
pub(super) struct Inputs<'a> {
    /// Only if the command line names one.
    pub(super) namespace: Option<&'a str>,
    /// The content of `--password-file`.
    pub(super) password: Option<SecretString>,
    /// Makes the random end of a name.
    pub(super) suffix: &'a mut dyn FnMut() -> String,
}

/// An object, and what the user should know about it.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) object: serde_json::Value,
    pub(super) warnings: Vec<String>,
}

impl From<serde_json::Value> for Manifest {
    fn from(object: serde_json::Value) -> Self {
        let warnings = vec![];
        Self { object, warnings }
    }
}

pub(super) fn manifest(kind: &Kind, inputs: &mut Inputs<'_>) -> Result<Manifest, Usage> {
    match kind {
        Kind::Vm(vm) => super::vm::manifest(vm, inputs),
        Kind::Instancetype(one) => super::instancetype::manifest(one, inputs).map(Manifest::from),
        Kind::Preference(one) => Ok(super::preference::manifest(one, inputs).into()),
        Kind::Clone(clone) => super::clone::manifest(clone, inputs).map(Manifest::from),
    }
}

pub(crate) fn create(printer: Printer, connection: &Connection, create: &Create) -> Result<()> {
    let mut inputs = Inputs {
        namespace: connection.namespace.as_deref(),
        password: password(&create.kind)?,
        suffix: &mut random::suffix,
    };
    let made = manifest(&create.kind, &mut inputs)?;
    for warning in made.warnings {
        printer.warn(&warning);
    }
    printer.object(create.output, &made.object)
}

fn password(kind: &Kind) -> Result<Option<SecretString>> {
    let Kind::Vm(vm) = kind else {
        return Ok(None);
    };
    let Some(file) = &vm.cloud_init.password_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("read --password-file {}", file.display()))?;
    Ok(Some(SecretString::from(text.trim().to_owned())))
}
