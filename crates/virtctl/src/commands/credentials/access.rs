//! The Secrets that a VM's access credentials name.

use anyhow::Result;
use serde_json::Value;

use crate::{failure::Usage, objects::text};

/// The Secrets of SSH keys that the guest agent gives to a user.
pub(super) fn key_secrets(vm: &Value, user: &str) -> Vec<String> {
    let of_user = |credential: &&Value| {
        let users = credential.pointer("/sshPublicKey/propagationMethod/qemuGuestAgent/users");
        let mut users = users.and_then(Value::as_array).into_iter().flatten();
        users.any(|one| one.as_str() == Some(user))
    };
    secrets(vm, "sshPublicKey", of_user)
}

/// The Secrets of passwords.
pub(super) fn password_secrets(vm: &Value) -> Vec<String> {
    secrets(vm, "userPassword", |_| true)
}

fn secrets(vm: &Value, kind: &str, wanted: impl Fn(&&Value) -> bool) -> Vec<String> {
    let credentials = vm.pointer("/spec/template/spec/accessCredentials");
    let credentials = credentials.and_then(Value::as_array).into_iter().flatten();
    let names = credentials
        .filter(wanted)
        .filter_map(|one| text(one, &format!("/{kind}/source/secret/secretName")));
    names.map(ToOwned::to_owned).collect()
}

/// The Secret of the command line, or the only one.
pub(super) fn choose<'a>(
    secrets: &'a [String],
    flag: Option<&str>,
) -> Result<Option<&'a str>, Usage> {
    let listed = || secrets.join(", ");
    match (secrets, flag) {
        ([], None) => Ok(None),
        (_, Some(name)) => match secrets.iter().find(|secret| *secret == name) {
            Some(secret) => Ok(Some(secret)),
            None => Err(Usage::new(format!(
                "--secret {name}: the VM's access credentials do not name it; they name {}",
                if secrets.is_empty() {
                    "none".to_owned()
                } else {
                    listed()
                }
            ))),
        },
        ([one], None) => Ok(Some(one)),
        (_, None) => Err(Usage::new(format!(
            "the VM's access credentials name several Secrets: choose one of {} with --secret",
            listed()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm() -> Value {
        let source = |name| json!({"secret": {"secretName": name}});
        let key = |name, users: &[&str]| {
            let method = json!({"qemuGuestAgent": {"users": users}});
            json!({"sshPublicKey": {"source": source(name), "propagationMethod": method}})
        };
        let seed =
            json!({"sshPublicKey": {"source": source("d"), "propagationMethod": {"noCloud": {}}}});
        let credentials = json!([
            key("a", &["me", "you"]),
            key("b", &["you"]),
            seed,
            {"userPassword": {"source": source("c"), "propagationMethod": {"qemuGuestAgent": {}}}},
        ]);
        json!({"spec": {"template": {"spec": {"accessCredentials": credentials}}}})
    }

    #[test]
    fn secrets_are_found_by_user_and_kind() {
        assert_eq!(key_secrets(&vm(), "me"), ["a"]);
        assert_eq!(key_secrets(&vm(), "you"), ["a", "b"]);
        assert!(key_secrets(&vm(), "he").is_empty());
        assert_eq!(password_secrets(&vm()), ["c"]);
        assert!(password_secrets(&json!({})).is_empty());
    }

    #[test]
    fn one_secret_is_chosen() {
        let secrets = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(choose(&[], None).unwrap(), None);
        assert_eq!(choose(&secrets(&["a"]), None).unwrap(), Some("a"));
        assert_eq!(choose(&secrets(&["a", "b"]), Some("b")).unwrap(), Some("b"));
        let error = |names: &[&str], flag| choose(&secrets(names), flag).unwrap_err().to_string();
        assert!(error(&["a", "b"], None).ends_with("choose one of a, b with --secret"));
        assert!(error(&["a"], Some("x")).ends_with("they name a"));
        assert!(error(&[], Some("x")).ends_with("they name none"));
    }
}
