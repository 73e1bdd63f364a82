//! Feature gates that a test switches for its duration.
//!
//! Gates are global, so only an exclusive test may switch them. They are restored on drop.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::{Environment, NAMESPACE};

/// Switched gates; dropping it restores the defaults.
#[derive(Debug)]
pub struct FeatureGates {
    kubeconfig: PathBuf,
}

impl FeatureGates {
    /// Switches gates on and off. Components take a moment to observe the change.
    pub async fn switch<H: Environment>(environment: &H, on: &[&str], off: &[&str]) -> Self {
        let gates = json!({"featureGates": on, "disabledFeatureGates": off});
        Self::configure(environment, &json!({"developerConfiguration": gates})).await
    }

    /// The same for any configuration of the installation.
    pub async fn configure<H: Environment>(environment: &H, configuration: &Value) -> Self {
        let feature_gates = Self {
            kubeconfig: environment.kubeconfig(),
        };
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
            "spec": {"configuration": configuration},
        });
        // Nothing else configures a test environment; an existing object is left from a killed run.
        let apply = ["apply", "--filename=-"];
        let text = object.to_string();
        environment.kubectl(&apply, text.as_bytes()).await.success();
        feature_gates
    }
}

impl Drop for FeatureGates {
    fn drop(&mut self) {
        let deleted = Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["--request-timeout=10s", "--namespace", NAMESPACE])
            .args(["delete", "kubevirt", "kubevirt", "--ignore-not-found"])
            .output();
        let is_deleted = deleted.as_ref().is_ok_and(|output| output.status.success());
        // Later tests would run with the wrong gates.
        let is_restored = is_deleted || std::thread::panicking();
        assert!(is_restored, "the gates were not restored: {deleted:?}");
    }
}
