//! What a data volume asks for, parsed once. Whatever the importer cannot do is refused with the field and
//! the remedy.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::names::is_subdomain;
use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::annotations;
use kubevirt_api::data_volume::{
    DataVolumeContentType, DataVolumeSourceGcs, DataVolumeSourceHttp, DataVolumeSourceRegistry,
    DataVolumeSourceS3, DataVolumeSpec, StorageSpec,
};
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::quantity::Amount;
use kubevirt_api::storage_profile::ClaimPropertySet;
use launcher_pod::ContainerDisks;
use reasons::Reason;
use reconcile::Key;

use super::named::Named;
use crate::Uploads;
use crate::data_source::Target;
use crate::storage_profile;

const STORAGE: &str = "storage";

/// What to populate a claim with, and the claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) source: Source,
    pub(super) form: Form,
    /// Size of the claim (`pvc`) or of the disk (`storage`), in bytes. Only copies may leave it out.
    pub(super) size: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    Web {
        http: DataVolumeSourceHttp,
        checksum: Option<String>,
    },
    Bucket {
        object: DataVolumeSourceS3,
        checksum: Option<String>,
    },
    /// The reference of an image.
    Image(String),
    /// The name of a claim in the same namespace.
    Claim(String),
    /// The name of a volume snapshot in the same namespace.
    Snapshot(String),
    /// A claim or a volume snapshot of another namespace.
    Elsewhere(Target),
    Blank,
    /// A client sends the disk; the controller of uploads receives it.
    Upload,
}

/// The two ways to describe a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    Pvc(Box<PersistentVolumeClaimSpec>),
    Storage(Box<StorageSpec>),
}

/// Why a data volume is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) String);

/// Why there is nothing to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unmet {
    /// For good.
    Refused(Refusal),
    /// Until something else changes.
    Waits {
        reason: Reason,
        message: String,
        /// When to look again, if no watch tells.
        again: Option<Duration>,
    },
}

impl From<Refusal> for Unmet {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Refusal {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// What this installation can do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    /// Whether the nodes can mount images.
    pub(super) images: ContainerDisks,
    pub(super) uploads: Uploads,
}

/// `named` is the source behind `spec.sourceRef`, if there is that.
pub(super) fn parse(
    whole: &DataVolume,
    named: Option<&Named>,
    abilities: Abilities,
) -> Result<Request, Refusal> {
    let spec = &whole.spec;
    check_options(spec)?;
    let source = match named {
        Some(named) => named_source(whole, named)?,
        None => source(whole, abilities)?,
    };
    let (form, requests) = form(spec)?;
    let size = requests.and_then(|requests| requests.get(STORAGE));
    let path = match &form {
        Form::Pvc(_) => "spec.pvc.resources.requests.storage",
        Form::Storage(_) => "spec.storage.resources.requests.storage",
    };
    let size = size.map(|size| bytes(size, path)).transpose()?;
    if size.is_none() && !source.is_copy() {
        return Err(Refusal::new(format!("{path}: give the size of the disk")));
    }
    Ok(Request { source, form, size })
}

fn bytes(size: &Quantity, path: &str) -> Result<u64, Refusal> {
    match Amount::parse(size) {
        Ok(amount) if !amount.is_negative() && amount.units() > 0 => Ok(amount.units()),
        _ => Err(Refusal::new(format!(
            "{path}: {:?} is not a size; write 10Gi, for example",
            size.0
        ))),
    }
}

fn check_options(spec: &DataVolumeSpec) -> Result<(), Refusal> {
    let content = spec.content_type.as_ref();
    let content = content.map(DataVolumeContentType::as_str);
    if content.is_some_and(|it| !matches!(it, "" | "kubevirt")) {
        return Err(Refusal::new(
            "spec.contentType: only disk images (kubevirt) can be imported or uploaded; archives cannot be",
        ));
    }
    if !spec.checkpoints.is_empty() || spec.final_checkpoint == Some(true) {
        return Err(Refusal::new(
            "spec.checkpoints: an import in several steps is not supported; remove the field",
        ));
    }
    if spec.preallocation == Some(true) {
        return Err(Refusal::new(
            "spec.preallocation: disks are always sparse; remove the field",
        ));
    }
    Ok(())
}

fn source(whole: &DataVolume, abilities: Abilities) -> Result<Source, Refusal> {
    let spec = &whole.spec;
    let checksum = checksum(whole)?;
    let Some(given) = &spec.source else {
        return Err(Refusal::new(
            "spec.source: give one of http, s3, gcs, registry, pvc, snapshot, upload and blank",
        ));
    };
    let missing = [
        (
            "imageio",
            given.imageio.is_some(),
            "export the disk to a file and use http",
        ),
        (
            "vddk",
            given.vddk.is_some(),
            "export the disk to a file and use http",
        ),
    ];
    for (name, is_given, remedy) in missing {
        if is_given {
            return Err(Refusal::new(format!(
                "spec.source.{name}: the importer does not support this source; {remedy}"
            )));
        }
    }
    let own = whole.metadata.namespace.as_deref().unwrap_or_default();
    let at = |namespace: &str, name: &str| {
        let given = Some(namespace).filter(|it| !it.is_empty());
        Key::new(given.unwrap_or(own), name)
    };
    let mut found = Vec::new();
    if let Some(http) = &given.http {
        found.push(web(http, checksum.clone())?);
    }
    if let Some(object) = &given.s3 {
        found.push(bucket(object, checksum.clone())?);
    }
    if let Some(object) = &given.gcs {
        found.push(google(object, checksum.clone())?);
    }
    if let Some(registry) = &given.registry {
        found.push(image(registry, abilities.images)?);
    }
    if let Some(claim) = &given.pvc {
        let at = at(&claim.namespace, &claim.name);
        found.push(copied("spec.source.pvc", Target::Claim(at), own)?);
    }
    if let Some(snapshot) = &given.snapshot {
        let at = at(&snapshot.namespace, &snapshot.name);
        found.push(copied("spec.source.snapshot", Target::Snapshot(at), own)?);
    }
    if given.blank.is_some() {
        found.push(Source::Blank);
    }
    if given.upload.is_some() {
        found.push(upload(abilities.uploads)?);
    }
    let (Some(source), true) = (found.pop(), found.is_empty()) else {
        return Err(Refusal::new(
            "spec.source: give exactly one of http, s3, gcs, registry, pvc, snapshot, upload and blank",
        ));
    };
    if checksum.is_some() && !matches!(source, Source::Web { .. } | Source::Bucket { .. }) {
        return Err(no_checksum());
    }
    Ok(source)
}

fn no_checksum() -> Refusal {
    Refusal::new(format!(
        "annotation {}: only a file from a web server has a checksum; remove the annotation",
        annotations::IMPORT_CHECKSUM
    ))
}

fn checksum(whole: &DataVolume) -> Result<Option<String>, Refusal> {
    let all = whole.metadata.annotations.as_ref();
    let Some(text) = all.and_then(|all| all.get(annotations::IMPORT_CHECKSUM)) else {
        return Ok(None);
    };
    let is_valid = text.split_once(':').is_some_and(|(algorithm, digits)| {
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return false,
        };
        digits.len() == length && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    if is_valid {
        Ok(Some(text.clone()))
    } else {
        Err(Refusal::new(format!(
            "annotation {}: write sha256: or sha512: and the checksum in hexadecimal digits",
            annotations::IMPORT_CHECKSUM
        )))
    }
}

fn web(http: &DataVolumeSourceHttp, checksum: Option<String>) -> Result<Source, Refusal> {
    if !http.url.starts_with("http://") && !http.url.starts_with("https://") {
        return Err(Refusal::new(
            "spec.source.http.url: the address must begin with http:// or https://",
        ));
    }
    let http = http.clone();
    Ok(Source::Web { http, checksum })
}

fn bucket(object: &DataVolumeSourceS3, checksum: Option<String>) -> Result<Source, Refusal> {
    let schemes = ["s3://", "http://", "https://"];
    if !schemes.iter().any(|scheme| object.url.starts_with(scheme)) {
        return Err(Refusal::new(
            "spec.source.s3.url: write s3://BUCKET/KEY, or the http or https address of the object \
             on another server",
        ));
    }
    let object = object.clone();
    Ok(Source::Bucket { object, checksum })
}

/// An object of Google is a file on a web server. The importer knows the key of an account by the name of its file.
fn google(object: &DataVolumeSourceGcs, checksum: Option<String>) -> Result<Source, Refusal> {
    let url = match object.url.strip_prefix("gs://") {
        Some(object) => format!("https://storage.googleapis.com/{object}"),
        None => object.url.clone(),
    };
    if !url.starts_with("https://") {
        return Err(Refusal::new(
            "spec.source.gcs.url: write gs://BUCKET/OBJECT, or an https address",
        ));
    }
    let http = DataVolumeSourceHttp {
        url,
        secret_ref: object.secret_ref.clone(),
        ..DataVolumeSourceHttp::default()
    };
    Ok(Source::Web { http, checksum })
}

fn image(registry: &DataVolumeSourceRegistry, images: ContainerDisks) -> Result<Source, Refusal> {
    let refused = |field: &str, text: &str| {
        Err(Refusal::new(format!(
            "spec.source.registry.{field}: {text}"
        )))
    };
    if images == ContainerDisks::Copied {
        return Err(Refusal::new(
            "spec.source.registry: not all nodes of this cluster can mount images; use a \
             containerDisk volume, or http",
        ));
    }
    if is_given(registry.image_stream.as_ref()) {
        return refused("imageStream", "image streams are not supported; use url");
    }
    if is_given(registry.secret_ref.as_ref()) {
        return refused(
            "secretRef",
            "the node pulls the image with the pull secrets of the service account \"default\"; \
             add yours there and remove the field",
        );
    }
    if is_given(registry.cert_config_map.as_ref()) {
        return refused(
            "certConfigMap",
            "the node pulls the image; have it trust the registry and remove the field",
        );
    }
    if registry.platform.is_some() {
        return refused(
            "platform",
            "the node pulls the variant for its own architecture; remove the field",
        );
    }
    let url = registry.url.as_deref().unwrap_or_default();
    match url.strip_prefix("docker://") {
        Some(reference) if !reference.is_empty() => Ok(Source::Image(reference.to_owned())),
        _ => refused("url", "write docker:// and the reference of an image"),
    }
}

fn upload(uploads: Uploads) -> Result<Source, Refusal> {
    match uploads {
        Uploads::Received => Ok(Source::Upload),
        Uploads::Refused => Err(Refusal::new(
            "spec.source.upload: nothing is uploaded here; serve the file by http and use http",
        )),
    }
}

fn is_given(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// The claim or snapshot behind a data source.
fn named_source(whole: &DataVolume, named: &Named) -> Result<Source, Refusal> {
    if whole.spec.source.is_some() {
        return Err(Refusal::new(
            "spec: give exactly one of source and sourceRef",
        ));
    }
    if checksum(whole)?.is_some() {
        return Err(no_checksum());
    }
    let own = whole.metadata.namespace.as_deref().unwrap_or_default();
    copied("spec.sourceRef", named.target.clone(), own)
}

/// A claim or snapshot as the source of a data volume in the namespace `own`.
fn copied(field: &str, target: Target, own: &str) -> Result<Source, Refusal> {
    let Key { namespace, name } = target.key().clone();
    if name.is_empty() {
        return Err(Refusal::new(format!(
            "{field}.name: name the source to copy"
        )));
    }
    if !is_subdomain(&namespace) {
        return Err(Refusal::new(format!(
            "{field}: {namespace:?} cannot be the name of a namespace"
        )));
    }
    Ok(match target {
        _ if namespace != own => Source::Elsewhere(target),
        Target::Claim(_) => Source::Claim(name),
        Target::Snapshot(_) => Source::Snapshot(name),
    })
}

impl Source {
    /// Whether it has a size of its own.
    fn is_copy(&self) -> bool {
        matches!(
            self,
            Self::Claim(_) | Self::Snapshot(_) | Self::Elsewhere(_)
        )
    }
}

impl Form {
    /// The name of the storage class, if one is given.
    pub(super) fn storage_class(&self) -> Option<&str> {
        let name = match self {
            Self::Pvc(pvc) => pvc.storage_class_name.as_deref(),
            Self::Storage(storage) => storage.storage_class_name.as_deref(),
        };
        name.filter(|name| !name.is_empty())
    }

    /// Whether the claim is a block device.
    pub(super) fn is_block(&self) -> bool {
        let mode = match self {
            Self::Pvc(pvc) => pvc.volume_mode.as_deref(),
            Self::Storage(storage) => storage.volume_mode.as_deref(),
        };
        mode == Some("Block")
    }
}

impl Request {
    /// Fills in the modes that are not given, as the profile of the storage class proposes.
    pub(super) fn complete(&mut self, sets: &[ClaimPropertySet]) {
        let Form::Storage(storage) = &mut self.form else {
            return;
        };
        let given = storage.volume_mode.as_deref().filter(|it| !it.is_empty());
        // A claim from a snapshot has the mode of the claim before, which was hardly another one.
        let is_copy = matches!(self.source, Source::Snapshot(_));
        let mode = given.or(is_copy.then_some("Filesystem"));
        if let Some(set) = storage_profile::choose(sets, &storage.access_modes, mode) {
            if storage.access_modes.is_empty() {
                storage.access_modes.clone_from(&set.access_modes);
            }
            storage.volume_mode = Some(set.volume_mode.clone());
        }
    }
}

type Requests<'a> = Option<&'a BTreeMap<String, Quantity>>;

fn form(spec: &DataVolumeSpec) -> Result<(Form, Requests<'_>), Refusal> {
    let refused = |path: &str| {
        Err(Refusal::new(format!(
            "{path}: the data volume populates its claim from spec.source; remove the field"
        )))
    };
    match (&spec.pvc, &spec.storage) {
        (Some(pvc), None) => {
            if pvc.data_source.is_some() || pvc.data_source_ref.is_some() {
                return refused("spec.pvc.dataSource");
            }
            let requests = pvc.resources.as_ref().and_then(|it| it.requests.as_ref());
            Ok((Form::Pvc(Box::new(pvc.clone())), requests))
        }
        (None, Some(storage)) => {
            if storage.data_source.is_some() || storage.data_source_ref.is_some() {
                return refused("spec.storage.dataSource");
            }
            let resources = storage.resources.as_ref();
            let requests = resources.and_then(|it| it.requests.as_ref());
            Ok((Form::Storage(Box::new(storage.clone())), requests))
        }
        _ => Err(Refusal::new("spec: give exactly one of pvc and storage")),
    }
}
