//! The command line of `image-upload`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::{cli::Made, failure::Usage};

const RETRIES: u32 = 5;
/// In seconds.
const WAIT: u64 = 300;

/// A disk image, and the data volume for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk<'a> {
    pub(crate) file: &'a Path,
    pub(crate) data_volume: &'a str,
    pub(crate) size: &'a str,
    pub(crate) proxy_url: Option<&'a str>,
    pub(crate) insecure: bool,
}

#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct ImageUpload {
    /// What to make, dv (data volume) or pvc (claim), and its name
    #[arg(num_args = 1..=2, value_names = ["TYPE", "NAME"], required_unless_present = "pvc_name")]
    pub type_and_name: Vec<String>,
    /// File with the disk image: raw, qcow2 and others, also compressed by gzip or xz
    #[arg(long, value_name = "FILE", required_unless_present = "archive_path")]
    pub image_path: Option<PathBuf>,
    /// File with an archive (tar) of the files of the volume
    #[arg(long, value_name = "FILE", conflicts_with = "image_path")]
    pub archive_path: Option<PathBuf>,
    /// Size of the volume, such as 10Gi
    #[arg(long)]
    pub size: Option<String>,
    /// Upload into a volume that exists
    #[arg(long)]
    pub no_create: bool,
    /// Storage class of the volume
    #[arg(long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// Access mode of the volume
    #[arg(long, value_name = "MODE",
          value_parser = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])]
    pub access_mode: Option<String>,
    /// Volume mode of the volume
    #[arg(long, value_enum, ignore_case = true, value_name = "MODE")]
    pub volume_mode: Option<VolumeMode>,
    /// Bind the volume at once, not when its first pod starts
    #[arg(long)]
    pub force_bind: bool,
    /// Also make a data source of the volume
    #[arg(long)]
    pub datasource: bool,
    /// Instance type that VMs with this disk take
    #[arg(long, value_name = "NAME")]
    pub default_instancetype: Option<String>,
    /// Kind of that instance type
    #[arg(long, value_name = "KIND", requires = "default_instancetype")]
    pub default_instancetype_kind: Option<String>,
    /// Preference that VMs with this disk take
    #[arg(long, value_name = "NAME")]
    pub default_preference: Option<String>,
    /// Kind of that preference
    #[arg(long, value_name = "KIND", requires = "default_preference")]
    pub default_preference_kind: Option<String>,
    /// Address of the upload proxy [default: that of CDI's configuration]
    #[arg(long, value_name = "URL")]
    pub uploadproxy_url: Option<String>,
    /// Do not check the certificate of the upload proxy
    #[arg(long)]
    pub insecure: bool,
    /// How often to try again after a failure that may pass
    #[arg(long, default_value_t = RETRIES, value_name = "COUNT")]
    pub retry: u32,
    /// Seconds to wait until the volume can be written
    #[arg(long, default_value_t = WAIT, value_name = "SECONDS")]
    pub wait_secs: u64,
    /// Deprecated: use pvc NAME
    #[arg(
        long,
        value_name = "NAME",
        hide = true,
        conflicts_with = "type_and_name"
    )]
    pub pvc_name: Option<String>,
    /// Deprecated: use --size
    #[arg(long, hide = true, conflicts_with = "size")]
    pub pvc_size: Option<String>,
    /// Deprecated: use --volume-mode block
    #[arg(long, hide = true, conflicts_with = "volume_mode")]
    pub block_volume: bool,
    #[command(flatten)]
    pub made: Made,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VolumeMode {
    Block,
    Filesystem,
}

/// What the image becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    DataVolume,
    Claim,
}

impl ImageUpload {
    /// The upload of a disk image into a new data volume, which does not wait for its first pod.
    pub(crate) fn of_disk(disk: Disk<'_>) -> Self {
        let Disk {
            file,
            data_volume,
            size,
            proxy_url,
            insecure,
        } = disk;
        Self {
            type_and_name: vec!["dv".to_owned(), data_volume.to_owned()],
            image_path: Some(file.to_owned()),
            archive_path: None,
            size: Some(size.to_owned()),
            no_create: false,
            storage_class: None,
            access_mode: None,
            volume_mode: None,
            force_bind: true,
            datasource: false,
            default_instancetype: None,
            default_instancetype_kind: None,
            default_preference: None,
            default_preference_kind: None,
            uploadproxy_url: proxy_url.map(ToOwned::to_owned),
            insecure,
            retry: RETRIES,
            wait_secs: WAIT,
            pvc_name: None,
            pvc_size: None,
            block_volume: false,
            made: Made::default(),
        }
    }

    pub(super) fn kind_and_name(&self) -> Result<(Kind, &str), Usage> {
        if let Some(name) = &self.pvc_name {
            return Ok((Kind::Claim, name));
        }
        let wrong = || Usage::new("write dv NAME for a data volume, or pvc NAME for a claim");
        let [kind, name] = self.type_and_name.as_slice() else {
            return Err(wrong());
        };
        match kind.as_str() {
            "dv" => Ok((Kind::DataVolume, name)),
            "pvc" => Ok((Kind::Claim, name)),
            _ => Err(wrong()),
        }
    }

    pub(super) fn file(&self) -> Result<&Path, Usage> {
        let file = self.image_path.as_ref().or(self.archive_path.as_ref());
        file.map(PathBuf::as_path)
            .ok_or_else(|| Usage::new("name the file with --image-path or --archive-path"))
    }

    /// The name that CDI has for the kind of file.
    pub(super) fn content_type(&self) -> &'static str {
        if self.archive_path.is_some() {
            "archive"
        } else {
            "kubevirt"
        }
    }

    pub(super) fn volume_mode(&self) -> Result<Option<&'static str>, Usage> {
        let block = self.block_volume || self.volume_mode == Some(VolumeMode::Block);
        match (block, self.archive_path.is_some()) {
            (true, true) => Err(Usage::new(
                "--volume-mode block: the files of an archive need a file system: leave it out",
            )),
            (true, false) => Ok(Some("Block")),
            (false, _) => Ok(self.volume_mode.map(|_| "Filesystem")),
        }
    }
}
