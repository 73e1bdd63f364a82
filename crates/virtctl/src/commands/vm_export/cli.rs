//! The command line of `vmexport`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::run::Way;
use crate::{cli::Made, key_values::KeyValue};

const READINESS: &str = "2m";

#[derive(Debug, Clone, Args)]
pub struct VmExport {
    #[command(subcommand)]
    pub action: Action,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Make an export
    #[command(after_help = "Example: virtctl vmexport create copy --vm myvm --ttl 1h -o name")]
    Create(Create),
    /// Delete an export
    #[command(after_help = "Example: virtctl vmexport delete copy")]
    Delete {
        /// Name of the export
        name: String,
    },
    /// Download a volume or the manifest of an export
    #[command(after_help = "\
Examples:
  virtctl vmexport download copy --vm myvm --volume root --output root.img.gz
  virtctl vmexport download copy --vm myvm --volume root --output root.img.gz --port-forward
  virtctl vmexport download copy --manifest

An export that the command makes is deleted after the download, unless --keep-vme is given.")]
    Download(Download),
}

#[derive(Debug, Clone, Args)]
pub struct Create {
    /// Name of the export
    pub name: String,
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub made: Made,
}

#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct Source {
    /// Export this VM, which must be off
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Export this snapshot of a VM
    #[arg(long, value_name = "NAME")]
    pub snapshot: Option<String>,
    /// Export this claim, which no running guest may use
    #[arg(long, value_name = "NAME")]
    pub pvc: Option<String>,
    /// Export this VM template
    #[arg(long, value_name = "NAME")]
    pub vmtemplate: Option<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// How long the export lives, such as 1h [default: 2h, by the server]
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
    /// Labels of the export
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub labels: Vec<KeyValue>,
    /// Annotations of the export
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub annotations: Vec<KeyValue>,
}

#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Download {
    /// Name of the export
    pub name: String,
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub settings: Settings,
    /// File for the download; - for standard output
    #[arg(long, value_name = "FILE", required_unless_present = "manifest")]
    pub output: Option<PathBuf>,
    /// Volume to download; needed if the export has several
    #[arg(long, value_name = "NAME", conflicts_with = "manifest")]
    pub volume: Option<String>,
    /// Format of the file [default: gzip]
    #[arg(long, value_enum, conflicts_with = "manifest")]
    pub format: Option<Format>,
    /// Download the manifest of the VM instead of a volume
    #[arg(long)]
    pub manifest: bool,
    /// With the Secret that importers of the volumes need
    #[arg(long, requires = "manifest")]
    pub include_secret: bool,
    /// Format of the manifest
    #[arg(
        long,
        value_enum,
        requires = "manifest",
        default_value = "yaml",
        value_name = "FORMAT"
    )]
    pub manifest_output_format: ManifestFormat,
    /// Host to ask instead of the export's own address, such as that of a tunnel
    #[arg(long, value_name = "HOST[:PORT]")]
    pub service_url: Option<String>,
    /// Download through the API server, without an address of the export server that this computer reaches
    #[arg(long, conflicts_with = "service_url")]
    pub port_forward: bool,
    /// Has no effect: --port-forward needs no local port
    #[arg(long, hide = true, requires = "port_forward")]
    pub local_port: Option<u16>,
    /// Delete the export after the download
    #[arg(long, conflicts_with = "keep_vme")]
    pub delete_vme: bool,
    /// Keep the export that the command makes
    #[arg(long)]
    pub keep_vme: bool,
    /// Do not check the server's certificate
    #[arg(long)]
    pub insecure: bool,
    /// How often to try again after a failure that may pass
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub retry: u32,
    /// How long to wait until the export is ready, such as 90s or 5m
    #[arg(long, default_value = READINESS, value_name = "DURATION")]
    pub readiness_timeout: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Gzip,
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ManifestFormat {
    Yaml,
    Json,
}

impl VmExport {
    /// Whether the command downloads, and so waits for signals itself.
    pub(crate) fn downloads(&self) -> bool {
        matches!(self.action, Action::Download(_))
    }
}

impl Download {
    /// The download of a claim, with a new export of it.
    pub(super) fn of_claim(claim: &str, (output, format): (&Path, Format), way: Way) -> Self {
        Self {
            name: format!("dump-{claim}"),
            source: Source {
                pvc: Some(claim.to_owned()),
                ..Source::default()
            },
            settings: Settings::default(),
            output: Some(output.to_owned()),
            volume: None,
            format: Some(format),
            manifest: false,
            include_secret: false,
            manifest_output_format: ManifestFormat::Yaml,
            service_url: None,
            port_forward: way == Way::Tunnel,
            local_port: None,
            delete_vme: false,
            keep_vme: false,
            insecure: false,
            retry: 0,
            readiness_timeout: READINESS.to_owned(),
        }
    }
}

impl Source {
    pub(super) fn is_given(&self) -> bool {
        self.reference().is_some()
    }

    /// The group, kind and name of what is exported.
    pub(super) fn reference(&self) -> Option<(&'static str, &'static str, &str)> {
        let all = [
            ("kubevirt.io", "VirtualMachine", &self.vm),
            (
                "snapshot.kubevirt.io",
                "VirtualMachineSnapshot",
                &self.snapshot,
            ),
            ("", "PersistentVolumeClaim", &self.pvc),
            (
                "template.kubevirt.io",
                "VirtualMachineTemplate",
                &self.vmtemplate,
            ),
        ];
        all.into_iter()
            .find_map(|(group, kind, name)| Some((group, kind, name.as_deref()?)))
    }
}
