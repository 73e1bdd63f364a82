//! Image layers, two on top of each other: with any content, no file appears outside the tree and the
//! limits hold. The first two bytes are the offset of the second layer.

use std::{fs, os::unix::fs::symlink, path::PathBuf, sync::LazyLock};

// Files of the store are included: the whole crate would bring the registry client with TLS.
#[path = "../../image-store/src/unpack.rs"]
mod unpack;

use crate::{digest, tree};

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

pub fn run(bytes: &[u8]) {
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
}
