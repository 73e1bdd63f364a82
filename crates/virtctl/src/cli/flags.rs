//! Flags and arguments that several commands have.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, Args)]
pub struct DryRun {
    /// Check everything on the server and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub struct Grace {
    /// Seconds for the guest to shut down; for restart only 0, with --force
    #[arg(long, value_name = "SECONDS", default_value_t = -1, allow_hyphen_values = true)]
    pub grace_period: i64,
    /// Do not wait for the guest; needs --grace-period
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Clone, Args)]
pub struct Target {
    /// The kind of NAME
    #[arg(value_enum, ignore_case = true)]
    pub kind: Kind,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    #[value(alias = "vms", alias = "virtualmachine", alias = "virtualmachines")]
    Vm,
    #[value(
        alias = "vmis",
        alias = "virtualmachineinstance",
        alias = "virtualmachineinstances"
    )]
    Vmi,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Output {
    Json,
    Yaml,
}

/// The format of a report.
#[derive(Debug, Clone, Copy, Args)]
pub struct Printed {
    /// Format of the report
    #[arg(long, short, value_enum, default_value = "json", value_name = "FORMAT")]
    pub output: Output,
}

/// What is printed of an object that was made.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Made {
    /// Print the object that was made, in this format, instead of a message
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<ObjectOutput>,
}

/// What is printed of an object that was changed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Changed {
    /// Print the object that was changed, in this format, instead of a message
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<ObjectOutput>,
}

impl From<Output> for ObjectOutput {
    fn from(output: Output) -> Self {
        match output {
            Output::Json => Self::Json,
            Output::Yaml => Self::Yaml,
        }
    }
}

/// Formats of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectOutput {
    Json,
    Yaml,
    /// KIND/NAME
    Name,
}
