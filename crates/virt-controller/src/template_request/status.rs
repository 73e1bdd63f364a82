//! The status of a request.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::template::VirtualMachineTemplateRequestStatus as Status;
use reasons::Reason;

use super::observe::{Observed, PROGRESSING, READY};
use super::plan::{Progress, is_own};
use super::render::template_name;
use crate::operation::set_conditions;

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let mut status = observed.request.status.clone().unwrap_or_default();
    let template = observed.template.as_ref();
    if template.is_some_and(|template| is_own(observed, template)) {
        status.template_ref = Some(LocalObjectReference {
            name: template_name(&observed.request),
        });
    }
    let (is_ready, is_progressing, (reason, message)) = match progress {
        Progress::Ended => return status,
        Progress::Pending(cause) | Progress::Working(Some(cause)) => (false, true, cause.clone()),
        Progress::Working(None) => (false, true, (Reason::TemplateInProgress, String::new())),
        Progress::Succeeded => (true, false, (Reason::TemplateReady, String::new())),
        Progress::Failed(cause) => (false, false, cause.clone()),
    };
    let values = [
        (READY.to_owned(), is_ready),
        (PROGRESSING.to_owned(), is_progressing),
    ];
    let now = Time(observed.now);
    set_conditions(&mut status.conditions, values, (reason, &message), &now);
    status
}
