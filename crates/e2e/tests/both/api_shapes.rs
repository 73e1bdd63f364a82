//! Tables, status fields and discovery have the shape that clients of `KubeVirt` expect.

use std::collections::BTreeSet;

use e2e::{Environment as _, NAMESPACE, replica_set, tiny_vm};
use serde_json::Value;

use crate::{TestNamespace, test_namespace};

/// The column names of a table.
async fn columns(test: &TestNamespace, arguments: &[&str]) -> Vec<String> {
    let table = test.kubectl(arguments).await.success();
    let first = table.lines().next().unwrap_or_default();
    first.split_whitespace().map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn tables_have_kubevirt_columns() {
    let test = test_namespace().await;
    test.apply_object(&replica_set("set", 0)).await;
    test.apply(&tiny_vm("shown")).await;
    let arguments = ["wait", "vm/shown", "--for=condition=Ready", "--timeout=90s"];
    test.kubectl(&arguments).await.success();
    for (kind, usual, wide) in [
        ("vm", "NAME AGE STATUS READY", ""),
        (
            "vmi",
            "NAME AGE PHASE IP NODENAME READY",
            " LIVE-MIGRATABLE PAUSED",
        ),
        ("vmirs", "NAME DESIRED CURRENT READY AGE", ""),
    ] {
        let shown = columns(&test, &["get", kind]).await;
        assert_eq!(shown.join(" "), usual, "{kind}");
        let shown = columns(&test, &["get", kind, "--output=wide"]).await;
        assert_eq!(shown.join(" "), format!("{usual}{wide}"), "{kind}");
    }
    let row = test.kubectl(&["get", "vm", "--no-headers"]).await.success();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((row[0], &row[2..]), ("shown", &["Running", "True"][..]));

    let output = test.kubectl(&["describe", "vm/shown"]).await.success();
    let output = output
        .split("\nEvents:")
        .nth(1)
        .expect("it ends with events");
    let columns: Vec<&str> = output.split_whitespace().take(5).collect();
    assert_eq!(columns, ["Type", "Reason", "Age", "From", "Message"]);
    assert!(output.contains("SuccessfulCreate"), "{output}");
    assert!(output.contains("virt-controller"), "{output}");
}

type IsSo = fn(&Value) -> bool;

/// The status fields of every running VMI, and their types.
const STATUS: &[(&str, IsSo)] = &[
    ("/activePods", Value::is_object),
    ("/conditions/0/lastTransitionTime", Value::is_string),
    ("/conditions/0/status", Value::is_string),
    ("/conditions/0/type", Value::is_string),
    ("/currentCPUTopology/cores", Value::is_u64),
    ("/currentCPUTopology/sockets", Value::is_u64),
    ("/currentCPUTopology/threads", Value::is_u64),
    ("/interfaces/0/infoSource", Value::is_string),
    ("/interfaces/0/ipAddress", Value::is_string),
    ("/interfaces/0/ipAddresses/0", Value::is_string),
    ("/interfaces/0/linkState", Value::is_string),
    ("/interfaces/0/mac", Value::is_string),
    ("/interfaces/0/name", Value::is_string),
    ("/interfaces/0/podInterfaceName", Value::is_string),
    ("/interfaces/0/queueCount", Value::is_u64),
    ("/launcherContainerImageVersion", Value::is_string),
    ("/machine/type", Value::is_string),
    ("/memory/guestAtBoot", Value::is_string),
    ("/memory/guestCurrent", Value::is_string),
    ("/memory/guestRequested", Value::is_string),
    ("/memory/memoryOverhead", Value::is_string),
    ("/migrationMethod", Value::is_string),
    ("/migrationTransport", Value::is_string),
    ("/nodeName", Value::is_string),
    ("/phase", Value::is_string),
    ("/phaseTransitionTimestamps/3/phase", Value::is_string),
    (
        "/phaseTransitionTimestamps/3/phaseTransitionTimestamp",
        Value::is_string,
    ),
    ("/qosClass", Value::is_string),
    ("/runtimeUser", Value::is_u64),
    ("/virtualMachineRevisionName", Value::is_string),
    ("/volumeStatus/0/name", Value::is_string),
    ("/volumeStatus/0/target", Value::is_string),
];

#[tokio::test]
async fn running_vmi_status_has_kubevirt_fields() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("read")).await;
    let vmi = test.wait_vmi_phase("read", "Running").await;
    let missing: Vec<&str> = STATUS
        .iter()
        .filter(|(path, is_so)| !vmi["status"].pointer(path).is_some_and(is_so))
        .map(|(path, _)| *path)
        .collect();
    assert!(missing.is_empty(), "{missing:?} in {:#}", vmi["status"]);
    let phases = vmi["status"]["phaseTransitionTimestamps"].as_array();
    let phases: Vec<_> = phases
        .into_iter()
        .flatten()
        .filter_map(|one| one["phase"].as_str())
        .collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);
}

#[tokio::test]
async fn discovery_and_explain_work() {
    let test = test_namespace().await;
    let arguments = ["api-resources", "--api-group=kubevirt.io", "--no-headers"];
    let table = test.kubectl(&arguments).await.success();
    let rows: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for row in [
        "kubevirts kv,kvs kubevirt.io/v1 true KubeVirt",
        "virtualmachineinstances vmi,vmis kubevirt.io/v1 true VirtualMachineInstance",
        "virtualmachineinstancereplicasets vmirs,vmirss kubevirt.io/v1 true VirtualMachineInstanceReplicaSet",
        "virtualmachines vm,vms kubevirt.io/v1 true VirtualMachine",
    ] {
        assert!(rows.iter().any(|one| one == row), "{row} in {rows:#?}");
    }

    let field = "vm.spec.template.spec.domain.devices.disks";
    let output = test.kubectl(&["explain", field]).await.success();
    let description = output.split("DESCRIPTION:").nth(1).unwrap_or_default();
    assert!(output.contains("FIELD: disks <[]Object>"), "{output}");
    assert!(description.split_whitespace().count() > 5, "{output}");

    let path = "/apis/subresources.kubevirt.io/v1";
    let list = test.kubectl(&["get", "--raw", path]).await.success();
    let list: Value = serde_json::from_str(&list).expect("it is JSON");
    let names: BTreeSet<&str> = list["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["name"].as_str())
        .collect();
    for name in [
        "virtualmachines/start",
        "virtualmachines/stop",
        "virtualmachines/restart",
        "virtualmachineinstances/console",
        "virtualmachineinstances/vnc",
        "virtualmachineinstances/pause",
        "virtualmachineinstances/unpause",
        "virtualmachineinstances/guestosinfo",
    ] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
}

/// Tools read from this object whether the installation works, and its version.
#[tokio::test]
async fn installation_becomes_available() {
    let test = test_namespace().await;
    let in_installation = async |arguments: &[&str]| {
        let all = [&["--namespace", NAMESPACE], arguments].concat();
        test.environment.kubectl(&all, b"").await.success()
    };
    let condition = "--for=condition=Available";
    in_installation(&["wait", "kv/kubevirt", condition, "--timeout=120s"]).await;
    let path = "--output=jsonpath={.status.observedKubeVirtVersion}";
    let version = in_installation(&["get", "kv/kubevirt", path]).await;
    assert_eq!(version, "v1.9.0");
}
