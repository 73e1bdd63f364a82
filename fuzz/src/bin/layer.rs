//! Image layers, two on top of each other: with any content, no file appears outside the tree and the
//! limits hold. The first two bytes are the offset of the second layer.
#![no_main]
#![allow(dead_code, reason = "the store has other uses for its parts")]

use std::{fs, os::unix::fs::symlink, path::PathBuf, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

// Files of the store are included: the whole crate would bring the registry client with TLS.
#[path = "../../../crates/image-store/src/digest.rs"]
mod digest;
#[path = "../../../crates/image-store/src/error/unpack.rs"]
mod error;
#[path = "../../../crates/image-store/src/tree.rs"]
mod tree;
#[path = "../../../crates/image-store/src/unpack.rs"]
mod unpack;
#[path = "../../../crates/image-store/src/verified.rs"]
mod verified;

const LIMITS: unpack::Limits = unpack::Limits {
    bytes: 1 << 20,
    entries: 200,
};

/// In memory (`/dev/shm`) where available.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let base = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    base.join(format!("fuzz-layer-{}", std::process::id()))
});

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let at = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (lower, upper) = rest.split_at(at);
    fs::create_dir_all(&*PLACE).expect("a place");
    let root = PLACE.join("tree");
    let tree = tree::Tree::create(&root).expect("a tree");
    // A link out of the tree, as an earlier layer may have created it.
    symlink("../..", root.join("out")).expect("a link");
    let mut unpacker = unpack::Unpacker::new(&tree, LIMITS);
    for layer in [lower, upper] {
        let applied = unpacker.apply(unpack::LayerBlob {
            media_type: "application/vnd.oci.image.layer.v1.tar".to_owned(),
            digest: digest::Digest::of(layer),
            size: layer.len() as u64,
            reader: layer,
        });
        if applied.is_err() {
            break;
        }
    }
    let beside = fs::read_dir(&*PLACE).expect("readable").count();
    assert_eq!(beside, 1, "something appeared beside the tree");
    fs::remove_dir_all(&*PLACE).expect("removed");
});
