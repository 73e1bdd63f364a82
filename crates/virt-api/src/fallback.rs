//! Answers to requests that no route takes.

use axum::extract::Request;

use crate::refusal::Refusal;

pub(crate) async fn not_found(request: Request) -> Refusal {
    let path = request.uri().path();
    Refusal::missing(format!(
        "this server does not serve {path:?}: /apis/subresources.kubevirt.io/v1 lists the \
         subresources of VMs, /apis/subresources.template.kubevirt.io/v1beta1 those of templates"
    ))
}

pub(crate) async fn wrong_method(request: Request) -> Refusal {
    let (method, path) = (request.method(), request.uri().path());
    Refusal::wrong_method(format!(
        "{path:?} does not take {method}: verbs of templates take POST, others that change \
         something PUT, the rest GET"
    ))
}
