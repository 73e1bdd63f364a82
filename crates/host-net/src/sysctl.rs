//! Network settings under `/proc/sys/net`.
//!
//! `/proc/sys/net` shows the namespace of the reading thread, so these functions require a thread
//! inside the namespace; they take `Net` to make that hard to miss.

use std::{fs, io};

use net_plan::Sysctl;

use crate::{Net, NetError};

impl Net {
    /// Writes the setting unless it already has that value: the files may be read-only.
    pub fn ensure_sysctl(&mut self, sysctl: &Sysctl) -> Result<(), NetError> {
        let failed = |source: io::Error| NetError::Sysctl {
            name: sysctl.name.clone(),
            value: sysctl.value.clone(),
            source,
        };
        let plain = sysctl.name.starts_with("net/")
            && sysctl
                .name
                .split('/')
                .all(|part| !matches!(part, "" | "." | ".."));
        if !plain {
            return Err(NetError::BadName {
                name: sysctl.name.clone(),
                what: "name of a network setting",
            });
        }
        let path = format!("/proc/sys/{}", sysctl.name);
        let now = fs::read_to_string(&path).map_err(failed)?;
        if now.split_whitespace().eq(sysctl.value.split_whitespace()) {
            return Ok(());
        }
        fs::write(&path, &sysctl.value).map_err(failed)
    }

    /// The same, if the kernel has the setting: one without IPv6 lacks those of IPv6.
    pub fn ensure_sysctl_if_present(&mut self, sysctl: &Sysctl) -> Result<(), NetError> {
        match self.ensure_sysctl(sysctl) {
            Err(NetError::Sysctl { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(())
            }
            done => done,
        }
    }
}
