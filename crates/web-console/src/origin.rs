//! Requests that another site caused are rejected.
//!
//! The key protects already. This also stops a site whose DNS name was pointed at the loopback address.

use std::net::SocketAddr;

use http::{HeaderMap, header};

/// The port of `http` URLs without one.
const HTTP: u16 = 80;

/// The names under which a browser reaches this server.
#[derive(Clone, Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn of(address: SocketAddr) -> Self {
        let port = address.port();
        let mut all = vec![address.to_string(), format!("localhost:{port}")];
        if port == HTTP {
            // Browsers leave it out.
            all.extend([address.ip().to_string(), "localhost".to_owned()]);
        }
        Self(all)
    }

    /// Why a request with these headers is rejected.
    pub(crate) fn reject(&self, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let Some(host) = text(header::HOST).filter(|host| self.0.iter().any(|own| own == host))
        else {
            return Some("the request names another host; open the link that virtctl printed");
        };
        match text(header::ORIGIN) {
            Some(origin) if origin.strip_prefix("http://") != Some(host) => {
                Some("the request comes from another site")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_the_own_page_are_accepted() {
        let hosts = Hosts::of("127.0.0.1:8080".parse().expect("an address"));
        let cases = [
            (Some("127.0.0.1:8080"), None, true),
            (Some("localhost:8080"), None, true),
            (Some("localhost:8080"), Some("http://localhost:8080"), true),
            (Some("localhost:8080"), Some("http://127.0.0.1:8080"), false),
            (
                Some("127.0.0.1:8080"),
                Some("https://127.0.0.1:8080"),
                false,
            ),
            (Some("127.0.0.1:8080"), Some("http://127.0.0.1:8081"), false),
            (Some("127.0.0.1:8080"), Some("null"), false),
            (Some("127.0.0.1:8081"), None, false),
            (Some("evil.example:8080"), None, false),
            (None, None, false),
        ];
        let on_80 = Hosts::of("127.0.0.1:80".parse().expect("an address"));
        assert!(on_80.0.contains(&"127.0.0.1".to_owned()));
        assert!(!hosts.0.contains(&"127.0.0.1".to_owned()));
        for (host, origin, accepted) in cases {
            let mut headers = HeaderMap::new();
            let given = [(header::HOST, host), (header::ORIGIN, origin)];
            for (name, value) in given {
                if let Some(value) = value {
                    headers.insert(name, value.parse().expect("a header"));
                }
            }
            let rejected = hosts.reject(&headers);
            assert_eq!(rejected.is_none(), accepted, "{host:?} {origin:?}");
        }
    }
}
