//! The steps of an upload.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::{
    cli::{ImageUpload, Kind},
    send::{self, NotSent, Proxy},
    volume, wait,
};
use crate::{
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
};

/// The longest time between two attempts.
const BACKOFF: Duration = Duration::from_secs(10);

pub(crate) async fn image_upload(
    cluster: &Cluster,
    printer: Printer,
    flags: &ImageUpload,
) -> Result<()> {
    let (kind, name) = flags.kind_and_name()?;
    let file = flags.file()?;
    flags.volume_mode()?;
    // A wrong path should not leave a volume behind.
    std::fs::File::open(file).with_context(|| format!("read {}", file.display()))?;
    if flags.datasource {
        require_data_sources(cluster).await?;
    }
    prepare(cluster, printer, flags).await?;
    let limit = Duration::from_secs(flags.wait_secs);
    wait::until_writable(cluster, kind, name, limit).await?;
    let proxy = proxy(cluster, flags).await?;
    printer.note(&format!("Uploading {} to {}", file.display(), proxy.url));
    upload(cluster, printer, flags, &proxy, file).await?;
    printer.note("Uploaded; waiting until it is processed. Ctrl+C does not stop that.");
    wait::until_processed(cluster, name).await?;
    if flags.datasource {
        make_data_source(cluster, flags, name).await?;
    }
    let (all, kind) = match kind {
        Kind::DataVolume => (objects::DATA_VOLUME, "Data volume"),
        Kind::Claim => (objects::CLAIM, "Claim"),
    };
    if let Some(output) = flags.made.output {
        let made = objects::get(cluster, &all.named(&cluster.namespace, name)).await?;
        return printer.object(output, &made);
    }
    printer.line(&format!("{kind} {name} has the data of {}", file.display()));
    Ok(())
}

/// Makes the volume, unless there is one that can be uploaded into.
async fn prepare(cluster: &Cluster, printer: Printer, flags: &ImageUpload) -> Result<()> {
    let (kind, name) = flags.kind_and_name()?;
    let namespace = &cluster.namespace;
    let claim = objects::find(cluster, &objects::CLAIM.named(namespace, name)).await?;
    let data_volume = match kind {
        Kind::DataVolume => {
            objects::find(cluster, &objects::DATA_VOLUME.named(namespace, name)).await?
        }
        Kind::Claim => None,
    };
    match (kind, claim, data_volume) {
        (Kind::Claim, Some(claim), _) | (Kind::DataVolume, Some(claim), Some(_)) => {
            if let Some(reason) = volume::unusable(flags, &claim) {
                bail!("{name} cannot be uploaded into: {reason}");
            }
            Ok(())
        }
        (Kind::DataVolume, Some(_), None) => {
            bail!(
                "{name} is a claim without a data volume: write pvc {name}, or choose another name"
            )
        }
        (Kind::DataVolume, None, Some(_)) => Ok(()),
        (_, None, None | Some(_)) if flags.no_create => {
            bail!("{name} does not exist: leave out --no-create to make it")
        }
        (_, None, _) => {
            let volume = volume::volume(flags)?;
            let all = match kind {
                Kind::DataVolume => objects::DATA_VOLUME,
                Kind::Claim => objects::CLAIM,
            };
            objects::create(cluster, &all.all(namespace), &volume).await?;
            printer.note(&format!("Created {name} in namespace {namespace}"));
            Ok(())
        }
    }
}

/// The proxy that the user names, or that of CDI's configuration.
async fn proxy(cluster: &Cluster, flags: &ImageUpload) -> Result<Proxy> {
    let insecure = flags.insecure;
    if let Some(url) = &flags.uploadproxy_url {
        return Ok(Proxy {
            url: with_scheme(url),
            insecure,
            authorities: None,
            proxies: cluster.proxies.clone(),
        });
    }
    let path = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config";
    let config = objects::find_if_served(cluster, path)
        .await?
        .unwrap_or_default();
    let given = |pointer: &str| text(&config, pointer).filter(|text| !text.is_empty());
    let missing = "find the upload proxy: CDI's configuration names none: give its address with \
                   --uploadproxy-url";
    let url = given("/status/uploadProxyURL").context(missing)?;
    Ok(Proxy {
        url: with_scheme(url),
        insecure,
        authorities: given("/status/uploadProxyCA").map(ToOwned::to_owned),
        proxies: cluster.proxies.clone(),
    })
}

fn with_scheme(url: &str) -> String {
    if url.contains("://") {
        url.to_owned()
    } else {
        format!("https://{url}")
    }
}

/// Sends the file, again after failures that may pass.
async fn upload(
    cluster: &Cluster,
    printer: Printer,
    flags: &ImageUpload,
    proxy: &Proxy,
    file: &Path,
) -> Result<()> {
    let (_, name) = flags.kind_and_name()?;
    let mut attempt = 0;
    loop {
        // The answer to the last attempt may have been lost.
        if attempt > 0 && wait::is_processed(cluster, name).await? {
            return Ok(());
        }
        let token = token(cluster, name).await?;
        let error = match send::send(proxy, &token, file, printer).await {
            Ok(()) => return Ok(()),
            Err(NotSent::Final(error)) => return Err(error),
            Err(NotSent::Transient(error)) if attempt >= flags.retry => return Err(error),
            Err(NotSent::Transient(error)) => error,
        };
        attempt += 1;
        let pause = BACKOFF.min(Duration::from_secs(1) * attempt);
        printer.note(&format!(
            "{error:#}; attempt {} in {} s",
            attempt + 1,
            pause.as_secs()
        ));
        tokio::time::sleep(pause).await;
    }
}

async fn token(cluster: &Cluster, claim: &str) -> Result<String> {
    let namespace = &cluster.namespace;
    let path =
        format!("/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/{namespace}/uploadtokenrequests");
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1",
        "kind": "UploadTokenRequest",
        "metadata": {"generateName": "token-for-virtctl-"},
        "spec": {"pvcName": claim},
    });
    let answer = objects::create(cluster, &path, &request).await?;
    let token = text(&answer, "/status/token").context("read the upload token")?;
    Ok(token.to_owned())
}

async fn require_data_sources(cluster: &Cluster) -> Result<()> {
    let group = objects::find_if_served(cluster, "/apis/cdi.kubevirt.io/v1beta1").await?;
    let group = group.unwrap_or_default();
    let mut kinds = group["resources"].as_array().into_iter().flatten();
    if kinds.any(|one| one["name"] == "datasources") {
        return Ok(());
    }
    bail!(
        "--datasource: this server has no data sources (datasources.cdi.kubevirt.io): leave it out"
    )
}

async fn make_data_source(cluster: &Cluster, flags: &ImageUpload, name: &str) -> Result<()> {
    let namespace = &cluster.namespace;
    let path = objects::DATA_SOURCE.named(namespace, name);
    let source = volume::data_source(flags, name, namespace);
    if objects::find(cluster, &path).await?.is_some() {
        objects::merge(cluster, &path, &source).await?;
    } else {
        objects::create(cluster, &objects::DATA_SOURCE.all(namespace), &source).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use tokio::sync::mpsc;

    use super::super::cli::Disk;
    use super::*;
    use crate::proxy::Proxies;

    /// A server that has one claim and gives tokens; and the paths that it was asked for.
    fn server(claim: serde_json::Value) -> (Cluster, mpsc::UnboundedReceiver<String>) {
        let (noted, paths) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let answer = if path.ends_with("/uploadtokenrequests") {
                json!({"status": {"token": "t"}})
            } else {
                claim.clone()
            };
            noted.send(path).unwrap();
            let found = !answer.is_null();
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            if !found {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            std::future::ready(Ok::<_, kube::Error>(response))
        });
        let cluster = Cluster {
            client: kube::Client::new(service, "tests"),
            namespace: "tests".to_owned(),
            proxies: Proxies::default(),
        };
        (cluster, paths)
    }

    #[tokio::test(start_paused = true)]
    async fn upload_whose_answer_was_lost_is_not_repeated() {
        let done = json!({"metadata": {"annotations": {"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}}});
        let (cluster, mut paths) = server(done);
        let flags = ImageUpload::of_disk(Disk {
            file: Path::new("Cargo.toml"),
            data_volume: "disk",
            size: "1Gi",
            proxy_url: None,
            insecure: false,
        });
        let unreachable = Proxy {
            url: "http://127.0.0.1:1".to_owned(),
            insecure: false,
            authorities: None,
            proxies: Proxies::default(),
        };
        let file = Path::new("Cargo.toml");
        upload(&cluster, Printer, &flags, &unreachable, file)
            .await
            .unwrap();
        let mut tokens = 0;
        while let Ok(path) = paths.try_recv() {
            tokens += usize::from(path.ends_with("/uploadtokenrequests"));
        }
        assert_eq!(tokens, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn claim_that_is_gone_is_not_waited_for() {
        let (cluster, mut paths) = server(serde_json::Value::Null);
        let error = wait::until_processed(&cluster, "disk").await.unwrap_err();
        assert!(error.to_string().contains("deleted"), "{error:#}");
        assert!(paths.try_recv().is_ok());
        paths.try_recv().unwrap_err();
    }
}
