//! Content negotiation: the shape and the encoding of an answer.

use apimachinery::{Status, protobuf};
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

/// The format of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => protobuf::MEDIA_TYPE,
        }
    }

    /// The encoding of answers that are not about one kind, such as errors. Every client reads
    /// JSON.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Self {
        // Errors have one shape, so a clause that wants another one does not apply.
        let wanted = |clause: Clause<'_>| match clause.parameter("as") {
            Some(_) => None,
            None => clause.encoding(),
        };
        clauses(headers)
            .into_iter()
            .find_map(wanted)
            .unwrap_or(Self::Json)
    }
}

/// What a kind and a verb can be answered with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer {
    /// Objects have a protobuf message; metadata always has.
    pub protobuf: bool,
    /// Answers may be tables.
    pub table: bool,
    /// YAML has no frames for the events of a watch.
    pub watch: bool,
}

/// The answer that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub representation: Representation,
    pub encoding: Encoding,
}

impl Accepted {
    pub(crate) const JSON: Self = Self {
        representation: Representation::Object,
        encoding: Encoding::Json,
    };

    /// The best clause of the `Accept` header that is offered.
    pub(crate) fn negotiate(headers: &HeaderMap, offer: Offer) -> Result<Self, ApiError> {
        let clauses = clauses(headers);
        if clauses.is_empty() {
            return Ok(Self::JSON);
        }
        let is_known = clauses.iter().any(|clause| clause.encoding().is_some());
        let accepted = clauses
            .into_iter()
            .find_map(|clause| clause.accepted(offer));
        accepted.ok_or_else(|| {
            let status = match (is_known, offer.watch) {
                (false, _) => Status::no_representation(),
                (true, true) => Status::not_acceptable(&[
                    "application/json;stream=watch",
                    "application/vnd.kubernetes.protobuf;stream=watch",
                ]),
                (true, false) => Status::not_acceptable(&[
                    "application/json",
                    "application/yaml",
                    protobuf::MEDIA_TYPE,
                ]),
            };
            status.into()
        })
    }
}

/// One media type of an `Accept` header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Those of all headers, the preferred one first.
fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let accepts = headers.get_all(header::ACCEPT).into_iter();
    let texts = accepts.flat_map(|accept| accept.to_str().unwrap_or_default().split(','));
    let mut out: Vec<Clause<'_>> = texts.map(Clause::parse).collect();
    out.retain(|clause| !clause.media.is_empty());
    out.sort_by(|a, b| {
        b.quality()
            .total_cmp(&a.quality())
            .then(a.stars().cmp(&b.stars()))
    });
    out
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters = parts.filter_map(|part| part.split_once('=')).collect();
        Self { media, parameters }
    }

    fn parameter(&self, wanted: &str) -> Option<&'a str> {
        let mut found = self.parameters.iter().filter(|(name, _)| *name == wanted);
        found.next().map(|(_, value)| *value)
    }

    fn quality(&self) -> f32 {
        let quality = self.parameter("q").map(str::parse);
        quality.and_then(Result::ok).unwrap_or(1.0)
    }

    /// A less specific clause comes later.
    fn stars(&self) -> usize {
        self.media.matches('*').count()
    }

    fn encoding(&self) -> Option<Encoding> {
        match self.media {
            "application/json" | "application/*" | "*/*" => Some(Encoding::Json),
            "application/yaml" => Some(Encoding::Yaml),
            protobuf::MEDIA_TYPE => Some(Encoding::Protobuf),
            _ => None,
        }
    }

    fn accepted(&self, offer: Offer) -> Option<Accepted> {
        let encoding = self.encoding()?;
        let representation = self.representation()?;
        let is_offered = match (encoding, representation) {
            (Encoding::Yaml, _) if offer.watch => false,
            (Encoding::Protobuf, Representation::Table) => false,
            (_, Representation::Table) => offer.table,
            (Encoding::Protobuf, Representation::Object) => offer.protobuf,
            _ => true,
        };
        is_offered.then_some(Accepted {
            representation,
            encoding,
        })
    }

    fn representation(&self) -> Option<Representation> {
        let Some(shape) = self.parameter("as") else {
            return Some(Representation::Object);
        };
        let version = self.parameter("v").unwrap_or("v1");
        let group = self.parameter("g").unwrap_or("meta.k8s.io");
        match shape {
            _ if version != "v1" || group != "meta.k8s.io" => None,
            "Table" => Some(Representation::Table),
            "PartialObjectMetadata" | "PartialObjectMetadataList" => Some(Representation::Metadata),
            _ => None,
        }
    }
}

/// Whether the client accepts aggregated discovery.
pub(crate) fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    clauses(headers).iter().any(|clause| {
        let is = |name, value| clause.parameter(name) == Some(value);
        is("g", "apidiscovery.k8s.io") && is("v", "v2") && is("as", "APIGroupDiscoveryList")
    })
}

/// Whether the client prefers this media type to JSON.
pub(crate) fn prefers(headers: &HeaderMap, media: &[&str]) -> bool {
    let mut clauses = clauses(headers).into_iter();
    let first = clauses
        .find(|clause| media.contains(&clause.media) || clause.encoding() == Some(Encoding::Json));
    first.is_some_and(|clause| media.contains(&clause.media))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(accept: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers
    }

    #[test]
    fn best_offered_clause_wins() {
        const BUILT_IN: Offer = Offer {
            protobuf: true,
            table: true,
            watch: false,
        };
        const CUSTOM: Offer = Offer {
            protobuf: false,
            ..BUILT_IN
        };
        const REVIEW: Offer = Offer {
            table: false,
            ..BUILT_IN
        };
        const WATCH: Offer = Offer {
            watch: true,
            ..BUILT_IN
        };
        use {Encoding::*, Representation::*};
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let either = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let binary = "application/vnd.kubernetes.protobuf";
        let metadata =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        for (accept, offer, expected) in [
            ("application/json", BUILT_IN, Some((Object, Json))),
            ("*/*", BUILT_IN, Some((Object, Json))),
            (table, BUILT_IN, Some((Table, Json))),
            (either, BUILT_IN, Some((Table, Json))),
            (table, REVIEW, None),
            (either, REVIEW, Some((Object, Json))),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                BUILT_IN,
                None,
            ),
            (binary, BUILT_IN, Some((Object, Protobuf))),
            (binary, CUSTOM, None),
            (metadata, CUSTOM, Some((Metadata, Protobuf))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                CUSTOM,
                Some((Object, Json)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
                BUILT_IN,
                None,
            ),
            (
                "*/*, application/vnd.kubernetes.protobuf",
                BUILT_IN,
                Some((Object, Protobuf)),
            ),
            (
                "application/yaml;q=0.5, application/json;q=0.9",
                BUILT_IN,
                Some((Object, Json)),
            ),
            ("application/yaml", BUILT_IN, Some((Object, Yaml))),
            ("application/yaml", WATCH, None),
            ("text/html", BUILT_IN, None),
        ] {
            let found = Accepted::negotiate(&headers(accept), offer).ok();
            let found = found.map(|found| (found.representation, found.encoding));
            assert_eq!(found, expected, "{accept}");
        }
    }

    #[test]
    fn errors_are_json_unless_the_client_knows_more() {
        for (accept, expected) in [
            ("text/html", Encoding::Json),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Encoding::Protobuf,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io",
                Encoding::Json,
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
                Encoding::Json,
            ),
        ] {
            assert_eq!(Encoding::negotiate(&headers(accept)), expected, "{accept}");
        }
        assert_eq!(Encoding::negotiate(&HeaderMap::new()), Encoding::Json);
    }
}
