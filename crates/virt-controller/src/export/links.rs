//! The addresses of an export.

use kubevirt_api::export::{
    ExportBackupEndpoint, ExportManifestType, ExportVolumeFormat, VirtualMachineExport,
    VirtualMachineExportBackup, VirtualMachineExportBackupEndpoint, VirtualMachineExportLink,
    VirtualMachineExportLinks, VirtualMachineExportManifest, VirtualMachineExportVolume,
    VirtualMachineExportVolumeFormat,
};

use super::observe::{Front, Observed, Source, Volume};
use super::{ExportProxy, names};

/// For whom an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    Internal,
    External,
}

impl Audience {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::External => "external",
        }
    }
}

/// Where an export is, and the authority of the certificate there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) url: String,
    pub(super) authority: String,
}

/// By the name of the service, for pods.
pub(super) fn internal(export: &VirtualMachineExport, front: &Front) -> Option<Base> {
    let Front::Ready { authority, .. } = front else {
        return None;
    };
    let namespace = export.metadata.namespace.as_deref().unwrap_or_default();
    Some(Base {
        url: format!("https://{}.{namespace}.svc", names::server(export)),
        authority: authority.clone(),
    })
}

/// Through the proxy, for everybody else.
pub(super) fn external(export: &VirtualMachineExport, proxy: Option<&ExportProxy>) -> Option<Base> {
    let proxy = proxy?;
    let namespace = export.metadata.namespace.as_deref().unwrap_or_default();
    Some(Base {
        url: format!(
            "{}/api/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports/{}",
            proxy.url,
            names::name(export),
        ),
        authority: proxy.authority.clone(),
    })
}

pub(super) fn of(observed: &Observed, proxy: Option<&ExportProxy>) -> VirtualMachineExportLinks {
    let internal = internal(&observed.export, &observed.front);
    let external = external(&observed.export, proxy);
    VirtualMachineExportLinks {
        internal: internal.map(|base| link(observed, base, Audience::Internal)),
        external: external.map(|base| link(observed, base, Audience::External)),
    }
}

fn link(observed: &Observed, base: Base, audience: Audience) -> VirtualMachineExportLink {
    let volumes = observed.volumes.iter().map(|one| volume(&base.url, one));
    let has_vm = !matches!(observed.source, Source::Claim | Source::Backup(_));
    let disks = match &observed.source {
        Source::Backup(offer) => offer.volumes.as_slice(),
        _ => &[],
    };
    let backups = disks.iter().map(|disk| backup(&base.url, disk)).collect();
    let manifest = |type_, file: &str| VirtualMachineExportManifest {
        type_,
        url: format!("{}/{}/manifests/{file}", base.url, audience.as_str()),
    };
    let manifests = [
        manifest(ExportManifestType::All, "all"),
        manifest(ExportManifestType::AuthHeaderSecret, "secret"),
    ];
    VirtualMachineExportLink {
        volumes: volumes.collect(),
        backups,
        manifests: manifests.into_iter().filter(|_| has_vm).collect(),
        cert: base.authority,
    }
}

/// The address of a file of a volume. Claims have the names; the server knows no others.
pub(super) fn file(base: &str, volume: &Volume, file: &str) -> String {
    format!("{base}/volumes/{}/{file}", volume.claim_name)
}

/// A disk that a guest offers.
fn backup(base: &str, volume: &str) -> VirtualMachineExportBackup {
    let endpoint = |endpoint: ExportBackupEndpoint| VirtualMachineExportBackupEndpoint {
        url: format!("{base}/exports/{volume}/{}", endpoint.as_str()),
        endpoint,
    };
    VirtualMachineExportBackup {
        name: volume.to_owned(),
        endpoints: vec![
            endpoint(ExportBackupEndpoint::Data),
            endpoint(ExportBackupEndpoint::Map),
        ],
    }
}

fn volume(base: &str, volume: &Volume) -> VirtualMachineExportVolume {
    let format = |format, name: &str| VirtualMachineExportVolumeFormat {
        format,
        url: file(base, volume, name),
    };
    let formats = if volume.is_disk {
        vec![
            format(ExportVolumeFormat::Raw, "disk.img"),
            format(ExportVolumeFormat::Gzip, "disk.img.gz"),
        ]
    } else {
        vec![
            format(ExportVolumeFormat::Dir, "dir"),
            format(ExportVolumeFormat::TarGz, "disk.tar.gz"),
        ]
    };
    VirtualMachineExportVolume {
        name: volume.name.clone(),
        formats,
    }
}
