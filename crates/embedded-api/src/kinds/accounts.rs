//! Service accounts.

use super::{DeletionResponse, Strategy};

pub(crate) const SERVICE_ACCOUNT: Strategy = Strategy {
    deletion: DeletionResponse::Object,
    ..Strategy::PLAIN
};
