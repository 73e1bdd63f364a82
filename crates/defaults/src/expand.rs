//! Expansion: a VM with its instance type and preference written out, independent of both.

use cluster_config::ClusterConfig;
use instancetype::{Choice, TEMPLATE_PATH, Target, conflicts};
use kubevirt_api::VirtualMachine;
use serde::Deserialize as _;
use serde_json::{Value, json};
use validation::Violation;

use crate::{carry_over::carry_over, environment::Environment, template, vmi};

/// Writes instance type, preference and the outline of defaults into the VM. Fields that the types
/// do not know are preserved. A VM without a choice is returned unchanged.
pub fn expand(
    vm: &Value,
    choice: Choice<'_>,
    config: &ClusterConfig,
    env: Environment<'_>,
) -> Result<Value, Vec<Violation>> {
    if choice.instancetype.is_none() && choice.preference.is_none() {
        return Ok(vm.clone());
    }
    let unreadable = |error: serde_json::Error| vec![Violation::invalid("spec", error)];
    let before = VirtualMachine::deserialize(vm).map_err(unreadable)?;
    let mut after = before.clone();
    let vm_template = &mut after.spec.template;
    let spec = vm_template.spec.get_or_insert_default();
    let own = vm_template.metadata.as_ref();
    let own = own.and_then(|metadata| metadata.annotations.clone());
    let mut annotations = own.unwrap_or_default();
    let conflicts = choice
        .instancetype
        .map(|size| conflicts::find(spec, &annotations, size));
    if let Some(conflicts) = conflicts.filter(|conflicts| !conflicts.is_empty()) {
        return Err(conflicts);
    }
    let mut target = Target {
        spec: &mut *spec,
        annotations: &mut annotations,
    };
    template::complete(&mut target, choice, config, TEMPLATE_PATH)?;
    vmi::set_outline(spec, config, env, TEMPLATE_PATH)?;
    if !annotations.is_empty() {
        let metadata = vm_template.metadata.get_or_insert_default();
        metadata.annotations = Some(annotations);
    }
    after.spec.instancetype = None;
    after.spec.preference = None;
    if let Some(status) = &mut after.status {
        status.instancetype_ref = None;
        status.preference_ref = None;
    }
    let mut expanded = vm.clone();
    carry_over(&mut expanded, &json!(before), &json!(after));
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use uuid::Uuid;

    use super::*;

    fn run(vm: &Value, size: &Value) -> Result<Value, Vec<Violation>> {
        let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
        let env = Environment {
            now: &now,
            new_uuid: &Uuid::new_v4,
        };
        let size = serde_json::from_value(size.clone()).expect("an instance type");
        let choice = Choice {
            instancetype: Some(&size),
            preference: None,
        };
        expand(vm, choice, &ClusterConfig::default(), env)
    }

    fn vm() -> Value {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "a" },
            "spec": {
                "runStrategy": "Halted", "instancetype": { "name": "small" }, "brandNew": 1,
                "preference": { "name": "gone" },
                "template": { "spec": {
                    "domain": { "devices": {}, "brandNew": 2 },
                    "volumes": [{ "name": "root", "containerDisk": { "image": "guest:1" } }],
                } },
            },
            "status": { "instancetypeRef": { "name": "small" }, "ready": true },
        })
    }

    #[test]
    fn choice_is_written_out_and_unknown_fields_are_preserved() {
        let size = json!({
            "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" }, "annotations": { "a": "b" },
        });
        let vm = run(&vm(), &size).expect("expands");
        let spec = &vm["spec"];
        assert_eq!(
            (&spec["instancetype"], &spec["preference"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(vm["status"], json!({ "ready": true }));
        assert_eq!(
            (&spec["brandNew"], &spec["runStrategy"]),
            (&json!(1), &json!("Halted"))
        );
        let template = &spec["template"];
        assert_eq!(template["metadata"]["annotations"], json!({ "a": "b" }));
        let domain = &template["spec"]["domain"];
        assert_eq!(domain["brandNew"], 2);
        assert_eq!(
            domain["cpu"],
            json!({ "cores": 1, "sockets": 2, "threads": 1 })
        );
        assert_eq!(domain["memory"]["guest"], "1Gi");
        assert_eq!(domain["devices"]["disks"][0]["name"], "root");
        assert_eq!(template["spec"]["networks"][0]["name"], "default");
        // Details of devices are filled into the VMI only.
        assert_eq!(domain["features"], Value::Null);
    }

    #[test]
    fn conflicts_are_reported() {
        let mut vm = vm();
        vm["spec"]["template"]["spec"]["domain"]["memory"] = json!({ "guest": "1Gi" });
        let size = json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } });
        let found = run(&vm, &size).expect_err("a conflict");
        assert_eq!(found[0].field, "spec.template.spec.domain.memory.guest");
    }
}
