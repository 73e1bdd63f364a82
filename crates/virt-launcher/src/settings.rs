//! Paths in the pod, and the identity of its guest.

use std::path::{Path, PathBuf};

/// The guest that this pod was created for.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// Directories, from the pod's environment.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    runtime: PathBuf,
    config: PathBuf,
    cache: PathBuf,
}

impl Paths {
    pub(crate) fn from_environment() -> Self {
        let path = |name, default: &str| {
            std::env::var_os(name).map_or_else(|| PathBuf::from(default), PathBuf::from)
        };
        Self {
            runtime: path("XDG_RUNTIME_DIR", "/var/run"),
            config: path("XDG_CONFIG_HOME", "/var/run/kubevirt-private"),
            cache: path("XDG_CACHE_HOME", "/var/run/kubevirt-private"),
        }
    }

    /// All paths under one directory, for a temporary libvirtd.
    pub(crate) fn under(dir: &Path) -> Self {
        Self {
            runtime: dir.join("run"),
            config: dir.join("config"),
            cache: dir.join("cache"),
        }
    }

    /// The environment of libvirtd: these directories, and settings that save memory.
    pub(crate) fn libvirtd_environment(&self) -> [(&'static str, PathBuf); 7] {
        [
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("HOME", self.config.clone()),
            ("XDG_RUNTIME_DIR", self.runtime.clone()),
            ("XDG_CONFIG_HOME", self.config.clone()),
            ("XDG_CACHE_HOME", self.cache.clone()),
            ("MALLOC_ARENA_MAX", "1".into()),
            ("LANG", "C".into()),
        ]
    }

    pub(crate) fn libvirt_socket(&self) -> PathBuf {
        self.runtime.join("libvirt/libvirt-sock")
    }

    pub(crate) fn libvirt_config(&self) -> PathBuf {
        self.config.join("libvirt")
    }

    pub(crate) fn capability_cache(&self) -> PathBuf {
        self.cache.join("libvirt/qemu/cache/capabilities")
    }

    /// The launcher's record, which survives its restarts.
    pub(crate) fn record(&self) -> PathBuf {
        self.config.join("launcher/guest.json")
    }

    /// The deadline of the thaw while the guest's file systems are frozen.
    pub(crate) fn thaw(&self) -> PathBuf {
        self.config.join("launcher/thaw")
    }

    /// The exits of orphaned processes, recorded by process 1.
    pub(crate) fn ends(&self) -> PathBuf {
        self.config.join("launcher/ends.json")
    }

    /// The log of a domain, written by QEMU and libvirt.
    pub(crate) fn domain_log(&self, domain: &str) -> PathBuf {
        self.cache.join(format!("libvirt/qemu/log/{domain}.log"))
    }

    /// The process ID of a domain's QEMU, while libvirt manages it.
    pub(crate) fn domain_pid(&self, domain: &str) -> PathBuf {
        self.runtime.join(format!("libvirt/qemu/run/{domain}.pid"))
    }
}
