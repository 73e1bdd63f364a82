//! Sidecars that may change a guest before it starts, from an annotation of the VMI.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::annotations;
use serde::Deserialize;

use crate::paths;

/// The most sidecars of a guest: each may take its time before the guest starts.
pub const MAX_HOOK_SIDECARS: usize = 8;
/// The most bytes of the annotation.
const MAX_TEXT: usize = 64 << 10;
const MAX_PATH: usize = 1024;
const MAX_KEY: usize = 253;
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// Directories of the guest's container that a claim must not cover: programs, devices, and what the launcher and
/// virt-handler rely on.
const SYSTEM_DIRECTORIES: [&str; 14] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/lib",
    "/var/run/secrets",
];
/// Of `/var/run`, the directories whose names begin like this.
const SYSTEM_PREFIXES: [&str; 2] = ["/var/run/kubevirt", "/var/run/libvirt"];

/// A container whose hooks may change a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSidecar {
    /// Name of the container.
    pub name: String,
    /// Without an image, the sidecar runs the scripts of the config map.
    pub image: Option<String>,
    pub image_pull_policy: Option<String>,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub script: Option<HookScript>,
    pub claim: Option<HookClaim>,
}

/// A script in a config map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookScript {
    pub config_map: String,
    pub key: String,
    /// Where the sidecar finds it.
    pub path: String,
}

/// A claim that the sidecar mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookClaim {
    pub claim: String,
    pub path: String,
    /// Where the guest's own container mounts it, too.
    pub shared_path: Option<String>,
}

/// Why the annotation is not a list of sidecars. It begins with the place in the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHookSidecars(String);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    image: Option<String>,
    image_pull_policy: Option<String>,
    command: Option<Vec<String>>,
    args: Option<Vec<String>>,
    config_map: Option<WrittenScript>,
    pvc: Option<WrittenClaim>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenScript {
    name: String,
    key: String,
    hook_path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenClaim {
    name: String,
    volume_path: String,
    shared_compute_path: Option<String>,
}

impl HookSidecar {
    /// The sidecars that these annotations of a VMI ask for.
    pub fn all(
        annotated: Option<&BTreeMap<String, String>>,
    ) -> Result<Vec<Self>, InvalidHookSidecars> {
        let Some(text) = annotated.and_then(|all| all.get(annotations::HOOK_SIDECARS)) else {
            return Ok(Vec::new());
        };
        if text.len() > MAX_TEXT {
            let length = text.len();
            return Err(invalid(format!(
                "{length} bytes are too many; use at most {MAX_TEXT}, and a config map for a long script"
            )));
        }
        let written: Option<Vec<Written>> = serde_json::from_str(text).map_err(|error| {
            invalid(format!(
                "{error}; write a JSON list such as [{{\"image\": \"registry.example/hook:1\"}}]"
            ))
        })?;
        let written = written.unwrap_or_default();
        if written.len() > MAX_HOOK_SIDECARS {
            let count = written.len();
            return Err(invalid(format!(
                "{count} sidecars are too many; use at most {MAX_HOOK_SIDECARS}"
            )));
        }
        let all = written.into_iter().enumerate();
        let all: Vec<Self> = all
            .map(|(index, written)| Self::of(index, written))
            .collect::<Result<_, _>>()?;
        let claims = all.iter().filter_map(|sidecar| sidecar.claim.as_ref());
        let shared = claims.filter_map(|claim| claim.shared_path.as_deref());
        let mut seen = BTreeSet::new();
        for path in shared {
            if !seen.insert(path) {
                let detail = "two sidecars share a claim at this path; use different paths";
                return Err(invalid(format!("{path:?}: {detail}")));
            }
        }
        Ok(all)
    }

    fn of(index: usize, written: Written) -> Result<Self, InvalidHookSidecars> {
        let at = |field: &str, problem: String| invalid(format!("[{index}]{field}: {problem}"));
        let image = written.image.filter(|image| !image.is_empty());
        if image.is_none() && written.config_map.is_none() {
            let problem = "needs an image, or a configMap with a script".to_owned();
            return Err(at("", problem));
        }
        if let Some(image) = &image
            && image.chars().any(|c| c.is_whitespace() || c.is_control())
        {
            let problem = format!("{image:?} is not the name of an image; remove blanks");
            return Err(at(".image", problem));
        }
        let image_pull_policy = written.image_pull_policy.filter(|one| !one.is_empty());
        if let Some(policy) = &image_pull_policy
            && !PULL_POLICIES.contains(&policy.as_str())
        {
            let choices = PULL_POLICIES.join(", ");
            let problem = format!("{policy:?} is unknown; use one of {choices}");
            return Err(at(".imagePullPolicy", problem));
        }
        let script = written.config_map.map(|written| {
            check_name(&written.name).map_err(|problem| at(".configMap.name", problem))?;
            check_key(&written.key).map_err(|problem| at(".configMap.key", problem))?;
            check_path(&written.hook_path).map_err(|problem| at(".configMap.hookPath", problem))?;
            Ok(HookScript {
                config_map: written.name,
                key: written.key,
                path: written.hook_path,
            })
        });
        let script = script.transpose()?;
        let claim = written.pvc.map(|written| {
            check_name(&written.name).map_err(|problem| at(".pvc.name", problem))?;
            check_path(&written.volume_path).map_err(|problem| at(".pvc.volumePath", problem))?;
            let shared_path = written.shared_compute_path.filter(|path| !path.is_empty());
            if let Some(path) = &shared_path {
                check_shared_path(path).map_err(|problem| at(".pvc.sharedComputePath", problem))?;
            }
            Ok(HookClaim {
                claim: written.name,
                path: written.volume_path,
                shared_path,
            })
        });
        let claim = claim.transpose()?;
        if let (Some(script), Some(claim)) = (&script, &claim)
            && script.path == claim.path
        {
            let problem = "the same path as configMap.hookPath; use another".to_owned();
            return Err(at(".pvc.volumePath", problem));
        }
        Ok(Self {
            name: paths::hook_sidecar(index),
            image,
            image_pull_policy,
            command: written.command.unwrap_or_default(),
            args: written.args.unwrap_or_default(),
            script,
            claim,
        })
    }
}

fn invalid(problem: String) -> InvalidHookSidecars {
    InvalidHookSidecars(problem)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_part = |part: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !part.is_empty()
            && part.chars().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    if name.len() <= MAX_KEY && name.split('.').all(is_part) {
        Ok(())
    } else {
        Err("not the name of an object; use lower-case letters, digits, dashes and dots".to_owned())
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_plain = !key.is_empty() && key.len() <= MAX_KEY && key.chars().all(is_valid);
    if is_plain && !key.starts_with("..") && key != "." {
        Ok(())
    } else {
        Err("not a key of a config map; use letters, digits, and - _ .".to_owned())
    }
}

/// A path in the sidecar's container.
fn check_path(path: &str) -> Result<(), String> {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let rest = path.strip_prefix('/').unwrap_or_default();
    let is_clean = rest.split('/').all(is_plain)
        && path.len() <= MAX_PATH
        && !path.chars().any(|c| c.is_control() || c == ':');
    if !is_clean {
        return Err(format!(
            "{path:?} is not the path of a file or directory; use one such as /usr/bin/onDefineDomain"
        ));
    }
    if overlaps(path, paths::HOOKS) {
        return Err(format!(
            "{path:?} is where the sidecar's socket is; use another path"
        ));
    }
    Ok(())
}

/// A path in the guest's own container.
fn check_shared_path(path: &str) -> Result<(), String> {
    check_path(path)?;
    let is_system = SYSTEM_DIRECTORIES.iter().any(|one| overlaps(path, one))
        || SYSTEM_PREFIXES
            .iter()
            .any(|start| path.starts_with(start) || overlaps(path, start));
    if is_system {
        return Err(format!(
            "{path:?} is a system directory; use one such as /var/run/tools"
        ));
    }
    Ok(())
}

/// Whether one of two paths is the other or below it.
fn overlaps(one: &str, other: &str) -> bool {
    let is_below = |path: &str, directory: &str| {
        let rest = path.strip_prefix(directory);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    is_below(one, other) || is_below(other, one)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(text: &str) -> Result<Vec<HookSidecar>, InvalidHookSidecars> {
        let key = annotations::HOOK_SIDECARS.to_owned();
        HookSidecar::all(Some(&BTreeMap::from([(key, text.to_owned())])))
    }

    #[test]
    fn sidecars_are_read_in_their_order() {
        assert_eq!(HookSidecar::all(None), Ok(Vec::new()));
        for empty in ["[]", "null"] {
            assert_eq!(of(empty), Ok(Vec::new()));
        }
        let text = json!([
            {"image": "registry.example/hook:1", "imagePullPolicy": "", "args": null},
            {"args": ["--version", "v1alpha2"],
             "configMap": {"name": "c", "key": "a.sh", "hookPath": "/usr/bin/onDefineDomain"},
             "pvc": {"name": "p", "volumePath": "/tools", "sharedComputePath": "/var/run/tools"}},
        ]);
        let all = of(&text.to_string()).expect("is valid");
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["hook-sidecar-0", "hook-sidecar-1"]);
        assert_eq!(all[0].image.as_deref(), Some("registry.example/hook:1"));
        assert_eq!(all[0].image_pull_policy, None);
        assert_eq!(all[1].args, ["--version", "v1alpha2"]);
        let script = all[1].script.as_ref().expect("a script");
        assert_eq!(script.path, "/usr/bin/onDefineDomain");
        let claim = all[1].claim.as_ref().expect("a claim");
        assert_eq!(claim.shared_path.as_deref(), Some("/var/run/tools"));
    }

    #[test]
    fn each_problem_names_its_place() {
        let script = |name: &str, key: &str, path: &str| json!([{"configMap": {"name": name, "key": key, "hookPath": path}}]);
        let claim = |path: &str, shared: &str| {
            let pvc = json!({"name": "p", "volumePath": path, "sharedComputePath": shared});
            json!([{"image": "i", "pvc": pvc}])
        };
        let many = vec![json!({"image": "i"}); MAX_HOOK_SIDECARS + 1];
        let cases: [(Value, &str); 20] = [
            (json!("x"), "expected a sequence"),
            (json!([{"imagee": "i"}]), "unknown field `imagee`"),
            (
                json!([{"image": "i", "configMap": {"name": "c"}}]),
                "missing field `key`",
            ),
            (json!([{}]), "[0]: needs an image"),
            (
                json!([{"image": "i"}, {"pvc": {"name": "p", "volumePath": "/a"}}]),
                "[1]: needs an image",
            ),
            (json!([{"image": "a b"}]), "[0].image: "),
            (
                json!([{"image": "i", "imagePullPolicy": "Often"}]),
                "[0].imagePullPolicy: \"Often\" is unknown",
            ),
            (json!(many), "9 sidecars are too many"),
            (script("C", "k", "/a"), "[0].configMap.name: "),
            (script("c", "a/b", "/a"), "[0].configMap.key: "),
            (script("c", "..", "/a"), "[0].configMap.key: "),
            (script("c", "k", "a"), "[0].configMap.hookPath: "),
            (script("c", "k", "/a/../b"), "[0].configMap.hookPath: "),
            (script("c", "k", "/"), "[0].configMap.hookPath: "),
            (
                script("c", "k", "/var/run/kubevirt-hooks/x"),
                "[0].configMap.hookPath: ",
            ),
            (claim("/a:b", ""), "[0].pvc.volumePath: "),
            (
                claim("/a", "/usr/bin"),
                "[0].pvc.sharedComputePath: \"/usr/bin\" is a system directory",
            ),
            (claim("/a", "/var/run"), "[0].pvc.sharedComputePath: "),
            (claim("/a", "/var"), "[0].pvc.sharedComputePath: "),
            (
                claim("/a", "/var/run/kubevirt-private/x"),
                "[0].pvc.sharedComputePath: ",
            ),
        ];
        for (value, expected) in cases {
            let error = of(&value.to_string()).expect_err(expected).to_string();
            assert!(error.contains(expected), "{value}: {error}");
        }
        let mut both = claim("/a", "/x");
        both.as_array_mut()
            .expect("a list")
            .push(claim("/b", "/x")[0].clone());
        let error = of(&both.to_string())
            .expect_err("the same path")
            .to_string();
        assert!(error.contains("two sidecars"), "{error}");
        assert!(of("[").is_err());
        assert!(of(&" ".repeat(MAX_TEXT + 1)).is_err());
    }
}
