//! VMIs as data, pods as golden files.
//!
//! Every row of `cases/*.yaml` is a patch of a plain guest, with settings and surroundings that
//! differ from the defaults. It has a description, and names the row of the description of launcher
//! pods that it covers. The rendered pod is `pods/<name>.snap`; `INSTA_UPDATE=always` rewrites them.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::cluster_config::{InterfaceBindingPlugin, ResourceRequirementsWithoutClaims};
use launcher_pod::{
    Acceleration, Claim, ContainerDisks, Feature, Namespace, PodError, Ratio, Settings,
    Surroundings, pod, provisioning_pod,
};
use serde::Deserialize;
use serde_json::{Value, json};

const PLAIN: &str = r#"
metadata:
  name: b1
  namespace: default
  uid: f741ae22-8952-4f7d-8511-7c2739f234d7
spec:
  architecture: amd64
  domain:
    cpu: { cores: 1, model: host-model, sockets: 1, threads: 1 }
    devices:
      disks: [{ name: root, disk: { bus: virtio } }]
      interfaces: [{ name: default, masquerade: {} }]
    machine: { type: q35 }
    memory: { guest: 128Mi }
  networks: [{ name: default, pod: {} }]
  volumes: [{ name: root, containerDisk: { image: "registry.example/guest:1" } }]
"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Row {
    name: String,
    /// A sentence on what the pod demonstrates.
    shows: String,
    /// Section and row of the description of launcher pods.
    covers: String,
    /// Merge patch of the plain guest.
    #[serde(default)]
    vmi: Value,
    #[serde(default)]
    settings: Given,
    #[serde(default)]
    around: Around,
    /// Renders the pod that only binds claims.
    #[serde(default)]
    provisions: bool,
    /// The expected error, instead of a pod.
    error: Option<String>,
}

/// Settings that differ from the defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Given {
    emulation: bool,
    copied_disks: bool,
    pull_policy: Option<String>,
    pull_secrets: Vec<String>,
    node_selectors: BTreeMap<String, String>,
    cpu_allocation_ratio: Option<u32>,
    memory_overcommit_percent: Option<u32>,
    overhead_ratio: Option<String>,
    runtime_class: Option<String>,
    seccomp_profile: Option<String>,
    selinux_type: Option<String>,
    permitted_devices: Option<BTreeSet<String>>,
    log_verbosity: Option<u64>,
    variables: BTreeMap<String, String>,
    binding_plugins: BTreeMap<String, InterfaceBindingPlugin>,
    container_disk_resources: Option<ResourceRequirementsWithoutClaims>,
    hook_sidecar_resources: Option<ResourceRequirementsWithoutClaims>,
    features: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Around {
    /// Claim to its traits: `block`, `shared`.
    claims: BTreeMap<String, Vec<String>>,
    state_claim: Option<String>,
    cpu_limit: bool,
    memory_limit_ratio: Option<String>,
    network_resources: BTreeMap<String, String>,
}

fn directory(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn rows() -> Vec<Row> {
    let mut files: Vec<_> = fs::read_dir(directory("cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: &PathBuf| -> Vec<Row> {
        let text = fs::read_to_string(path).unwrap();
        let shown = path.display().to_string();
        serde_saphyr::from_str(&text).expect(&shown)
    };
    files.iter().flat_map(read).collect()
}

fn settings(given: &Given) -> Settings {
    let acceleration = if given.emulation {
        Acceleration::Emulation
    } else {
        Acceleration::Kvm
    };
    let mut all = Settings::defaults("registry.example/virt-launcher:1", acceleration);
    if given.copied_disks {
        all.container_disks = ContainerDisks::Copied;
    }
    if let Some(policy) = &given.pull_policy {
        all.image_pull_policy.clone_from(policy);
    }
    all.image_pull_secrets.clone_from(&given.pull_secrets);
    all.node_selectors.clone_from(&given.node_selectors);
    all.cpu_allocation_ratio = given
        .cpu_allocation_ratio
        .unwrap_or(all.cpu_allocation_ratio);
    all.memory_overcommit_percent = given
        .memory_overcommit_percent
        .unwrap_or(all.memory_overcommit_percent);
    if let Some(ratio) = &given.overhead_ratio {
        all.overhead_ratio = Ratio::parse(ratio).unwrap();
    }
    all.runtime_class.clone_from(&given.runtime_class);
    all.seccomp_profile.clone_from(&given.seccomp_profile);
    all.selinux_type.clone_from(&given.selinux_type);
    all.permitted_devices.clone_from(&given.permitted_devices);
    all.log_verbosity = given.log_verbosity;
    all.variables.clone_from(&given.variables);
    all.binding_plugins.clone_from(&given.binding_plugins);
    all.container_disk_resources
        .clone_from(&given.container_disk_resources);
    all.hook_sidecar_resources
        .clone_from(&given.hook_sidecar_resources);
    all.features = given.features.iter().map(|name| feature(name)).collect();
    all
}

fn feature(name: &str) -> Feature {
    let all = [
        ("HypervStrictCheck", Feature::HypervStrictCheck),
        ("CrossArchitecture", Feature::CrossArchitecture),
        ("BackupHooks", Feature::BackupHooks),
        ("UnpausedGate", Feature::UnpausedGate),
        ("HotplugDisks", Feature::HotplugDisks),
        ("Iommufd", Feature::Iommufd),
    ];
    let found = all.into_iter().find(|(known, _)| *known == name);
    found.expect("a feature of this name").1
}

fn surroundings(around: &Around) -> Surroundings {
    let claims = around.claims.iter().map(|(name, traits)| {
        let has = |what: &str| traits.iter().any(|one| one == what);
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("uid-of-{name}")},
            "spec": {
                "accessModes": [if has("shared") { "ReadWriteMany" } else { "ReadWriteOnce" }],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeMode": if has("block") { "Block" } else { "Filesystem" },
            },
            "status": {"capacity": {"storage": "1200Mi"}},
        }))
        .unwrap();
        let claim = Claim::of(&claim);
        (name.clone(), claim)
    });
    let ratio = around.memory_limit_ratio.as_deref();
    Surroundings {
        claims: claims.collect(),
        state_claim: around.state_claim.clone(),
        namespace: Namespace {
            needs_cpu_limit: around.cpu_limit,
            memory_limit_ratio: ratio.map(|ratio| Ratio::parse(ratio).unwrap()),
        },
        network_resources: around.network_resources.clone(),
    }
}

fn vmi(row: &Row) -> VirtualMachineInstance {
    let mut object: Value = serde_saphyr::from_str(PLAIN).unwrap();
    if !row.vmi.is_null() {
        json_patch::merge(&mut object, &row.vmi);
    }
    serde_json::from_value(object).expect(&row.name)
}

#[test]
fn every_row_renders_its_golden_pod() {
    let rows = rows();
    let mut golden = insta::Settings::new();
    golden.set_snapshot_path("pods");
    golden.set_prepend_module_to_snapshot(false);
    golden.set_omit_expression(true);
    for row in &rows {
        let render = if row.provisions {
            provisioning_pod
        } else {
            pod
        };
        let rendered = render(
            &vmi(row),
            &settings(&row.settings),
            &surroundings(&row.around),
        );
        match (rendered, &row.error) {
            (Ok(pod), None) => {
                golden.set_description(format!("{} ({})", row.shows, row.covers));
                golden.bind(|| insta::assert_yaml_snapshot!(row.name.as_str(), pod));
            }
            (Err(error), Some(wanted)) => assert_eq!(&error.to_string(), wanted, "{}", row.name),
            (Ok(_), Some(wanted)) => panic!("{} has a pod, and should fail: {wanted}", row.name),
            (Err(error), None) => panic!("{} has no pod: {error}", row.name),
        }
    }
    let wanted: BTreeSet<String> = rows
        .iter()
        .filter(|row| row.error.is_none())
        .map(|row| format!("{}.snap", row.name))
        .collect();
    let files = fs::read_dir(directory("pods")).unwrap();
    let there: BTreeSet<String> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, wanted, "a golden file for each row and for no other");
    assert!(wanted.len() >= 80, "only {} golden pods", wanted.len());
}

#[test]
fn row_names_are_unique() {
    let rows = rows();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len());
}

#[test]
fn memory_overhead_annotation_has_the_computed_overhead() {
    for row in rows().iter().filter(|row| row.error.is_none()) {
        let (vmi, settings) = (vmi(row), settings(&row.settings));
        let overhead = launcher_pod::memory_overhead(&vmi, &settings).unwrap();
        let pod = pod(&vmi, &settings, &surroundings(&row.around)).unwrap();
        let annotated = pod.metadata.annotations.unwrap();
        assert_eq!(
            annotated["kubevirt.io/memory-overhead-bytes"],
            overhead.to_string(),
            "{}",
            row.name
        );
    }
}

#[test]
fn every_container_is_unprivileged() {
    for row in rows().iter().filter(|row| row.error.is_none()) {
        let pod = pod(
            &vmi(row),
            &settings(&row.settings),
            &surroundings(&row.around),
        );
        let spec = pod.unwrap().spec.unwrap();
        let init = spec.init_containers.unwrap_or_default();
        assert_eq!(spec.containers.len(), 1, "{}", row.name);
        for container in spec.containers.iter().chain(&init) {
            let security = container.security_context.clone().unwrap();
            assert_eq!(security.run_as_user, Some(107), "{}", row.name);
            assert_eq!(security.run_as_non_root, Some(true), "{}", row.name);
            assert_eq!(security.allow_privilege_escalation, Some(false));
            assert_eq!(security.privileged, None);
            let capabilities = security.capabilities.unwrap();
            assert_eq!(capabilities.add, None, "{}", row.name);
        }
    }
}

#[test]
fn reasons_of_errors_are_stable() {
    let field = || "f".to_owned();
    let name = || "n".to_owned();
    let all = [
        PodError::Invalid {
            field: field(),
            problem: name(),
        },
        PodError::Missing { field: field() },
        PodError::UnknownClaim {
            field: field(),
            claim: name(),
        },
        PodError::ForbiddenDevice {
            field: field(),
            device: name(),
        },
        PodError::UnknownBinding {
            field: field(),
            binding: name(),
        },
    ];
    let reasons: Vec<&str> = all.iter().map(|one| one.reason().as_str()).collect();
    assert_eq!(
        reasons,
        [
            "InvalidField",
            "MissingField",
            "UnknownClaim",
            "HostDeviceNotPermitted",
            "NetworkBindingNotRegistered"
        ]
    );
}
