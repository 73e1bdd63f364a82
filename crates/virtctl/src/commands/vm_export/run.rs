//! The steps of the command.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    cli::{Action, Download, Format, Settings, Source, VmExport},
    download::{Failed, Server},
    links::{Links, with_host},
    object,
    tunnel::Tunnel,
    volume::{Addresses, Identity, Volume},
};
use crate::{
    connect::Cluster,
    failure::Usage,
    files,
    https::Trust,
    objects::{self, text},
    printer::Printer,
    signals::{Interrupted, Signals},
};

const POLL: Duration = Duration::from_secs(1);
/// Who ends a download does not wait for longer until its export is deleted.
const DELETION: Duration = Duration::from_secs(10);

pub(crate) async fn vm_export(cluster: &Cluster, printer: Printer, flags: &VmExport) -> Result<()> {
    match &flags.action {
        Action::Create(flags) => {
            let made = create(cluster, &flags.name, &flags.source, &flags.settings).await?;
            if let Some(output) = flags.made.output {
                return printer.object(output, &made);
            }
            printer.line(&format!("Export {} was made", flags.name));
            Ok(())
        }
        Action::Delete { name } => {
            delete(cluster, name).await?;
            printer.line(&format!("Export {name} was deleted"));
            Ok(())
        }
        Action::Download(flags) => download(cluster, printer, flags).await,
    }
}

/// How an export server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the address that the export has.
    Address,
    /// Through the API server.
    Tunnel,
}

/// Downloads a claim, with an export for that purpose.
pub(crate) async fn download_claim(
    cluster: &Cluster,
    printer: Printer,
    claim: &str,
    (file, format): (&Path, Format),
    way: Way,
) -> Result<()> {
    let flags = Download::of_claim(claim, (file, format), way);
    download(cluster, printer, &flags).await
}

/// Makes an export and its token; returns the export.
async fn create(
    cluster: &Cluster,
    name: &str,
    source: &Source,
    settings: &Settings,
) -> Result<Value> {
    let export = object::export(name, source, settings)?;
    let namespace = &cluster.namespace;
    let export = objects::create(cluster, &objects::EXPORT.all(namespace), &export).await?;
    let token = uuid::Uuid::new_v4().simple().to_string();
    let with_token = async {
        let secret = object::secret(&export, name, &token)?;
        objects::create(cluster, &objects::SECRET.all(namespace), &secret).await
    };
    if let Err(error) = with_token.await {
        // Without its token, nobody can use the export.
        let deleted = delete(cluster, name).await;
        return Err(match deleted {
            Ok(()) => error,
            Err(stays) => error.context(format!("export {name} stays: {stays:#}")),
        });
    }
    Ok(export)
}

async fn delete(cluster: &Cluster, name: &str) -> Result<()> {
    let path = objects::EXPORT.named(&cluster.namespace, name);
    objects::delete(cluster, &path, vec![]).await
}

async fn download(cluster: &Cluster, printer: Printer, flags: &Download) -> Result<()> {
    let name = &flags.name;
    let limit = flags.readiness_timeout.parse::<jiff::SignedDuration>();
    let limit = limit.map_err(|_| {
        let timeout = &flags.readiness_timeout;
        Usage::new(format!(
            "--readiness-timeout {timeout}: write a duration such as 90s or 5m"
        ))
    })?;
    let path = objects::EXPORT.named(&cluster.namespace, name);
    let found = objects::find(cluster, &path).await?;
    let is_new = found.is_none();
    if is_new && !flags.source.is_given() {
        bail!("export {name} does not exist: name what to export, such as --vm NAME");
    }
    let mut signals = Signals::watch()?;
    if is_new {
        let made = create(cluster, name, &flags.source, &flags.settings);
        tokio::select! {
            made = made => drop(made?),
            signal = signals.next() => {
                printer.warn(&format!(
                    "export {name} may have been made: `virtctl vmexport delete {name}` deletes it"
                ));
                return Err(Interrupted(signal?).into());
            }
        }
    }
    // However the download ends, an export that was made for it must not outlive it.
    let done = tokio::select! {
        done = Box::pin(fetch(cluster, printer, flags, limit.unsigned_abs())) => done,
        signal = signals.next() => Err(Interrupted(signal?).into()),
    };
    if !flags.delete_vme && (!is_new || flags.keep_vme) {
        return done;
    }
    let deleted = tokio::select! {
        deleted = delete(cluster, name) => deleted,
        signal = signals.next() => Err(Interrupted(signal?).into()),
        () = sleep(DELETION) => Err(anyhow::anyhow!("no answer within {} s", DELETION.as_secs())),
    };
    let deleted = deleted
        .with_context(|| format!("delete export {name}, which stays until its time is over"));
    if let (Err(_), Err(error)) = (&done, &deleted) {
        printer.warn(&format!("{error:#}"));
    }
    // The failure of the download is what the user needs to know.
    done.and(deleted)
}

async fn fetch(
    cluster: &Cluster,
    printer: Printer,
    flags: &Download,
    limit: Duration,
) -> Result<()> {
    let name = &flags.name;
    let export = ready(cluster, name, limit).await?;
    let links = if flags.port_forward {
        Links::internal(&export)
    } else {
        Links::of(&export)
    };
    let links = links.context("the export has no addresses")?;
    let tunnel = if flags.port_forward {
        Some((cluster.clone(), Tunnel::to(cluster, &export).await?))
    } else {
        None
    };
    let server = Server {
        trust: Trust {
            insecure: flags.insecure,
            authorities: links.certificate().map(ToOwned::to_owned),
        },
        token: token(cluster, &export).await?,
        tunnel,
        proxies: cluster.proxies.clone(),
    };
    let host = flags.service_url.as_deref();
    if flags.manifest {
        return manifest(&server, printer, flags, &links).await;
    }
    let file = flags
        .output
        .as_deref()
        .context("name the file with --output")?;
    let link = links.volume(flags.volume.as_deref());
    let link = link.map_err(|err| anyhow::anyhow!("export {name}: {err}"))?;
    let volume = Volume {
        server: &server,
        addresses: Addresses {
            compressed: with_host(link.compressed, host),
            raw: link.raw.map(|url| with_host(url, host)),
        },
        identity: identity(&export, link.name),
        printer,
    };
    let format = flags.format.unwrap_or(Format::Gzip);
    let mut attempt = 0;
    loop {
        let error = match volume.download(file, format).await {
            Ok(()) => break,
            Err(Failed::Final(error)) => return Err(error),
            Err(Failed::Transient(error)) if attempt >= flags.retry => return Err(error),
            Err(Failed::Transient(error)) => error,
        };
        attempt += 1;
        printer.note(&format!("{error:#}; attempt {}", attempt + 1));
        sleep(POLL).await;
    }
    printer.note(&format!("Saved in {}", file.display()));
    Ok(())
}

async fn manifest(
    server: &Server,
    printer: Printer,
    flags: &Download,
    links: &Links<'_>,
) -> Result<()> {
    let mut kinds = vec!["all"];
    if flags.include_secret {
        kinds.push("auth-header-secret");
    }
    let mut all = String::new();
    for kind in kinds {
        let url = links.manifest(kind);
        let url = url.with_context(|| format!("the export has no manifest of type {kind}"))?;
        let url = with_host(url, flags.service_url.as_deref());
        let media = flags.manifest_output_format.media_type();
        let text = server.text(&url, media).await.map_err(Failed::into_error)?;
        all.push_str(text.trim_end());
        all.push('\n');
    }
    match flags
        .output
        .as_deref()
        .filter(|file| *file != Path::new("-"))
    {
        Some(file) => files::write(file, all.as_bytes()),
        None => printer.raw(all.as_bytes()).context("write the manifest"),
    }
}

/// What a volume of an export is, for a later run of the same command.
fn identity(export: &Value, volume: &str) -> Identity {
    let part = |field: &str| text(export, field).unwrap_or_default();
    let (kind, name) = (part("/spec/source/kind"), part("/spec/source/name"));
    let namespace = part("/metadata/namespace");
    Identity {
        volume: format!("{namespace}/{kind}/{name}/{volume}"),
        export: part("/metadata/uid").to_owned(),
    }
}

async fn ready(cluster: &Cluster, name: &str, limit: Duration) -> Result<Value> {
    let path = objects::EXPORT.named(&cluster.namespace, name);
    let deadline = Instant::now() + limit;
    loop {
        let export = objects::get(cluster, &path).await?;
        if Links::of(&export).is_some() {
            return Ok(export);
        }
        if Instant::now() >= deadline {
            let phase = text(&export, "/status/phase").unwrap_or("none");
            bail!(
                "export {name} is not ready after {} s (phase {phase}): see `kubectl describe vmexport \
                 {name}`, or wait longer with --readiness-timeout",
                limit.as_secs()
            );
        }
        sleep(POLL).await;
    }
}

async fn token(cluster: &Cluster, export: &Value) -> Result<String> {
    let secret = text(export, "/status/tokenSecretRef").or(text(export, "/spec/tokenSecretRef"));
    let secret = secret.context("the export names no Secret with its token")?;
    let path = objects::SECRET.named(&cluster.namespace, secret);
    let object = objects::get(cluster, &path).await?;
    let token: ByteString = serde_json::from_value(object["data"]["token"].clone())
        .with_context(|| format!("read the token in Secret {secret}"))?;
    String::from_utf8(token.0).with_context(|| format!("read the token in Secret {secret}"))
}
