//! What an installation consists of: the objects that make a cluster run virtual machines.
//!
//! - [`webhooks`] and [`registration`]: what API servers ask virt-api, and how they are told;
//! - [`guard`]: what keeps an installation from being deleted under its machines;
//! - [`policy`]: what no role can say: what an agent may change, and that there is one installation;
//! - [`workloads`]: the pods of the components;
//! - [`objects`]: all of it in the order in which it is applied, with the roles of crate `roles`.
//!
//! Pure: from [`Settings`] to JSON. **Invariants**: the same settings give the same objects; nothing
//! secret is in them, certificates are made by the components.

mod accounts;
pub mod guard;
pub mod policy;
pub mod registration;
mod settings;
pub mod webhooks;
pub mod workloads;

pub use accounts::{API_ACCOUNT, CONTROLLER_ACCOUNT, HANDLER_ACCOUNT, HANDLER_SIGNER};
pub use settings::Settings;

use roles::{Environment, RolesError};
use serde_json::{Value, json};

/// Labels everything that belongs to an installation.
pub const COMPONENT_LABEL: &str = "kubevirt.io";
/// Everything but the definitions of kinds, whose names are given, in the order in which it is
/// applied.
pub fn objects(settings: &Settings, definitions: &[&str]) -> Result<Vec<Value>, RolesError> {
    let mut all = vec![namespace(settings), priority_class()];
    all.extend(roles::objects(Environment::Cluster {
        namespace: &settings.namespace,
    })?);
    let api_services = registration::api_services(&settings.namespace);
    // First the rights, for a second installation is refused where they are, and by these.
    let held = [all.as_slice(), &api_services].concat();
    all.extend(policy::objects(&held));
    all.push(registration::service(&settings.namespace));
    all.extend(workloads::objects(settings));
    all.extend(api_services);
    let guard = guard::webhook(&settings.namespace, &all, definitions);
    all.extend(registration::webhook_configurations(
        &settings.namespace,
        guard,
    ));
    Ok(all)
}

fn namespace(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": settings.namespace,
            "labels": {
                COMPONENT_LABEL: "",
                // Node agents enter the namespaces of pods.
                "pod-security.kubernetes.io/enforce": "privileged",
            },
        },
    })
}

fn priority_class() -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": workloads::PRIORITY_CLASS},
        "value": 1_000_000_000,
        "description": "Components that run virtual machines",
    })
}
