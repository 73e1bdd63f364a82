//! A running guest goes from a VM of one namespace to a VM of another one.

use e2e::{VmManifest, answer, claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

/// Both VMs give the guest the same devices.
fn guest() -> VmManifest {
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    tiny_vm("traveller").disk(&volume)
}

async fn migrate(test: &TestNamespace, name: &str, end: &str, details: Value) {
    let mut migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name}, "spec": {"vmiName": "traveller"},
    });
    migration["spec"][end] = details;
    test.apply_object(&migration).await;
}

async fn wait_succeeded(test: &TestNamespace, name: &str) -> Value {
    let api = test.objects("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let is_over = |migration: &Value| {
        let phase = &migration["status"]["phase"];
        assert_ne!(phase, "Failed", "{migration}");
        phase == "Succeeded"
    };
    wait_for(&api, name, "Succeeded", is_over).await
}

/// The numbers that the guest has counted to, in a part of its console's text.
fn counts(text: &str) -> Vec<u64> {
    let words = text.split("count ").skip(1);
    let numbers = words.filter_map(|word| {
        let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    numbers.collect()
}

#[tokio::test]
async fn counting_guest_goes_to_a_vm_of_another_namespace() {
    let from = test_namespace().await;
    let to = from.beside().await;
    for test in [&from, &to] {
        test.apply_object(&claim("data", "Filesystem")).await;
    }
    // The seed, which the guest may write, is longer than that of its new pod.
    let seed = json!({"userData": "#!/bin/sh\necho seeded\n", "networkData": "version: 2\n"});
    let longer = guest().set("/spec/template/spec/volumes/1/cloudInitNoCloud", seed);
    from.apply(&longer).await;
    let mut console = from.shell("traveller").await;
    let write = "echo kept | dd of=/dev/vdc bs=512 seek=64 conv=notrunc,fsync 2>&1";
    console.shell(write).await;
    console.send("count &\n").await;
    console.expect("count 3").await;
    drop(console);

    to.apply(&guest().strategy("WaitAsReceiver")).await;
    let restore = "kubevirt.io/restore-run-strategy=Always";
    to.kubectl(&["annotate", "vm", "traveller", restore])
        .await
        .success();
    to.wait_vmi_phase("traveller", "WaitingForSync").await;
    let next = "get virtualmachineinstancemigrations";
    let expected = answer("awaits-guest", "vmi/traveller", next);
    to.why_answers("traveller", expected).await;

    let id = "3f0a1d0e-6b1f-4b8e-9d43-0f6f1f1b8a11";
    migrate(&to, "in", "receive", json!({"migrationID": id})).await;
    let api = to.objects("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let has_address =
        |migration: &Value| migration["status"]["synchronizationAddresses"][0].is_string();
    let receives = wait_for(&api, "in", "with an address", has_address).await;
    let address = &receives["status"]["synchronizationAddresses"][0];
    let sent = json!({"migrationID": id, "connectURL": address});
    migrate(&from, "out", "sendTo", sent).await;
    wait_succeeded(&from, "out").await;
    wait_succeeded(&to, "in").await;

    to.wait_vmi_phase("traveller", "Running").await;
    let is_halted = |vm: &Value| vm["spec"]["runStrategy"] == "Halted";
    wait_for(&from.vms(), "traveller", "halted", is_halted).await;
    let is_restored = |vm: &Value| vm["spec"]["runStrategy"] == "Always";
    wait_for(&to.vms(), "traveller", "restored", is_restored).await;

    // The same guest: it counts on, and has what it wrote.
    let mut console = to.console("traveller").await;
    let first = console.expect("count ").await + &console.expect("\n").await;
    let next = console.expect("count ").await + &console.expect("\n").await;
    let (first, next) = (counts(&first), counts(&next));
    let order = first.last().zip(next.last());
    assert!(
        order.is_some_and(|(first, next)| *first > 3 && next > first),
        "{first:?} {next:?}"
    );
    let read = "echo 3 >/proc/sys/vm/drop_caches; \
                dd if=/dev/vdc bs=512 skip=64 count=1 2>/dev/null | grep -q kept && echo is-'kept'";
    let shown = console.shell(read).await;
    assert!(shown.contains("is-kept"), "{shown}");
}
