//! The addresses in the status of an export.

use serde_json::Value;

use super::cli::ManifestFormat;
use crate::objects::text;

/// The addresses for clients outside of the cluster, or inside if there are no others.
#[derive(Debug)]
pub(super) struct Links<'a>(&'a Value);

/// The addresses of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VolumeLink<'a> {
    pub(super) name: &'a str,
    pub(super) compressed: &'a str,
    /// Of the disk as it is.
    pub(super) raw: Option<&'a str>,
}

impl<'a> Links<'a> {
    /// `None` until the export is ready.
    pub(super) fn of(export: &'a Value) -> Option<Self> {
        if text(export, "/status/phase") != Some("Ready") {
            return None;
        }
        let links = export.pointer("/status/links")?;
        let usable = |link: &&Value| link.is_object();
        let link = links
            .get("external")
            .filter(usable)
            .or(links.get("internal").filter(usable))?;
        Some(Self(link))
    }

    /// The addresses inside of the cluster. `None` until the export is ready.
    pub(super) fn internal(export: &'a Value) -> Option<Self> {
        Self::of(export)?;
        let link = export.pointer("/status/links/internal")?;
        link.is_object().then_some(Self(link))
    }

    /// The certificate of the authority, in PEM.
    pub(super) fn certificate(&self) -> Option<&'a str> {
        text(self.0, "/cert").filter(|pem| !pem.is_empty())
    }

    /// The addresses of a volume; of the only one if no name is given.
    pub(super) fn volume(&self, name: Option<&str>) -> Result<VolumeLink<'a>, String> {
        let volumes = self.list("volumes");
        let names: Vec<_> = volumes
            .iter()
            .filter_map(|one| text(one, "/name"))
            .collect();
        let listed = names.join(", ");
        let chosen = match (name, volumes) {
            (_, []) => return Err("the export has no volumes".to_owned()),
            (None, [one]) => one,
            (None, _) => return Err(format!("choose one of its volumes with --volume: {listed}")),
            (Some(name), all) => all
                .iter()
                .find(|one| text(one, "/name") == Some(name))
                .ok_or_else(|| format!("it has no volume {name:?}, but {listed}"))?,
        };
        let formats = chosen["formats"].as_array().map_or(&[][..], Vec::as_slice);
        let url = |wanted: &str| {
            let mut formats = formats.iter();
            let format = formats.find(|one| text(one, "/format") == Some(wanted))?;
            text(format, "/url")
        };
        let compressed = url("gzip").or_else(|| url("tar.gz"));
        Ok(VolumeLink {
            name: text(chosen, "/name").unwrap_or_default(),
            compressed: compressed.ok_or("the volume has no compressed format")?,
            raw: url("raw"),
        })
    }

    /// The address of a manifest.
    pub(super) fn manifest(&self, kind: &str) -> Option<&'a str> {
        let manifests = self.list("manifests");
        let found = manifests
            .iter()
            .find(|one| text(one, "/type") == Some(kind))?;
        text(found, "/url")
    }

    fn list(&self, field: &str) -> &'a [Value] {
        self.0[field].as_array().map_or(&[][..], Vec::as_slice)
    }
}

/// The address with another host.
pub(super) fn with_host(url: &str, host: Option<&str>) -> String {
    let Some(host) = host else {
        return url.to_owned();
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    format!("{scheme}://{host}/{path}")
}

impl ManifestFormat {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Yaml => "application/yaml",
            Self::Json => "application/json",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn export(phase: &str) -> Value {
        let url = |format: &str, url: &str| json!({"format": format, "url": url});
        let volumes = json!([
            {"name": "a", "formats": [url("raw", "https://x/a"), url("gzip", "https://x/a.gz")]},
            {"name": "b", "formats": [url("dir", "https://x/b"), url("tar.gz", "https://x/b.tgz")]},
        ]);
        let manifests = json!([{"type": "all", "url": "https://x/all"}]);
        let link = json!({"cert": "PEM", "volumes": volumes, "manifests": manifests});
        json!({"status": {"phase": phase, "links": {"internal": link, "external": null}}})
    }

    #[test]
    fn addresses_are_those_of_a_ready_export() {
        assert!(Links::of(&export("Pending")).is_none());
        let export = export("Ready");
        let links = Links::of(&export).unwrap();
        assert_eq!(links.certificate(), Some("PEM"));
        assert!(Links::internal(&export).is_some());
        assert!(Links::internal(&self::export("Pending")).is_none());
        let link = |name: &'static str| links.volume(Some(name)).unwrap();
        let disk = VolumeLink {
            name: "a",
            compressed: "https://x/a.gz",
            raw: Some("https://x/a"),
        };
        assert_eq!(link("a"), disk);
        assert_eq!(
            (link("b").compressed, link("b").raw),
            ("https://x/b.tgz", None)
        );
        assert_eq!(links.manifest("all"), Some("https://x/all"));
        assert_eq!(links.manifest("auth-header-secret"), None);
        let error = |name| links.volume(name).unwrap_err();
        assert_eq!(error(None), "choose one of its volumes with --volume: a, b");
        assert_eq!(error(Some("c")), "it has no volume \"c\", but a, b");
    }

    #[test]
    fn host_is_replaced() {
        assert_eq!(with_host("https://x:1/a/b", Some("h:2")), "https://h:2/a/b");
        assert_eq!(with_host("https://x/a", None), "https://x/a");
    }
}
