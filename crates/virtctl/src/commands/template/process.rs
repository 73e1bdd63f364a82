//! `template process`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use kubevirt_api::template::{Parameter, VirtualMachineTemplate};
use serde_json::{Value, json};
use vm_template::{Processed, Values};

use super::{cli::Process, source};
use crate::{
    cli::ObjectOutput,
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
    random, table,
};

pub(super) async fn process(cluster: &Cluster, printer: Printer, flags: &Process) -> Result<()> {
    if !flags.create {
        let template = template(cluster, flags).await?;
        return print(printer, flags, &template);
    }
    let given = given(flags)?;
    if let Some(name) = flags.source.name()
        && let Some(answer) = made_by_server(cluster, name, &given).await?
    {
        note(printer, text(&answer, "/message"));
        let vm = answer.get("virtualMachine").unwrap_or(&answer);
        return created(printer, flags, vm);
    }
    let template = template(cluster, flags).await?;
    let Processed { vm, message } = filled(&template, &given)?;
    let namespace = text(&vm, "/metadata/namespace").unwrap_or(&cluster.namespace);
    let vm = objects::create(cluster, &objects::VM.all(namespace), &vm).await?;
    note(printer, message.as_deref());
    created(printer, flags, &vm)
}

/// Prints the VM of a template, or its parameters.
pub(super) fn print(printer: Printer, flags: &Process, template: &Value) -> Result<()> {
    if flags.print_params {
        printer.line(&table(&typed(template)?.spec.parameters));
        return Ok(());
    }
    let Processed { vm, message } = filled(template, &given(flags)?)?;
    note(printer, message.as_deref());
    printer.object(flags.output.unwrap_or(ObjectOutput::Yaml), &vm)
}

async fn template(cluster: &Cluster, flags: &Process) -> Result<Value> {
    match (&flags.source.file, flags.source.name()) {
        (Some(file), _) => source::read(file),
        (None, Some(name)) => {
            let path = objects::VM_TEMPLATE.named(&cluster.namespace, name);
            objects::get(cluster, &path).await
        }
        (None, None) => bail!("name the template, or its file with --file"),
    }
}

/// The values of the command line.
fn given(flags: &Process) -> Result<BTreeMap<String, String>> {
    let mut given = match &flags.params_file {
        Some(file) => source::parameters(file)?,
        None => BTreeMap::new(),
    };
    let pairs = flags.parameters.iter();
    given.extend(pairs.map(|pair| (pair.key.clone(), pair.value.clone())));
    Ok(given)
}

fn typed(template: &Value) -> Result<VirtualMachineTemplate> {
    let kind = text(template, "/kind").unwrap_or_default();
    if kind != "VirtualMachineTemplate" {
        bail!(
            "kind: {kind:?} is not VirtualMachineTemplate; `virtctl template convert` makes one of a Template \
             of OpenShift"
        );
    }
    serde_json::from_value(template.clone()).context("parse the template")
}

fn filled(template: &Value, given: &BTreeMap<String, String>) -> Result<Processed> {
    let values = Values {
        given,
        choose: &mut random::below,
    };
    vm_template::process(&typed(template)?, values).map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("fill in the template: {}", lines.join("\n  "))
    })
}

/// The answer of the subresource; `None` if the server has none, or no such template.
async fn made_by_server(
    cluster: &Cluster,
    name: &str,
    given: &BTreeMap<String, String>,
) -> Result<Option<Value>> {
    const GROUP: &str = "subresources.template.kubevirt.io/v1beta1";
    let namespace = &cluster.namespace;
    let path =
        format!("/apis/{GROUP}/namespaces/{namespace}/virtualmachinetemplates/{name}/create");
    let options = json!({"apiVersion": GROUP, "kind": "CreateOptions", "parameters": given});
    objects::create_if_served(cluster, &path, &options).await
}

fn note(printer: Printer, message: Option<&str>) {
    if let Some(message) = message.filter(|message| !message.is_empty()) {
        printer.note(message);
    }
}

fn created(printer: Printer, flags: &Process, vm: &Value) -> Result<()> {
    if let Some(output) = flags.output {
        return printer.object(output, vm);
    }
    let name = text(vm, "/metadata/name").unwrap_or_default();
    printer.line(&format!("VM {name} was made"));
    Ok(())
}

/// The parameters, a line each.
fn table(parameters: &[Parameter]) -> String {
    let rows = parameters.iter().map(|one| {
        let generated = one.value.as_deref().is_none_or(str::is_empty);
        let generator = one.generate.as_ref().filter(|_| generated);
        let value = if generator.is_some() {
            &one.from
        } else {
            &one.value
        };
        [
            one.name.clone(),
            one.description.clone().unwrap_or_default(),
            generator.map(ToString::to_string).unwrap_or_default(),
            value.clone().unwrap_or_default(),
        ]
    });
    let head = ["NAME", "DESCRIPTION", "GENERATOR", "VALUE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    table::lines(&rows, 0).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_listed_with_their_defaults_and_generators() {
        let parameters = json!([
            {"name": "NAME", "description": "Name of the VM", "generate": "expression", "from": "vm-[a-z]{3}"},
            {"name": "CORES", "value": "2"},
            {"name": "PASSWORD", "required": true},
            {"name": "TOKEN", "value": "t", "generate": "expression", "from": "[a-z]{3}"},
        ]);
        let parameters: Vec<Parameter> = serde_json::from_value(parameters).unwrap();
        assert_eq!(
            table(&parameters),
            "NAME       DESCRIPTION      GENERATOR    VALUE\n\
             NAME       Name of the VM   expression   vm-[a-z]{3}\n\
             CORES                                    2\n\
             PASSWORD\n\
             TOKEN                                    t"
        );
        assert_eq!(table(&[]), "NAME   DESCRIPTION   GENERATOR   VALUE");
    }

    #[test]
    fn every_problem_of_a_template_is_shown() {
        let template = json!({
            "kind": "VirtualMachineTemplate",
            "spec": {"parameters": [{"name": "A", "required": true}, {"name": "B", "required": true}]},
        });
        let error = filled(&template, &BTreeMap::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fill in the template: spec.parameters[0].value: A has no value; give one as A=VALUE\n  \
             spec.parameters[1].value: B has no value; give one as B=VALUE"
        );
        let other = json!({"kind": "Template"});
        let error = filled(&other, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("`virtctl template convert`"), "{error}");
    }

    #[test]
    fn generated_values_differ() {
        let template = json!({
            "kind": "VirtualMachineTemplate",
            "spec": {
                "parameters": [{"name": "A", "generate": "expression", "from": "[a-z0-9]{16}"}],
                "virtualMachine": {"metadata": {"name": "${A}"}, "spec": {"template": {}}},
            },
        });
        let name = || {
            let made = filled(&template, &BTreeMap::new()).unwrap();
            text(&made.vm, "/metadata/name").unwrap().to_owned()
        };
        let (first, second) = (name(), name());
        assert_eq!(first.len(), 16);
        assert_ne!(first, second);
    }
}
