//! The user and groups of a container.

use std::collections::BTreeSet;

use image_store::{Image, ImageConfig};
use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use pod_supervisor::model::User;

use super::CONFIG;
use crate::Failure;

pub(super) fn user(
    image: &Image,
    own: &SecurityContext,
    pods: &PodSecurityContext,
) -> Result<User, Failure> {
    let wanted = own.run_as_user.or(pods.run_as_user).map(id).transpose()?;
    let named = match wanted {
        None => image.clone(),
        // The image's user table has the group of that user.
        Some(uid) => Image {
            config: ImageConfig {
                user: uid.to_string(),
                ..ImageConfig::default()
            },
            ..image.clone()
        },
    };
    let found = named.user().ok_or_else(|| {
        let name = &image.config.user;
        Failure::new(
            CONFIG,
            format!("the image runs as user {name:?}, which its user table does not have"),
        )
    })?;
    if found.uid == 0 && own.run_as_non_root.or(pods.run_as_non_root) == Some(true) {
        let message = "container has runAsNonRoot and image will run as root: set runAsUser";
        return Err(Failure::new(CONFIG, message));
    }
    let gid = own.run_as_group.or(pods.run_as_group).map(id).transpose()?;
    let groups = pods
        .supplemental_groups
        .iter()
        .flatten()
        .copied()
        .chain(pods.fs_group);
    Ok(User {
        uid: found.uid,
        gid: gid.unwrap_or(found.gid),
        groups: groups
            .map(id)
            .collect::<Result<BTreeSet<u32>, _>>()?
            .into_iter()
            .collect(),
    })
}

pub(crate) fn id(number: i64) -> Result<u32, Failure> {
    u32::try_from(number)
        .map_err(|_| Failure::new(CONFIG, format!("{number} is not a user or group ID")))
}
