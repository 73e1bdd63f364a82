//! `--access-cred`: keys and passwords of a `Secret` that reach the guest.

use serde_json::{Value, json};

use super::{
    cloud_init::{DataSource, Generated},
    parameters::Parameters,
};
use crate::failure::Usage;

const FLAG: &str = "--access-cred";

/// The access credentials; they may need parts of the generated cloud-init data.
pub(super) fn credentials(
    texts: &[String],
    user: Option<&str>,
    generated: &mut Generated,
) -> Result<Vec<Value>, Usage> {
    texts
        .iter()
        .map(|text| credential(Parameters::parse(FLAG, text)?, user, generated))
        .collect()
}

fn credential(
    mut parameters: Parameters,
    user: Option<&str>,
    generated: &mut Generated,
) -> Result<Value, Usage> {
    let lower = |text: Option<String>, default: &str| {
        text.map_or_else(|| default.to_owned(), |text| text.to_ascii_lowercase())
    };
    let kind = lower(parameters.take("type"), "ssh");
    let secret = parameters.local_source("secret")?;
    let method = lower(parameters.take("method"), "ga");
    let own_user = parameters.take("user");
    let source = json!({"secret": {"secretName": secret}});
    let only_agent = "user is for type ssh with method ga: leave it out";
    let credential = match (kind.as_str(), method.as_str()) {
        ("ssh", "ga") => {
            let user = own_user.as_deref().or(user).ok_or_else(|| {
                parameters.wrong("the user is missing: add user:NAME, or the flag --user")
            })?;
            generated.manage_keys();
            let propagation = json!({"qemuGuestAgent": {"users": [user]}});
            json!({"sshPublicKey": {"source": source, "propagationMethod": propagation}})
        }
        ("ssh", "nocloud" | "configdrive") => {
            if own_user.is_some() {
                return Err(parameters.wrong(only_agent));
            }
            let (data_source, field) = if method == "nocloud" {
                (DataSource::NoCloud, "noCloud")
            } else {
                (DataSource::ConfigDrive, "configDrive")
            };
            generated.require(data_source).map_err(|other| {
                let message = format!(
                    "method {method} needs --cloud-init {method}, but it is {}: change one",
                    other.name()
                );
                parameters.wrong(&message)
            })?;
            json!({"sshPublicKey": {"source": source, "propagationMethod": {field: {}}}})
        }
        ("password", "ga") => {
            if own_user.is_some() {
                return Err(parameters.wrong(only_agent));
            }
            let propagation = json!({"qemuGuestAgent": {}});
            json!({"userPassword": {"source": source, "propagationMethod": propagation}})
        }
        ("ssh", other) => {
            let message = format!("unknown method {other:?}: use ga, nocloud or configdrive");
            return Err(parameters.wrong(&message));
        }
        ("password", other) => {
            let message = format!("method {other:?} is not for passwords: use ga");
            return Err(parameters.wrong(&message));
        }
        (other, _) => {
            let message = format!("unknown type {other:?}: use ssh or password");
            return Err(parameters.wrong(&message));
        }
    };
    parameters.finish()?;
    Ok(credential)
}
