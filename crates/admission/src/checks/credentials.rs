//! Keys and passwords that the system brings into a guest.

use kubevirt_api::access_credentials::{AccessCredential, AccessCredentialSecretSource};

use super::{Input, count};
use crate::violation::Violation;

pub(super) fn credentials(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, credential) in input.spec.access_credentials.iter().enumerate() {
        let path = format!("accessCredentials[{i}]");
        for (field, detail) in faults(input, credential) {
            let field = match field {
                "" => path.clone(),
                field => format!("{path}.{field}"),
            };
            found.push(input.invalid(&field, detail));
        }
    }
    found
}

fn faults(input: &Input<'_>, credential: &AccessCredential) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    if count(&[
        credential.ssh_public_key.is_some(),
        credential.user_password.is_some(),
    ]) != 1
    {
        found.push(("", "give exactly one of sshPublicKey and userPassword"));
    }
    if let Some(key) = &credential.ssh_public_key {
        let method = &key.propagation_method;
        if !has_source(key.source.secret.as_ref()) {
            found.push(("sshPublicKey.source", NO_SOURCE));
        }
        let given = [
            method.config_drive.is_some(),
            method.no_cloud.is_some(),
            method.qemu_guest_agent.is_some(),
        ];
        let field = "sshPublicKey.propagationMethod";
        if count(&given) != 1 {
            let detail = "give exactly one of configDrive, noCloud and qemuGuestAgent";
            found.push((field, detail));
        }
        let volumes = &input.spec.volumes;
        let has_drive = volumes
            .iter()
            .any(|volume| volume.cloud_init_config_drive.is_some());
        if method.config_drive.is_some() && !has_drive {
            found.push((
                field,
                "configDrive needs a volume with cloudInitConfigDrive",
            ));
        }
        let has_seed = volumes
            .iter()
            .any(|volume| volume.cloud_init_no_cloud.is_some());
        if method.no_cloud.is_some() && !has_seed {
            found.push((field, "noCloud needs a volume with cloudInitNoCloud"));
        }
        let agent = method.qemu_guest_agent.as_ref();
        if agent.is_some_and(|agent| agent.users.is_empty()) {
            let detail = "name at least one user whose keys these are";
            found.push((
                "sshPublicKey.propagationMethod.qemuGuestAgent.users",
                detail,
            ));
        }
    }
    if let Some(password) = &credential.user_password {
        if !has_source(password.source.secret.as_ref()) {
            found.push(("userPassword.source", NO_SOURCE));
        }
        if password.propagation_method.qemu_guest_agent.is_none() {
            let detail = "give qemuGuestAgent: {}";
            found.push(("userPassword.propagationMethod", detail));
        }
    }
    found
}

const NO_SOURCE: &str = "no source; name a secret";

fn has_source(secret: Option<&AccessCredentialSecretSource>) -> bool {
    secret.is_some_and(|secret| !secret.secret_name.is_empty())
}
