//! Draining a node whose guests can migrate.

use std::time::Duration;

use e2e::{GuestProcesses, VmManifest, tiny_vm};
use serde_json::{Value, json};

use super::{assert_ran_once, node, reading, start_vm, wait_migratable};
use crate::TestNamespace;

/// Their consoles are read.
const GUESTS: [&str; 2] = ["first", "second"];
const OTHERS: [&str; 3] = ["third", "fourth", "fifth"];

/// It prefers a node, and is free to leave it.
fn preferring(vm: VmManifest, node: &str) -> VmManifest {
    vm.spec(
        "affinity",
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "preference": {"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]},
        }]}}),
    )
}

#[tokio::test]
async fn drain_moves_guests_and_ends() {
    let test = TestNamespace::create_exclusive().await;
    let (mut guests, mut serials) = (Vec::new(), Vec::new());
    let mut here: Option<String> = None;
    for name in GUESTS {
        let mut vm = tiny_vm(name).spec("evictionStrategy", "LiveMigrate");
        if let Some(node) = &here {
            vm = preferring(vm, node);
        }
        let (vmi, serial) = start_vm(&test, name, &vm, "").await;
        here.get_or_insert_with(|| node(&vmi));
        guests.push(vmi);
        serials.push(serial);
    }
    let here = here.expect("guests run");
    for name in OTHERS {
        let vm = tiny_vm(name).spec("evictionStrategy", "LiveMigrate");
        test.apply(&preferring(vm, &here)).await;
    }
    for name in OTHERS {
        guests.push(test.wait_vmi_phase(name, "Running").await);
        wait_migratable(&test, name).await;
    }
    let mut seen = GuestProcesses::of(&test.namespace);
    let drained = async {
        let drain = [
            "drain",
            &here,
            "--pod-selector=kubevirt.io=virt-launcher",
            "--delete-emptydir-data",
            "--timeout=200s",
        ];
        let drained = reading(&test, &mut serials, test.kubectl(&drain)).await;
        drained.success();
        for (vmi, name) in guests.iter().zip(GUESTS.into_iter().chain(OTHERS)) {
            let now = test.wait_vmi_phase(name, "Running").await;
            assert_eq!(now["metadata"]["uid"], vmi["metadata"]["uid"]);
            assert_ne!(node(&now), here, "{name}");
            // The mark of the eviction is gone, so that the next one works.
            let has_left = |vmi: &Value| vmi["status"]["evacuationNodeName"].is_null();
            e2e::wait_for(&test.vmis(), name, "not evacuated any more", has_left).await;
            wait_migratable(&test, name).await;
        }
        for serial in &mut serials {
            serial.goes_on(&test).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_mins(5), seen.during(drained)).await;
    test.kubectl(&["uncordon", &here]).await.success();
    done.expect("the drain ends");
    assert_ran_once(&seen);
}
