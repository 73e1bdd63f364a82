//! Services, their endpoints and endpoint slices.

mod defaults;
mod endpoints;
mod slices;
mod validate;

use super::{DeletionResponse, InitialStatus, Strategy};
use apimachinery::names;

pub(crate) use self::{endpoints::ENDPOINTS, slices::ENDPOINT_SLICE};

/// Addresses and ports are assigned by `services`, as they depend on other services.
pub(crate) const SERVICE: Strategy = Strategy {
    check_name: names::dns_1035,
    default: defaults::service,
    validate: validate::service,
    initial_status: InitialStatus::Dropped,
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};
