//! Paths in the pod, and the identity of its guest.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variable of the pod and of libvirtd: which modules log from which level on.
const LOG_FILTERS: &str = "LIBVIRT_LOG_FILTERS";
/// Variable of libvirtd, which precedes its configuration: where its log goes, from which level on.
const LOG_OUTPUTS: &str = "LIBVIRT_LOG_OUTPUTS";
/// Variable of the pod: `1` for all of libvirt's log but what repeats endlessly.
const DEBUG_LOGS: &str = "LIBVIRT_DEBUG_LOGS";
/// Variable of the pod: directories that the other pod of a migration has, too, separated by colons.
const SHARED_PATHS: &str = "SHARED_FILESYSTEM_PATHS";
const DEBUG_FILTERS: &str = "3:event 3:rpc 3:remote 3:access 3:util.object 3:util.json 1:*";

/// Variable of the pod.
const MOVED_VOLUMES: &str = "VIRT_LAUNCHER_MOVED_VOLUMES";

/// The number of volumes for which this pod has other claims than the pod that its guest comes from.
pub(crate) fn moved_volumes() -> usize {
    let value = std::env::var(MOVED_VOLUMES).unwrap_or_default();
    // A number that is not one must not be taken for none.
    let number = value.parse().unwrap_or(usize::MAX);
    if value.is_empty() { 0 } else { number }
}

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
    pub(crate) fn libvirtd_environment(&self) -> Vec<(&'static str, OsString)> {
        let mut all: Vec<(&'static str, OsString)> = vec![
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("HOME", self.config.clone().into()),
            ("XDG_RUNTIME_DIR", self.runtime.clone().into()),
            ("XDG_CONFIG_HOME", self.config.clone().into()),
            ("XDG_CACHE_HOME", self.cache.clone().into()),
            ("MALLOC_ARENA_MAX", "1".into()),
            ("LANG", "C".into()),
        ];
        let wanted = std::env::var_os(LOG_FILTERS).filter(|filters| !filters.is_empty());
        let is_debugged = std::env::var_os(DEBUG_LOGS).is_some_and(|value| value == "1");
        all.extend(log_variables(wanted, is_debugged));
        all
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

    /// A link to the directory of the backup that is offered: names of backups are longer than addresses of sockets.
    pub(crate) fn offer(&self) -> PathBuf {
        self.config.join("launcher/offer")
    }

    /// Where failed pings of the guest agent are reported.
    pub(crate) fn failed_pings(&self) -> PathBuf {
        self.config.join("launcher/failed-pings.sock")
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

/// The directories that the other pod of a migration has, too, separated by colons.
pub(crate) fn shared_paths() -> String {
    std::env::var(SHARED_PATHS).unwrap_or_default()
}

/// The variables of libvirtd for a log with more than warnings.
fn log_variables(filters: Option<OsString>, is_debugged: bool) -> Vec<(&'static str, OsString)> {
    let filters = filters.or_else(|| is_debugged.then(|| DEBUG_FILTERS.into()));
    let Some(filters) = filters else {
        return Vec::new();
    };
    vec![(LOG_FILTERS, filters), (LOG_OUTPUTS, "1:stderr".into())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_libvirt_is_filtered_as_requested() {
        let filters = |wanted: Option<&str>, is_debugged| {
            let all = log_variables(wanted.map(OsString::from), is_debugged);
            all.into_iter().map(|(_, value)| value).next()
        };
        assert_eq!(filters(None, false), None);
        assert_eq!(filters(None, true), Some(DEBUG_FILTERS.into()));
        for is_debugged in [false, true] {
            assert_eq!(filters(Some("1:qemu"), is_debugged), Some("1:qemu".into()));
        }
    }
}
