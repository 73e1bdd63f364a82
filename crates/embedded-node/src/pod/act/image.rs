//! Pulls container images.

use std::{sync::Arc, time::Duration};

use image_store::{Credentials, Image, ImageError, PullPolicy};
use k8s_openapi::api::core::v1::{Container, Pod};
use reasons::Reason;
use reconcile::EventType;

use crate::{
    Failure,
    documents::{self, Documents},
    metrics,
    node::Shared,
};

/// A pull that takes longer gets a `Pulling` event.
const NOTICEABLE: Duration = Duration::from_millis(200);

pub(super) fn credentials(pod: &Pod, documents: &Documents) -> Result<Credentials, Failure> {
    let mut all = Credentials::anonymous();
    let references = pod
        .spec
        .iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    for reference in references {
        let secret = documents.secret(&reference.name);
        // Kubelets ignore a missing pull secret too: the image may be public.
        if let Some(bytes) = secret.and_then(|mut data| data.remove(".dockerconfigjson")) {
            all.merge(
                Credentials::from_docker_config_json(&bytes).map_err(|error| {
                    Failure::of(
                        Reason::ErrImagePull,
                        &format!("read pull secret {:?}", reference.name),
                        &error,
                    )
                })?,
            );
        }
    }
    Ok(all)
}

pub(super) fn policy(wanted: Option<&str>, reference: &str) -> PullPolicy {
    let last = reference.rsplit('/').next().unwrap_or_default();
    match wanted {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        Some("IfNotPresent") => PullPolicy::IfNotPresent,
        _ if last.ends_with(":latest") || !last.contains([':', '@']) => PullPolicy::Always,
        _ => PullPolicy::IfNotPresent,
    }
}

pub(crate) async fn pull(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    wanted: Container,
) -> Result<Image, Failure> {
    let reference = wanted.image.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let secrets = pod
        .spec
        .iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    let names = documents::Names {
        secrets: secrets.map(|reference| reference.name.clone()).collect(),
        ..documents::Names::default()
    };
    let documents = documents::fetch(&shared.settings.client, &namespace, names).await?;
    let credentials = credentials(&pod, &documents)?;
    let policy = policy(wanted.image_pull_policy.as_deref(), &reference);
    let mut pull = Box::pin(ensure(&shared, &reference, policy, &credentials));
    let normal = |reason: Reason, note: String| {
        shared
            .recorder
            .publish(pod.as_ref(), EventType::Normal, reason, note);
    };
    let soon = tokio::time::timeout(NOTICEABLE, &mut pull).await;
    let (image, how) = if let Ok(image) = soon {
        count(&image, "present");
        (image, "is present on this node")
    } else {
        normal(Reason::Pulling, format!("Pulling image {reference:?}"));
        let image = pull.await;
        count(&image, "pulled");
        (image, "was pulled and unpacked")
    };
    let image =
        image.map_err(|error| error.failure(&format!("Failed to pull image {reference:?}")))?;
    normal(
        Reason::Pulled,
        format!("Container image {reference:?} {how}"),
    );
    Ok(image)
}

/// Why a pod does not get an image.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unobtained {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(
        "the image is not on this node, and its disk is nearly full (condition DiskPressure): free space, \
         then it is pulled"
    )]
    DiskPressure,
}

impl Unobtained {
    pub(super) fn failure(&self, what: &str) -> Failure {
        let reason = match self {
            Self::Image(error) => error.reason(),
            Self::DiskPressure => Reason::ErrImagePull,
        };
        Failure::of(reason, what, self)
    }
}

/// The image; not pulled while the disk is nearly full.
pub(super) async fn ensure(
    shared: &Shared,
    reference: &str,
    policy: PullPolicy,
    credentials: &Credentials,
) -> Result<Image, Unobtained> {
    let images = &shared.settings.images;
    if policy == PullPolicy::Never || !shared.disk.has_pressure() {
        return Ok(images.ensure(reference, policy, credentials).await?);
    }
    match images
        .ensure(reference, PullPolicy::Never, credentials)
        .await
    {
        Err(ImageError::NotPresent { .. }) => Err(Unobtained::DiskPressure),
        other => Ok(other?),
    }
}

/// Counts an image in the metrics.
pub(super) fn count(image: &Result<Image, Unobtained>, result: &'static str) {
    let result = if image.is_ok() { result } else { "failed" };
    metrics::IMAGES.increment([result]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policy_defaults_by_tag() {
        for (wanted, reference, expected) in [
            (None, "a/b:1", PullPolicy::IfNotPresent),
            (None, "host:5000/b", PullPolicy::Always),
            (None, "b:latest", PullPolicy::Always),
            (None, "b@sha256:aa", PullPolicy::IfNotPresent),
            (Some("Never"), "b", PullPolicy::Never),
            (Some("Always"), "b:1", PullPolicy::Always),
        ] {
            assert_eq!(policy(wanted, reference), expected, "{reference}");
        }
    }
}
