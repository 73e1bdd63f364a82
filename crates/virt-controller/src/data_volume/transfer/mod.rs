//! Copies from another namespace: the source is exported there, and the importer's pod reads it over HTTPS.
//!
//! No pod mounts claims of two namespaces. So the controller creates a `VirtualMachineExport` beside the source, whose
//! server waits until nothing writes to the claim, and two Secrets with its token: one for the server, one for the
//! importer. The export controller deletes the export when the data volume has come to its end or is gone
//! ([`over`]), and all of it goes with the export.
//!
//! **Invariants**: nothing is exported before the permission to copy is checked; a user who may change the export, in
//! the namespace of the source, chooses neither the Secret that the importer gets nor another server than that of the
//! export; no Secret is read.

mod open;
#[cfg(test)]
mod tests;

use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use kubevirt_api::export::{
    ConditionType, ExportVolumeFormat, VirtualMachineExport, VirtualMachineExportPhase,
};
use reasons::Reason;
use reconcile::Key;
use sha2::{Digest as _, Sha256};

use crate::view::DataVolume;

/// How far the export of the source is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Transfer {
    /// There is no need for one.
    #[default]
    None,
    Absent,
    /// It was not made to the end.
    Incomplete {
        uid: String,
    },
    Waits {
        reason: Option<Reason>,
        message: String,
    },
    Ready(Link),
}

/// Where and how the importer reads the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) url: String,
    /// The Secret with the header, in the namespace of the data volume.
    pub(super) secret: String,
    /// Of the server's certificate, in PEM.
    pub(super) authority: String,
}

impl Transfer {
    /// Whether no step makes the export.
    pub(super) fn is_made(&self) -> bool {
        matches!(self, Self::Waits { .. } | Self::Ready(_))
    }
}

impl Link {
    /// Differs for servers that a pod cannot read from with what it has.
    pub(super) fn id(&self) -> String {
        let all = format!("{}\n{}\n{}", self.url, self.secret, self.authority);
        let digest = Sha256::digest(all.as_bytes());
        let beginning = digest.as_slice().first_chunk().copied();
        let beginning = u64::from_be_bytes(beginning.unwrap_or_default());
        format!("{beginning:016x}")
    }

    /// The name of the `ConfigMap` with the authority, for the data volume with this UID.
    pub(super) fn authority_name(&self, uid: &str) -> String {
        format!("importer-{uid}-{}", self.id())
    }
}

/// The name of the export, and of the claim that it gets from a snapshot.
pub(super) fn name(uid: &str) -> String {
    format!("copy-{uid}")
}

/// The data volume in the annotation of its export.
fn marked(volume: &Key, uid: &str) -> String {
    format!("{}/{}/{uid}", volume.namespace, volume.name)
}

/// Whether the Secret was made for the data volume with this UID.
fn is_own_secret(secret: &str, uid: &str) -> bool {
    secret
        .strip_prefix(&name(uid))
        .is_some_and(|rest| rest.starts_with('-'))
}

/// Whether a copy ends, for which the export with this annotation exists. `find` returns the data volume of that key.
pub(crate) fn over(
    export: &VirtualMachineExport,
    find: impl FnOnce(&Key) -> Option<std::sync::Arc<DataVolume>>,
) -> bool {
    let all = export.metadata.annotations.as_ref();
    let Some(text) = all.and_then(|all| all.get(annotations::COPY_FOR)) else {
        return false;
    };
    let mut parts = text.splitn(3, '/');
    let (Some(namespace), Some(volume), Some(uid)) = (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    find(&Key::new(namespace, volume)).is_none_or(|volume| {
        volume.metadata.uid.as_deref() != Some(uid)
            || volume.metadata.deletion_timestamp.is_some()
            || matches!(volume.phase, Phase::Succeeded | Phase::Failed)
    })
}

/// What an export says, of the data volume with that key and UID.
fn read(export: Option<&VirtualMachineExport>, volume: &Key, uid: &str) -> Transfer {
    let Some(export) = export else {
        return Transfer::Absent;
    };
    let waits = |message: &str| Transfer::Waits {
        reason: None,
        message: message.to_owned(),
    };
    if export.metadata.deletion_timestamp.is_some() {
        return waits("the last export of the source is being deleted");
    }
    let note = |name: &str| {
        let all = export.metadata.annotations.as_ref()?;
        all.get(name).map(String::as_str)
    };
    let secret = export.spec.token_secret_ref.as_deref().unwrap_or_default();
    if note(annotations::COPY_FOR) != Some(marked(volume, uid).as_str())
        || !is_own_secret(secret, uid)
    {
        let own = Key::of(export);
        return waits(&format!(
            "VirtualMachineExport {own} was not made for this copy: delete it"
        ));
    }
    if note(annotations::COPY_COMPLETE).is_none() {
        return Transfer::Incomplete {
            uid: export.metadata.uid.clone().unwrap_or_default(),
        };
    }
    match link(export, secret) {
        Some(link) => Transfer::Ready(link),
        None => not_ready(export),
    }
}

/// The link of an export that is ready, if it leads to the server of the export.
fn link(export: &VirtualMachineExport, secret: &str) -> Option<Link> {
    let status = export.status.as_ref()?;
    if status.phase != Some(VirtualMachineExportPhase::Ready) {
        return None;
    }
    let internal = status.links.as_ref()?.internal.as_ref()?;
    let formats = &internal.volumes.first()?.formats;
    let url_of = |format: &ExportVolumeFormat| {
        let found = formats.iter().find(|one| one.format == *format)?;
        Some(found.url.clone())
    };
    // A claim that nothing marks as a disk is offered as files.
    let url = url_of(&ExportVolumeFormat::Raw).or_else(|| {
        let directory = url_of(&ExportVolumeFormat::Dir)?;
        Some(format!("{directory}/disk.img"))
    })?;
    let namespace = export.metadata.namespace.as_deref()?;
    let (host, _) = url.strip_prefix("https://")?.split_once('/')?;
    let service = host.strip_suffix(&format!(".{namespace}.svc"))?;
    // In `evil.com#.images.svc`, the host is another one.
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if service.is_empty() || !service.bytes().all(is_label) {
        return None;
    }
    Some(Link {
        url,
        secret: secret.to_owned(),
        authority: internal.cert.clone(),
    })
}

fn not_ready(export: &VirtualMachineExport) -> Transfer {
    let status = export.status.as_ref();
    let mut conditions = status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|one| one.type_ == ConditionType::Ready);
    let reason = ready.and_then(|one| one.reason.as_deref());
    let why = ready.and_then(|one| one.message.as_deref());
    let is_busy = reason == Some(Reason::ExportSourceInUse.as_str());
    Transfer::Waits {
        reason: is_busy.then_some(Reason::CloneSourceInUse),
        message: match why.filter(|why| !why.is_empty()) {
            Some(why) => format!("the source is not exported yet: {why}"),
            None => "the source is not exported yet".to_owned(),
        },
    }
}
