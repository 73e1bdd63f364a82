//! An address on a web server, and what is sent to it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue, header};
use jiff::Timestamp;
use url::Url;

use crate::ImportError;
use crate::google::Account;
use crate::s3::{self, Signer};

/// Header lines that a user may give at most.
const MOST_HEADERS: usize = 32;

/// A file on a web server.
#[derive(Debug)]
pub(crate) struct WebSource {
    pub(crate) url: Url,
    /// Sent to this server only, never to one that it redirects to.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Signs requests to this server.
    pub(crate) signer: Option<Signer>,
    /// Signs tokens for requests to this server.
    pub(crate) account: Option<Account>,
}

/// A user's name and password.
pub(crate) struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl WebSource {
    /// `headers` are lines `name: value`.
    pub(crate) fn new(
        address: &str,
        credentials: Option<&Credentials>,
        headers: &[String],
    ) -> Result<Self, ImportError> {
        let url = parse(address)?;
        let mut read = Vec::new();
        if headers.len() > MOST_HEADERS {
            let problem = format!("more than {MOST_HEADERS} headers");
            return Err(unusable(&url, problem));
        }
        for line in headers {
            read.push(header(line).ok_or_else(|| {
                // The line may hold a secret.
                unusable(&url, "a header is not of the form \"name: value\"")
            })?);
        }
        if let Some(Credentials { user, password }) = credentials {
            let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
            let value = HeaderValue::try_from(format!("Basic {encoded}"));
            let mut value = value.map_err(|_| unusable(&url, "the credentials"))?;
            value.set_sensitive(true);
            read.push((header::AUTHORIZATION, value));
        }
        Ok(Self {
            url,
            headers: read,
            signer: None,
            account: None,
        })
    }

    /// Logs in with an account of Google, whose tokens are sent by TLS only.
    pub(crate) fn with_account(mut self, account: Account) -> Result<Self, ImportError> {
        if self.url.scheme() != "https" {
            return Err(unusable(&self.url, "use https with an account of Google"));
        }
        self.account = Some(account);
        Ok(self)
    }

    /// An object in a bucket. Without credentials it is public.
    pub(crate) fn in_bucket(
        address: &str,
        credentials: Option<&Credentials>,
        clock: fn() -> Timestamp,
    ) -> Result<Self, ImportError> {
        let mut source = Self::new(&s3::address(address), None, &[])?;
        let (path, query) = s3::canonical(&source.url);
        source.url.set_path(&path);
        source
            .url
            .set_query(Some(query.as_str()).filter(|it| !it.is_empty()));
        if let Some(credentials) = credentials {
            source.signer = Some(Signer::new(&source.url, credentials, clock));
        }
        Ok(source)
    }

    /// The address that a redirect of `from` leads to.
    pub(crate) fn redirect(from: &Url, location: &HeaderValue) -> Result<Url, ImportError> {
        let location = location
            .to_str()
            .map_err(|_| unusable(from, "its redirect is not text"))?;
        let to = from
            .join(location)
            .map_err(|error| unusable(from, format!("its redirect: {error}")))?;
        if from.scheme() == "https" && to.scheme() != "https" {
            let problem = "it redirects to an address without TLS";
            return Err(unusable(from, problem));
        }
        parse(to.as_str())
    }
}

fn parse(address: &str) -> Result<Url, ImportError> {
    let wrong = |problem: String| ImportError::Address {
        address: without_secrets(address),
        problem,
    };
    let url = Url::parse(address).map_err(|error| wrong(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("use http or https".to_owned()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it names no host".to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("name the user and password in a secret".to_owned()));
    }
    Ok(url)
}

fn unusable(url: &Url, problem: impl Into<String>) -> ImportError {
    ImportError::Address {
        address: without_secrets(url.as_str()),
        problem: problem.into(),
    }
}

/// The address without the user and the query, which may be signed.
fn without_secrets(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => address.to_owned(),
    }
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::try_from(name.trim()).ok()?;
    let reserved = [
        header::HOST,
        header::RANGE,
        header::IF_RANGE,
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
    ];
    let mut value = HeaderValue::try_from(value.trim()).ok()?;
    value.set_sensitive(true);
    (!reserved.contains(&name)).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_web_addresses_are_used() {
        let check = |address: &str, expected: Option<&str>| {
            let found = WebSource::new(address, None, &[]);
            let found = found.map(|source| source.url.to_string());
            assert_eq!(found.ok().as_deref(), expected, "{address}");
        };
        check("http://a/b?c=d", Some("http://a/b?c=d"));
        check("https://[::1]:8443/x", Some("https://[::1]:8443/x"));
        check("ftp://a/b", None);
        check("file:///etc/passwd", None);
        check("http://", None);
        check("http://me:secret@a/b", None);
        check("a/b", None);
    }

    #[test]
    fn messages_contain_no_secret() {
        for address in ["ftp://me:hunter2@a/b?sig=hunter2", "http://me:hunter2@a/"] {
            let error = WebSource::new(address, None, &[]).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let source = WebSource::new("http://a/", None, &["hunter2".to_owned()]);
        assert!(!source.unwrap_err().to_string().contains("hunter2"));
    }

    #[test]
    fn headers_are_lines_of_name_and_value() {
        let check = |line: &str, expected: Option<(&str, &str)>| {
            let found = header(line);
            let found = found.as_ref().map(|(name, value)| {
                let value = value.to_str().unwrap();
                (name.as_str(), value)
            });
            assert_eq!(found, expected, "{line:?}");
        };
        check("X-Token: a:b", Some(("x-token", "a:b")));
        check("x:", Some(("x", "")));
        check("x", None);
        check("Range: bytes=0-1", None);
        check("x y: z", None);
        check("x: a\r\ny: b", None);
    }

    #[test]
    fn redirect_never_leaves_tls() {
        let check = |from: &str, to: &'static str, expected: Option<&str>| {
            let from = Url::parse(from).unwrap();
            let found = WebSource::redirect(&from, &HeaderValue::from_static(to));
            let found = found.map(|url| url.to_string());
            assert_eq!(found.ok().as_deref(), expected, "{from} to {to}");
        };
        check("http://a/b/c", "d", Some("http://a/b/d"));
        check("http://a/b", "/d", Some("http://a/d"));
        check("http://a/b", "https://c/d", Some("https://c/d"));
        check("https://a/b", "//c/d", Some("https://c/d"));
        check("https://a/b", "http://a/b", None);
        check("http://a/b", "file:///etc/passwd", None);
    }
}
