//! Requests to S3 and servers like it: the address of an object, and Signature Version 4.
//!
//! Pure: the time comes from the caller. Only what a GET without a body needs.

use std::fmt::{self, Write as _};

use http::{HeaderName, HeaderValue, header};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::source::Credentials;

const AMAZON: &str = "s3.amazonaws.com";
/// The region of servers whose name does not contain one.
const REGION: &str = "us-east-1";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The SHA-256 of an empty body.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const CONTENT_HASH: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
/// The block of SHA-256.
const BLOCK: usize = 64;

/// Signs requests with a pair of keys.
pub(crate) struct Signer {
    key: String,
    secret: String,
    region: String,
    clock: fn() -> Timestamp,
}

/// The web address of an object. `s3://BUCKET/KEY` is at Amazon; any other address is that of the server itself, with
/// the bucket in its path or in its name.
pub(crate) fn address(given: &str) -> String {
    match given.strip_prefix("s3://") {
        Some(object) => format!("https://{AMAZON}/{object}"),
        None => given.to_owned(),
    }
}

/// The path and query in the only form that has one signature: all but unreserved bytes are encoded.
pub(crate) fn canonical(url: &Url) -> (String, String) {
    let mut path = String::new();
    for part in url.path().split_inclusive('/') {
        let (name, slash) = match part.strip_suffix('/') {
            Some(name) => (name, "/"),
            None => (part, ""),
        };
        encode(&decode(name), &mut path);
        path.push_str(slash);
    }
    let query = url.query().unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<String> = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let mut text = String::new();
            encode(&decode(name), &mut text);
            text.push('=');
            encode(&decode(value), &mut text);
            text
        })
        .collect();
    pairs.sort();
    (path, pairs.join("&"))
}

fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let mut value = [0];
        if let Some(Ok(())) = digits.map(|digits| hex::decode_to_slice(digits, &mut value)) {
            decoded.extend(value);
            at += 3;
        } else {
            decoded.push(*byte);
            at += 1;
        }
    }
    decoded
}

fn encode(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string takes all text");
        }
    }
}

/// The region in the name of a server of Amazon, as in `s3.eu-north-1.amazonaws.com`.
fn region(host: &str) -> &str {
    let Some(name) = host.strip_suffix(".amazonaws.com") else {
        return REGION;
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    match last.strip_prefix("s3-") {
        _ if last == "s3" => REGION,
        Some(region) => region,
        None => last,
    }
}

impl Signer {
    pub(crate) fn new(url: &Url, credentials: &Credentials, clock: fn() -> Timestamp) -> Self {
        Self {
            key: credentials.user.clone(),
            secret: credentials.password.clone(),
            region: region(url.host_str().unwrap_or_default()).to_owned(),
            clock,
        }
    }

    /// The headers of a GET request with this header `Host`. `None` if the key is no text for a header.
    pub(crate) fn headers(&self, url: &Url, host: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
        let now = (self.clock)().to_zoned(TimeZone::UTC);
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let signed = [
            (header::HOST, host),
            (CONTENT_HASH, EMPTY),
            (DATE, time.as_str()),
        ];
        let mut authorization = HeaderValue::try_from(self.authorization(url, &signed)).ok()?;
        authorization.set_sensitive(true);
        Some(vec![
            (CONTENT_HASH, HeaderValue::from_static(EMPTY)),
            (DATE, HeaderValue::try_from(time).ok()?),
            (header::AUTHORIZATION, authorization),
        ])
    }

    /// `signed` is in the order of names, and has the time.
    fn authorization(&self, url: &Url, signed: &[(HeaderName, &str)]) -> String {
        let time = signed.iter().find(|(name, _)| *name == DATE);
        let time = time.map_or("", |(_, time)| time);
        let day = time.get(..8).unwrap_or_default();
        let names: Vec<&str> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let mut lines = String::new();
        for (name, value) in signed {
            writeln!(lines, "{name}:{value}").expect("a string takes all text");
        }
        let (path, query) = canonical(url);
        let request = format!("GET\n{path}\n{query}\n{lines}\n{names}\n{EMPTY}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let digest = hex::encode(Sha256::digest(request.as_bytes()));
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{digest}");
        let mut key = hmac(format!("AWS4{}", self.secret).as_bytes(), day.as_bytes());
        for part in [self.region.as_str(), "s3", "aws4_request", &text] {
            key = hmac(&key, part.as_bytes());
        }
        let (id, signature) = (&self.key, hex::encode(key));
        format!("{ALGORITHM} Credential={id}/{scope},SignedHeaders={names},Signature={signature}")
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// HMAC with SHA-256.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(message)
        .finalize();
    let outer = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner);
    outer.finalize().into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The time of the examples in Amazon's description of the signature.
    pub(crate) fn example_time() -> Timestamp {
        "2013-05-24T00:00:00Z".parse().unwrap()
    }

    /// The keys of the same examples.
    pub(crate) fn example_keys() -> Credentials {
        Credentials {
            user: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            password: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        }
    }

    fn signer(url: &Url) -> Signer {
        Signer::new(url, &example_keys(), example_time)
    }

    #[test]
    fn signatures_are_those_of_the_description() {
        const HOST: &str = "examplebucket.s3.amazonaws.com";
        let check = |path: &str, range: Option<&str>, expected: &str| {
            let url = Url::parse(&format!("https://{HOST}{path}")).unwrap();
            let mut signed = vec![(header::HOST, HOST)];
            signed.extend(range.map(|range| (header::RANGE, range)));
            signed.extend([(CONTENT_HASH, EMPTY), (DATE, "20130524T000000Z")]);
            let found = signer(&url).authorization(&url, &signed);
            let start = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/\
                         aws4_request,SignedHeaders=host;";
            assert!(found.starts_with(start), "{found}");
            let signature = found.split_once("Signature=").unwrap().1;
            assert_eq!(signature, expected, "{path}");
        };
        check(
            "/test.txt",
            Some("bytes=0-9"),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        check(
            "/?lifecycle",
            None,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
        check(
            "/?prefix=J&max-keys=2",
            None,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn hmac_takes_keys_of_all_lengths() {
        // The cases 1, 2 and 6 of RFC 4231.
        for (key, message, expected) in [
            (
                vec![0x0b; 20],
                "Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex::encode(hmac(&key, message.as_bytes())), expected);
        }
    }

    #[test]
    fn path_and_query_have_one_form() {
        let check = |given: &str, path: &str, query: &str| {
            let url = Url::parse(&format!("https://a{given}")).unwrap();
            let expected = (path.to_owned(), query.to_owned());
            assert_eq!(canonical(&url), expected, "{given}");
        };
        check("/b/c", "/b/c", "");
        check("/b/a disk+(1)/ä", "/b/a%20disk%2B%281%29/%C3%A4", "");
        check("/b/%61%2f%zz", "/b/a%2F%25zz", "");
        check("//b//c/", "//b//c/", "");
        check("/?b=2&a&c=x/y&a=%20", "/", "a=&a=%20&b=2&c=x%2Fy");
    }

    #[test]
    fn bucket_is_in_the_path_or_in_the_name_of_the_server() {
        for (given, expected) in [
            ("s3://images/a/b", "https://s3.amazonaws.com/images/a/b"),
            (
                "https://images.s3.amazonaws.com/a",
                "https://images.s3.amazonaws.com/a",
            ),
            ("http://minio:9000/images/a", "http://minio:9000/images/a"),
        ] {
            assert_eq!(address(given), expected);
        }
    }

    #[test]
    fn region_is_in_the_name_of_the_server() {
        for (host, expected) in [
            ("s3.amazonaws.com", "us-east-1"),
            ("images.s3.amazonaws.com", "us-east-1"),
            ("s3.eu-north-1.amazonaws.com", "eu-north-1"),
            ("images.s3.eu-north-1.amazonaws.com", "eu-north-1"),
            ("s3-eu-west-1.amazonaws.com", "eu-west-1"),
            ("minio.example", "us-east-1"),
            ("", "us-east-1"),
        ] {
            assert_eq!(region(host), expected, "{host}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let url = Url::parse("https://a/b").unwrap();
        let shown = format!("{:?}", signer(&url));
        assert!(!shown.contains("EXAMPLE"), "{shown}");
        let headers = signer(&url).headers(&url, "a").unwrap();
        assert!(!format!("{headers:?}").contains("EXAMPLE"), "{headers:?}");
    }
}
