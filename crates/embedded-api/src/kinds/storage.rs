//! Persistent volumes, claims and storage classes: defaults and validation.

use apimachinery::Violation;
use serde_json::{Map, Value, json};

use super::{
    DeletionResponse, InitialStatus, Strategy, amounts,
    fields::{check_enum, fill, fill_absent, fill_in},
};

const CLAIM_IMMUTABLE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
const VOLUME_IMMUTABLE: &str = "spec.persistentvolumesource is immutable after creation";
const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(crate) const CLAIM: Strategy = Strategy {
    default: default_claim,
    validate: validate_claim,
    initial_status: InitialStatus::Dropped,
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};

pub(crate) const VOLUME: Strategy = Strategy {
    default: default_volume,
    populate: populate_volume,
    validate: validate_volume,
    initial_status: InitialStatus::Dropped,
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};

pub(crate) const CLASS: Strategy = Strategy {
    default: default_class,
    validate: validate_class,
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};

fn default_claim(claim: &mut Value) {
    fill(claim, "status", json!({"phase": "Pending"}));
    fill_in(claim, "spec", "volumeMode", "Filesystem");
    if let Some(spec) = claim.get_mut("spec") {
        resources_as_text(spec);
    }
}

fn resources_as_text(spec: &mut Value) {
    for part in ["/resources/limits", "/resources/requests"] {
        amounts::as_text(spec.pointer_mut(part));
    }
}

fn default_volume(volume: &mut Value) {
    fill(volume, "status", json!({"phase": "Pending"}));
    if let Some(spec) = volume.get_mut("spec") {
        fill(spec, "persistentVolumeReclaimPolicy", "Retain");
    }
    fill_in(volume, "spec", "volumeMode", "Filesystem");
    if let Some(path) = volume.pointer_mut("/spec/hostPath") {
        fill_absent(path, "type", "");
    }
}

/// Sets the time of the last phase transition.
fn populate_volume(volume: &mut Value, now: &str) {
    fill_in(volume, "status", "lastPhaseTransitionTime", now);
}

fn default_class(class: &mut Value) {
    fill_absent(class, "reclaimPolicy", "Delete");
    fill_absent(class, "volumeBindingMode", "Immediate");
}

fn validate_claim(live: Option<&Value>, claim: &Value) -> Vec<Violation> {
    let spec = &claim["spec"];
    let mut wrong = check_modes(spec, "at least 1 access mode is required");
    if spec["resources"]["requests"]["storage"].is_null() {
        wrong.push(Violation::required("spec.resources[storage]", ""));
    }
    let requests = &spec["resources"]["requests"];
    if live.is_none_or(|live| live["spec"]["resources"]["requests"] != *requests) {
        wrong.extend(amounts::check(requests, "spec.resources.requests"));
    }
    check_enum(
        spec,
        "spec",
        "volumeMode",
        &["Block", "Filesystem"],
        &mut wrong,
    );
    if let Some(live) = live
        && immutable_part(live, &live["spec"]) != immutable_part(live, spec)
    {
        wrong.push(Violation::forbidden("spec", CLAIM_IMMUTABLE));
    }
    wrong
}

/// The immutable part of a claim's spec. A claim gets its volume, and its class if it had none;
/// once bound, its request may grow.
fn immutable_part(live: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    // Earlier versions stored numbers as such.
    resources_as_text(&mut spec);
    let absent = |field: &str| live["spec"][field].as_str().unwrap_or_default().is_empty();
    let free = ["volumeName", "storageClassName"]
        .into_iter()
        .filter(|field| absent(field))
        .chain(["volumeAttributesClassName"]);
    if let Value::Object(fields) = &mut spec {
        for field in free {
            fields.shift_remove(field);
        }
    }
    let is_bound = live["status"]["phase"] == "Bound";
    if is_bound && let Some(requests) = spec.pointer_mut("/resources/requests") {
        fill_over(requests, "storage");
    }
    spec
}

fn fill_over(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.insert(field.to_owned(), Value::Null);
    }
}

fn check_modes(spec: &Value, why: &str) -> Vec<Violation> {
    let modes = spec["accessModes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    if modes.is_empty() {
        return vec![Violation::required("spec.accessModes", why)];
    }
    let unknown = modes
        .iter()
        .filter_map(Value::as_str)
        .filter(|mode| !MODES.contains(mode));
    unknown
        .map(|mode| Violation::not_supported("spec.accessModes", mode, MODES))
        .collect()
}

/// Fields of a volume's spec that are not a volume source.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn sources(spec: &Value) -> Map<String, Value> {
    let fields = spec.as_object().into_iter().flat_map(Map::iter);
    fields
        .filter(|(field, _)| !NO_SOURCE.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect()
}

fn validate_volume(live: Option<&Value>, volume: &Value) -> Vec<Violation> {
    let spec = &volume["spec"];
    let mut wrong = check_modes(spec, "");
    let capacity = spec["capacity"].as_object().cloned().unwrap_or_default();
    if capacity.is_empty() {
        wrong.push(Violation::required("spec.capacity", ""));
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        wrong.push(Violation::not_supported(
            "spec.capacity",
            capacity,
            ["storage"],
        ));
    }
    let policies = ["Delete", "Recycle", "Retain"];
    let field = "persistentVolumeReclaimPolicy";
    check_enum(spec, "spec", field, &policies, &mut wrong);
    check_enum(
        spec,
        "spec",
        "volumeMode",
        &["Block", "Filesystem"],
        &mut wrong,
    );
    let found = sources(spec);
    if found.is_empty() {
        wrong.push(Violation::required("spec", "must specify a volume type"));
    }
    let more = found.keys().skip(1);
    wrong.extend(more.map(|source| {
        Violation::forbidden(
            format!("spec.{source}"),
            "may not specify more than 1 volume type",
        )
    }));
    if found.contains_key("local") && spec["nodeAffinity"]["required"].is_null() {
        let why = "Local volume requires node affinity";
        wrong.push(Violation::required("spec.nodeAffinity", why));
    }
    let Some(live) = live else {
        return wrong;
    };
    if sources(&live["spec"]) != found {
        wrong.push(Violation::forbidden(
            "spec.persistentvolumesource",
            VOLUME_IMMUTABLE,
        ));
    }
    if live["spec"]["volumeMode"] != spec["volumeMode"] {
        let why = "field is immutable";
        wrong.push(Violation::invalid(
            "spec.volumeMode",
            spec["volumeMode"].clone(),
            why,
        ));
    }
    wrong
}

fn validate_class(live: Option<&Value>, class: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    if class["provisioner"].as_str().unwrap_or_default().is_empty() {
        wrong.push(Violation::required("provisioner", ""));
    }
    for (field, known) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        if let Some(found) = class[field].as_str().filter(|found| !known.contains(found)) {
            wrong.push(Violation::not_supported(field, found, known));
        }
    }
    let Some(live) = live else {
        return wrong;
    };
    for field in ["parameters", "reclaimPolicy"] {
        if live[field] != class[field] {
            let why = format!("updates to {field} are forbidden.");
            wrong.push(Violation::forbidden(field, why));
        }
    }
    for field in ["provisioner", "volumeBindingMode"] {
        if live[field] != class[field] {
            let why = "field is immutable";
            wrong.push(Violation::invalid(field, class[field].clone(), why));
        }
    }
    wrong
}
