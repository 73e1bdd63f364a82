//! `template`: VMs of templates, templates of VMs, and templates of `OpenShift` as such templates.
//!
//! Templates are filled in here, as no installation has to have a server for that.

mod cli;
mod convert;
mod create;
mod process;
mod source;

use anyhow::Result;

pub(crate) use cli::{Template, TemplateCommand};

use crate::{connect::Cluster, printer::Printer};

/// Runs a command that needs no server; `None` if it needs one.
pub(crate) fn without_server(printer: Printer, flags: &Template) -> Option<Result<()>> {
    match &flags.command {
        TemplateCommand::Process(flags) if !flags.create => {
            let file = flags.source.file.as_deref()?;
            Some(source::read(file).and_then(|object| process::print(printer, flags, &object)))
        }
        TemplateCommand::Convert(flags) => {
            let file = flags.source.file.as_deref()?;
            Some(source::read(file).and_then(|object| convert::print(printer, flags, &object)))
        }
        TemplateCommand::Process(_) | TemplateCommand::Create(_) => None,
    }
}

pub(crate) async fn template(cluster: &Cluster, printer: Printer, flags: &Template) -> Result<()> {
    match &flags.command {
        TemplateCommand::Process(flags) => process::process(cluster, printer, flags).await,
        TemplateCommand::Create(flags) => create::create(cluster, printer, flags).await,
        TemplateCommand::Convert(flags) => convert::convert(cluster, printer, flags).await,
    }
}
