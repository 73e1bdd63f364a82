//! Content negotiation.

use apimachinery::Status;
use http::{HeaderMap, header};

use crate::error::ApiError;

/// The representations of objects and lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Object,
    Table,
    /// `PartialObjectMetadata`
    Metadata,
}

impl Representation {
    /// The first supported representation in the `Accept` header.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut requested = false;
        for accept in headers.get_all(header::ACCEPT) {
            for media in accept.to_str().unwrap_or_default().split(',') {
                requested = true;
                if let Some(found) = Self::of(media) {
                    return Ok(found);
                }
            }
        }
        if requested {
            return Err(Status::not_acceptable(&["application/json"]).into());
        }
        Ok(Self::Object)
    }

    fn of(media: &str) -> Option<Self> {
        let mut parts = media.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let (mut shape, mut version, mut group) = ("", "v1", "meta.k8s.io");
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => shape = value,
                Some(("v", value)) => version = value,
                Some(("g", value)) => group = value,
                _ => {}
            }
        }
        match shape {
            "" => Some(Self::Object),
            _ if version != "v1" || group != "meta.k8s.io" => None,
            "Table" => Some(Self::Table),
            "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Self::Metadata),
            _ => None,
        }
    }
}

/// Whether the client accepts aggregated discovery.
pub(crate) fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|accept| {
        accept.to_str().unwrap_or_default().split(',').any(|media| {
            ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"]
                .iter()
                .all(|wanted| media.split(';').any(|part| part.trim() == *wanted))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn first_supported_representation_wins() {
        let cases = [
            ("application/json", Some(Representation::Object)),
            ("*/*", Some(Representation::Object)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some(Representation::Table),
            ),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", None),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Some(Representation::Object),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Representation::Metadata),
            ),
        ];
        for (accept, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(
                Representation::negotiate(&headers).ok(),
                expected,
                "{accept}"
            );
        }
    }
}
