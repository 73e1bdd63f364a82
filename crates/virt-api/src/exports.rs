//! The proxy in front of export servers, for clients that reach no pod.
//!
//! The token is checked by the export server; this only finds it.
//!
//! **Invariants**: nothing is looked up for a request without a token; bytes come only from the pod that belongs to
//! the export, whose certificate has the authority in the export's status; what a pod answers cannot act as a page of
//! this server.

use std::{fmt, net::IpAddr, net::SocketAddr, sync::Arc, time::Duration};

use apimachinery::names;
use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
    routing::get,
};
use error_chain::error_chain;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _};
use kubevirt_api::export::{VirtualMachineExport, VirtualMachineExportPhase};
use serving::{HttpsClient, Target, Trust, hold};
use tokio::{sync::Semaphore, time};
use tokio_util::task::TaskTracker;

use crate::refusal::Refusal;

const TOKEN: &str = "x-kubevirt-export-token";
/// The versions of the API have the same paths.
const PATHS: [&str; 2] = [
    "/api/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports/{name}/{*file}",
    "/api/export.kubevirt.io/v1beta1/namespaces/{namespace}/virtualmachineexports/{name}/{*file}",
];
/// The port of export servers.
const PORT: u16 = 8443;
/// Downloads of all exports at the same time.
const DOWNLOADS: usize = 32;
/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may send nothing.
const SILENCE: Duration = Duration::from_mins(2);
/// What a client asks, besides the path.
static ASKED: [HeaderName; 4] = [
    HeaderName::from_static(TOKEN),
    header::RANGE,
    header::IF_RANGE,
    header::ACCEPT,
];
/// What a server says about a file.
static ANSWERED: [HeaderName; 9] = [
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_DISPOSITION,
    header::ACCEPT_RANGES,
    header::ETAG,
    header::LOCATION,
    header::ALLOW,
    header::RETRY_AFTER,
];

/// Passes downloads of all exports on.
#[derive(Clone)]
pub struct ExportProxy {
    /// Reads exports and pods.
    client: Client,
    tasks: TaskTracker,
    downloads: Arc<Semaphore>,
}

impl fmt::Debug for ExportProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportProxy").finish_non_exhaustive()
    }
}

/// What the path of a request names.
#[derive(Debug, serde::Deserialize)]
struct Named {
    namespace: String,
    name: String,
}

impl Named {
    /// Whether these are names: they become a part of the paths of requests that have more rights than the client.
    fn is_valid(&self) -> bool {
        names::dns_label(&self.namespace).is_empty() && names::dns_subdomain(&self.name).is_empty()
    }
}

/// A server, and the authority of its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Server {
    target: Target,
    authority: String,
}

impl ExportProxy {
    /// `client` has the rights of virt-api; `tasks` owns the connections.
    pub fn new(client: Client, tasks: TaskTracker) -> Self {
        Self {
            client,
            tasks,
            downloads: Arc::new(Semaphore::new(DOWNLOADS)),
        }
    }

    pub fn router(self) -> Router {
        let mut router = Router::new();
        for path in PATHS {
            router = router.route(path, get(pass));
        }
        router
            .method_not_allowed_fallback(wrong_method)
            .with_state(self)
    }

    async fn server(&self, named: &Named) -> Result<Server, Refusal> {
        let missing = || Refusal::missing("there is no such export that can be downloaded");
        if !named.is_valid() {
            return Err(missing());
        }
        let exports: Api<VirtualMachineExport> =
            Api::namespaced(self.client.clone(), &named.namespace);
        let export = exports.get_opt(&named.name).await?.ok_or_else(missing)?;
        let status = export.status.as_ref().ok_or_else(missing)?;
        let service = status.service_name.as_deref().ok_or_else(missing)?;
        // The pod has the name of the service.
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &named.namespace);
        let pod = pods.get_opt(service).await?.ok_or_else(missing)?;
        server(&export, &pod).ok_or_else(missing)
    }

    async fn pass(&self, named: &Named, request: Request) -> Result<Response, Refusal> {
        if !has_token(&request) {
            let message = "the request has no token: send that of the export in the header \
                           x-kubevirt-export-token";
            return Err(Refusal::unauthorized(message));
        }
        let permit = Arc::clone(&self.downloads).try_acquire_owned();
        let permit = permit.map_err(|_| {
            Refusal::unavailable(format!(
                "{DOWNLOADS} downloads run already: try again later"
            ))
        })?;
        let path = file_path(request.uri().path(), request.uri().query())
            .ok_or_else(|| Refusal::missing("there is no such file"))?;
        let server = self.server(named).await?;
        let unreachable = |why: String| {
            Refusal::unavailable(format!("the export server cannot be reached: {why}"))
        };
        let client = HttpsClient::new(&Trust::from_pem(server.authority), None, self.tasks.clone());
        let client = client.map_err(|error| unreachable(error_chain(&error)))?;
        let client = client.ending_after_silence(SILENCE);
        let mut onward = http::Request::builder()
            .method(request.method().clone())
            .uri(path)
            .body(Body::empty())
            .map_err(|error| Refusal::internal(error.to_string()))?;
        copy(&ASKED, request.headers(), onward.headers_mut());
        let answer = time::timeout(PATIENCE, client.send(&server.target, onward)).await;
        let answer = answer
            .map_err(|_| unreachable(format!("no answer within {} s", PATIENCE.as_secs())))?;
        let answer = answer.map_err(|error| unreachable(error_chain(&error)))?;
        let (parts, body) = answer.into_parts();
        let mut response = Response::new(hold(Body::new(body), permit));
        *response.status_mut() = parts.status;
        copy(&ANSWERED, &parts.headers, response.headers_mut());
        confine(response.headers_mut());
        Ok(response)
    }
}

/// The server of an export that is ready, if the pod is its own and runs.
fn server(export: &VirtualMachineExport, pod: &Pod) -> Option<Server> {
    let status = export.status.as_ref()?;
    let links = status.links.as_ref()?;
    let authority = links.internal.as_ref()?.cert.clone();
    let uid = export.metadata.uid.as_deref()?;
    let mut owners = pod.owner_references().iter();
    let is_own = owners.any(|owner| owner.controller == Some(true) && owner.uid == uid);
    let is_ready = status.phase == Some(VirtualMachineExportPhase::Ready);
    let is_on_host = pod.spec.as_ref()?.host_network == Some(true);
    let ip: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let service = status.service_name.as_deref()?;
    let namespace = export.metadata.namespace.as_deref()?;
    (is_own && is_ready && !is_on_host).then(|| Server {
        target: Target::at(
            SocketAddr::new(ip, PORT),
            format!("{service}.{namespace}.svc"),
        ),
        authority,
    })
}

/// Whether there is any token: the server knows the right one.
fn has_token(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut parameters = query.split('&');
    request.headers().contains_key(TOKEN)
        || parameters.any(|one| one.split('=').next() == Some(TOKEN))
}

/// The path at the server, as it was written: after the name of the export.
fn file_path(path: &str, query: Option<&str>) -> Option<String> {
    let (_, rest) = path.split_once("/virtualmachineexports/")?;
    let (_, file) = rest.split_once('/')?;
    Some(match query {
        Some(query) => format!("/{file}?{query}"),
        None => format!("/{file}"),
    })
}

fn copy(names: &[HeaderName], from: &HeaderMap, to: &mut HeaderMap) {
    for name in names {
        if let Some(value) = from.get(name) {
            to.insert(name, value.clone());
        }
    }
}

/// The files of a tenant come from the address of the API server; a browser must not run them there.
fn confine(headers: &mut HeaderMap) {
    let fixed = HeaderValue::from_static;
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        fixed("sandbox; default-src 'none'"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(header::CACHE_CONTROL, fixed("no-store"));
}

async fn pass(
    State(proxy): State<ExportProxy>,
    Path(named): Path<Named>,
    request: Request,
) -> Response {
    let passed = Box::pin(proxy.pass(&named, request)).await;
    passed.unwrap_or_else(|refusal| plain(&refusal))
}

async fn wrong_method() -> Response {
    plain(&Refusal::wrong_method("an export can only be read"))
}

/// As plain text: clients print the body as it is.
fn plain(refusal: &Refusal) -> Response {
    let mut response = (refusal.code, format!("{}\n", refusal.message)).into_response();
    if refusal.code == StatusCode::SERVICE_UNAVAILABLE {
        let later = HeaderValue::from_static("5");
        response.headers_mut().insert(header::RETRY_AFTER, later);
    }
    response
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn path_is_passed_on_as_it_was_written() {
        let base = "/api/export.kubevirt.io/v1/namespaces/a/virtualmachineexports/b";
        let check = |rest: &str, query: Option<&str>, expected: Option<&str>| {
            let found = file_path(&format!("{base}{rest}"), query);
            assert_eq!(found.as_deref(), expected, "{rest}");
        };
        check("/volumes/c/disk.img", None, Some("/volumes/c/disk.img"));
        check("/volumes/c/dir/", Some("a=b"), Some("/volumes/c/dir/?a=b"));
        check("/volumes/c/dir/a%2Fb", None, Some("/volumes/c/dir/a%2Fb"));
        check("", None, None);
    }

    #[test]
    fn names_lead_to_no_other_object() {
        let check = |namespace: &str, name: &str, expected: bool| {
            let named = Named {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            assert_eq!(named.is_valid(), expected, "{namespace} {name}");
        };
        check("ns", "copy.of-disk", true);
        check("ns/secrets/a?b=", "copy", false);
        check("..", "copy", false);
        check("ns", "../pods/copy", false);
        check("ns", "copy/status", false);
        check("ns", "copy?watch=1", false);
        check("", "copy", false);
        check("ns", "", false);
    }

    #[test]
    fn server_is_the_own_pod_of_a_ready_export() {
        let export = json!({
            "metadata": {"name": "e", "namespace": "n", "uid": "u"},
            "status": {
                "phase": "Ready", "serviceName": "virt-export-e",
                "links": {"internal": {"cert": "PEM"}},
            },
        });
        let pod = json!({
            "metadata": {"ownerReferences": [{
                "apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
                "name": "e", "uid": "u", "controller": true,
            }]},
            "spec": {"containers": []},
            "status": {"podIP": "10.0.0.7"},
        });
        let find = |path: &str, value: serde_json::Value| {
            let (mut export, mut pod) = (export.clone(), pod.clone());
            for object in [&mut export, &mut pod] {
                if let Some(member) = object.pointer_mut(path) {
                    *member = value.clone();
                }
            }
            if path == "/spec/hostNetwork" {
                pod["spec"]["hostNetwork"] = value;
            }
            let export = serde_json::from_value(export).expect("an export");
            server(&export, &serde_json::from_value(pod).expect("a pod"))
        };
        let found = find("/nothing", json!(null)).expect("a server");
        assert_eq!(found.target.address, "10.0.0.7:8443");
        assert_eq!(found.target.server_name, "virt-export-e.n.svc");
        assert_eq!(found.authority, "PEM");
        for (path, value) in [
            ("/status/phase", json!("Pending")),
            ("/metadata/ownerReferences/0/uid", json!("other")),
            ("/metadata/ownerReferences/0/controller", json!(false)),
            ("/status/podIP", json!("")),
            ("/spec/hostNetwork", json!(true)),
            ("/status/links", json!(null)),
        ] {
            assert_eq!(find(path, value), None, "{path}");
        }
    }
}
