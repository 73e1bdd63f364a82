//! Security headers.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The page runs our own modules only. Trusted types without a policy make it impossible to turn text into
/// markup, whatever a guest or an object contains.
const PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// A response of the API server is data: opened as a page, it can do nothing.
const DATA: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

const ALWAYS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Sets the headers of a file of the page. The files may change with the next version.
pub(crate) fn for_page(headers: &mut HeaderMap) {
    set(headers, PAGE, "no-cache");
}

/// Sets the headers of any other response.
pub(crate) fn for_data(headers: &mut HeaderMap) {
    set(headers, DATA, "no-store");
}

fn set(headers: &mut HeaderMap, policy: &'static str, caching: &'static str) {
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(policy),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
}
