//! A guest that writes faster than it is copied goes on in its new pod before all of its memory is there.

use std::fs;

use e2e::FeatureGates;
use serde_json::{Value, json};

use super::{Policy, is_over, node, phase, runs_once, start, wait_migratable, wait_migration};
use crate::TestNamespace;

const PROFILE: &str = "with-userfaultfd.json";
const SYSCTL: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// Lets QEMU, which has no privileges, ask the kernel of this machine, and so of both nodes, for the memory that it
/// misses. Dropping it restores the former setting.
struct Userfaultfd {
    before: String,
}

impl Userfaultfd {
    fn allow() -> Self {
        let before = fs::read_to_string(SYSCTL).expect("the kernel has userfaultfd");
        fs::write(SYSCTL, "1").expect("allow userfaultfd");
        Self { before }
    }
}

impl Drop for Userfaultfd {
    fn drop(&mut self) {
        drop(fs::write(SYSCTL, self.before.trim()));
    }
}

#[tokio::test]
async fn writing_guest_moves_by_post_copy() {
    let test = TestNamespace::create_exclusive().await;
    let _userfaultfd = Userfaultfd::allow();
    let profile = json!({"defaultAction": "SCMP_ACT_ALLOW"});
    test.environment.install_seccomp_profile(PROFILE, &profile);
    let configuration = json!({"seccompConfiguration": {"virtualMachineInstanceProfile": {
        "customProfile": {"localhostProfile": PROFILE},
    }}});
    let _profile = FeatureGates::configure(test.environment.as_ref(), &configuration).await;
    let (first, mut serial) = start(&test, "split").await;
    // The copy takes about 17 s with this bandwidth, and the switch as long as the copy before it at most.
    let spec = json!({
        "allowPostCopy": true, "completionTimeoutPerGiB": 4, "bandwidthPerMigration": "2Mi",
    });
    let _policy = Policy::of(&test, "split", spec).await;
    wait_migratable(&test, "split").await;
    test.virtctl(&["migrate", "split"]).await.success();
    let migration = wait_migration(&test, &mut serial, is_over).await;
    assert_eq!(phase(&migration), "Succeeded", "{migration:#}");
    assert!(is_switched(&migration), "{migration:#}");
    let now = runs_once(&test, "split").await;
    assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
    assert_ne!(node(&now), node(&first));
    // No number is missing or there twice. Processes show nothing here: a QEMU stays in each pod until the end.
    serial.goes_on(&test).await;
}

fn is_switched(migration: &Value) -> bool {
    migration["status"]["migrationState"]["mode"] == "PostCopy"
}
