//! The pod of an export, its service and the Secrets, rendered.

use cluster_config::ClusterConfig;
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::{annotations, labels};
use launcher_pod::Settings;
use serde_json::{Value, json};

use super::backup::Offer;
use super::certificate::Certificate;
use super::names;
use super::observe::{Front, Observed, Source, Volume};
use super::plan::expiry;
use crate::data_volume::is_block;

pub(super) const CONTAINER: &str = "exporter";
/// The volume with the certificate.
pub(super) const CERTIFICATE_VOLUME: &str = "certificate";
const PROGRAM: &str = "/usr/bin/disk-export";
const PORT: u16 = 8443;
const DISK: &str = "--disk";
const FILES: &str = "--files";
const BACKUP: &str = "--backup";
const BACKUP_VOLUME: &str = "--backup-volume";
/// Where the claim of a backup is in the container.
const BACKUP_CLAIM: &str = "/backup";
const CERTIFICATE: &str = "/certificate";
const TOKEN: &str = "/token";
const MANIFESTS: &str = "/manifests";

/// What a pod is rendered from.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) export: &'a VirtualMachineExport,
    pub(super) volumes: &'a [Volume],
    /// The disks that a guest offers.
    pub(super) offer: Option<&'a Offer>,
    /// The name of the Secret.
    pub(super) certificate: &'a str,
    /// The name of the Secret.
    pub(super) token: &'a str,
    /// The name of the `ConfigMap`.
    pub(super) manifests: Option<&'a str>,
    pub(super) settings: &'a Settings,
    pub(super) config: &'a ClusterConfig,
}

pub(super) fn pod(input: &Input<'_>) -> Pod {
    let export = input.export;
    let settings = input.settings;
    let mut parts = Parts::default();
    parts.mount(
        CERTIFICATE_VOLUME,
        json!({"secret": {"secretName": input.certificate}}),
        CERTIFICATE,
    );
    parts.mount(
        "token",
        json!({"secret": {"secretName": input.token}}),
        TOKEN,
    );
    if let Some(manifests) = input.manifests {
        parts.mount(
            "manifests",
            json!({"configMap": {"name": manifests}}),
            MANIFESTS,
        );
        parts.argue(&["--manifests", MANIFESTS]);
        parts.argue(&["--header-secret", &names::header(export)]);
    }
    if let Some(until) = expiry(export) {
        parts.argue(&["--until", &until.to_string()]);
    }
    parts.argue(&["--certificate", CERTIFICATE, "--token", "/token/token"]);
    for (index, volume) in input.volumes.iter().enumerate() {
        parts.volume(index, volume);
    }
    if let Some(offer) = input.offer {
        let claim = json!({"claimName": offer.claim, "readOnly": true});
        let source = json!({"persistentVolumeClaim": claim});
        parts.mount("backup", source, BACKUP_CLAIM);
        parts.arguments.extend(offered(offer).into_iter().flatten());
    }
    let offer = input.offer;
    let tolerations = offer.map(|offer| launcher_pod::tolerations_beside(&offer.tolerations));
    let affinity = offer.map(|offer| launcher_pod::on_node(&offer.node));
    let secrets = settings.image_pull_secrets.iter();
    let secrets: Vec<Value> = secrets.map(|name| json!({"name": name})).collect();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names::server(export),
            "namespace": export.metadata.namespace,
            "labels": {
                labels::COMPONENT: labels::COMPONENT_EXPORTER,
                labels::EXPORT_SERVICE: launcher_pod::label_value(names::name(export)),
            },
            "ownerReferences": [names::owner(export)],
        },
        "spec": {
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 10,
            "securityContext": launcher_pod::pod_context(settings),
            "imagePullSecrets": Some(secrets).filter(|all| !all.is_empty()),
            "nodeSelector": Some(&settings.node_selectors).filter(|all| !all.is_empty()),
            "tolerations": tolerations,
            "affinity": affinity,
            "containers": [{
                "name": CONTAINER,
                "image": settings.launcher_image,
                "imagePullPolicy": settings.image_pull_policy,
                "command": [PROGRAM],
                "args": parts.arguments,
                "ports": [{"name": "export", "containerPort": PORT, "protocol": "TCP"}],
                "readinessProbe": {
                    "httpGet": {"path": "/exportready", "port": PORT, "scheme": "HTTPS"},
                    "periodSeconds": 2,
                    "timeoutSeconds": 5,
                },
                "resources": resources(input.config),
                "securityContext": launcher_pod::container_context(),
                "volumeMounts": parts.mounts,
                "volumeDevices": Some(&parts.devices).filter(|all| !all.is_empty()),
            }],
            "volumes": parts.volumes,
        },
    });
    serde_json::from_value(pod).expect("the members are those of a pod")
}

/// Single values can be set by the administrator.
fn resources(config: &ClusterConfig) -> Value {
    let mut resources = json!({
        "requests": {"cpu": "100m", "memory": "64M"},
        "limits": {"cpu": "1", "memory": "256M"},
    });
    let mut written = config.written.support_container_resources.iter();
    let written = written.find(|one| one.type_.as_str() == "vmexport");
    let written = written.map(|one| json!(one.resources)).unwrap_or_default();
    for list in ["requests", "limits"] {
        for (name, amount) in written[list].as_object().into_iter().flatten() {
            resources[list][name] = amount.clone();
        }
    }
    resources
}

#[derive(Debug, Default)]
struct Parts {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
    devices: Vec<Value>,
    arguments: Vec<String>,
}

impl Parts {
    fn argue(&mut self, arguments: &[&str]) {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
    }

    fn mount(&mut self, name: &str, mut source: Value, path: &str) {
        source["name"] = name.into();
        self.volumes.push(source);
        self.mounts
            .push(json!({"name": name, "mountPath": path, "readOnly": true}));
    }

    fn volume(&mut self, index: usize, volume: &Volume) {
        let name = format!("volume-{index}");
        let claim = json!({"claimName": volume.claim_name, "readOnly": true});
        let claim = json!({"persistentVolumeClaim": claim});
        let path = path(index, volume);
        if has_device(volume) {
            let mut source = claim;
            source["name"] = name.as_str().into();
            self.volumes.push(source);
            self.devices.push(json!({"name": name, "devicePath": path}));
        } else {
            self.mount(&name, claim, &path);
        }
        let [flag, value] = argument(index, volume);
        self.argue(&[&flag, &value]);
    }
}

/// The flags of an offer, each with its value.
fn offered(offer: &Offer) -> Vec<[String; 2]> {
    let flag = |flag: &str, value: String| [flag.to_owned(), value];
    let directory = flag(BACKUP, format!("{BACKUP_CLAIM}/{}", offer.directory));
    let volumes = offer.volumes.iter();
    let volumes = volumes.map(|volume| flag(BACKUP_VOLUME, volume.clone()));
    std::iter::once(directory).chain(volumes).collect()
}

fn has_device(volume: &Volume) -> bool {
    volume.claim.as_deref().is_some_and(is_block)
}

/// Where a volume is in the container.
fn path(index: usize, volume: &Volume) -> String {
    if has_device(volume) {
        format!("/dev/volume-{index}")
    } else {
        format!("/volumes/{index}")
    }
}

/// The argument that names a volume and its place.
fn argument(index: usize, volume: &Volume) -> [String; 2] {
    let flag = if volume.is_disk { DISK } else { FILES };
    let path = path(index, volume);
    [flag.to_owned(), format!("{}={path}", volume.claim_name)]
}

/// The flags that say what is served.
const FLAGS: [&str; 4] = [DISK, FILES, BACKUP, BACKUP_VOLUME];

/// What a pod serves and proves itself with, as far as links depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) certificate: String,
    pub(super) volumes: Vec<String>,
}

impl Served {
    /// What the pod was made with.
    pub(super) fn by(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let mut volumes = spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let certificate = volumes
            .find(|one| one.name == CERTIFICATE_VOLUME)
            .and_then(|one| one.secret.as_ref()?.secret_name.clone());
        let mut containers = spec.iter().flat_map(|spec| &spec.containers);
        let container = containers.find(|one| one.name == CONTAINER);
        let arguments = container.and_then(|one| one.args.as_deref());
        let pairs = arguments.unwrap_or_default().windows(2);
        let volumes = pairs.filter_map(|pair| match pair {
            [flag, value] if FLAGS.contains(&flag.as_str()) => Some(format!("{flag} {value}")),
            _ => None,
        });
        Self {
            certificate: certificate.unwrap_or_default(),
            volumes: volumes.collect(),
        }
    }

    /// What a pod would be made with now.
    pub(super) fn wanted(observed: &Observed) -> Option<Self> {
        let Front::Ready { certificate, .. } = &observed.front else {
            return None;
        };
        let volumes = observed.volumes.iter().enumerate();
        let volumes = volumes.map(|(index, volume)| argument(index, volume));
        let offer = match &observed.source {
            Source::Backup(offer) => offered(offer),
            _ => Vec::new(),
        };
        Some(Self {
            certificate: certificate.clone(),
            volumes: volumes.chain(offer).map(|pair| pair.join(" ")).collect(),
        })
    }
}

/// The service also keeps what later steps need to know of the certificate.
pub(super) fn service(
    export: &VirtualMachineExport,
    (certificate, authority): (&str, &str),
    token: &str,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names::server(export),
            "namespace": export.metadata.namespace,
            "labels": {labels::COMPONENT: labels::COMPONENT_EXPORTER},
            "annotations": {
                annotations::EXPORT_CERTIFICATE: certificate,
                annotations::EXPORT_AUTHORITY: authority,
                annotations::EXPORT_TOKEN: token,
            },
            "ownerReferences": [names::owner(export)],
        },
        "spec": {
            "selector": {
                labels::COMPONENT: labels::COMPONENT_EXPORTER,
                labels::EXPORT_SERVICE: launcher_pod::label_value(names::name(export)),
            },
            "ports": [{"name": "export", "port": 443, "targetPort": PORT, "protocol": "TCP"}],
        },
    })
}

fn secret(export: &VirtualMachineExport, name: &str, kind: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {
            "name": name,
            "namespace": export.metadata.namespace,
            "ownerReferences": [names::owner(export)],
        },
        "stringData": data,
    })
}

pub(super) fn token_secret(export: &VirtualMachineExport, name: &str, token: &str) -> Value {
    let data = json!({"token": token});
    secret(export, name, "Opaque", &data)
}

pub(super) fn certificate_secret(
    export: &VirtualMachineExport,
    name: &str,
    certificate: &Certificate,
) -> Value {
    let identity = &certificate.identity;
    let data = json!({
        "tls.crt": identity.certificate_pem(),
        "tls.key": identity.key_pem(),
    });
    secret(export, name, "kubernetes.io/tls", &data)
}
