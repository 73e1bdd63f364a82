//! Who makes a request.
//!
//! Invariant: an [`Identity`] comes from the process itself or from a verified client certificate,
//! never from what a request says about itself.

use apimachinery::Status;
use http::Request;
use serving::Peer;

use crate::error::ApiError;

/// A user and the groups it is in. In-process callers put one on their requests as an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

const AUTHENTICATED: &str = "system:authenticated";

impl Identity {
    pub fn new(user: impl Into<String>, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(ToString::to_string).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            user: user.into(),
            groups,
        }
    }

    /// A component of this process, which may do everything.
    pub fn component(name: &str) -> Self {
        Self::new(name, &["system:masters"])
    }

    fn anonymous() -> Self {
        Self {
            user: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }
}

/// What anybody may read.
const OPEN_PATHS: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// Who makes this request, or 401.
pub(crate) fn authenticate<B>(request: &Request<B>) -> Result<Identity, ApiError> {
    if let Some(identity) = request.extensions().get::<Identity>() {
        return Ok(identity.clone());
    }
    let peer = request.extensions().get::<Peer>();
    let certificate = peer.and_then(|peer| peer.certificate.as_ref());
    if let Some(certificate) = certificate
        && let Some(user) = certificate
            .common_name
            .as_deref()
            .filter(|name| !name.is_empty())
    {
        let groups: Vec<&str> = certificate
            .organizations
            .iter()
            .map(String::as_str)
            .collect();
        return Ok(Identity::new(user, &groups));
    }
    let path = request.uri().path();
    let below = |open: &str| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if OPEN_PATHS.into_iter().any(below) {
        return Ok(Identity::anonymous());
    }
    Err(Status::unauthorized().into())
}
