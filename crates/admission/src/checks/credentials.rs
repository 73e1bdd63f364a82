//! Access credentials: keys and passwords that are propagated into the guest.

use kubevirt_api::access_credentials::{AccessCredential, AccessCredentialSecretSource};
use validation::Violation;

use super::input::{Input, count};

pub(super) fn credentials(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, credential) in input.spec.access_credentials.iter().enumerate() {
        let path = format!("accessCredentials[{i}]");
        for problem in problems(input, credential) {
            let field = match problem.field {
                "" => path.clone(),
                field => format!("{path}.{field}"),
            };
            found.push(input.invalid(&field, problem.detail));
        }
    }
    found
}

struct Problem {
    /// Path below the credential; empty for the credential itself.
    field: &'static str,
    detail: &'static str,
}

fn problems(input: &Input<'_>, credential: &AccessCredential) -> Vec<Problem> {
    let problem = |field, detail| Problem { field, detail };
    let mut found = Vec::new();
    if count(&[
        credential.ssh_public_key.is_some(),
        credential.user_password.is_some(),
    ]) != 1
    {
        let detail = "give exactly one of sshPublicKey and userPassword";
        found.push(problem("", detail));
    }
    if let Some(key) = &credential.ssh_public_key {
        let method = &key.propagation_method;
        if !has_source(key.source.secret.as_ref()) {
            found.push(problem("sshPublicKey.source", NO_SOURCE));
        }
        let given = [
            method.config_drive.is_some(),
            method.no_cloud.is_some(),
            method.qemu_guest_agent.is_some(),
        ];
        let field = "sshPublicKey.propagationMethod";
        if count(&given) != 1 {
            let detail = "give exactly one of configDrive, noCloud and qemuGuestAgent";
            found.push(problem(field, detail));
        }
        let volumes = &input.spec.volumes;
        let has_drive = volumes
            .iter()
            .any(|volume| volume.cloud_init_config_drive.is_some());
        if method.config_drive.is_some() && !has_drive {
            let detail = "configDrive needs a volume with cloudInitConfigDrive";
            found.push(problem(field, detail));
        }
        let has_seed = volumes
            .iter()
            .any(|volume| volume.cloud_init_no_cloud.is_some());
        if method.no_cloud.is_some() && !has_seed {
            let detail = "noCloud needs a volume with cloudInitNoCloud";
            found.push(problem(field, detail));
        }
        let agent = method.qemu_guest_agent.as_ref();
        if agent.is_some_and(|agent| agent.users.is_empty()) {
            let detail = "name at least one user for the keys";
            let field = "sshPublicKey.propagationMethod.qemuGuestAgent.users";
            found.push(problem(field, detail));
        }
    }
    if let Some(password) = &credential.user_password {
        if !has_source(password.source.secret.as_ref()) {
            found.push(problem("userPassword.source", NO_SOURCE));
        }
        if password.propagation_method.qemu_guest_agent.is_none() {
            let detail = "give qemuGuestAgent: {}";
            found.push(problem("userPassword.propagationMethod", detail));
        }
    }
    found
}

const NO_SOURCE: &str = "no source; name a secret";

fn has_source(secret: Option<&AccessCredentialSecretSource>) -> bool {
    secret.is_some_and(|secret| !secret.secret_name.is_empty())
}
