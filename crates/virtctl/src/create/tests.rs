//! Command lines and their manifests, in the snapshots beside this file. The original `virtctl` 1.9 makes
//! the same objects for the same command lines, apart from empty fields. It refuses one that works here: a
//! MAC address with colons.

use clap::Parser;
use secrecy::SecretString;
use serde_json::Value;

use super::command::{self, Inputs, Manifest};
use crate::{
    cli::{Cli, Command},
    failure::Usage,
};

fn made(arguments: &str) -> Result<Manifest, Usage> {
    let words = ["virtctl", "create"]
        .into_iter()
        .chain(arguments.split(' '));
    let cli = Cli::try_parse_from(words).map_err(|err| {
        let message = err.to_string();
        Usage::new(message.lines().next().unwrap_or_default())
    })?;
    let Command::Create(create) = cli.command else {
        panic!("{arguments} is another command");
    };
    let mut count = 0;
    let mut suffix = || {
        count += 1;
        format!("rand{count}")
    };
    let has_password = arguments.contains("--password-file");
    let mut inputs = Inputs {
        namespace: cli.connection.namespace.as_deref(),
        password: has_password.then(|| SecretString::from("secret")),
        suffix: &mut suffix,
    };
    command::manifest(&create.kind, &mut inputs)
}

/// The objects as the kind's own type reads them must be the same: no field is misspelt.
fn check_fields(object: &Value) {
    fn again<T: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Value {
        let typed: T = serde_json::from_value(object.clone()).unwrap();
        serde_json::to_value(typed).unwrap()
    }
    let typed = match object["kind"].as_str().unwrap() {
        "VirtualMachine" => again::<kubevirt_api::VirtualMachine>(object),
        "VirtualMachineClone" => again::<kubevirt_api::clone::VirtualMachineClone>(object),
        kind if kind.ends_with("Preference") => {
            again::<kubevirt_api::preference::VirtualMachineClusterPreference>(object)
        }
        _ => again::<kubevirt_api::instancetype::VirtualMachineClusterInstancetype>(object),
    };
    assert_contains("", &typed, object);
}

fn assert_contains(path: &str, all: &Value, part: &Value) {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            for (field, value) in part {
                let path = format!("{path}.{field}");
                if path == ".kind" || path == ".apiVersion" {
                    continue;
                }
                // An empty object may be left out.
                let found = all.get(field).unwrap_or(&Value::Null);
                if found.is_null() && value.as_object().is_some_and(serde_json::Map::is_empty) {
                    continue;
                }
                assert_contains(&path, found, value);
            }
        }
        (Value::Array(all), Value::Array(part)) => {
            assert_eq!(all.len(), part.len(), "{path}");
            for (all, part) in all.iter().zip(part) {
                assert_contains(path, all, part);
            }
        }
        _ => assert_eq!(all, part, "{path}"),
    }
}

/// The manifests, or errors, of command lines.
fn transcript(lines: &str) -> String {
    let lines = lines.lines().map(str::trim);
    let cases = lines.filter(|line| !line.is_empty()).map(|line| {
        let result = match made(line) {
            Ok(manifest) => {
                check_fields(&manifest.object);
                let mut text = serde_saphyr::to_string(&manifest.object).unwrap();
                for warning in &manifest.warnings {
                    text.insert_str(0, &format!("warning: {warning}\n"));
                }
                text
            }
            Err(err) => format!("error: {err}\n"),
        };
        format!("$ virtctl create {line}\n{result}")
    });
    cases.collect::<Vec<_>>().join("\n")
}

macro_rules! transcripts {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let lines = include_str!(concat!("cases/", stringify!($name), ".txt"));
            insta::assert_snapshot!(stringify!($name), transcript(lines));
        }
    )*};
}

transcripts! {
    vm_volumes
    vm_imports
    vm_sizes
    vm_access
    other_kinds
}
