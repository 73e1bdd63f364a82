//! Errors that end a supervisor or keep it from starting.

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error("use pod directory {}", dir.display())]
    Directory {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("read {}: its format does not match this version of the node", file.display())]
    Malformed {
        file: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("lock pod directory {}: another supervisor owns it", dir.display())]
    AlreadyOwned { dir: PathBuf },
    #[error("create the pod's namespaces: this needs root privileges (CAP_SYS_ADMIN)")]
    Namespaces {
        #[source]
        source: io::Error,
    },
    #[error(
        "create the namespaces of a pod with `hostUsers: false`: are user namespaces allowed \
         (`sysctl user.max_user_namespaces`)?"
    )]
    Users {
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
    #[error("enter cgroup {path}: are the cgroup file systems mounted below /sys/fs/cgroup?")]
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
    #[error("write the status: is the disk full?")]
    Status {
        #[source]
        source: io::Error,
    },
}
