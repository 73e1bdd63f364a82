//! Where things are in the pod, and whose pod it is.

use std::path::{Path, PathBuf};

/// The guest this pod was made for.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// Directories, as the pod's environment names them.
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

    /// Everything under one directory, for a libvirtd that is thrown away.
    pub(crate) fn under(dir: &Path) -> Self {
        Self {
            runtime: dir.join("run"),
            config: dir.join("config"),
            cache: dir.join("cache"),
        }
    }

    /// The environment that makes libvirtd use these directories and little memory.
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

    /// What this launcher remembers across its own restarts.
    pub(crate) fn record(&self) -> PathBuf {
        self.config.join("launcher/guest.json")
    }

    /// When file systems of the guest that are held still are let go.
    pub(crate) fn thaw(&self) -> PathBuf {
        self.config.join("launcher/thaw")
    }

    /// Where process 1 notes how processes ended that were left to it.
    pub(crate) fn ends(&self) -> PathBuf {
        self.config.join("launcher/ends.json")
    }

    /// What QEMU and libvirt say of a domain.
    pub(crate) fn domain_log(&self, domain: &str) -> PathBuf {
        self.cache.join(format!("libvirt/qemu/log/{domain}.log"))
    }

    /// The process number of a domain's QEMU, while libvirt knows it.
    pub(crate) fn domain_pid(&self, domain: &str) -> PathBuf {
        self.runtime.join(format!("libvirt/qemu/run/{domain}.pid"))
    }
}
