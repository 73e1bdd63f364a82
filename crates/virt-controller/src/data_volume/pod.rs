//! The pod that populates a claim: one container with the program `disk-import`, as an unprivileged user,
//! without a token of the API server.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kubevirt_api::data_volume::{DataVolumeSourceHttp, DataVolumeSourceS3};
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::{annotations, labels, upload};
use launcher_pod::Settings;
use serde_json::{Value, json};

use super::claim;
use super::request::{Request, Source};
use super::transfer::Link;
use crate::view::Claim;

pub(super) const CONTAINER: &str = "importer";
const PROGRAM: &str = "/usr/bin/disk-import";
const DATA: &str = "/data";
const DEVICE: &str = "/dev/import";
const SCRATCH: &str = "/scratch";
const SOURCE: &str = "/source";
const SOURCE_DEVICE: &str = "/dev/source";
const CREDENTIALS: &str = "/credentials";
const AUTHORITIES: &str = "/authorities";
const HEADERS: &str = "/headers";
/// The importer itself is bounded; a conversion may use more, up to this.
const MEMORY: &str = "600M";

/// Where the volume with the socket of an upload is mounted.
const UPLOAD: &str = "/upload";

/// What a pod of an upload is rendered from.
#[derive(Debug)]
pub(super) struct UploadInput<'a> {
    pub(super) claim: &'a Claim,
    pub(super) settings: &'a Settings,
}

/// What a pod is rendered from.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) whole: &'a DataVolume,
    pub(super) request: &'a Request,
    pub(super) claim: &'a Claim,
    /// The claim to copy.
    pub(super) source: Option<&'a Claim>,
    /// The server of a source in another namespace.
    pub(super) link: Option<&'a Link>,
    pub(super) settings: &'a Settings,
    /// How often the import was restarted before.
    pub(super) restarts: i32,
}

/// The name of the pod: derived from the UID, so that a data volume never takes the pod of an older one of
/// the same name for its own.
pub(super) fn name(uid: &str) -> String {
    format!("importer-{uid}")
}

/// The name of the pod that receives an upload for the claim with this UID. virt-api finds it by this name.
pub(super) fn upload_name(uid: &str) -> String {
    format!("{}{uid}", upload::POD_PREFIX)
}

/// Volumes, mounts, devices and arguments as they are put together.
#[derive(Debug, Default)]
struct Parts {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    devices: Vec<Value>,
    arguments: Vec<String>,
}

impl Parts {
    fn mount(&mut self, name: &str, source: (&str, Value), path: &str, is_read_only: bool) {
        let (kind, source) = source;
        self.volumes.push(json!({"name": name, kind: source}));
        self.mounts
            .push(json!({"name": name, "mountPath": path, "readOnly": is_read_only}));
    }

    /// A kubelet replaces `$$` and references to variables in arguments.
    fn argue(&mut self, arguments: &[&str]) {
        let arguments = arguments.iter().map(|one| one.replace('$', "$$"));
        self.arguments.extend(arguments);
    }
}

/// What differs between pods of data volumes and of uploads.
struct Head {
    name: String,
    namespace: Option<String>,
    owner: Value,
    annotations: Value,
    priority: Option<String>,
}

/// What a pod is rendered from that finds out the version of a source.
#[derive(Debug)]
pub(super) struct VersionInput<'a> {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) owner: Value,
    pub(super) source: &'a Source,
    pub(super) settings: &'a Settings,
}

/// What a pod is rendered from that looks what a backup holds.
#[derive(Debug)]
pub(crate) struct InspectInput<'a> {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) owner: Value,
    /// The claim with the backup, and the directory in it.
    pub(crate) source: String,
    pub(crate) directory: &'a str,
    /// All without any.
    pub(crate) volumes: Vec<&'a str>,
    /// Whether all files are read.
    pub(crate) verifies: bool,
    pub(crate) restarts: i32,
    pub(crate) settings: &'a Settings,
}

/// What a pod is rendered from that restores a volume of a backup.
#[derive(Debug)]
pub(crate) struct RestoreInput<'a> {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) owner: Value,
    pub(crate) claim: &'a Claim,
    /// Of the disk, where the claim is a file system.
    pub(crate) size: u64,
    pub(crate) source: String,
    pub(crate) directory: &'a str,
    pub(crate) volume: &'a str,
    pub(crate) restarts: i32,
    pub(crate) settings: &'a Settings,
}

/// The pod that looks what a backup holds. It runs once: a damaged backup is not read again, which may take hours.
pub(crate) fn render_inspect(input: InspectInput<'_>) -> Pod {
    let mut parts = Parts::default();
    parts.argue(&["inspect-backup"]);
    if input.verifies {
        parts.argue(&["--verify"]);
    }
    parts.argue(&["--", SOURCE, input.directory]);
    parts.argue(&input.volumes);
    backup(&mut parts, &input.source);
    let head = Head {
        name: input.name,
        namespace: Some(input.namespace),
        owner: input.owner,
        annotations: json!({annotations::IMPORT_RESTARTS: input.restarts.to_string()}),
        priority: None,
    };
    once(pod(head, &parts, input.settings))
}

/// The pod that restores a volume of a backup. It runs once: what it reports about the claim stays true until another
/// one is created.
pub(crate) fn render_restore(input: &RestoreInput<'_>) -> Pod {
    let mut parts = Parts::default();
    if target(&mut parts, input.claim, Some(input.size)).is_some() {
        let (directory, volume) = (input.directory, input.volume);
        parts.argue(&["restore", "--", SOURCE, directory, volume]);
    }
    backup(&mut parts, &input.source);
    let head = Head {
        name: input.name.clone(),
        namespace: Some(input.namespace.clone()),
        owner: input.owner.clone(),
        annotations: json!({
            annotations::IMPORT_RESTARTS: input.restarts.to_string(),
            annotations::IMPORT_CLAIM: input.claim.uid().unwrap_or_default(),
        }),
        priority: None,
    };
    once(pod(head, &parts, input.settings))
}

/// Another pod has to be created when it fails.
fn once(mut pod: Pod) -> Pod {
    if let Some(spec) = &mut pod.spec {
        spec.restart_policy = Some("Never".to_owned());
    }
    pod
}

/// The claim with a backup, which is only read.
fn backup(parts: &mut Parts, claim: &str) {
    let claim = json!({"claimName": claim, "readOnly": true});
    parts.mount("source", ("persistentVolumeClaim", claim), SOURCE, true);
}

/// The pod that finds out the version of a source, which is a file, an object or an image.
pub(super) fn render_version(input: VersionInput<'_>) -> Pod {
    let mut parts = Parts::default();
    parts.argue(&["version"]);
    match input.source {
        Source::Web { http, .. } => web(&mut parts, http, None),
        Source::Bucket { object, .. } => bucket(&mut parts, object, None),
        Source::Image(reference) => image(&mut parts, reference, "Always"),
        // They have no version.
        Source::Claim(_)
        | Source::Snapshot(_)
        | Source::Elsewhere(_)
        | Source::Blank
        | Source::Upload => {}
    }
    let head = Head {
        name: input.name,
        namespace: Some(input.namespace),
        owner: input.owner,
        annotations: json!({}),
        priority: None,
    };
    pod(head, &parts, input.settings)
}

/// `None` while the size of the claim is unknown.
pub(super) fn render(input: &Input<'_>) -> Option<Pod> {
    let whole = input.whole;
    let mut parts = Parts::default();
    let size = claim::disk_bytes(input.request, input.claim);
    target(&mut parts, input.claim, size)?;
    source(&mut parts, input);
    let mut notes = json!({
        annotations::IMPORT_RESTARTS: input.restarts.to_string(),
        annotations::IMPORT_CLAIM: input.claim.uid().unwrap_or_default(),
    });
    if let Some(link) = input.link {
        notes[annotations::COPY_LINK] = link.id().into();
    }
    let head = Head {
        name: name(whole.metadata.uid.as_deref().unwrap_or_default()),
        namespace: whole.namespace(),
        owner: claim::owner(whole),
        annotations: notes,
        priority: whole.spec.priority_class_name.clone(),
    };
    Some(pod(head, &parts, input.settings))
}

/// The pod of an upload, which belongs to the claim; `None` while the size of the claim is unknown.
pub(super) fn render_upload(input: &UploadInput<'_>) -> Option<Pod> {
    let mut parts = Parts::default();
    target(&mut parts, input.claim, claim::usable_bytes(input.claim))?;
    parts.mount(upload::POD_VOLUME, ("emptyDir", json!({})), UPLOAD, false);
    let socket = format!("{UPLOAD}/{}", upload::POD_SOCKET);
    parts.argue(&["upload", &socket]);
    let metadata = &input.claim.metadata;
    let owner = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    });
    let head = Head {
        name: upload_name(metadata.uid.as_deref().unwrap_or_default()),
        namespace: metadata.namespace.clone(),
        owner,
        annotations: match input.claim.annotation(annotations::IMPORT_RESTARTS) {
            Some(restarts) => json!({annotations::IMPORT_RESTARTS: restarts}),
            None => json!({}),
        },
        priority: None,
    };
    Some(pod(head, &parts, input.settings))
}

fn pod(head: Head, parts: &Parts, settings: &Settings) -> Pod {
    let secrets = settings.image_pull_secrets.iter();
    let secrets: Vec<Value> = secrets.map(|name| json!({"name": name})).collect();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": head.name,
            "namespace": head.namespace,
            "labels": {labels::COMPONENT: labels::COMPONENT_DISK_IMPORT},
            "annotations": head.annotations,
            "ownerReferences": [head.owner],
        },
        "spec": {
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 5,
            "securityContext": launcher_pod::pod_context(settings),
            "imagePullSecrets": Some(secrets).filter(|all| !all.is_empty()),
            "nodeSelector": Some(&settings.node_selectors).filter(|all| !all.is_empty()),
            "priorityClassName": head.priority.filter(|name| !name.is_empty()),
            "containers": [{
                "name": CONTAINER,
                "image": settings.launcher_image,
                "imagePullPolicy": settings.image_pull_policy,
                "command": [PROGRAM],
                "args": parts.arguments,
                "resources": {
                    "requests": {"cpu": "100m", "memory": "64M"},
                    "limits": {"cpu": "1", "memory": MEMORY},
                },
                "securityContext": launcher_pod::container_context(),
                "volumeMounts": parts.mounts,
                "volumeDevices": Some(&parts.devices).filter(|all| !all.is_empty()),
            }],
            "volumes": parts.volumes,
        },
    });
    serde_json::from_value(pod).expect("the members are those of a pod")
}

/// The claim and scratch space. `size` is that of a disk in a file system.
fn target(parts: &mut Parts, target: &Claim, size: Option<u64>) -> Option<()> {
    let claim = json!({"claimName": target.metadata.name});
    if claim::is_block(target) {
        parts
            .volumes
            .push(json!({"name": "data", "persistentVolumeClaim": claim}));
        parts
            .devices
            .push(json!({"name": "data", "devicePath": DEVICE}));
        parts.argue(&["--device", DEVICE]);
    } else {
        let size = size?;
        parts.mount("data", ("persistentVolumeClaim", claim), DATA, false);
        parts.argue(&["--directory", DATA, "--size", &size.to_string()]);
    }
    parts.mount("scratch", ("emptyDir", json!({})), SCRATCH, false);
    parts.argue(&["--scratch", SCRATCH]);
    Some(())
}

fn source(parts: &mut Parts, input: &Input<'_>) {
    match &input.request.source {
        Source::Blank => parts.argue(&["blank"]),
        // The controller of uploads renders the pod.
        Source::Upload => {}
        // The provisioner has copied it.
        Source::Snapshot(_) => parts.argue(&["expand"]),
        Source::Web { http, checksum } => web(parts, http, checksum.as_deref()),
        Source::Bucket { object, checksum } => bucket(parts, object, checksum.as_deref()),
        Source::Image(reference) => image(parts, reference, pull_policy(input.whole)),
        Source::Elsewhere(_) => {
            if let Some(link) = input.link {
                exported(parts, input.whole, link);
            }
        }
        Source::Claim(_) if input.claim.is_cloned => parts.argue(&["expand"]),
        Source::Claim(name) => {
            let claim = json!({"claimName": name, "readOnly": true});
            if input.source.is_some_and(claim::is_block) {
                parts
                    .volumes
                    .push(json!({"name": "source", "persistentVolumeClaim": claim}));
                parts
                    .devices
                    .push(json!({"name": "source", "devicePath": SOURCE_DEVICE}));
                parts.argue(&["clone", SOURCE_DEVICE]);
            } else {
                parts.mount("source", ("persistentVolumeClaim", claim), SOURCE, true);
                parts.argue(&["clone", SOURCE]);
            }
        }
    }
}

/// A version that was found on one node must not be taken from an older copy on another.
fn pull_policy(whole: &DataVolume) -> &'static str {
    if whole.annotations().contains_key(annotations::IMPORT_DIGEST) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

fn image(parts: &mut Parts, reference: &str, pull_policy: &str) {
    let image = json!({"reference": reference, "pullPolicy": pull_policy});
    parts.mount("source", ("image", image), SOURCE, true);
    parts.argue(&["image", SOURCE]);
}

fn web(parts: &mut Parts, http: &DataVolumeSourceHttp, checksum: Option<&str>) {
    parts.argue(&["http", &http.url]);
    checked(parts, checksum);
    login(parts, http.secret_ref.as_deref());
    trust(parts, http.cert_config_map.as_deref());
    for header in &http.extra_headers {
        parts.argue(&[&format!("--header={header}")]);
    }
    for (index, secret) in http.secret_extra_headers.iter().enumerate() {
        let (name, path) = (format!("headers-{index}"), format!("{HEADERS}/{index}"));
        let secret = json!({"secretName": secret});
        parts.mount(&name, ("secret", secret), &path, true);
        parts.argue(&["--headers-from", &path]);
    }
}

/// A disk behind an export. A guest wrote its first bytes, so they are not looked at.
fn exported(parts: &mut Parts, whole: &DataVolume, link: &Link) {
    parts.argue(&["http", &link.url, "--raw"]);
    let uid = whole.metadata.uid.as_deref().unwrap_or_default();
    trust(parts, Some(&link.authority_name(uid)));
    let secret = json!({"secretName": link.secret});
    parts.mount("token", ("secret", secret), HEADERS, true);
    parts.argue(&["--headers-from", HEADERS]);
}

fn bucket(parts: &mut Parts, object: &DataVolumeSourceS3, checksum: Option<&str>) {
    parts.argue(&["s3", &object.url]);
    checked(parts, checksum);
    login(parts, object.secret_ref.as_deref());
    trust(parts, object.cert_config_map.as_deref());
}

fn checked(parts: &mut Parts, checksum: Option<&str>) {
    if let Some(checksum) = checksum {
        parts.argue(&["--checksum", checksum]);
    }
}

fn login(parts: &mut Parts, secret: Option<&str>) {
    if let Some(secret) = secret.filter(|name| !name.is_empty()) {
        let secret = json!({"secretName": secret});
        parts.mount("credentials", ("secret", secret), CREDENTIALS, true);
        parts.argue(&["--credentials", CREDENTIALS]);
    }
}

fn trust(parts: &mut Parts, map: Option<&str>) {
    if let Some(map) = map.filter(|name| !name.is_empty()) {
        let map = json!({"name": map});
        parts.mount("authorities", ("configMap", map), AUTHORITIES, true);
        parts.argue(&["--authorities", AUTHORITIES]);
    }
}
