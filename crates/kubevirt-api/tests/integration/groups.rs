//! One object of each kind outside `kubevirt.io`, in its wire format: written back after reading,
//! it must be the same text.

use kubevirt_api::{
    backup::{VirtualMachineBackup, VirtualMachineBackupTracker},
    cdi_config::CDIConfig,
    clone::VirtualMachineClone,
    data_source::DataSource,
    data_volume_status::DataVolume,
    export::VirtualMachineExport,
    instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype},
    migration_policy::MigrationPolicy,
    plugin::Plugin,
    pool::VirtualMachinePool,
    preference::{VirtualMachineClusterPreference, VirtualMachinePreference},
    restore::VirtualMachineRestore,
    snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent},
    storage_profile::StorageProfile,
    template::{VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde::{Serialize, de::DeserializeOwned};

/// `body` is what follows the metadata, as compact JSON.
fn is_kept<T: Serialize + DeserializeOwned>(version: &str, kind: &str, body: &str) {
    let text =
        format!(r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"a"}},{body}}}"#);
    let object: T = serde_json::from_str(&text).expect(kind);
    assert_eq!(serde_json::to_string(&object).expect(kind), text);
}

#[test]
fn snapshots_and_restores_are_kept() {
    is_kept::<VirtualMachineSnapshot>(
        "snapshot.kubevirt.io/v1beta1",
        "VirtualMachineSnapshot",
        r#""spec":{"source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"vm"},"deletionPolicy":"Retain","failureDeadline":"0s"},"status":{"sourceUID":"u","virtualMachineSnapshotContentName":"c","creationTime":"2026-01-02T03:04:05Z","phase":"","readyToUse":false,"error":{"time":"2026-01-02T03:04:05Z","message":"m"},"conditions":[{"type":"Ready","status":"False","lastProbeTime":"2026-01-02T03:04:05Z","reason":"r","message":""}],"indications":["Online","FromTheFuture"],"sourceIndications":[{"indication":"Online","message":""}],"snapshotVolumes":{"includedVolumes":["root"]}}"#,
    );
    is_kept::<VirtualMachineSnapshotContent>(
        "snapshot.kubevirt.io/v1beta1",
        "VirtualMachineSnapshotContent",
        r#""spec":{"virtualMachineSnapshotName":"s","source":{"virtualMachine":{"metadata":{"name":"vm"}}},"volumeBackups":[{"volumeName":"root","persistentVolumeClaim":{"metadata":{"name":"p"}},"volumeSnapshotName":"v"}]},"status":{"readyToUse":true,"volumeSnapshotStatus":[{"volumeSnapshotName":"v","readyToUse":true}]}"#,
    );
    is_kept::<VirtualMachineRestore>(
        "snapshot.kubevirt.io/v1beta1",
        "VirtualMachineRestore",
        r#""spec":{"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"vm"},"virtualMachineSnapshotName":"s","targetReadinessPolicy":"StopTarget","volumeRestorePolicy":"InPlace","volumeOwnershipPolicy":"None","volumeRestoreOverrides":[{"volumeName":"root","labels":{"a":""}}],"patches":["{}"]},"status":{"restores":[{"volumeName":"root","persistentVolumeClaim":"p","volumeSnapshotName":"v"}],"complete":false}"#,
    );
}

#[test]
fn clones_exports_and_pools_are_kept() {
    is_kept::<VirtualMachineClone>(
        "clone.kubevirt.io/v1beta1",
        "VirtualMachineClone",
        r#""spec":{"source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"vm"},"annotationFilters":["*"],"template":{"labelFilters":["!a"]},"newMacAddresses":{"default":""},"newSMBiosSerial":"","patches":["{}"],"volumeNamePolicy":"PrefixTargetName"},"status":{"phase":"CreatingTargetVM","snapshotName":"s"}"#,
    );
    is_kept::<VirtualMachineExport>(
        "export.kubevirt.io/v1",
        "VirtualMachineExport",
        r#""spec":{"source":{"apiGroup":"","kind":"PersistentVolumeClaim","name":"p"},"tokenSecretRef":"t","ttlDuration":"1h30m0s"},"status":{"phase":"Ready","links":{"internal":{"cert":"","volumes":[{"name":"p","formats":[{"format":"tar.gz","url":"u"}]}],"backups":[{"name":"b","endpoints":[{"endpoint":"map","url":"u"}]}],"manifests":[{"type":"auth-header-secret","url":"u"}]}},"conditions":[{"type":"PVCReady","status":"True"}]}"#,
    );
    is_kept::<VirtualMachinePool>(
        "pool.kubevirt.io/v1beta1",
        "VirtualMachinePool",
        r#""spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"virtualMachineTemplate":{"metadata":{"labels":{"a":"b"}}},"paused":false,"nameGeneration":{"appendIndexToSecretRefs":false},"maxUnavailable":"25%","scaleInStrategy":{"proactive":{"selectionPolicy":{"sortPolicy":"Oldest","selectors":{"nodeSelectorRequirementMatcher":[{"key":"k","operator":"Exists"}]}},"statePreservation":"Offline"}},"updateStrategy":{"unmanaged":{}},"autohealing":{"startUpFailureThreshold":1,"minFailingToStartDuration":"5m"}},"status":{"replicas":0,"labelSelector":"a=b"}"#,
    );
}

#[test]
fn instancetypes_and_preferences_are_kept() {
    for scope in ["", "Cluster"] {
        let spec = r#""spec":{"cpu":{"guest":0,"dedicatedCPUPlacement":false,"maxSockets":4},"memory":{"guest":"1.5Gi","overcommitPercent":0},"ioThreadsPolicy":"auto","annotations":{"a":"b"}}"#;
        let kind = format!("VirtualMachine{scope}Instancetype");
        let check = match scope {
            "" => is_kept::<VirtualMachineInstancetype>,
            _ => is_kept::<VirtualMachineClusterInstancetype>,
        };
        check("instancetype.kubevirt.io/v1beta1", &kind, spec);
        let spec = r#""spec":{"clock":{"preferredClockOffset":{"utc":{}},"preferredTimer":{"hpet":{"present":false}}},"cpu":{"preferredCPUTopology":"spread","spreadOptions":{"across":"CoresThreads","ratio":2},"preferredCPUFeatures":[{"name":"vmx"}]},"devices":{"preferredVirtualGPUOptions":{},"preferredDiskIO":"native","preferredTPM":{}},"features":{"preferredAcpi":{"enabled":false}},"firmware":{"preferredEfi":{}},"requirements":{"cpu":{"guest":1},"memory":{"guest":"1Gi"}}}"#;
        let kind = format!("VirtualMachine{scope}Preference");
        let check = match scope {
            "" => is_kept::<VirtualMachinePreference>,
            _ => is_kept::<VirtualMachineClusterPreference>,
        };
        check("instancetype.kubevirt.io/v1beta1", &kind, spec);
    }
}

#[test]
fn policies_backups_and_plugins_are_kept() {
    is_kept::<MigrationPolicy>(
        "migrations.kubevirt.io/v1alpha1",
        "MigrationPolicy",
        r#""spec":{"selectors":{"namespaceSelector":{"a":"b"}},"allowAutoConverge":false,"bandwidthPerMigration":"0","completionTimeoutPerGiB":0,"maxDowntimeMs":1},"status":{}"#,
    );
    is_kept::<VirtualMachineBackup>(
        "backup.kubevirt.io/v1alpha1",
        "VirtualMachineBackup",
        r#""spec":{"source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"vm"},"mode":"Pull","pvcName":"p","skipQuiesce":false,"tokenSecretRef":"t","ttlDuration":"2h"},"status":{"type":"Full","conditions":[{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"","reason":"r","status":"True","type":"Complete"}],"includedVolumes":[{"volumeName":"root"}],"exportUID":"u"}"#,
    );
    is_kept::<VirtualMachineBackupTracker>(
        "backup.kubevirt.io/v1alpha1",
        "VirtualMachineBackupTracker",
        r#""spec":{"source":{"apiGroup":"kubevirt.io","kind":"VirtualMachine","name":"vm"}},"status":{"latestCheckpoint":{"name":"c","creationTime":"2026-01-02T03:04:05Z","volumes":[{"volumeName":"root"}]},"checkpointRedefinitionRequired":true}"#,
    );
    is_kept::<Plugin>(
        "plugin.kubevirt.io/v1alpha1",
        "Plugin",
        r#""spec":{"condition":"true","failureStrategy":"Ignore","domainHooks":[{"cel":{"expression":"domain"},"timeout":"10s"},{"sidecar":{"socketPath":"/s.sock"}}],"nodeHooks":[{"socket":"/s.sock","permittedHooks":[]}],"mutatingAdmissionPolicies":[{"name":"m"}]}"#,
    );
}

#[test]
fn templates_are_kept() {
    is_kept::<VirtualMachineTemplate>(
        "template.kubevirt.io/v1alpha1",
        "VirtualMachineTemplate",
        r#""spec":{"virtualMachine":{"spec":{"runStrategy":"${STRATEGY}","template":{"spec":{"domain":{"cpu":{"cores":"${{CORES}}"}}}}}},"parameters":[{"name":"CORES","value":"2","required":false},{"name":"STRATEGY","generate":"expression","from":"[a]{1}"}],"message":"made"},"status":{"conditions":[{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"","reason":"Reconciled","status":"True","type":"Ready"}]}"#,
    );
    is_kept::<VirtualMachineTemplateRequest>(
        "template.kubevirt.io/v1alpha1",
        "VirtualMachineTemplateRequest",
        r#""spec":{"virtualMachineRef":{"namespace":"n","name":"vm"},"templateName":"t","templateLabels":{"a":"b"},"ttlSecondsAfterFinished":0},"status":{"templateRef":{"name":"t"}}"#,
    );
}

#[test]
fn importer_objects_are_kept() {
    let version = "cdi.kubevirt.io/v1beta1";
    is_kept::<DataVolume>(
        version,
        "DataVolume",
        r#""spec":{"source":{"blank":{}},"storage":{"resources":{"requests":{"storage":"1Gi"}}}},"status":{"claimName":"a","phase":"ImportInProgress","progress":"42.0%","restartCount":0,"conditions":[{"type":"Bound","status":"True","lastHeartbeatTime":"2026-01-02T03:04:05Z"}]}"#,
    );
    is_kept::<DataSource>(
        version,
        "DataSource",
        r#""spec":{"source":{"dataSource":{"namespace":"n","name":"d"}}},"status":{"conditions":[{"type":"Ready","status":"True","reason":"r"}]}"#,
    );
    is_kept::<StorageProfile>(
        version,
        "StorageProfile",
        r#""spec":{"claimPropertySets":[{"accessModes":["ReadWriteMany"],"volumeMode":"Block"}]},"status":{"storageClass":"fast","cloneStrategy":"csi-clone","dataImportCronSourceFormat":"snapshot"}"#,
    );
    is_kept::<CDIConfig>(
        version,
        "CDIConfig",
        r#""spec":{"importProxy":{"HTTPProxy":"p","noProxy":"n"},"filesystemOverhead":{"global":"0.06","storageClass":{"a":"0"}},"dataVolumeTTLSeconds":0,"tlsSecurityProfile":{"type":"Custom","custom":{"ciphers":["C"],"minTLSVersion":"VersionTLS12"}}},"status":{"preallocation":false}"#,
    );
}
