//! `guestfs`: the image with the tools of libguestfs that `virtctl guestfs` starts beside a claim.
//!
//! Nothing in it depends on the cluster, so it is the image that `KubeVirt` publishes with the version that we
//! are compatible with. `virtctl guestfs --image` names another one.

use axum::{Json, routing::get};
use kubevirt_api::COMPATIBLE_VERSION;
use serde_json::{Value, json};

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};

/// Where `KubeVirt` publishes its images.
const REGISTRY: &str = "quay.io/kubevirt";

pub(super) const ENTRY: Entry = Entry {
    object: Object::Cluster,
    name: "guestfs",
    verb: Verb::Get,
    level: Level::Everyone,
    contract: Contract::new(Answer::Json, &[500]),
    handler: Handler::Built(|| get(|| async { Json(image()) })),
};

/// `virtctl` puts the name together; `gsImage` would be a whole name.
fn image() -> Value {
    json!({
        "registry": REGISTRY,
        "tag": COMPATIBLE_VERSION,
        "imagePrefix": "",
        "gsImage": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name as the original `virtctl` makes it.
    #[test]
    fn client_can_name_the_image() {
        let image = image();
        let part = |key: &str| image[key].as_str().expect("is text").to_owned();
        let name = format!(
            "{}/{}libguestfs-tools:{}",
            part("registry"),
            part("imagePrefix"),
            part("tag")
        );
        assert_eq!(
            name,
            format!("quay.io/kubevirt/libguestfs-tools:{COMPATIBLE_VERSION}")
        );
        assert_eq!(part("gsImage"), "");
    }
}
