//! The policy of a namespace, from its labels.
//!
//! Invariant: there is always a policy. A level that cannot be read is `restricted` where it is
//! enforced, and none where it is only reported.

use std::fmt;

use apimachinery::{Violation, meta};
use serde_json::Value;

/// The three standards, from the most to the least permissive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    const ALL: [(&'static str, Self); 3] = [
        ("privileged", Self::Privileged),
        ("baseline", Self::Baseline),
        ("restricted", Self::Restricted),
    ];

    fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(name, _)| *name == text).map(|(_, level)| *level)
    }

    fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(_, level)| *level == self)
            .map_or("restricted", |(name, _)| name)
    }
}

/// The version of the standards, named after the minor version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Minor(u32),
    Latest,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let is_number = minor.bytes().all(|byte| byte.is_ascii_digit());
        let is_plain = minor == "0" || !minor.starts_with('0');
        let minor = minor.parse().ok()?;
        (is_number && is_plain).then_some(Self::Minor(minor))
    }

    pub(super) fn is_at_least(self, minor: u32) -> bool {
        match self {
            Self::Latest => true,
            Self::Minor(own) => own >= minor,
        }
    }
}

/// A level in a version; displayed like `baseline:latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level.name())?;
        match self.version {
            Version::Latest => f.write_str(":latest"),
            Version::Minor(minor) => write!(f, ":v1.{minor}"),
        }
    }
}

/// What happens to pods that violate a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    /// They are refused.
    pub enforce: LevelVersion,
    /// They are logged.
    pub audit: LevelVersion,
    /// Their creator is warned.
    pub warn: LevelVersion,
}

/// The policy of a namespace, and the labels that cannot be read.
pub(super) fn of(namespace: &Value) -> (Policy, Vec<Violation>) {
    let mut wrong = Vec::new();
    let policy = Policy {
        enforce: mode(namespace, "enforce", Level::Baseline, &mut wrong),
        audit: mode(namespace, "audit", Level::Privileged, &mut wrong),
        warn: mode(namespace, "warn", Level::Privileged, &mut wrong),
    };
    (policy, wrong)
}

fn mode(namespace: &Value, mode: &str, default: Level, wrong: &mut Vec<Violation>) -> LevelVersion {
    let mut refuse = |label: &str, value: &str, why: &str| {
        let field = format!("metadata.labels[{label}]");
        wrong.push(Violation::invalid(field, value, why));
    };
    let (mut level, mut version) = (default, Version::Latest);
    let label = format!("pod-security.kubernetes.io/{mode}");
    if let Some(text) = meta::label(namespace, &label) {
        level = Level::parse(text).unwrap_or_else(|| {
            refuse(
                &label,
                text,
                "must be one of privileged, baseline, restricted",
            );
            match mode {
                "enforce" => Level::Restricted,
                _ => Level::Privileged,
            }
        });
    }
    let label = format!("{label}-version");
    if let Some(text) = meta::label(namespace, &label) {
        version = Version::parse(text).unwrap_or_else(|| {
            refuse(&label, text, "must be \"latest\" or \"v1.x\"");
            Version::Latest
        });
    }
    LevelVersion { level, version }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labelled(labels: &[(&str, &str)]) -> Value {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| {
                let key = format!("pod-security.kubernetes.io/{key}");
                (key, (*value).into())
            })
            .collect();
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn labels_give_level_and_version() {
        let check = |labels: &[(&str, &str)], expected: [&str; 3], wrong: &[&str]| {
            let (policy, found) = of(&labelled(labels));
            let levels = [policy.enforce, policy.audit, policy.warn].map(|one| one.to_string());
            assert_eq!(levels, expected, "{labels:?}");
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, wrong, "{labels:?}");
        };
        let none = "privileged:latest";
        check(&[], ["baseline:latest", none, none], &[]);
        check(
            &[
                ("enforce", "restricted"),
                ("enforce-version", "v1.24"),
                ("warn", "baseline"),
            ],
            ["restricted:v1.24", none, "baseline:latest"],
            &[],
        );
        check(
            &[
                ("enforce", "none"),
                ("audit", "all"),
                ("warn-version", "1.24"),
            ],
            ["restricted:latest", none, none],
            &[
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"none\": \
                 must be one of privileged, baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"all\": must \
                 be one of privileged, baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \
                 \"1.24\": must be \"latest\" or \"v1.x\"",
            ],
        );
    }

    #[test]
    fn versions_are_minor_versions_without_leading_zeros() {
        for (text, expected) in [
            ("latest", Some(Version::Latest)),
            ("v1.0", Some(Version::Minor(0))),
            ("v1.34", Some(Version::Minor(34))),
            ("v1.034", None),
            ("v1.+4", None),
            ("v1.", None),
            ("v2.0", None),
            ("v1.99999999999", None),
        ] {
            assert_eq!(Version::parse(text), expected, "{text}");
        }
    }
}
