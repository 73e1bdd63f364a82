//! Manifests, indexes and configurations of images, and the users that images name in their own
//! `/etc/passwd`, which is the second half of the input.

// A file of the store is included: the whole crate would bring the registry client with TLS.
#[path = "../../image-store/src/manifest.rs"]
mod document;

use document::{ConfigDocument, Document};

pub fn run(bytes: &[u8]) {
    if let Ok(document) = serde_json::from_slice::<Document>(bytes) {
        match document {
            Document::Index(index) => {
                drop(index.for_this_host().cloned());
                serde_json::to_vec(&index).expect("what was read can be written");
            }
            Document::Manifest(manifest) => {
                serde_json::to_vec(&manifest).expect("what was read can be written");
            }
        }
    }
    let at = bytes.iter().position(|byte| *byte == 0);
    let (config, passwd) = bytes.split_at(at.unwrap_or(bytes.len()));
    let passwd = String::from_utf8_lossy(passwd);
    if let Ok(document) = serde_json::from_slice::<ConfigDocument>(config)
        && let Some(config) = document.config
    {
        config.resolve_user(&passwd, &passwd);
    }
}
