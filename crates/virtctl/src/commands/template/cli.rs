//! The command line of `template`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::{
    cli::{Made, ObjectOutput},
    key_values::KeyValue,
};

#[derive(Debug, Clone, Args)]
pub struct Template {
    #[command(subcommand)]
    pub command: TemplateCommand,
}

#[derive(Debug, Clone, Subcommand)]
pub enum TemplateCommand {
    /// Print the VM of a template, or make it
    #[command(after_help = "\
Examples:
  virtctl template process fedora --print-params
  virtctl template process fedora -p NAME=web -p CORES=4 | kubectl apply -f -
  virtctl template process fedora --params-file web.yaml --create
  virtctl template process --file fedora.yaml -p NAME=web -o json

A parameter without a value has its default, or a generated value. With --create, the server makes the VM if it \
has the subresource for that; otherwise the VM is made with your own rights.")]
    Process(Process),
    /// Ask for a template of a VM
    #[command(
        after_help = "Example: virtctl template create --name golden --vm-name web --vm-namespace tests"
    )]
    Create(Create),
    #[command(
        about = "Print a Template of OpenShift as a template of VMs",
        after_help = "\
Examples:
  virtctl template convert fedora | kubectl apply -f -
  virtctl template convert --file fedora-template.yaml -o json

Objects of the template besides its VM are left out, with a warning for each."
    )]
    Convert(Convert),
}

/// Where a template is.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = false)]
pub struct Source {
    /// Name of the template in the cluster
    pub template: Option<String>,
    /// The same as TEMPLATE
    #[arg(long = "name", value_name = "TEMPLATE")]
    pub name: Option<String>,
    /// File with the template, as YAML or JSON; - for standard input
    #[arg(long, short)]
    pub file: Option<PathBuf>,
}

impl Source {
    /// The name of a template in the cluster.
    pub(super) fn name(&self) -> Option<&str> {
        self.template.as_deref().or(self.name.as_deref())
    }
}

#[derive(Debug, Clone, Args)]
pub struct Process {
    #[command(flatten)]
    pub source: Source,
    /// Values of parameters
    #[arg(
        long = "param",
        short,
        value_name = "NAME=VALUE",
        value_delimiter = ','
    )]
    pub parameters: Vec<KeyValue>,
    /// File with values of parameters, as a YAML or JSON map; --param has precedence
    #[arg(long, value_name = "FILE")]
    pub params_file: Option<PathBuf>,
    /// Only list the parameters
    #[arg(long, conflicts_with_all = ["create", "parameters", "params_file"])]
    pub print_params: bool,
    /// Make the VM
    #[arg(long, conflicts_with = "local")]
    pub create: bool,
    /// Fill the template in on this computer, as is done without this flag, too
    #[arg(long)]
    pub local: bool,
    /// Format of the VM [default: yaml; a message with --create]
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        conflicts_with = "print_params"
    )]
    pub output: Option<ObjectOutput>,
}

#[derive(Debug, Clone, Args)]
pub struct Create {
    /// Name of the request and of the template; a random one if none is given
    #[arg(long)]
    pub name: Option<String>,
    /// Name of the VM
    #[arg(long, value_name = "NAME")]
    pub vm_name: String,
    /// Namespace of the VM [default: that of the template]
    #[arg(long, value_name = "NAMESPACE")]
    pub vm_namespace: Option<String>,
    #[command(flatten)]
    pub made: Made,
}

#[derive(Debug, Clone, Args)]
pub struct Convert {
    #[command(flatten)]
    pub source: Source,
    /// Format of the template
    #[arg(long, short, value_enum, default_value = "yaml", value_name = "FORMAT")]
    pub output: ObjectOutput,
}
