//! Templates and the VMs that they make.

use std::collections::BTreeMap;

use kubevirt_api::template::VirtualMachineTemplate;
use serde_json::{Value, json};

use crate::{ConvertError, MAX_GENERATED, Processed, Values, convert, process};

fn template(spec: &Value) -> VirtualMachineTemplate {
    serde_json::from_value(json!({"metadata": {"name": "t"}, "spec": spec})).unwrap()
}

fn processed(spec: &Value, given: &[(&str, &str)]) -> Result<Processed, Vec<String>> {
    let given: BTreeMap<String, String> = given
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let values = Values {
        given: &given,
        choose: &mut |count| count - 1,
    };
    let problems = |all: Vec<crate::Problem>| all.iter().map(ToString::to_string).collect();
    process(&template(spec), values).map_err(problems)
}

fn spec(parameters: &Value) -> Value {
    json!({
        "parameters": parameters,
        "message": "${NAME} has ${CORES} cores",
        "virtualMachine": {
            "metadata": {"name": "${NAME}", "namespace": "of-the-author"},
            "spec": {"template": {"spec": {"domain": {
                "cpu": {"cores": "${{CORES}}"}, "devices": {},
            }}}},
        },
    })
}

#[test]
fn values_are_given_default_or_generated() {
    let name =
        json!({"name": "NAME", "generate": "expression", "from": "vm-[a-c]{3}", "required": true});
    let cores = json!({"name": "CORES", "value": "2"});
    let check = |given: &[(&str, &str)], name_of_vm: &str, count: u64| {
        let made = processed(&spec(&json!([name, cores])), given).unwrap();
        let expected = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": name_of_vm},
            "spec": {"template": {"spec": {"domain": {"cpu": {"cores": count}, "devices": {}}}}},
        });
        assert_eq!(made.vm, expected);
        let message = format!("{name_of_vm} has {count} cores");
        assert_eq!(made.message, Some(message));
    };
    check(&[], "vm-ccc", 2);
    check(&[("NAME", "web"), ("CORES", "4")], "web", 4);
    // An empty value of a required parameter is none.
    check(&[("NAME", "")], "vm-ccc", 2);
}

#[test]
fn namespace_with_a_parameter_stays() {
    let vm = json!({"metadata": {"name": "a", "namespace": "${SPACE}"}, "spec": {"template": {}}});
    let parameters = json!([{"name": "SPACE", "value": "tests"}]);
    let made = processed(
        &json!({"virtualMachine": vm, "parameters": parameters}),
        &[],
    )
    .unwrap();
    assert_eq!(made.vm["metadata"]["namespace"], "tests");
    assert_eq!(made.message, None);
}

#[test]
fn problems_name_the_field_and_the_remedy() {
    let check = |spec: &Value, given: &[(&str, &str)], expected: &[&str]| {
        assert_eq!(processed(spec, given).unwrap_err(), expected);
    };
    let parameters = json!([
        {"name": "NAME", "required": true},
        {"name": "CORES", "generate": "expression", "from": "[z-a]{1}"},
    ]);
    check(
        &spec(&parameters),
        &[("SIZE", "3")],
        &[
            "parameters.SIZE: the template has no such parameter; it has NAME, CORES",
            "spec.parameters[0].value: NAME has no value; give one as NAME=VALUE",
            "spec.parameters[1].from: [z-a]: a range must ascend, such as a-z",
        ],
    );
    check(
        &spec(&json!([{"name": "CORES", "generate": "expression"}])),
        &[],
        &["spec.parameters[0].from: give a pattern such as [a-z0-9]{8}"],
    );
    check(
        &spec(&json!([{"name": "NAME", "value": "a"}])),
        &[],
        &[
            "spec.virtualMachine.spec.template.spec.domain.cpu.cores: there is no parameter CORES; add it \
             to spec.parameters",
        ],
    );
    check(
        &json!({"parameters": [], "virtualMachine": {}}),
        &[("A", "")],
        &["parameters.A: the template has no such parameter; it has none"],
    );
    check(
        &json!({"virtualMachine": {}}),
        &[],
        &["spec.virtualMachine: give the VM of the template"],
    );
    let cores = processed(
        &spec(&json!([{"name": "NAME", "value": "a"}, {"name": "CORES", "value": "many"}])),
        &[],
    );
    let problems = cores.unwrap_err();
    let start =
        "spec.virtualMachine: after substitution of the parameters, it is not a VirtualMachine: ";
    assert!(
        problems.len() == 1 && problems[0].starts_with(start),
        "{problems:?}"
    );
    let large = processed(
        &json!({
            "virtualMachine": {"metadata": {"name": "${A}${A}${A}${A}"}},
            "parameters": [{"name": "A", "value": "x".repeat(1 << 20)}],
        }),
        &[],
    );
    assert_eq!(
        large.unwrap_err(),
        ["spec.virtualMachine: values exceed 3 MiB; shorten one or reference it less often"]
    );
}

/// Each pattern is valid; together they would make megabytes.
#[test]
fn generated_values_of_all_parameters_are_bounded() {
    let parameter = |number: usize| {
        let from = "[a-z]{128}".repeat(8);
        json!({"name": format!("P{number}"), "generate": "expression", "from": from})
    };
    let parameters: Vec<Value> = (0..3000).map(parameter).collect();
    let mut chosen = 0;
    let values = Values {
        given: &BTreeMap::new(),
        choose: &mut |_count| {
            chosen += 1;
            0
        },
    };
    let large = json!({"virtualMachine": {"metadata": {"name": "a"}}, "parameters": parameters});
    let problems = process(&template(&large), values).unwrap_err();
    assert_eq!(chosen, MAX_GENERATED);
    assert_eq!(
        problems[0].to_string(),
        "spec.parameters[64].from: the generated values of all parameters exceed 64 KiB; shorten patterns"
    );
}

fn of_openshift(objects: &Value) -> Value {
    json!({
        "apiVersion": "template.openshift.io/v1",
        "kind": "Template",
        "metadata": {"name": "fedora", "uid": "u", "labels": {"os": "fedora"}},
        "labels": {"from": "t", "os": "other"},
        "objects": objects,
        "parameters": [{"name": "NAME", "required": true, "displayName": null, "x": 1}],
        "message": "Hello ${NAME}",
    })
}

#[test]
fn template_of_openshift_keeps_its_vm_parameters_and_message() {
    let vm = json!({
        "apiVersion": "kubevirt.io/v1alpha3",
        "kind": "VirtualMachine",
        "metadata": {"name": "${NAME}", "labels": {"os": "own"}, "creationTimestamp": null},
        "spec": {"running": false},
        "status": {},
    });
    let claim =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}});
    let converted = convert(&of_openshift(&json!([vm, claim]))).unwrap();
    let expected = json!({
        "apiVersion": "template.kubevirt.io/v1beta1",
        "kind": "VirtualMachineTemplate",
        "metadata": {"name": "fedora", "labels": {"os": "fedora"}},
        "spec": {
            "virtualMachine": {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachine",
                "metadata": {"name": "${NAME}", "labels": {"from": "t", "os": "own"}},
                "spec": {"running": false},
            },
            "parameters": [{"name": "NAME", "required": true}],
            "message": "Hello ${NAME}",
        },
    });
    assert_eq!(converted.template, expected);
    assert_eq!(
        converted.warnings,
        ["left out: PersistentVolumeClaim c; a template of VMs has only the VM"]
    );
}

#[test]
fn other_objects_are_not_converted() {
    let vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"});
    assert_eq!(convert(&of_openshift(&json!([]))), Err(ConvertError::NoVm));
    assert_eq!(
        convert(&of_openshift(&json!([vm, vm]))),
        Err(ConvertError::SeveralVms { count: 2 })
    );
    let found = "kubevirt.io/v1 VirtualMachine".to_owned();
    assert_eq!(convert(&vm), Err(ConvertError::Kind { found }));
}
