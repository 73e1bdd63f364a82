//! File trees from Debian packages, and lists of names as data.
//!
//! `mmdebstrap` knows its mirror and checks signatures; nothing here names an address.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cache::EPOCH;
use crate::workspace::run_quietly;

/// A list of packages and their suite.
#[derive(Debug)]
pub(crate) struct PackageList {
    suite: String,
    packages: Vec<String>,
}

/// How much of a system to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Installed and configured packages.
    MinBase,
    /// Only unpacked ones.
    Extract,
}

impl PackageList {
    /// Reads a list with its `# suite:` line.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let suite = text
            .lines()
            .find_map(|line| line.strip_prefix("# suite:"))
            .with_context(|| format!("{} has no \"# suite:\" line", path.display()))?;
        Ok(Self {
            suite: suite.trim().to_owned(),
            packages: lines(&text),
        })
    }

    /// Makes the tree `target`, which must not exist.
    pub(crate) fn install(&self, variant: Variant, target: &Path) -> Result<()> {
        let variant = match variant {
            Variant::MinBase => "minbase",
            Variant::Extract => "extract",
        };
        let mut command = Command::new("mmdebstrap");
        command
            .env("SOURCE_DATE_EPOCH", EPOCH.to_string())
            .arg("--quiet")
            .arg(format!("--variant={variant}"))
            .arg(format!("--include={}", self.packages.join(",")))
            .arg("--aptopt=APT::Install-Recommends \"false\"");
        for path in ["man", "info", "locale", "doc"] {
            command.arg(format!("--dpkgopt=path-exclude=/usr/share/{path}/*"));
        }
        command
            .arg("--dpkgopt=path-include=/usr/share/doc/*/copyright")
            .arg(&self.suite)
            .arg(target);
        run_quietly(&mut command).context("make a tree of Debian packages")?;
        Ok(())
    }
}

/// The lines of a list without comments and empty ones.
pub(crate) fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split_once('#').map_or(line, |(line, _)| line).trim())
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// As [`lines`], from a file.
pub(crate) fn list(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(lines(&text))
}
