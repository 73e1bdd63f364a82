//! Wording, codes and form of errors.

use serde_json::json;

use super::*;
use crate::GroupKind;

const VMS: GroupResource<'static> = GroupResource {
    group: "kubevirt.io",
    resource: "virtualmachines",
};
const PODS: GroupResource<'static> = GroupResource {
    group: "",
    resource: "pods",
};

#[test]
fn errors_match_kube_apiserver() {
    let denied = Denied {
        user: "u",
        verb: "get",
        resource: VMS,
        subresource: "status",
        namespace: "n",
        name: "x",
    };
    let cases = [
        (
            Status::not_found(VMS, "x"),
            404,
            r#"virtualmachines.kubevirt.io "x" not found"#,
        ),
        (
            Status::already_exists(PODS, "x"),
            409,
            r#"pods "x" already exists"#,
        ),
        (
            Status::conflict(PODS, "x"),
            409,
            r#"Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            Status::forbidden(PODS, "x", "no"),
            403,
            r#"pods "x" is forbidden: no"#,
        ),
        (
            Status::forbidden_to(&denied),
            403,
            r#"virtualmachines.kubevirt.io "x" is forbidden: User "u" cannot get resource "virtualmachines/status" in API group "kubevirt.io" in the namespace "n""#,
        ),
        (
            Status::too_old_resource_version(3, 9),
            410,
            "too old resource version: 3 (9)",
        ),
        (
            Status::too_large_resource_version(9, 3),
            410,
            "too large resource version: 9, current: 3",
        ),
        (
            Status::method_not_allowed(VMS, "patch"),
            405,
            r#"patch is not supported on resources of kind "virtualmachines.kubevirt.io""#,
        ),
        (Status::internal("x"), 500, "Internal error occurred: x"),
        (
            Status::undecodable(
                "Pod",
                "v1",
                r#"strict decoding error: unknown field "spec.foo""#,
            ),
            400,
            r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.foo""#,
        ),
    ];
    for (status, code, message) in cases {
        assert_eq!((status.code(), status.message()), (code, message));
        assert_eq!(status.to_value()["code"], code);
    }
}

#[test]
fn invalid_object_lists_its_causes() {
    let kind = GroupKind {
        group: "kubevirt.io",
        kind: "VirtualMachine",
    };
    let one = Violation::required("spec.template", "");
    let two = Violation::not_supported("spec.runStrategy", "x", ["Always", "Halted"]);
    let status = Status::invalid(kind, "x", std::slice::from_ref(&one));
    assert_eq!(
        status.message(),
        r#"VirtualMachine.kubevirt.io "x" is invalid: spec.template: Required value"#
    );
    let status = Status::invalid(kind, "x", &[one, two]);
    assert_eq!(
        status.to_value(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "VirtualMachine.kubevirt.io \"x\" is invalid: [spec.template: Required value, spec.runStrategy: Unsupported value: \"x\": supported values: \"Always\", \"Halted\"]",
            "reason": "Invalid",
            "details": {"name": "x", "group": "kubevirt.io", "kind": "VirtualMachine", "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.template"},
                {"reason": "FieldValueNotSupported", "field": "spec.runStrategy",
                    "message": "Unsupported value: \"x\": supported values: \"Always\", \"Halted\""},
            ]},
            "code": 422,
        })
    );
}

#[test]
fn retry_and_success_carry_details() {
    let busy = Status::too_many_requests("slow down", 2);
    assert_eq!(busy.to_value()["details"], json!({"retryAfterSeconds": 2}));
    let deleted = Status::deleted(VMS, "x", "u");
    assert_eq!(deleted["details"]["uid"], "u");
    assert_eq!(deleted["status"], "Success");
}
