//! The command line of `run`, and its steps.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{
    image::Image,
    key::{self, Key},
    manifest::{data_volume, manifest},
    wait,
};
use crate::{
    cli::ObjectOutput,
    commands::{
        console::console,
        image_upload::{Disk, ImageUpload, image_upload},
    },
    connect::Cluster,
    objects,
    printer::Printer,
};

#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Name of the VM
    pub name: String,
    /// Container image with a disk, the address of a disk image (`http://`, `https://`), or a file with a
    /// disk image (with a slash at the start, or `./`)
    #[arg(long)]
    pub image: Image,
    /// Size of the disk that an image of a web server or a file is copied into
    #[arg(long, default_value = "10Gi")]
    pub size: String,
    /// Address of the upload proxy for a file [default: that of CDI's configuration]
    #[arg(long, value_name = "URL")]
    pub uploadproxy_url: Option<String>,
    /// Do not check the certificate of the upload proxy
    #[arg(long)]
    pub insecure: bool,
    /// Memory of the guest
    #[arg(long, default_value = "1Gi", conflicts_with = "instancetype")]
    pub memory: String,
    /// CPU cores of the guest
    #[arg(long, default_value_t = 1, conflicts_with = "instancetype",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub cpu: u32,
    /// Instance type: [KIND/]NAME
    #[arg(long)]
    pub instancetype: Option<String>,
    /// Preference: [KIND/]NAME
    #[arg(long)]
    pub preference: Option<String>,
    /// User that cloud-init makes [default: the user of the image]
    #[arg(long, short = 'l', value_name = "USER")]
    pub username: Option<String>,
    /// File with the public key that may log in [default: that of the SSH client; if it has none, one is
    /// made]
    #[arg(long, value_name = "FILE")]
    pub ssh_key: Option<PathBuf>,
    /// Connect to the serial console instead of waiting for SSH
    #[arg(long)]
    pub console: bool,
    /// Do not wait
    #[arg(long, conflicts_with = "console")]
    pub no_wait: bool,
    /// Minutes to wait
    #[arg(long, default_value_t = 10, value_name = "MINUTES")]
    pub timeout: u64,
    /// Print the VM and make nothing
    #[arg(long, short, value_enum)]
    pub output: Option<ObjectOutput>,
}

pub(crate) async fn run_vm(cluster: &Cluster, printer: Printer, flags: &Run) -> Result<()> {
    let name = &flags.name;
    if let Image::File(file) = &flags.image {
        // Nothing is made for a wrong path.
        File::open(file).with_context(|| format!("read --image {}", file.display()))?;
    }
    let key = key(printer, flags).await?;
    let public = key.as_ref().map(|key| key.public.as_str());
    let vm = manifest(flags, &cluster.namespace, public)?;
    if let Some(output) = flags.output {
        return printer.object(output, &vm);
    }
    if let Image::File(file) = &flags.image {
        upload(cluster, printer, flags, file).await?;
    }
    let path = objects::VM.all(&cluster.namespace);
    objects::create(cluster, &path, &vm)
        .await
        .with_context(|| format!("create VM {name}"))?;
    printer.note(&format!("Created VM {name}"));
    if flags.no_wait {
        return Ok(());
    }
    if flags.console {
        return Box::pin(console(cluster, printer, name, flags.timeout)).await;
    }
    printer.note(&format!("Waiting for the SSH server of {name}"));
    let limit = Duration::from_secs(flags.timeout.saturating_mul(60));
    wait::for_ssh(cluster, name, limit).await?;
    printer.line(&login(flags, key.as_ref()));
    Ok(())
}

/// Uploads the file into the data volume of the disk. It has no owner, so it stays when the VM is deleted.
async fn upload(cluster: &Cluster, printer: Printer, flags: &Run, file: &Path) -> Result<()> {
    let name = &flags.name;
    let existing = objects::VM.named(&cluster.namespace, name);
    if objects::find(cluster, &existing).await?.is_some() {
        bail!("VM {name} exists: choose another name, or delete it first");
    }
    let upload = ImageUpload::of_disk(Disk {
        file,
        data_volume: &data_volume(name),
        size: &flags.size,
        proxy_url: flags.uploadproxy_url.as_deref(),
        insecure: flags.insecure,
    });
    let uploaded = image_upload(cluster, printer, &upload).await;
    uploaded.with_context(|| format!("upload --image {}", file.display()))
}

/// The key that may log in. Where nothing waits for SSH, none is made.
async fn key(printer: Printer, flags: &Run) -> Result<Option<Key>> {
    if let Some(file) = &flags.ssh_key {
        return key::of_file(file).map(Some);
    }
    let directory = key::directory()?;
    match key::find(&directory) {
        None if flags.console || flags.output.is_some() => Ok(None),
        None => key::make(printer, &directory).await.map(Some),
        found => Ok(found),
    }
}

/// The command that logs in.
fn login(flags: &Run, key: Option<&Key>) -> String {
    let identity = key.and_then(|key| key.identity.as_ref());
    let identity = identity.map_or_else(String::new, |file| format!(" -i {}", file.display()));
    let user = flags.username.as_deref().unwrap_or("USER");
    format!("virtctl ssh {user}@vm/{}{identity}", flags.name)
}
