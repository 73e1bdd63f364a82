//! Crashes the controllers at each of their failpoints: their successors reach the desired state, and
//! nothing is left in the end.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams, PostParams};

use super::*;
use super::{
    copies, data_import_crons, data_sources, data_volumes, exports, imports, instancetypes, pools,
    snapshots, storage_profiles, suspends, uploads,
};

const PREFIX: &str = "virt-controller/";

fn names(of: &str) -> Vec<&'static str> {
    let all = ::failpoints::NAMES.lines();
    all.filter(|name| {
        name.strip_prefix(PREFIX)
            .is_some_and(|rest| rest.starts_with(of))
    })
    .collect()
}

/// Runs a scenario with a crash at that failpoint, and checks that nothing is left after cleanup.
async fn check(cluster: &mut TestCluster, name: &str, scenario: impl AsyncFn(&TestCluster)) {
    cluster.crash_after(name);
    scenario(cluster).await;
    // Dependents may be gone already.
    let (all, now) = (ListParams::default(), DeleteParams::default());
    for set in cluster.sets().list(&all).await.unwrap() {
        cluster.sets().delete(&set.name_any(), &now).await.unwrap();
    }
    for vm in cluster.vms().list(&all).await.unwrap() {
        cluster.vms().delete(&vm.name_any(), &now).await.unwrap();
    }
    for vmi in cluster.vmis().list(&all).await.unwrap() {
        let _gone = cluster.vmis().delete(&vmi.name_any(), &now).await.is_err();
    }
    cluster
        .wait_until(&format!("{name}: nothing is left"), async || {
            let revisions =
                Api::<ControllerRevision>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
            cluster.vms().list(&all).await.unwrap().items.is_empty()
                && cluster.vmis().list(&all).await.unwrap().items.is_empty()
                && cluster.pods().list(&all).await.unwrap().items.is_empty()
                && revisions.list(&all).await.unwrap().items.is_empty()
        })
        .await;
    assert!(
        !cluster.is_crash_pending(),
        "failpoint {name} was not reached"
    );
}

async fn runs_with_one_pod(cluster: &TestCluster, name: &str) {
    cluster.wait_for_printable(name, "Running").await;
    cluster
        .wait_until("it has one pod", async || {
            cluster
                .pods()
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len()
                == 1
        })
        .await;
}

async fn create_stop_start_change(cluster: &TestCluster) {
    cluster.create_vm("a", "Halted").await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.request("a", json!([{"action": "Start"}])).await;
    runs_with_one_pod(cluster, "a").await;
    // A change that needs no restart.
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "RerunOnFailure"}}))
        .await;
    cluster
        .wait_until("the change is observed", async || {
            let vm = cluster.vms().get("a").await.unwrap();
            let status = vm.status.clone().unwrap();
            status.observed_generation == vm.metadata.generation
        })
        .await;
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.wait_for_printable("a", "Stopped").await;
    cluster.wait_until_gone("a").await;
    cluster
        .patch_vm("a", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    runs_with_one_pod(cluster, "a").await;
}

async fn orphan_and_adopt(cluster: &TestCluster) {
    cluster.create_vm("a", "Always").await;
    runs_with_one_pod(cluster, "a").await;
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    cluster.vms().delete("a", &orphan).await.unwrap();
    cluster
        .wait_until("the VM is gone", async || {
            cluster.vms().get_opt("a").await.unwrap().is_none()
        })
        .await;
    cluster.create_vm("a", "Always").await;
    runs_with_one_pod(cluster, "a").await;
    cluster
        .wait_until("it is adopted", async || {
            let vm = cluster.vms().get("a").await.unwrap();
            let vmi = cluster.vmis().get("a").await.unwrap();
            let mut owners = vmi.owner_references().iter();
            vmi.uid() == uid && owners.any(|owner| Some(&owner.uid) == vm.uid().as_ref())
        })
        .await;
}

/// A guest with a TPM of its own: the claim for it belongs to the VM.
async fn keeps_state(cluster: &TestCluster) {
    cluster.create_vm_with_tpm("a").await;
    runs_with_one_pod(cluster, "a").await;
    let claims =
        Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), cluster::NAMESPACE);
    let claim = claims.get("persistent-state-for-a").await.unwrap();
    let vm = cluster.vms().get("a").await.unwrap();
    assert_eq!(Some(&claim.owner_references()[0].uid), vm.uid().as_ref());
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap();
    let volumes = pods.items[0].spec.as_ref().unwrap().volumes.as_ref();
    let mounted = volumes.unwrap().iter().any(|volume| {
        let claim = volume.persistent_volume_claim.as_ref();
        claim.is_some_and(|claim| claim.claim_name == "persistent-state-for-a")
    });
    assert!(mounted, "{volumes:?}");
}

async fn delete_stray_pod(cluster: &TestCluster) {
    cluster.create_vm("a", "Always").await;
    runs_with_one_pod(cluster, "a").await;
    let vmi = cluster.vmis().get("a").await.unwrap();
    let stray: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "stray", "labels": {"kubevirt.io": "virt-launcher"},
            "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": "a", "uid": vmi.uid(), "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "compute", "image": "launcher:1"}]},
    }))
    .unwrap();
    cluster
        .pods()
        .create(&PostParams::default(), &stray)
        .await
        .unwrap();
    cluster
        .wait_until("the stray is gone", async || {
            cluster.pods().get_opt("stray").await.unwrap().is_none()
        })
        .await;
    runs_with_one_pod(cluster, "a").await;
}

async fn scale_release_adopt(cluster: &TestCluster) {
    cluster.create_set("web", 2).await;
    cluster.wait_for_replicas("web", 2).await;
    cluster.scale("web", 1).await;
    cluster.wait_for_replicas("web", 1).await;
    let member = cluster
        .vmis()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items[0]
        .name_any();
    let label = async |value: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"app": value}}}));
        let done = cluster
            .vmis()
            .patch(&member, &PatchParams::default(), &patch)
            .await;
        done.unwrap();
    };
    let is_owned = async || {
        let vmi = cluster.vmis().get(&member).await.unwrap();
        !vmi.owner_references().is_empty()
    };
    label("other").await;
    cluster
        .wait_until("it is released", async || !is_owned().await)
        .await;
    // A replacement was created; after the adoption one has to be deleted.
    cluster
        .wait_until("there is another", async || {
            let all = cluster.vmis().list(&ListParams::default()).await.unwrap();
            all.items.len() == 2
        })
        .await;
    cluster.scale("web", 2).await;
    cluster
        .wait_until("there is a third", async || {
            let all = cluster.vmis().list(&ListParams::default()).await.unwrap();
            all.items.len() == 3
        })
        .await;
    cluster.scale("web", 3).await;
    label("web").await;
    cluster.wait_for_replicas("web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn vms_survive_a_crash_at_every_failpoint() {
    let mut cluster = TestCluster::new().await;
    for name in names("vm/") {
        match name.strip_prefix(PREFIX).unwrap() {
            "vm/adopt" => check(&mut cluster, name, orphan_and_adopt).await,
            "vm/keep-choice" => check(&mut cluster, name, instancetypes::kept).await,
            "vm/follow-suspend"
            | "vm/create-saved-claim"
            | "vm/drop-saved-claim"
            | "vm/drop-saved-volume" => check(&mut cluster, name, suspends::suspend_and_resume).await,
            // In a cluster of their own, below.
            "vm/expand-choice"
            | "vm/upgrade-choice"
            | "vm/drop-outdated"
            | "vm/create-data-volume"
            | "vm/adopt-data-volume"
            // In hotplug.rs.
            | "vm/apply-volume-requests"
            | "vm/change-template"
            | "vm/plug-volumes"
            // In memory_dumps.rs.
            | "vm/change-for-dump"
            | "vm/follow-dump"
            // In decentralized.rs.
            | "vm/halt"
            | "vm/restore-strategy"
            // In links.rs.
            | "vm/set-links"
            // In interfaces.rs.
            | "vm/drop-interfaces"
            // In live_updates.rs.
            | "vm/follow-template"
            // In volume_moves.rs.
            | "vm/follow-volumes" => {}
            _ => check(&mut cluster, name, create_stop_start_change).await,
        }
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_survives_a_crash_after_its_choice_is_expanded() {
    let mut cluster = TestCluster::new().await;
    check(
        &mut cluster,
        "virt-controller/vm/expand-choice",
        instancetypes::expanded,
    )
    .await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vm_survives_a_crash_while_its_revision_is_upgraded() {
    for name in ["vm/upgrade-choice", "vm/drop-outdated"] {
        let mut cluster = TestCluster::new().await;
        let name = format!("{PREFIX}{name}");
        check(&mut cluster, &name, instancetypes::upgraded).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn data_volumes_survive_a_crash_at_every_failpoint() {
    for name in ["vm/create-data-volume", "vmi/create-binder"] {
        let mut cluster = TestCluster::new().await;
        check(
            &mut cluster,
            &format!("{PREFIX}{name}"),
            data_volumes::populated,
        )
        .await;
        cluster.end().await;
    }
    let mut cluster = TestCluster::new().await;
    let name = format!("{PREFIX}vm/adopt-data-volume");
    check(&mut cluster, &name, data_volumes::adopted).await;
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn vmis_survive_a_crash_at_every_failpoint() {
    let mut cluster = TestCluster::new().await;
    for name in names("vmi/") {
        match name.strip_prefix(PREFIX).unwrap() {
            "vmi/create-binder"
            // In interfaces.rs.
            | "vmi/change-networks"
            | "vmi/drop-interfaces"
            // In volume_moves.rs.
            | "vmi/settle-volumes" => {}
            "vmi/create-state-claim" => check(&mut cluster, name, keeps_state).await,
            "vmi/delete-others" => check(&mut cluster, name, delete_stray_pod).await,
            _ => check(&mut cluster, name, create_stop_start_change).await,
        }
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn replica_sets_survive_a_crash_at_every_failpoint() {
    let mut cluster = TestCluster::new().await;
    for name in names("replica-set/") {
        check(&mut cluster, name, scale_release_adopt).await;
    }
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn pools_survive_a_crash_at_every_failpoint() {
    for name in names("pool/") {
        let mut cluster = TestCluster::new().await;
        match name.strip_prefix(PREFIX).unwrap() {
            "pool/keep-disk" | "pool/recreate" => {
                cluster.install_importer().await;
                check(&mut cluster, name, pools::with_disks).await;
            }
            "pool/release-abandoned" => check(&mut cluster, name, pools::abandoned).await,
            _ => Box::pin(check(&mut cluster, name, pools::lived)).await,
        }
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn imports_survive_a_crash_at_every_failpoint() {
    for name in names("data-volume/") {
        let mut cluster = TestCluster::new().await;
        cluster.install_own_importer().await;
        let of_copies = [
            "open-source",
            "close-source",
            "create-export",
            "create-export-token",
            "create-authority",
        ];
        if of_copies
            .iter()
            .any(|one| name.ends_with(&format!("/{one}")))
        {
            copies::prepare(&cluster).await;
            check(&mut cluster, name, copies::copied).await;
        } else if name.ends_with("/adopt-claim") {
            check(&mut cluster, name, imports::adopted).await;
        } else {
            check(&mut cluster, name, imports::imported).await;
        }
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn data_sources_survive_a_crash_at_every_failpoint() {
    for name in names("data-source/") {
        let mut cluster = TestCluster::new().await;
        cluster.install_own_importer().await;
        check(&mut cluster, name, data_sources::prepared).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn periodic_imports_survive_a_crash_at_every_failpoint() {
    for name in names("cron/") {
        let mut cluster = TestCluster::new().await;
        cluster.install_own_importer().await;
        check(&mut cluster, name, data_import_crons::followed).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn storage_profiles_survive_a_crash_at_every_failpoint() {
    for name in names("storage-profile/") {
        let mut cluster = TestCluster::new().await;
        cluster.install_own_importer().await;
        check(&mut cluster, name, storage_profiles::kept).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_survive_a_crash_at_every_failpoint() {
    for name in names("upload/") {
        let mut cluster = TestCluster::new().await;
        cluster.install_own_importer().await;
        check(&mut cluster, name, uploads::uploaded).await;
        cluster.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn exports_survive_a_crash_at_every_failpoint() {
    for name in names("export/") {
        if name.ends_with("/create-claim") {
            let mut cluster = snapshots::with_vm().await;
            check(&mut cluster, name, exports::snapshot_exported).await;
            cluster.end().await;
        } else {
            let mut cluster = TestCluster::new().await;
            check(&mut cluster, name, exports::exported).await;
            cluster.end().await;
        }
    }
}

#[test]
fn every_failpoint_has_a_scenario() {
    // Those of migrations are in migrations.rs, of volumes in hotplug.rs, and the others in snapshots.rs,
    // restores.rs, clones.rs, backups.rs and template_requests.rs.
    let covered = [
        "vm/",
        "vmi/",
        "replica-set/",
        "pool/",
        "migration/",
        "cron/",
        "data-source/",
        "data-volume/",
        "storage-profile/",
        "upload/",
        "hotplug/",
        "snapshot/",
        "restore/",
        "clone/",
        "export/",
        "backup/",
        "backup-restore/",
        "template/",
        "template-request/",
    ]
    .map(|of| names(of).len());
    assert_eq!(covered.iter().sum::<usize>(), names("").len());
}
