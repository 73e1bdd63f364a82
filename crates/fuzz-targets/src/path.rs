//! Paths of requests: a path names the same resource with and without slashes at its ends.

// A file of the API server is included: the whole crate would bring the database and the network.
#[path = "../../embedded-api/src/request/path.rs"]
mod resource;

use resource::ResourcePath;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let found = ResourcePath::parse(&text);
    assert_eq!(found, ResourcePath::parse(&format!("/{text}/")));
    if let Some(found) = found {
        found.without_watch();
    }
}
