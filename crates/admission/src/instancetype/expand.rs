//! A VM with its instance type and preference written out, so that it depends on them no more.

use kubevirt_api::VirtualMachine;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Choice, Target, complete, conflicts};
use crate::{ClusterConfig, Surroundings, Violation, checks::Origin, defaults, merge::carry_over};

/// Writes out what a VM chose, and the defaults that show with it. Fields that the types do not
/// know stay. A VM that chose nothing is written out already.
pub fn expand(
    vm: &Value,
    choice: Choice<'_>,
    config: &ClusterConfig,
    around: Surroundings<'_>,
) -> Result<Value, Vec<Violation>> {
    if choice.instancetype.is_none() && choice.preference.is_none() {
        return Ok(vm.clone());
    }
    let unreadable = |error: serde_json::Error| vec![Violation::invalid("spec", error)];
    let before = VirtualMachine::deserialize(vm).map_err(unreadable)?;
    let mut after = before.clone();
    let path = Origin::TemplateOfVm.path();
    let template = &mut after.spec.template;
    let spec = template.spec.get_or_insert_default();
    let own = template.metadata.as_ref();
    let own = own.and_then(|metadata| metadata.annotations.clone());
    let mut annotations = own.unwrap_or_default();
    let clashes = choice
        .instancetype
        .map(|size| conflicts::find(spec, &annotations, size));
    if let Some(clashes) = clashes.filter(|clashes| !clashes.is_empty()) {
        return Err(clashes);
    }
    let mut target = Target {
        spec: &mut *spec,
        annotations: &mut annotations,
    };
    complete(&mut target, choice, config, path)?;
    defaults::vmi::set_outline(spec, config, around, path)?;
    if !annotations.is_empty() {
        let metadata = template.metadata.get_or_insert_default();
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
        let around = Surroundings {
            now: &now,
            new_uuid: &Uuid::new_v4,
        };
        let size = serde_json::from_value(size.clone()).expect("an instance type");
        let choice = Choice {
            instancetype: Some(&size),
            preference: None,
        };
        expand(vm, choice, &ClusterConfig::default(), around)
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
    fn choice_is_written_out_and_unknown_fields_stay() {
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
        // Details of devices are for the instance.
        assert_eq!(domain["features"], Value::Null);
    }

    #[test]
    fn conflicts_are_told() {
        let mut vm = vm();
        vm["spec"]["template"]["spec"]["domain"]["memory"] = json!({ "guest": "1Gi" });
        let size = json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } });
        let found = run(&vm, &size).expect_err("a conflict");
        assert_eq!(found[0].field, "spec.template.spec.domain.memory.guest");
    }
}
