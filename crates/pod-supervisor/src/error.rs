//! Why a supervisor cannot begin or go on.

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error("use pod directory {}", dir.display())]
    Directory {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("read {}: it is not what this version of the node writes", file.display())]
    Malformed {
        file: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("own pod directory {}: another supervisor does already", dir.display())]
    AlreadyOwned { dir: PathBuf },
    #[error("make the pod's namespaces: root rights (CAP_SYS_ADMIN) are needed")]
    Namespaces {
        #[source]
        source: io::Error,
    },
    #[error("set {name} to {value:?} in the pod's namespaces")]
    Sysctl {
        name: String,
        value: String,
        #[source]
        source: io::Error,
    },
    #[error("enter cgroup {path}: mount the cgroup file systems below /sys/fs/cgroup")]
    Cgroup {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("listen on the control socket")]
    Listen {
        #[source]
        source: io::Error,
    },
    #[error("wait for events")]
    Wait {
        #[source]
        source: io::Error,
    },
    #[error("keep the status: is the disk full?")]
    Status {
        #[source]
        source: io::Error,
    },
}

/// An error and all its sources, once, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        // Some layers repeat what they wrap.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text
}
