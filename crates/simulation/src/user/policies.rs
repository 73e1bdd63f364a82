//! Administrators who change how guests migrate.

use serde_json::json;

use super::{USER, User};
use crate::cluster::{Author, Deletion, Id, Kind};

const POLICY: &str = "all";

impl User {
    /// Makes, changes or deletes the policy for all guests.
    pub(super) fn change_policy(&mut self) -> String {
        let Some(kind) = Kind::named("MigrationPolicy") else {
            return "there are no policies".to_owned();
        };
        let id = Id::new(kind, "", POLICY);
        let allows = self.random.chance(700);
        if self.cluster.get(&id).is_none() {
            let policy = json!({
                "metadata": {"name": POLICY},
                "spec": {"selectors": {}, "allowPostCopy": allows},
            });
            let made = self.cluster.create(kind, "", policy, Author::main(USER));
            return format!("policy with post-copy {allows}: {}", made.is_ok());
        }
        if self.random.chance(200) {
            let is_done = self.cluster.delete(&id, &Deletion::default()).is_ok();
            return format!("delete policy: {is_done}");
        }
        let body = json!({"spec": {"allowPostCopy": allows}});
        let is_done = self.patch(&id, body, Author::main(USER));
        format!("policy gets post-copy {allows}: {is_done}")
    }
}
