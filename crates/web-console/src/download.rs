//! Downloads of exports: a signed-in page asks for a ticket, and the browser saves the file that stands behind it.
//!
//! Invariants: export and token are read with the rights of the user; the address comes from the export's status
//! alone; the token is in no answer, and in no address except encrypted; a file is passed on as it arrives and never held; an
//! answer about a server that cannot be reached does not tell whether there is one.

use std::time::Duration;

use apimachinery::names::is_subdomain;
use axum::{
    body::{Body, to_bytes},
    extract::Request,
    response::Response,
};
use error_chain::error_chain;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use k8s_openapi::api::{authentication::v1::SelfSubjectReview, core::v1::Secret};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    described::Described,
    headers,
    relay::relayed,
    remote::{self, Failure, Tried},
    respond,
    server::Console,
    tickets::{NoTicket, OF_NAMESPACE, OF_USER, OFTEN, Place, Tickets},
};

/// Where the page asks for a ticket.
pub(crate) const TICKET: &str = "/console/ticket";
/// The path of a download, before its ticket.
pub(crate) const DOWNLOAD: &str = "/console/download/";
/// The longest request for a ticket, in bytes.
const REQUEST: usize = 8 << 10;
/// The key of the token in its Secret, and the header for it.
const TOKEN_KEY: &str = "token";
const TOKEN: HeaderName = HeaderName::from_static("x-kubevirt-export-token");
/// The longest answer of an export server that is no file, in bytes.
const ANSWER: usize = 4 << 10;
/// Between a ticket and what it stands for.
const SEPARATOR: char = '.';
/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// The formats that are one file, with the ends of its name.
const FORMATS: [(&str, &str); 3] = [("raw", "img"), ("gzip", "img.gz"), ("tar.gz", "tar.gz")];

/// The file behind a ticket.
pub(crate) struct Download {
    url: String,
    /// PEM; the authorities of the system if there is none.
    authority: Option<String>,
    token: HeaderValue,
    /// The name of the file.
    name: String,
}

/// What a page asks for: a link of an export.
#[derive(Deserialize)]
struct Wanted {
    namespace: String,
    export: String,
    url: String,
}

/// Why there is no ticket or no file.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl Refusal {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self(code, message.into())
    }

    fn response(self) -> Response {
        respond::error(self.0, &self.1)
    }
}

/// Gives the page a path from which its browser can save a file.
pub(crate) async fn issue(
    client: &Client,
    issuer: (&Tickets<Download>, &Console),
    request: Request,
) -> Response {
    match try_issue(client, issuer, request).await {
        Ok(path) => respond::json(StatusCode::OK, &json!({"path": path})),
        Err(refusal) => refusal.response(),
    }
}

async fn try_issue(
    client: &Client,
    (tickets, console): (&Tickets<Download>, &Console),
    request: Request,
) -> Result<String, Refusal> {
    if *request.method() != Method::POST {
        let message = "a ticket is asked for by POST";
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let body = to_bytes(request.into_body(), REQUEST).await.ok();
    let wanted: Option<Wanted> = body.and_then(|body| serde_json::from_slice(&body).ok());
    let wanted = wanted.filter(|one| is_subdomain(&one.namespace) && is_subdomain(&one.export));
    let Some(wanted) = wanted else {
        let message = "the body must be {\"namespace\": \"…\", \"export\": \"…\", \"url\": \"…\"}";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    };
    let download = download(client, &wanted).await?;
    let (authority, probe) = (download.authority.clone(), download.request()?);
    let user = user(client).await?;
    let described = download.described(&user, &wanted.namespace);
    let issued = tickets.issue(&user, &wanted.namespace, download);
    let ticket = issued.map_err(|why| no_ticket(&why, &wanted.namespace))?;
    // The browser shows nothing of the error that a download has, so the page gets to know it now. Only an answer to
    // GET has the server's reason.
    if let Err(refusal) = ask(authority.as_deref(), probe).await {
        tickets.withdraw(&ticket);
        return Err(refusal);
    }
    let sealed = console.tickets.as_ref().zip(described);
    let sealed = sealed.and_then(|(key, described)| described.seal(key, &ticket, (console.now)()));
    Ok(match sealed {
        Some(sealed) => format!("{DOWNLOAD}{ticket}{SEPARATOR}{sealed}"),
        None => format!("{DOWNLOAD}{ticket}"),
    })
}

fn no_ticket(why: &NoTicket, namespace: &str) -> Refusal {
    match why {
        NoTicket::User => Refusal::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "you have {OF_USER} downloads already: wait until one is done, or a minute if you have \
                 not started them"
            ),
        ),
        NoTicket::Often => Refusal::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("you have started {OFTEN} downloads within two minutes: wait a minute"),
        ),
        NoTicket::Namespace => Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "{OF_NAMESPACE} files of exports in namespace {namespace} are downloaded already; try again later"
            ),
        ),
        NoTicket::All => Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many downloads at once; try again later",
        ),
        NoTicket::Randomness => Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "read random numbers from the operating system",
        ),
    }
}

/// The download of a ticket that a replica has issued, and its place here; `None` if it does not work.
fn of_replica(
    tickets: &Tickets<Download>,
    console: &Console,
    (ticket, sealed): (&str, &str),
) -> Result<Option<(Download, Place)>, Refusal> {
    let key = console.tickets.as_ref();
    let described = key.and_then(|key| Described::open(key, (ticket, sealed), (console.now)()));
    let Some(described) = described else {
        return Ok(None);
    };
    let place = tickets.admit(ticket, &described.user, &described.namespace);
    let place = place.map_err(|why| no_ticket(&why, &described.namespace))?;
    Ok(Download::of(described).zip(place))
}

impl Download {
    /// `None` if the token is no text.
    fn described(&self, user: &str, namespace: &str) -> Option<Described> {
        Some(Described {
            user: user.to_owned(),
            namespace: namespace.to_owned(),
            url: self.url.clone(),
            authority: self.authority.clone(),
            token: self.token.to_str().ok()?.to_owned(),
            name: self.name.clone(),
        })
    }

    fn of(described: Described) -> Option<Self> {
        let mut token = HeaderValue::try_from(described.token).ok()?;
        token.set_sensitive(true);
        Some(Self {
            url: described.url,
            authority: described.authority,
            token,
            name: described.name,
        })
    }

    fn request(&self) -> Result<http::Request<Body>, Refusal> {
        let request = http::Request::builder()
            .method(Method::GET)
            .uri(&self.url)
            .header(TOKEN, self.token.clone());
        request
            .body(Body::empty())
            .map_err(|error| bad_gateway(format!("the link of the export is wrong: {error}")))
    }
}

/// The answer of the export server, if it has the file.
async fn ask(
    authority: Option<&str>,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Refusal> {
    let sent = remote::exchange(authority, request);
    let answer = tokio::time::timeout(PATIENCE, sent).await.map_err(|_| {
        let seconds = PATIENCE.as_secs();
        bad_gateway(format!(
            "the export server does not answer within {seconds} s"
        ))
    })?;
    let answer = answer.map_err(|failure| bad_gateway(unreached(&failure)))?;
    let (parts, body) = answer.into_parts();
    if parts.status != StatusCode::OK {
        let text = tokio::time::timeout(PATIENCE, to_bytes(body, ANSWER)).await;
        // The code alone decides; a cut message is no further failure.
        let text = text.ok().and_then(Result::ok).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let message = format!("the export server answers {}: {text}", parts.status);
        return Err(bad_gateway(message.trim_end_matches(": ")));
    }
    Ok(http::Response::from_parts(parts, body))
}

/// One text for each server that cannot be reached: a Service can point anywhere.
fn unreached(Failure { tried, why }: &Failure) -> String {
    match tried {
        Tried::Reach => "the export server cannot be reached, or has a certificate that the export does not name: look \
                    at the export's pod and Service, or try again"
            .to_owned(),
        Tried::Trust => format!("{tried} the export server: {why}"),
    }
}

fn bad_gateway(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, message)
}

/// The name of the user, as the API server knows it.
async fn user(client: &Client) -> Result<String, Refusal> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| unreadable("ask for your name", error))?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_default())
}

/// Finds the link in the export, and the token for it.
async fn download(client: &Client, wanted: &Wanted) -> Result<Download, Refusal> {
    let Wanted {
        namespace, export, ..
    } = wanted;
    let kind = GroupVersionKind::gvk("export.kubevirt.io", "v1", "VirtualMachineExport");
    let resource = ApiResource::from_gvk(&kind);
    let exports: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = exports.get(export).await;
    let found = found.map_err(|error| unreadable("read the export", error))?;
    let status = &found.data["status"];
    let link = link(status, &wanted.url).ok_or_else(|| {
        let message =
            "the export has no such link to a file, or no longer: look at its links again";
        Refusal::new(StatusCode::NOT_FOUND, message)
    })?;
    let secret = status["tokenSecretRef"].as_str().unwrap_or_default();
    if !is_subdomain(secret) {
        let message = "the export has no token yet: wait until it is ready";
        return Err(Refusal::new(StatusCode::CONFLICT, message));
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let token = secrets.get(secret).await;
    let token = token.map_err(|error| unreadable("read the token of the export", error))?;
    let token = token.data.and_then(|mut data| data.remove(TOKEN_KEY));
    let token = token.and_then(|token| HeaderValue::from_bytes(&token.0).ok());
    let mut token = token.ok_or_else(|| {
        let message =
            format!("Secret {secret} has no token of an export under the key {TOKEN_KEY}");
        Refusal::new(StatusCode::CONFLICT, message)
    })?;
    token.set_sensitive(true);
    Ok(Download {
        url: wanted.url.clone(),
        authority: link.authority,
        token,
        name: format!("{export}-{}.{}", file_name(&link.volume), link.end),
    })
}

/// A link of an export.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    volume: String,
    authority: Option<String>,
    /// Of the name of the file.
    end: &'static str,
}

/// The link with that address, if it is one to a file.
fn link(status: &Value, url: &str) -> Option<Link> {
    if !url.starts_with("https://") {
        return None;
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for place in ["external", "internal"] {
        let place = &status["links"][place];
        for volume in list(&place["volumes"]) {
            let formats = list(&volume["formats"]);
            let Some(format) = formats.iter().find(|one| one["url"] == url) else {
                continue;
            };
            let mut known = FORMATS.into_iter();
            let (_, end) = known.find(|(name, _)| format["format"] == *name)?;
            let authority = place["cert"].as_str().filter(|pem| !pem.is_empty());
            return Some(Link {
                volume: volume["name"].as_str().unwrap_or_default().to_owned(),
                authority: authority.map(str::to_owned),
                end,
            });
        }
    }
    None
}

/// The part of a file's name: nothing that a browser or a file system could read as more than a name.
fn file_name(text: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || one == '-' || one == '_';
    let plain = text.chars().take(63);
    plain
        .map(|one| if is_plain(one) { one } else { '-' })
        .collect()
}

fn unreadable(tried: &str, error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            Refusal(code, format!("{tried}: {}", status.message))
        }
        error => {
            let message = format!("{tried}: {}", error_chain(&error));
            Refusal(StatusCode::BAD_GATEWAY, message)
        }
    }
}

/// Answers with the file of a ticket.
pub(crate) async fn serve(
    tickets: &Tickets<Download>,
    console: &Console,
    method: &Method,
    ticket: &str,
) -> Response {
    match try_serve(tickets, console, method, ticket).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(),
    }
}

async fn try_serve(
    tickets: &Tickets<Download>,
    console: &Console,
    method: &Method,
    ticket: &str,
) -> Result<Response, Refusal> {
    if *method != Method::GET {
        let message = "a file is saved by GET";
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let (ticket, sealed) = ticket.split_once(SEPARATOR).unwrap_or((ticket, ""));
    let taken = match tickets.take(ticket) {
        Some(taken) => Some(taken),
        None => of_replica(tickets, console, (ticket, sealed))?,
    };
    let Some((download, place)) = taken else {
        let message = "this link was used already, or is older than a minute: press Download again";
        return Err(Refusal::new(StatusCode::NOT_FOUND, message));
    };
    let request = download.request()?;
    let answer = ask(download.authority.as_deref(), request).await?;
    let (parts, body) = answer.into_parts();
    let body = relayed(&console.tasks, console.stop.clone(), place, body);
    let mut response = Response::new(body);
    let out = response.headers_mut();
    headers::for_data(out);
    if let Some(length) = parts.headers.get(header::CONTENT_LENGTH) {
        out.insert(header::CONTENT_LENGTH, length.clone());
    }
    let kind = HeaderValue::from_static("application/octet-stream");
    out.insert(header::CONTENT_TYPE, kind);
    let disposition = format!("attachment; filename=\"{}\"", download.name);
    let disposition = HeaderValue::try_from(disposition)
        .map_err(|error| bad_gateway(format!("the name of the file is wrong: {error}")))?;
    out.insert(header::CONTENT_DISPOSITION, disposition);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        let format = |format: &str, url: &str| json!({"format": format, "url": url});
        json!({"links": {
            "external": {"cert": "PEM", "volumes": [{"name": "root", "formats": [
                format("raw", "https://a/disk.img"), format("gzip", "https://a/disk.img.gz"),
                format("dir", "https://a/dir/"),
            ]}]},
            "internal": {"cert": "", "volumes": [{"name": "root", "formats": [
                format("tar.gz", "https://b/disk.tar.gz"), format("raw", "http://b/plain"),
            ]}]},
        }})
    }

    #[test]
    fn only_links_of_the_export_to_files_are_downloaded() {
        let found = |url: &str| {
            let found = link(&status(), url)?;
            Some((found.end, found.authority))
        };
        let own = Some("PEM".to_owned());
        assert_eq!(found("https://a/disk.img"), Some(("img", own.clone())));
        assert_eq!(found("https://a/disk.img.gz"), Some(("img.gz", own)));
        assert_eq!(found("https://b/disk.tar.gz"), Some(("tar.gz", None)));
        for other in [
            "https://a/dir/",
            "http://b/plain",
            "https://a/disk.img?x=y",
            "https://attacker.example/",
            "",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(link(&Value::Null, "https://a/disk.img"), None);
    }

    #[test]
    fn name_of_a_file_is_plain() {
        for (text, expected) in [
            ("root", "root"),
            ("a\"; b=/../c", "a---b-----c"),
            ("é", "-"),
        ] {
            let found = file_name(text);
            assert_eq!(found, expected, "{text}");
        }
        assert_eq!(file_name(&"x".repeat(100)).len(), 63);
    }
}
