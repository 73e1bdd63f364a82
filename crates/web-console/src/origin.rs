//! Requests that another site caused are rejected.
//!
//! The key protects already. This also stops a site whose DNS name was pointed at the loopback address.

use std::net::SocketAddr;

use http::{HeaderMap, Uri, header, uri::Authority};

/// The port of `http` URLs without one.
const HTTP: u16 = 80;

/// The names under which browsers reach this server.
#[derive(Clone, Debug)]
pub struct Hosts(Names);

#[derive(Clone, Debug)]
enum Names {
    Known(Vec<String>),
    /// Whoever serves all users is known by names that it does not know, such as those of a proxy before it.
    Any,
}

impl Hosts {
    /// Those of a server on a local port.
    pub(crate) fn of(address: SocketAddr) -> Self {
        let port = address.port();
        let mut all = vec![address.to_string(), format!("localhost:{port}")];
        if port == HTTP {
            // Browsers leave it out.
            all.extend([address.ip().to_string(), "localhost".to_owned()]);
        }
        Self(Names::Known(all))
    }

    /// Every name: for a server on which nothing works without a token of the page.
    pub fn any() -> Self {
        Self(Names::Any)
    }

    fn has(&self, host: &str) -> bool {
        match &self.0 {
            Names::Known(all) => all.iter().any(|own| own == host),
            Names::Any => true,
        }
    }

    /// Why a request is rejected. Its name stands in the address over HTTP/2, otherwise in a header.
    pub(crate) fn reject(&self, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let host = text(header::HOST).or_else(|| uri.authority().map(Authority::as_str));
        let Some(host) = host.filter(|host| self.has(host)) else {
            return Some("the request names another host; open the link that virtctl printed");
        };
        let is_own = |origin: &str| match &self.0 {
            Names::Known(_) => origin.strip_prefix("http://") == Some(host),
            Names::Any => origin
                .split_once("://")
                .is_some_and(|(_, name)| name == host),
        };
        match text(header::ORIGIN) {
            Some(origin) if !is_own(origin) => Some("the request comes from another site"),
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
        assert!(on_80.has("127.0.0.1") && !hosts.has("127.0.0.1"));
        for (host, origin, accepted) in cases {
            check(&hosts, (host, origin), accepted);
        }
    }

    #[test]
    fn server_for_all_users_accepts_its_own_pages_by_every_name() {
        let cases = [
            (Some("vmhost:8440"), None, true),
            (Some("vmhost:8440"), Some("https://vmhost:8440"), true),
            (Some("vmhost:8440"), Some("https://other.example"), false),
            (Some("vmhost:8440"), Some("null"), false),
            (None, None, false),
        ];
        for (host, origin, accepted) in cases {
            check(&Hosts::any(), (host, origin), accepted);
        }
        // As over HTTP/2.
        let uri = Uri::from_static("https://vmhost:8440/console/");
        assert_eq!(Hosts::any().reject(&uri, &HeaderMap::new()), None);
    }

    fn check(hosts: &Hosts, (host, origin): (Option<&str>, Option<&str>), accepted: bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a header"));
            }
        }
        let rejected = hosts.reject(&Uri::from_static("/console/"), &headers);
        assert_eq!(rejected.is_none(), accepted, "{host:?} {origin:?}");
    }
}
