//! The requests that are passed to the API server: those that the page makes, and no others.
//!
//! Proxies to pods and services are never passed on: a page from a guest would share our origin.

use apimachinery::names::is_subdomain;
use http::Method;

/// How a request with this method and path is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Request,
    /// A websocket only.
    Stream,
}

const READ: &[Method] = &[Method::GET];
const CREATE: &[Method] = &[Method::POST];
const READ_OR_CREATE: &[Method] = &[Method::GET, Method::POST];
const READ_OR_CHANGE: &[Method] = &[Method::GET, Method::PUT];
const READ_OR_DELETE: &[Method] = &[Method::GET, Method::DELETE];
const ANY_OF_ONE: &[Method] = &[Method::GET, Method::PUT, Method::DELETE];
const CALL: &[Method] = &[Method::PUT];

/// Methods and paths; `*` is one name.
const REQUESTS: &[(&[Method], &str)] = &[
    (READ, "/api/v1/namespaces"),
    (READ, "/api/v1/namespaces/*/events"),
    (READ, "/api/v1/namespaces/*/persistentvolumeclaims"),
    (
        CREATE,
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ),
    (CREATE, "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    (READ, "/apis/storage.k8s.io/v1/storageclasses"),
    (
        READ,
        "/apis/instancetype.kubevirt.io/v1beta1/namespaces/*/virtualmachineinstancetypes",
    ),
    (
        READ,
        "/apis/instancetype.kubevirt.io/v1beta1/namespaces/*/virtualmachinepreferences",
    ),
    (
        READ,
        "/apis/k8s.cni.cncf.io/v1/namespaces/*/network-attachment-definitions",
    ),
    (
        READ_OR_CHANGE,
        "/apis/k8s.cni.cncf.io/v1/namespaces/*/network-attachment-definitions/*",
    ),
    (
        READ_OR_CREATE,
        "/apis/cdi.kubevirt.io/v1beta1/namespaces/*/datavolumes",
    ),
    (
        ANY_OF_ONE,
        "/apis/cdi.kubevirt.io/v1beta1/namespaces/*/datavolumes/*",
    ),
    (
        CREATE,
        "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/*/uploadtokenrequests",
    ),
    (
        READ_OR_CREATE,
        "/apis/export.kubevirt.io/v1/namespaces/*/virtualmachineexports",
    ),
    (
        ANY_OF_ONE,
        "/apis/export.kubevirt.io/v1/namespaces/*/virtualmachineexports/*",
    ),
    (
        READ_OR_CREATE,
        "/apis/kubevirt.io/v1/namespaces/*/virtualmachineinstancemigrations",
    ),
    (
        ANY_OF_ONE,
        "/apis/kubevirt.io/v1/namespaces/*/virtualmachineinstancemigrations/*",
    ),
    (
        READ,
        "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes",
    ),
    (
        READ,
        "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterpreferences",
    ),
    (READ, "/apis/kubevirt.io/v1/virtualmachines"),
    (READ, "/apis/kubevirt.io/v1/virtualmachineinstances"),
    (
        READ_OR_CREATE,
        "/apis/kubevirt.io/v1/namespaces/*/virtualmachines",
    ),
    (
        ANY_OF_ONE,
        "/apis/kubevirt.io/v1/namespaces/*/virtualmachines/*",
    ),
    (
        READ,
        "/apis/kubevirt.io/v1/namespaces/*/virtualmachineinstances",
    ),
    (
        READ_OR_DELETE,
        "/apis/kubevirt.io/v1/namespaces/*/virtualmachineinstances/*",
    ),
    (
        READ_OR_CREATE,
        "/apis/snapshot.kubevirt.io/v1beta1/namespaces/*/virtualmachinesnapshots",
    ),
    (
        ANY_OF_ONE,
        "/apis/snapshot.kubevirt.io/v1beta1/namespaces/*/virtualmachinesnapshots/*",
    ),
    (
        READ_OR_CREATE,
        "/apis/snapshot.kubevirt.io/v1beta1/namespaces/*/virtualmachinerestores",
    ),
    (
        ANY_OF_ONE,
        "/apis/snapshot.kubevirt.io/v1beta1/namespaces/*/virtualmachinerestores/*",
    ),
    (
        READ_OR_CREATE,
        "/apis/clone.kubevirt.io/v1beta1/namespaces/*/virtualmachineclones",
    ),
    (
        ANY_OF_ONE,
        "/apis/clone.kubevirt.io/v1beta1/namespaces/*/virtualmachineclones/*",
    ),
];

const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/*/";

/// Methods and paths below [`SUBRESOURCES`].
const VERBS: &[(&[Method], &str, Pass)] = &[
    (CALL, "virtualmachines/*/start", Pass::Request),
    (CALL, "virtualmachines/*/stop", Pass::Request),
    (CALL, "virtualmachines/*/restart", Pass::Request),
    (CALL, "virtualmachines/*/suspend", Pass::Request),
    (CALL, "virtualmachines/*/resume", Pass::Request),
    (CALL, "virtualmachines/*/migrate", Pass::Request),
    (CALL, "virtualmachines/*/addvolume", Pass::Request),
    (CALL, "virtualmachines/*/removevolume", Pass::Request),
    (CALL, "virtualmachines/*/memorydump", Pass::Request),
    (CALL, "virtualmachines/*/removememorydump", Pass::Request),
    (CALL, "virtualmachineinstances/*/pause", Pass::Request),
    (CALL, "virtualmachineinstances/*/unpause", Pass::Request),
    (CALL, "virtualmachineinstances/*/softreboot", Pass::Request),
    (CALL, "virtualmachineinstances/*/reset", Pass::Request),
    (CALL, "virtualmachineinstances/*/addvolume", Pass::Request),
    (
        CALL,
        "virtualmachineinstances/*/removevolume",
        Pass::Request,
    ),
    (READ, "virtualmachineinstances/*/usage", Pass::Request),
    (READ, "virtualmachineinstances/*/console", Pass::Stream),
    (READ, "virtualmachineinstances/*/vnc", Pass::Stream),
];

/// How this request is passed on; `None` if it is not.
pub(crate) fn pass(method: &Method, path: &str) -> Option<Pass> {
    let requests = REQUESTS
        .iter()
        .map(|(methods, pattern)| (*methods, (*pattern).to_owned(), Pass::Request));
    let verbs = VERBS
        .iter()
        .map(|(methods, verb, pass)| (*methods, format!("{SUBRESOURCES}{verb}"), *pass));
    let mut all = requests.chain(verbs);
    all.find(|(methods, pattern, _)| methods.contains(method) && matches(pattern, path))
        .map(|(.., pass)| pass)
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some("*"), Some(name)) if is_subdomain(name) => {}
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VMS: &str = "/apis/kubevirt.io/v1/namespaces/n/virtualmachines";
    const SUB: &str = "/apis/subresources.kubevirt.io/v1/namespaces/n";

    #[test]
    fn requests_of_the_page_are_passed() {
        let cases = [
            (Method::GET, "/api/v1/namespaces".to_owned(), Pass::Request),
            (
                Method::GET,
                "/api/v1/namespaces/a-b/events".to_owned(),
                Pass::Request,
            ),
            (Method::POST, VMS.to_owned(), Pass::Request),
            (Method::DELETE, format!("{VMS}/vm.1"), Pass::Request),
            (Method::PUT, format!("{VMS}/vm.1"), Pass::Request),
            (
                Method::PUT,
                "/apis/k8s.cni.cncf.io/v1/namespaces/n/network-attachment-definitions/blue"
                    .to_owned(),
                Pass::Request,
            ),
            (
                Method::POST,
                "/apis/snapshot.kubevirt.io/v1beta1/namespaces/n/virtualmachinesnapshots"
                    .to_owned(),
                Pass::Request,
            ),
            (
                Method::GET,
                format!("{SUB}/virtualmachineinstances/a/usage"),
                Pass::Request,
            ),
            (
                Method::PUT,
                format!("{SUB}/virtualmachines/a/start"),
                Pass::Request,
            ),
            (
                Method::GET,
                format!("{SUB}/virtualmachineinstances/a/vnc"),
                Pass::Stream,
            ),
        ];
        for (method, path, expected) in cases {
            assert_eq!(pass(&method, &path), Some(expected), "{method} {path}");
        }
    }

    #[test]
    fn other_requests_are_not_passed() {
        let pods = "/api/v1/namespaces/n/pods";
        let cases = [
            (Method::GET, "/api/v1/namespaces/n/secrets".to_owned()),
            (Method::GET, "/api/v1/namespaces/".to_owned()),
            (Method::GET, format!("{pods}/p/proxy/")),
            (Method::GET, format!("{pods}/p/exec")),
            (
                Method::GET,
                "/api/v1/namespaces/n/services/s/proxy/".to_owned(),
            ),
            (Method::POST, "/api/v1/namespaces".to_owned()),
            (
                Method::POST,
                "/api/v1/namespaces/n/serviceaccounts/a/token".to_owned(),
            ),
            (Method::DELETE, VMS.to_owned()),
            (Method::PATCH, format!("{VMS}/a")),
            (Method::PUT, format!("{VMS}/a/status")),
            (
                Method::PUT,
                "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances/a".to_owned(),
            ),
            (
                Method::DELETE,
                "/apis/k8s.cni.cncf.io/v1/namespaces/n/network-attachment-definitions/blue"
                    .to_owned(),
            ),
            (Method::GET, format!("{VMS}/..")),
            (Method::GET, format!("{VMS}/%2e%2e")),
            (Method::GET, format!("{VMS}/a/../../../secrets")),
            (Method::GET, format!("{VMS}//")),
            (Method::GET, format!("{SUB}/virtualmachines/a/start")),
            (
                Method::GET,
                format!("{SUB}/virtualmachineinstances/a/portforward/22"),
            ),
            (Method::GET, "/metrics".to_owned()),
            (Method::GET, "/".to_owned()),
        ];
        for (method, path) in cases {
            assert_eq!(pass(&method, &path), None, "{method} {path}");
        }
    }
}
