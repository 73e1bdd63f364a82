//! Refusals of invalid objects: path, cause and length of the message.

use cluster_config::HostDisks;
use serde_json::{Value, json};

use super::{OLD_MANIFEST, Stage, call, call_under, config_from_legacy_map, vm, vmi};

#[test]
fn malformed_object_is_refused_with_its_path() {
    let mut object = vmi();
    object["spec"]["domain"]["cpu"] = json!({ "cores": "two" });
    for stage in [Stage::Mutate, Stage::Validate] {
        let response = call(
            stage,
            "a-user",
            json!({ "operation": "CREATE", "object": object }),
        );
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 422);
        assert_eq!(
            response["status"]["details"]["causes"][0]["field"],
            "spec.domain.cpu.cores"
        );
    }
}

#[test]
fn refusal_names_every_cause() {
    let mut object = vm();
    object["spec"]["running"] = json!(true);
    object["spec"]["template"]["spec"]["hostname"] = json!("A");
    let response = call(
        Stage::Validate,
        "a-user",
        json!({ "operation": "CREATE", "object": object }),
    );
    let status = &response["status"];
    assert_eq!(status["reason"], "Invalid");
    let fields: Vec<_> = status["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .map(|cause| cause["field"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(fields, ["spec.running", "spec.template.spec.hostname"]);
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.contains("Halted; spec."))
    );
    assert!(
        response["warnings"][0]
            .as_str()
            .is_some_and(|text| text.contains("deprecated"))
    );
}

#[test]
fn exactly_one_known_run_strategy_is_accepted() {
    for (spec, field) in [
        (json!({}), Some("spec.runStrategy")),
        (
            json!({ "runStrategy": "Sometimes" }),
            Some("spec.runStrategy"),
        ),
        (
            json!({ "running": false, "runStrategy": "Halted" }),
            Some("spec.running"),
        ),
        (json!({ "runStrategy": "WaitAsReceiver" }), None),
        (json!({ "running": false }), None),
        (json!({ "runStrategy": "Manual" }), None),
    ] {
        let mut object = vm();
        object["spec"]["runStrategy"].take();
        json_patch::merge(&mut object["spec"], &spec);
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Validate, "a-user", request);
        let found = response["status"]["details"]["causes"][0]["field"].as_str();
        assert_eq!(found, field, "{spec}");
    }
}

#[test]
fn vm_without_template_is_refused() {
    let mut object = vm();
    object["spec"]["template"] = json!({});
    let request = json!({ "operation": "CREATE", "object": object });
    assert_eq!(call(Stage::Mutate, "a-user", request).get("patch"), None);
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Validate, "a-user", request);
    assert_eq!(
        response["status"]["details"]["causes"][0]["reason"],
        "FieldValueRequired"
    );
    assert_eq!(
        response["status"]["details"]["causes"][0]["field"],
        "spec.template"
    );
}

#[test]
fn refusal_names_the_missing_gate() {
    let object: Value = serde_saphyr::from_str(OLD_MANIFEST).expect("YAML");
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call(Stage::Validate, "a-user", request);
    let message = response["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("the feature gate HostDisk"), "{message}");
}

#[test]
fn invalid_input_is_refused_with_its_path() {
    let name = "a".repeat(300);
    for (patch, field) in [
        (
            json!({ "running": true, "runStrategy": "Always" }),
            "spec.running",
        ),
        (
            json!({ "template": { "spec": { "volumes": [
                { "name": "root", "emptyDisk": { "capacity": "1Gi" } },
                { "name": "root", "emptyDisk": { "capacity": "1Gi" } },
            ] } } }),
            "spec.template.spec.volumes[1].name",
        ),
        (
            json!({ "template": { "spec": { "domain": { "devices": { "disks": [
                { "name": "root" }, { "name": "nowhere" },
            ] } } } } }),
            "spec.template.spec.domain.devices.disks[1].name",
        ),
        (
            json!({ "template": { "spec": { "domain": { "memory": { "guest": "-1Gi" } } } } }),
            "spec.template.spec.domain.memory.guest",
        ),
        (
            json!({ "template": { "spec": { "domain": { "memory": { "guest": "9999999E" } } } } }),
            "spec.template.spec.domain.memory.guest",
        ),
        (
            json!({ "template": { "spec": { "domain": { "cpu": { "sockets": u32::MAX } } } } }),
            "spec.template.spec.domain.cpu",
        ),
        (
            json!({ "template": { "spec": { "domain": { "cpu": { "sockets": -1 } } } } }),
            "spec.template.spec.domain.cpu.sockets",
        ),
        (
            json!({ "template": { "spec": { "hostname": name } } }),
            "spec.template.spec.hostname",
        ),
        (
            json!({ "template": { "spec": { "volumes": [
                { "name": "root", "emptyDisk": { "capacity": "1Gi" } },
                { "name": name, "emptyDisk": { "capacity": "1Gi" } },
            ] } } }),
            "spec.template.spec.volumes[1].name",
        ),
    ] {
        let mut object = vm();
        json_patch::merge(&mut object["spec"], &patch);
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call(Stage::Validate, "a-user", request);
        let status = &response["status"];
        assert_eq!(
            (&status["code"], &status["reason"]),
            (&json!(422), &json!("Invalid"))
        );
        let causes = status["details"]["causes"].as_array().expect("causes");
        assert!(
            causes.iter().any(|cause| cause["field"] == field),
            "{field}: {causes:#?}"
        );
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.len() < 1500, "{message}");
    }
}

#[test]
fn refusal_sums_up_after_ten_violations() {
    let mut object = vmi();
    let disks: Vec<Value> = (0..15)
        .map(|_| json!({ "name": "Bad", "cache": "x" }))
        .collect();
    object["spec"]["domain"]["devices"]["disks"] = json!(disks);
    let request = json!({ "operation": "CREATE", "object": object });
    let status = call(Stage::Validate, "a-user", request)["status"].clone();
    let causes = status["details"]["causes"]
        .as_array()
        .expect("causes")
        .len();
    assert!(causes > 45, "{causes}");
    let message = status["message"].as_str().expect("message");
    assert!(
        message.ends_with(&format!("; and {} more", causes - 10)),
        "{message}"
    );
}

#[test]
fn host_disk_outside_of_the_named_directories_is_refused() {
    let mut config = config_from_legacy_map(&[("feature-gates", "HostDisk")]);
    config.host_disks = HostDisks::In(vec!["/data".to_owned()]);
    let refused = |path: &str| {
        let mut object = vmi();
        object["spec"]["architecture"] = json!("amd64");
        let disk = json!({"path": path, "type": "DiskOrCreate", "capacity": "1Gi"});
        object["spec"]["volumes"][0] = json!({"name": "root", "hostDisk": disk});
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call_under(Stage::Validate, "a-user", request, &config);
        let cause = &response["status"]["details"]["causes"][0];
        cause["field"].as_str().map(|field| {
            let message = cause["message"].as_str().unwrap_or_default();
            format!("{field}: {message}")
        })
    };
    assert_eq!(refused("/data/a.img"), None);
    let refusal = refused("/etc/shadow").expect("it is refused");
    assert!(
        refusal.starts_with("spec.volumes[0].hostDisk.path"),
        "{refusal}"
    );
    assert!(
        refusal.contains("use a file directly in /data"),
        "{refusal}"
    );
}
