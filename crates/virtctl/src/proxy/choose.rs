//! Which proxy to use: pure.
//!
//! The flag comes before the kubeconfig, and both apply to every server. The variables of the environment
//! come last, with the exceptions that `NO_PROXY` lists and for servers on other computers only. This is
//! how Go's HTTP client, and thereby kubectl, reads them.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use crate::failure::Usage;

/// The variables of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(super) http: Option<String>,
    pub(super) https: Option<String>,
    pub(super) exceptions: Option<String>,
}

impl Environment {
    /// The variables of this process.
    pub(crate) fn of_process() -> Self {
        // The capital form comes first.
        let variable = |name: &str| {
            let names = [name.to_owned(), name.to_ascii_lowercase()];
            let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty())
        };
        Self {
            http: variable("HTTP_PROXY"),
            https: variable("HTTPS_PROXY"),
            exceptions: variable("NO_PROXY"),
        }
    }
}

/// A proxy, and how to log in to it.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    pub(super) kind: Kind,
    pub(super) settings: Intercept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Http,
    Https,
    Socks,
}

/// The proxy for this server, by the flag or kubeconfig (`configured`) and the environment.
pub(crate) fn choose(
    server: &Uri,
    configured: Option<&str>,
    environment: &Environment,
) -> Result<Option<Proxy>, Usage> {
    if let Some(text) = configured.filter(|text| !text.is_empty()) {
        return parse(server, text).map(Some);
    }
    let of_scheme = match server.scheme_str() {
        Some("http") => &environment.http,
        _ => &environment.https,
    };
    match of_scheme {
        Some(text) if !is_exception(server, environment) => parse(server, text).map(Some),
        _ => Ok(None),
    }
}

/// The proxies for servers other than the API server, such as the upload proxy. Without any by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies {
    configured: Option<String>,
    environment: Environment,
}

impl Proxies {
    pub(crate) fn new(configured: Option<&str>, environment: Environment) -> Self {
        Self {
            configured: configured.map(ToOwned::to_owned),
            environment,
        }
    }

    /// The proxy for this server. What is configured for the cluster does not apply to this computer itself, whose
    /// ports may be forwarded ones, and to exceptions either.
    pub(crate) fn to(&self, server: &Uri) -> Result<Option<Proxy>, Usage> {
        if is_exception(server, &self.environment) {
            return Ok(None);
        }
        choose(server, self.configured.as_deref(), &self.environment)
    }
}

fn parse(server: &Uri, text: &str) -> Result<Proxy, Usage> {
    let wrong = || {
        Usage::new(format!(
            "proxy {:?}: write http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT",
            without_login(text)
        ))
    };
    let settings = Matcher::builder().all(text).build().intercept(server);
    let settings = settings.ok_or_else(wrong)?;
    let kind = match settings.uri().scheme_str() {
        Some("http") => Kind::Http,
        Some("https") => Kind::Https,
        Some("socks5" | "socks5h") => Kind::Socks,
        _ => return Err(wrong()),
    };
    Ok(Proxy { kind, settings })
}

/// The address without the name and password in it, for messages.
fn without_login(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    match rest.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => host.to_owned(),
        Some((_, host)) => format!("{scheme}://{host}"),
        None => text.to_owned(),
    }
}

/// Whether the variables do not apply to this server.
fn is_exception(server: &Uri, environment: &Environment) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let usual = if server.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    let port = server.port_u16().unwrap_or(usual);
    let listed = environment.exceptions.as_deref().unwrap_or_default();
    let entries = listed
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries
        .map(str::to_ascii_lowercase)
        .any(|entry| match address {
            _ if entry == "*" => true,
            Some(address) => names_address(&entry, address, port),
            None => names_host(&entry, &host, port),
        })
}

/// An entry without its port, if the port is that of the server.
fn at_port(entry: &str, port: u16) -> Option<&str> {
    match entry.rsplit_once(':') {
        // The colons of an IPv6 address.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => Some(entry),
        Some((host, own)) => own
            .parse()
            .is_ok_and(|own: u16| own == port)
            .then_some(host),
        None => Some(entry),
    }
}

/// An address, or a network such as `10.0.0.0/8`.
fn names_address(entry: &str, address: IpAddr, port: u16) -> bool {
    if let Some((network, length)) = entry.split_once('/') {
        let (Ok(network), Ok(length)) = (network.parse(), length.parse()) else {
            return false;
        };
        return is_in(address, network, length);
    }
    let host = at_port(entry, port);
    let host = host.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    host.and_then(|host| host.parse().ok()) == Some(address)
}

fn is_in(address: IpAddr, network: IpAddr, length: u32) -> bool {
    let (address, network, bits) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    let Some(rest) = u32::checked_sub(bits, length) else {
        return false;
    };
    // Without a common bit to compare, every address is in the network.
    (address ^ network).checked_shr(rest).unwrap_or(0) == 0
}

/// A name, which is also that of all names below it; `.name` and `*.name` are those below it alone.
fn names_host(entry: &str, host: &str, port: u16) -> bool {
    let Some(entry) = at_port(entry, port) else {
        return false;
    };
    let entry = entry
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(entry);
    match entry.strip_prefix('.') {
        Some(_) => host.ends_with(entry),
        None => {
            host == entry
                || host
                    .strip_suffix(entry)
                    .is_some_and(|rest| rest.ends_with('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(exceptions: &str) -> Environment {
        Environment {
            http: Some("plain.example:1".to_owned()),
            https: Some("http://safe.example:2".to_owned()),
            exceptions: Some(exceptions.to_owned()),
        }
    }

    fn chosen(server: &'static str, configured: Option<&str>, exceptions: &str) -> Option<String> {
        let server = Uri::from_static(server);
        let chosen = choose(&server, configured, &environment(exceptions)).unwrap();
        chosen.map(|proxy| proxy.settings.uri().to_string())
    }

    #[test]
    fn flag_and_kubeconfig_come_before_the_environment() {
        let text = |text: &str| Some(text.to_owned());
        for (server, configured, expected) in [
            ("https://a:6443", None, text("http://safe.example:2/")),
            ("http://a:80", None, text("http://plain.example:1/")),
            ("https://a", Some(""), text("http://safe.example:2/")),
            ("https://a", Some("socks5://b:3"), text("socks5://b:3/")),
            // What is configured applies to all servers.
            ("https://127.0.0.1", Some("https://b"), text("https://b/")),
            ("https://127.0.0.1:6443", None, None),
            ("https://[::1]:6443", None, None),
            ("https://localhost:6443", None, None),
        ] {
            assert_eq!(
                chosen(server, configured, ""),
                expected,
                "{server} {configured:?}"
            );
        }
        let none = Environment::default();
        let direct = choose(&Uri::from_static("https://a"), None, &none).unwrap();
        assert!(direct.is_none());
    }

    #[test]
    fn other_servers_have_exceptions_in_any_case() {
        for (server, configured, exceptions, expected) in [
            ("https://a", None, "", Some("http://safe.example:2/")),
            ("http://a", None, "", Some("http://plain.example:1/")),
            ("https://a", Some("socks5://b:3"), "", Some("socks5://b:3/")),
            ("https://a", Some("socks5://b:3"), "a", None),
            ("https://127.0.0.1:8443", Some("socks5://b:3"), "", None),
            ("https://localhost:8443", None, "", None),
        ] {
            let proxies = Proxies::new(configured, environment(exceptions));
            let found = proxies.to(&Uri::from_static(server)).unwrap();
            let found = found.map(|proxy| proxy.settings.uri().to_string());
            assert_eq!(found.as_deref(), expected, "{server} {configured:?}");
        }
        let direct = Proxies::default().to(&Uri::from_static("https://a"));
        assert!(direct.unwrap().is_none());
    }

    #[test]
    fn exceptions_are_names_addresses_and_networks() {
        for (exceptions, server, is_direct) in [
            ("*", "https://a.example", true),
            ("b, *", "https://a.example", true),
            ("example", "https://a.example", true),
            ("example", "https://example", true),
            ("example", "https://anexample", false),
            ("Example.", "https://a.example", false),
            ("EXAMPLE", "https://A.example", true),
            (".example", "https://a.example", true),
            (".example", "https://example", false),
            ("*.example", "https://a.example", true),
            ("*.example", "https://example", false),
            ("example:6443", "https://a.example:6443", true),
            ("example:6443", "https://a.example", false),
            ("example:443", "https://a.example", true),
            (",,b,", "https://a.example", false),
            ("10.0.0.0/8", "https://10.1.2.3", true),
            ("10.0.0.0/8", "https://11.1.2.3", false),
            ("0.0.0.0/0", "https://11.1.2.3", true),
            ("10.0.0.0/99", "https://10.1.2.3", false),
            ("10.0.0.0/8", "https://a.example", false),
            ("10.1.2.3", "https://10.1.2.3", true),
            ("10.1.2.3:6443", "https://10.1.2.3:6443", true),
            ("10.1.2.3:6443", "https://10.1.2.3", false),
            ("fd00::/8", "https://[fd00::1]:6443", true),
            ("fd00::1", "https://[fd00::1]:6443", true),
            ("[fd00::1]:6443", "https://[fd00::1]:6443", true),
            ("::/0", "https://[fd00::1]", true),
            ("0.0.0.0/0", "https://[fd00::1]", false),
        ] {
            let is_found_direct = chosen(server, None, exceptions).is_none();
            assert_eq!(is_found_direct, is_direct, "{exceptions} {server}");
        }
    }

    #[test]
    fn wrong_address_is_refused_without_its_password() {
        let server = Uri::from_static("https://a");
        for wrong in [
            "ftp://me:secret@b",
            "socks4://me:secret@b",
            "http://me:secret@ b",
            "://",
        ] {
            let error = choose(&server, Some(wrong), &Environment::default()).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("write http://HOST:PORT") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
