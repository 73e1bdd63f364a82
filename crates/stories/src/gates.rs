//! Feature gates that are switched for as long as a story needs them.
//!
//! They count for everybody, so only a story that is told alone may switch any. However it ends,
//! they are put back.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::{Home, NAMESPACE};

/// Gates that are switched; they are as before when this is dropped.
#[derive(Debug)]
pub struct Gates {
    kubeconfig: PathBuf,
}

impl Gates {
    /// Switches gates on and off. It takes the components a moment to hear of it.
    pub async fn switch<H: Home>(home: &H, on: &[&str], off: &[&str]) -> Self {
        let gates = Self {
            kubeconfig: home.kubeconfig(),
        };
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": NAMESPACE},
            "spec": {"configuration": {"developerConfiguration": {
                "featureGates": on, "disabledFeatureGates": off,
            }}},
        });
        // Nobody else configures a home of stories; what this finds, a run that was killed has left.
        let apply = ["apply", "--filename=-"];
        let text = object.to_string();
        home.kubectl(&apply, text.as_bytes()).await.good();
        gates
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        let deleted = Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["--request-timeout=10s", "--namespace", NAMESPACE])
            .args(["delete", "kubevirt", "kubevirt", "--ignore-not-found"])
            .output();
        let is_back = deleted.as_ref().is_ok_and(|output| output.status.success());
        // The stories after this one would be told on another home than they think.
        let is_heard = is_back || std::thread::panicking();
        assert!(is_heard, "the gates are not as they were: {deleted:?}");
    }
}
