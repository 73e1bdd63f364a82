//! Guests to remove fields from: the rows with golden domains and golden pods, and the examples.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::examples::catalogue::{self, kind};

/// A VMI, and how it is run.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub(super) object: Value,
    /// Volumes that are block devices.
    pub(super) devices: Vec<String>,
    /// Variables of the pod that name its devices of the node.
    pub(super) variables: Vec<(String, String)>,
}

pub(super) fn all() -> Vec<Guest> {
    let mut all = cases("domain-xml", &plain("domain-xml"));
    all.extend(cases("launcher-pod", &plain("domain-xml")));
    all.extend(examples());
    all
}

fn tests(of: &str) -> std::path::PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    crates.join(of).join("tests")
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a file");
    let shown = path.display().to_string();
    serde_saphyr::from_str(&text).expect(&shown)
}

fn plain(of: &str) -> Value {
    read(&tests(of).join("plain.yaml"))
}

/// The rows of a crate that have a golden file.
fn cases(of: &str, plain: &Value) -> Vec<Guest> {
    let mut files: Vec<_> = fs::read_dir(tests(of).join("cases"))
        .expect("cases")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let rows = files.iter().flat_map(|path| {
        let rows: Vec<Value> = serde_json::from_value(read(path)).expect("a list");
        rows
    });
    let guests = rows.filter(|row| row["error"].is_null()).map(|row| {
        let mut object = plain.clone();
        if !row["vmi"].is_null() {
            json_patch::merge(&mut object, &row["vmi"]);
        }
        let volumes = row["facts"]["volumes"].as_object();
        let devices = volumes.into_iter().flatten();
        let devices = devices.filter(|(_, mode)| **mode == "block");
        let variables = row["facts"]["variables"].as_object().into_iter().flatten();
        let variables = variables
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
        Guest {
            object,
            devices: devices.map(|(name, _)| name.clone()).collect(),
            variables: variables.collect(),
        }
    });
    guests.collect()
}

/// The VMIs of the examples, and those of VMs.
fn examples() -> Vec<Guest> {
    let objects = catalogue::examples().into_iter();
    let objects = objects.flat_map(|example| example.objects);
    let guests = objects.filter_map(|object| {
        let object = match kind(&object) {
            "VirtualMachineInstance" => object,
            "VirtualMachine" => json!({
                "metadata": object["metadata"],
                "spec": object["spec"]["template"]["spec"],
            }),
            _ => return None,
        };
        Some(Guest {
            object,
            devices: Vec::new(),
            variables: Vec::new(),
        })
    });
    guests.collect()
}
