//! What cloud-init volumes hold.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::LocalObjectReference;
use kubevirt_api::volumes::Volume;

use super::{Input, volumes::paths};
use crate::violation::Violation;

/// Inline seeds make objects large; more belongs into a secret.
const MAX_INLINE: usize = 2048;
/// Names of the fields for plain text and base64.
const USER: (&str, &str) = ("userData", "userDataBase64");
const NETWORK: (&str, &str) = ("networkData", "networkDataBase64");

pub(super) fn seeds(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        for (kind, seed) in seeds_of(volume) {
            let field = format!("{path}.{kind}");
            found.extend(seed.faults().into_iter().map(|(at, detail)| {
                let field = if at.is_empty() {
                    field.clone()
                } else {
                    format!("{field}.{at}")
                };
                input.invalid(&field, detail)
            }));
        }
    }
    found
}

/// What the two kinds of cloud-init volumes have in common.
struct Seed<'a> {
    user: Vec<Inline<'a>>,
    network: Vec<Inline<'a>>,
    user_secret: Option<&'a LocalObjectReference>,
    network_secret: Option<&'a LocalObjectReference>,
}

fn seeds_of(volume: &Volume) -> Vec<(&'static str, Seed<'_>)> {
    let no_cloud = volume.cloud_init_no_cloud.as_ref().map(|source| Seed {
        user: inline(
            USER,
            source.user_data.as_deref(),
            source.user_data_base64.as_deref(),
        ),
        network: inline(
            NETWORK,
            source.network_data.as_deref(),
            source.network_data_base64.as_deref(),
        ),
        user_secret: source.secret_ref.as_ref(),
        network_secret: source.network_data_secret_ref.as_ref(),
    });
    let config_drive = volume.cloud_init_config_drive.as_ref().map(|source| Seed {
        user: inline(
            USER,
            source.user_data.as_deref(),
            source.user_data_base64.as_deref(),
        ),
        network: inline(
            NETWORK,
            source.network_data.as_deref(),
            source.network_data_base64.as_deref(),
        ),
        user_secret: source.secret_ref.as_ref(),
        network_secret: source.network_data_secret_ref.as_ref(),
    });
    let no_cloud = no_cloud.map(|seed| ("cloudInitNoCloud", seed));
    no_cloud
        .into_iter()
        .chain(config_drive.map(|seed| ("cloudInitConfigDrive", seed)))
        .collect()
}

impl Seed<'_> {
    /// Field below the source (empty for the source itself) and what is wrong.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let (user, network) = (&self.user, &self.network);
        let user_count = user.len() + usize::from(self.user_secret.is_some());
        let network_count = network.len() + usize::from(self.network_secret.is_some());
        let mut found = Vec::new();
        if user_count > 1 {
            let detail = "more than one of secretRef, userData and userDataBase64; choose one";
            found.push(("", detail.to_owned()));
        }
        if network_count > 1 {
            let detail = "more than one of networkDataSecretRef, networkData and networkDataBase64; choose one";
            found.push(("", detail.to_owned()));
        }
        if user_count + network_count == 0 {
            found.push((
                "",
                "no data; give userData, for example \"#cloud-config\"".to_owned(),
            ));
        }
        found.extend(user.iter().chain(network).filter_map(Inline::fault));
        found
    }
}

/// Data written into the object itself.
struct Inline<'a> {
    field: &'static str,
    text: &'a str,
    is_base64: bool,
}

fn inline<'a>(
    (name, base64_name): (&'static str, &'static str),
    plain: Option<&'a str>,
    base64: Option<&'a str>,
) -> Vec<Inline<'a>> {
    [(name, plain, false), (base64_name, base64, true)]
        .into_iter()
        .filter_map(|(field, text, is_base64)| {
            let text = text.filter(|text| !text.is_empty())?;
            Some(Inline {
                field,
                text,
                is_base64,
            })
        })
        .collect()
}

impl Inline<'_> {
    fn fault(&self) -> Option<(&'static str, String)> {
        let length = if self.is_base64 {
            match STANDARD.decode(self.text) {
                Ok(data) => data.len(),
                Err(error) => return Some((self.field, format!("no base64: {error}"))),
            }
        } else {
            self.text.len()
        };
        (length > MAX_INLINE).then(|| {
            let detail = format!("{length} bytes; at most {MAX_INLINE} may be written here");
            (self.field, detail)
        })
    }
}
