//! A new launcher image: running guests move into pods that have it.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Environment as _, GuestProcesses, NAMESPACE, program, run, wait_for};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::{assert_ran_once, reading, runs_once, start};
use crate::TestNamespace;

const CONTROLLER: &str = "deployment/virt-controller";
const OLD: &str = "docker.io/ferrovirt/virt-launcher:devel";

/// Loads the launcher image onto the nodes under another name.
async fn load_as(name: &str) {
    let copy = tempfile::tempdir().expect("make a directory");
    let layout = copy.path().join("layout");
    let mut command = tokio::process::Command::new("cp");
    command.arg("--recursive");
    command
        .arg(e2e::images().join("virt-launcher.oci"))
        .arg(&layout);
    run(&mut command, b"").await.success();
    rename(&layout.join("index.json"), name);
    let mut load = tokio::process::Command::new(program("xtask"));
    load.args(["cluster", "load"]).arg(&layout);
    run(&mut load, b"").await.success();
}

fn rename(index: &Path, name: &str) {
    let text = std::fs::read(index).expect("read the index");
    let mut content: Value = serde_json::from_slice(&text).expect("is JSON");
    content["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = name.into();
    std::fs::write(index, content.to_string()).expect("write the index");
}

/// The components of another version; dropping it brings the old one back.
struct Update {
    kubeconfig: PathBuf,
}

impl Update {
    fn to(test: &TestNamespace, image: &str) -> Self {
        let update = Self {
            kubeconfig: test.environment.kubeconfig(),
        };
        update.kubectl(&["set", "env", CONTROLLER, &format!("LAUNCHER_IMAGE={image}")]);
        update.methods(&json!(["LiveMigrate"]));
        update
    }

    fn methods(&self, methods: &Value) {
        let strategy = json!({"workloadUpdateMethods": methods});
        let patch = json!({"spec": {"workloadUpdateStrategy": strategy}}).to_string();
        self.kubectl(&[
            "patch",
            "kubevirt",
            "kubevirt",
            "--type=merge",
            "--patch",
            &patch,
        ]);
    }

    fn kubectl(&self, arguments: &[&str]) {
        let output = Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["--request-timeout=30s", "--namespace", NAMESPACE])
            .args(arguments)
            .output();
        let is_done = output.as_ref().is_ok_and(|output| output.status.success());
        // Later tests would run with the wrong version.
        assert!(
            is_done || std::thread::panicking(),
            "{arguments:?}: {output:?}"
        );
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        self.methods(&Value::Null);
        self.kubectl(&["set", "env", CONTROLLER, &format!("LAUNCHER_IMAGE={OLD}")]);
        self.kubectl(&["rollout", "status", "--timeout=4m", CONTROLLER]);
    }
}

fn kubevirts(test: &TestNamespace) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "KubeVirt");
    let resource = ApiResource::from_gvk(&kind);
    Api::namespaced_with(test.client.clone(), NAMESPACE, &resource)
}

#[tokio::test]
async fn guest_moves_to_a_new_launcher_image_while_it_counts() {
    let test = TestNamespace::create_exclusive().await;
    let image = format!("docker.io/ferrovirt/virt-launcher:{}", test.namespace);
    load_as(&image).await;
    let (first, mut serial) = start(&test, "updated").await;
    assert_eq!(first["status"]["launcherContainerImageVersion"], OLD);
    let mut seen = GuestProcesses::of(&test.namespace);
    let moves = async {
        let _update = Update::to(&test, &image);
        let runs_new = |vmi: &Value| {
            let status = &vmi["status"];
            status["launcherContainerImageVersion"] == *image
                && status["migrationState"]["completed"] == true
                && vmi["metadata"]["labels"]["kubevirt.io/outdatedLauncherImage"].is_null()
        };
        let vmis = test.vmis();
        let moved = wait_for(&vmis, "updated", "in the new launcher", runs_new);
        let moved = reading(&test, std::slice::from_mut(&mut serial), moved).await;
        assert_eq!(moved["metadata"]["uid"], first["metadata"]["uid"]);
        let is_counted = |kubevirt: &Value| {
            let outdated = &kubevirt["status"]["outdatedVirtualMachineInstanceWorkloads"];
            *outdated == 0
        };
        let kubevirts = kubevirts(&test);
        let counted = wait_for(
            &kubevirts,
            "kubevirt",
            "without outdated guests",
            is_counted,
        );
        reading(&test, std::slice::from_mut(&mut serial), counted).await;
        runs_once(&test, "updated").await;
        serial.goes_on(&test).await;
        // The guest would move back.
        test.delete_vms(&["updated"]).await;
    };
    Box::pin(seen.during(moves)).await;
    assert_ran_once(&seen);
}
