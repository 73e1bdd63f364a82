//! Cloud-init data of volumes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::LocalObjectReference;
use kubevirt_api::volumes::Volume;
use validation::Violation;

use super::{input::Input, volumes::paths};

/// Maximum of inline data, which makes objects large; larger data belongs into a secret.
const MAX_INLINE: usize = 2048;
/// The fields of one kind of inline data.
#[derive(Clone, Copy)]
struct Fields {
    plain: &'static str,
    base64: &'static str,
}

const USER: Fields = Fields {
    plain: "userData",
    base64: "userDataBase64",
};
const NETWORK: Fields = Fields {
    plain: "networkData",
    base64: "networkDataBase64",
};

pub(super) fn seeds(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, volume) in paths(input) {
        for (kind, seed) in seeds_of(volume) {
            let field = format!("{path}.{kind}");
            found.extend(seed.problems().into_iter().map(|problem| {
                let field = match problem.field {
                    "" => field.clone(),
                    at => format!("{field}.{at}"),
                };
                input.invalid(&field, problem.detail)
            }));
        }
    }
    found
}

/// The common fields of both kinds of cloud-init volumes.
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
    fn problems(&self) -> Vec<SeedProblem> {
        let (user, network) = (&self.user, &self.network);
        let user_count = user.len() + usize::from(self.user_secret.is_some());
        let network_count = network.len() + usize::from(self.network_secret.is_some());
        let mut found = Vec::new();
        if user_count > 1 {
            let detail = "more than one of secretRef, userData and userDataBase64; choose one";
            found.push(SeedProblem::whole(detail));
        }
        if network_count > 1 {
            let detail = "more than one of networkDataSecretRef, networkData and networkDataBase64; choose one";
            found.push(SeedProblem::whole(detail));
        }
        if user_count + network_count == 0 {
            let detail = "no data; give userData, for example \"#cloud-config\"";
            found.push(SeedProblem::whole(detail));
        }
        found.extend(user.iter().chain(network).filter_map(Inline::problem));
        found
    }
}

/// A problem of a cloud-init source.
struct SeedProblem {
    /// Field below the source; empty for the source itself.
    field: &'static str,
    detail: String,
}

impl SeedProblem {
    fn whole(detail: &str) -> Self {
        Self {
            field: "",
            detail: detail.to_owned(),
        }
    }
}

/// Inline data.
struct Inline<'a> {
    field: &'static str,
    text: &'a str,
    encoding: Encoding,
}

#[derive(Clone, Copy)]
enum Encoding {
    Plain,
    Base64,
}

fn inline<'a>(fields: Fields, plain: Option<&'a str>, base64: Option<&'a str>) -> Vec<Inline<'a>> {
    [
        (fields.plain, plain, Encoding::Plain),
        (fields.base64, base64, Encoding::Base64),
    ]
    .into_iter()
    .filter_map(|(field, text, encoding)| {
        let text = text.filter(|text| !text.is_empty())?;
        Some(Inline {
            field,
            text,
            encoding,
        })
    })
    .collect()
}

impl Inline<'_> {
    fn problem(&self) -> Option<SeedProblem> {
        let problem = |detail| SeedProblem {
            field: self.field,
            detail,
        };
        let length = match self.encoding {
            Encoding::Plain => self.text.len(),
            Encoding::Base64 => match STANDARD.decode(self.text) {
                Ok(data) => data.len(),
                Err(error) => return Some(problem(format!("invalid base64: {error}"))),
            },
        };
        (length > MAX_INLINE).then(|| {
            problem(format!(
                "{length} bytes; at most {MAX_INLINE} are allowed inline"
            ))
        })
    }
}
