//! Parses image names into canonical references.
//!
//! `alpine` is `docker.io/library/alpine:latest`. The part before the first slash is a registry if
//! it looks like a host: it has a dot or a port, or is `localhost`. Parsed by hand, as the regular
//! expression of the `oci-client` crate keeps 8 MB of memory for the life of the process.

use oci_client::Reference;

use crate::Digest;

const DEFAULT_REGISTRY: &str = "docker.io";
/// The former name of the default registry.
const LEGACY_REGISTRY: &str = "index.docker.io";
/// The namespace of unqualified names in the default registry.
const DEFAULT_OWNER: &str = "library";
const DEFAULT_TAG: &str = "latest";
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// Why a name is invalid, and what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name is empty")]
    Empty,
    #[error("{0:?} is not a sha256 digest: expected sha256: and 64 lower-case hexadecimal digits")]
    Digest(String),
    #[error(
        "{0:?} is not a tag: expected up to 128 letters, digits, _ . and -, not beginning with . or -"
    )]
    Tag(String),
    #[error("{0:?} is not a registry: expected a DNS name or an address with an optional port")]
    Registry(String),
    #[error("{0:?} has capital letters: repository names are in lower case")]
    Capitals(String),
    #[error(
        "{0:?} is not part of a repository name: expected lower-case letters and digits, separated by . _ __ or any number of -"
    )]
    Part(String),
    #[error("the repository name is longer than 255 characters")]
    TooLong,
}

/// Parses a name into its canonical reference.
pub(crate) fn parse(text: &str) -> Result<Reference, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    let (text, digest) = match text.split_once('@') {
        Some((text, digest)) => (text, Some(checked_digest(digest)?)),
        None => (text, None),
    };
    // A colon before the last slash belongs to a port.
    let last = text.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match text.split_at(last).1.split_once(':') {
        Some((part, tag)) => (text.split_at(last + part.len()).0, Some(checked_tag(tag)?)),
        None => (text, None),
    };
    let (registry, repository) = split(path);
    check_registry(registry)?;
    for part in repository.split('/') {
        check_part(part)?;
    }
    let repository = if registry == DEFAULT_REGISTRY && !repository.contains('/') {
        format!("{DEFAULT_OWNER}/{repository}")
    } else {
        repository.to_owned()
    };
    if repository.len() > MAX_REPOSITORY {
        return Err(NameError::TooLong);
    }
    let registry = registry.to_owned();
    Ok(match (tag, digest) {
        (Some(tag), Some(digest)) => {
            Reference::with_tag_and_digest(registry, repository, tag, digest)
        }
        (None, Some(digest)) => Reference::with_digest(registry, repository, digest),
        (tag, None) => {
            let tag = tag.unwrap_or_else(|| DEFAULT_TAG.to_owned());
            Reference::with_tag(registry, repository, tag)
        }
    })
}

fn split(path: &str) -> (&str, &str) {
    let is_host = |left: &str| left.contains(['.', ':']) || left == "localhost";
    match path.split_once('/').filter(|(left, _)| is_host(left)) {
        Some((LEGACY_REGISTRY, right)) => (DEFAULT_REGISTRY, right),
        Some((left, right)) => (left, right),
        None => (DEFAULT_REGISTRY, path),
    }
}

fn checked_digest(text: &str) -> Result<String, NameError> {
    let digest = text.parse::<Digest>();
    let digest = digest.map_err(|_| NameError::Digest(shortened(text)))?;
    Ok(digest.as_str().to_owned())
}

fn checked_tag(tag: &str) -> Result<String, NameError> {
    let can_begin = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = |byte: u8| can_begin(byte) || matches!(byte, b'.' | b'-');
    let is_good =
        tag.bytes().next().is_some_and(can_begin) && tag.bytes().all(fits) && tag.len() <= MAX_TAG;
    if is_good {
        Ok(tag.to_owned())
    } else {
        Err(NameError::Tag(shortened(tag)))
    }
}

fn check_registry(text: &str) -> Result<(), NameError> {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        edge(label.bytes().next()) && edge(label.bytes().last()) && label.bytes().all(fits)
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok() && !port.starts_with('+');
    if host.split('.').all(is_label) && port.is_none_or(is_port) {
        Ok(())
    } else {
        Err(NameError::Registry(shortened(text)))
    }
}

fn check_part(part: &str) -> Result<(), NameError> {
    if part.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(NameError::Capitals(shortened(part)));
    }
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_separator = |between: &str| {
        matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
    };
    let edge = |byte: Option<u8>| byte.is_some_and(is_alphanumeric);
    let mut between = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if edge(part.bytes().next()) && edge(part.bytes().last()) && between.all(is_separator) {
        Ok(())
    } else {
        Err(NameError::Part(shortened(part)))
    }
}

/// Limits untrusted text in messages.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn names_are_canonicalised() {
        let digest = format!("sha256:{HEX}");
        for (name, full) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("alpine:3", "docker.io/library/alpine:3"),
            ("someone/thing", "docker.io/someone/thing:latest"),
            ("a/b/c:d_e.f-G", "docker.io/a/b/c:d_e.f-G"),
            ("docker.io/alpine", "docker.io/library/alpine:latest"),
            ("index.docker.io/alpine", "docker.io/library/alpine:latest"),
            ("localhost/x", "localhost/x:latest"),
            ("localhost:5000/x:y", "localhost:5000/x:y"),
            ("registry:5000/x/y", "registry:5000/x/y:latest"),
            ("10.0.0.1:80/x", "10.0.0.1:80/x:latest"),
            ("Example.COM/x", "Example.COM/x:latest"),
            ("a.b/c.d_e__f--g/h", "a.b/c.d_e__f--g/h:latest"),
            (
                &format!("x@{digest}"),
                &format!("docker.io/library/x@{digest}"),
            ),
            (&format!("h.i/x:t@{digest}"), &format!("h.i/x:t@{digest}")),
        ] {
            assert_eq!(
                parse(name).map(|it| it.whole()),
                Ok(full.to_owned()),
                "{name}"
            );
            assert_eq!(
                parse(full).map(|it| it.whole()),
                Ok(full.to_owned()),
                "{full}"
            );
        }
    }

    #[test]
    fn invalid_names_are_refused_with_reason() {
        let of = |text: &str| text.to_owned();
        let (long, long_tag) = ("a/".repeat(130) + "a", "t".repeat(129));
        for (name, error) in [
            ("", NameError::Empty),
            ("x@sha256:12", NameError::Digest(of("sha256:12"))),
            ("x@", NameError::Digest(of(""))),
            ("x:", NameError::Tag(of(""))),
            ("x:-y", NameError::Tag(of("-y"))),
            ("x::y", NameError::Tag(of(":y"))),
            ("x:y:z", NameError::Tag(of("y:z"))),
            (
                &format!("x:{long_tag}"),
                NameError::Tag(of(&long_tag[..100])),
            ),
            ("-a.b/x", NameError::Registry(of("-a.b"))),
            ("a..b/x", NameError::Registry(of("a..b"))),
            ("a:port/x", NameError::Registry(of("a:port"))),
            ("a:70000/x", NameError::Registry(of("a:70000"))),
            ("Alpine", NameError::Capitals(of("Alpine"))),
            ("Foo/x", NameError::Capitals(of("Foo"))),
            ("a/B", NameError::Capitals(of("B"))),
            ("a//b", NameError::Part(of(""))),
            ("/a", NameError::Part(of(""))),
            ("a/", NameError::Part(of(""))),
            ("a___b", NameError::Part(of("a___b"))),
            ("a._b", NameError::Part(of("a._b"))),
            ("a-", NameError::Part(of("a-"))),
            ("a b", NameError::Part(of("a b"))),
            ("ä", NameError::Part(of("ä"))),
            (&long, NameError::TooLong),
        ] {
            assert_eq!(parse(name).map(|it| it.whole()), Err(error), "{name}");
        }
    }

    /// Compared with the regular expression of `oci-client`, whose type we return.
    #[test]
    fn parser_agrees_with_oci_client() {
        let parts = [
            "a",
            "b-c",
            "d__e",
            "A",
            "x.y",
            "h:5",
            ":t",
            "@sha256:",
            HEX,
            "/",
            "localhost",
        ];
        for one in parts {
            for two in parts {
                for three in parts {
                    let name = format!("{one}{two}/{three}");
                    for name in [
                        name,
                        format!("{one}/{two}{three}"),
                        format!("{one}{two}{three}"),
                    ] {
                        let ours = parse(&name).ok();
                        let others = name.parse::<Reference>().ok();
                        // `oci-client` also accepts capitals in repositories and underscores in hosts.
                        let others = others.filter(|it| {
                            let is_capital = |byte: u8| byte.is_ascii_uppercase();
                            !it.repository().bytes().any(is_capital) && !it.registry().contains('_')
                        });
                        assert_eq!(ours, others, "{name}");
                    }
                }
            }
        }
    }
}
