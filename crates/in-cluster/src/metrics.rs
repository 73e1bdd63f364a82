//! The metrics of each component.

use metrics::{PROCESS, Table};

pub(crate) fn api() -> Vec<&'static Table> {
    vec![&PROCESS, &reconcile::METRICS, &virt_api::METRICS]
}

pub(crate) fn controller() -> Vec<&'static Table> {
    vec![&PROCESS, &reconcile::METRICS, &virt_controller::METRICS]
}

pub(crate) fn handler() -> Vec<&'static Table> {
    vec![&PROCESS, &reconcile::METRICS, &virt_handler::METRICS]
}
