//! Names of images as people write them, and the one full spelling of each.
//!
//! `alpine` is `docker.io/library/alpine:latest`. What stands before the first slash is a registry if
//! it looks like a host: it has a dot or a port, or is `localhost`. Read by hand: the regular
//! expression of the crate that reads references otherwise takes 8 MB for as long as the process
//! lives.

use oci_client::Reference;

use crate::Digest;

const DEFAULT_REGISTRY: &str = "docker.io";
/// Its name of old.
const LEGACY_REGISTRY: &str = "index.docker.io";
/// Where images of the default registry are that name nobody.
const DEFAULT_OWNER: &str = "library";
const DEFAULT_TAG: &str = "latest";
const LONGEST_REPOSITORY: usize = 255;
const LONGEST_TAG: usize = 128;

/// What is wrong with a name, and what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name is empty")]
    Empty,
    #[error("{0:?} is no sha256 digest, which is sha256: and 64 lower-case hexadecimal digits")]
    Digest(String),
    #[error(
        "{0:?} is no tag, which has up to 128 letters, digits and any of _ . - but does not begin with . or -"
    )]
    Tag(String),
    #[error("{0:?} is no host of a registry, which is a DNS name or an address and maybe a port")]
    Registry(String),
    #[error("{0:?} has capitals; the name of a repository is in lower case")]
    Capitals(String),
    #[error(
        "{0:?} is no part of a repository's name, which has lower-case letters and digits, with one of . _ __ or any number of - between them"
    )]
    Part(String),
    #[error("the name of the repository is longer than 255 characters")]
    TooLong,
}

/// The reference in its one full spelling.
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
    if repository.len() > LONGEST_REPOSITORY {
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
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = |byte: u8| is_word(byte) || matches!(byte, b'.' | b'-');
    let is_good = tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(fits)
        && tag.len() <= LONGEST_TAG;
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
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_separator = |between: &str| {
        matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
    };
    let edge = |byte: Option<u8>| byte.is_some_and(is_word);
    let mut between = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if edge(part.bytes().next()) && edge(part.bytes().last()) && between.all(is_separator) {
        Ok(())
    } else {
        Err(NameError::Part(shortened(part)))
    }
}

/// Of what came from outside, as much as a message can bear.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn each_name_has_one_full_spelling() {
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
    fn what_is_no_name_is_told_why() {
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

    /// The crate whose type we fill reads them by a regular expression; what it takes we take.
    #[test]
    fn names_are_read_as_elsewhere() {
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
                        // It lets capitals be in a repository and underscores in a host.
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
