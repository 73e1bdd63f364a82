//! Pods that a webhook breaks.

use e2e::{VmManifest, answer, tiny_vm};
use serde_json::json;

use super::{
    Situations,
    faults::{AWAY, with_fault},
};

fn once(name: &str, fault: &str) -> VmManifest {
    with_fault(tiny_vm(name).strategy("Once"), fault)
}

pub(super) async fn are_broken(test: &Situations<'_>) {
    test.apply_all([
        once("unpulled", "other-registry"),
        once("unset", "no-config-map"),
        once("programless", "no-program"),
        once("ends", "ends-at-once"),
        once("sidecar", "crashing-sidecar"),
        once("mute", "does-nothing"),
        once("shared", "no-guarantee")
            .domain("cpu", json!({"cores": 1, "dedicatedCpuPlacement": true})),
    ])
    .await;
    for (name, cause, object, next) in [
        (
            "unpulled",
            "launcher-image",
            AWAY,
            "describe pod virt-launcher-unpulled-",
        ),
        (
            "unset",
            "container-config",
            "injected-settings",
            "describe pod virt-launcher-unset-",
        ),
        (
            "programless",
            "container-start",
            "compute",
            "describe pod virt-launcher-programless-",
        ),
        (
            "ends",
            "guest-failed",
            "vmi/ends",
            "logs virt-launcher-ends-",
        ),
        (
            "sidecar",
            "launcher-crashing",
            "injected",
            "logs virt-launcher-sidecar-",
        ),
        (
            "mute",
            "launcher-unresponsive",
            "vmi/mute",
            "logs virt-launcher-mute-",
        ),
        ("shared", "vmi-blocked", "Guaranteed", "describe vmi shared"),
    ] {
        test.check(name, answer(cause, object, next)).await;
    }
    let names = [
        "unpulled",
        "unset",
        "programless",
        "ends",
        "sidecar",
        "mute",
        "shared",
    ];
    test.delete_vms(&names).await;
}
