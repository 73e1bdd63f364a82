//! Credentials as `docker login` keeps them: in a file, or with a program that the file names.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use image_store::Credentials;
use serde::Deserialize;
use serde_json::json;

/// The message of a helper without credentials for a registry.
const UNKNOWN: &str = "credentials not found";

/// The one registry that logins know by another name.
const HUB: &str = "docker.io";
const HUB_SERVER: &str = "https://index.docker.io/v1/";

/// Which programs keep credentials.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Helpers {
    creds_store: Option<String>,
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Login {
    username: String,
    secret: String,
}

/// All that is known for that registry.
pub(crate) fn of(registry: &str) -> Result<Credentials> {
    let directory = match std::env::var_os("DOCKER_CONFIG").filter(|value| !value.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".docker"),
    };
    let path = directory.join("config.json");
    match fs::read(&path) {
        Ok(json) => read(&json, registry).with_context(|| format!("use {}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Credentials::anonymous()),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn read(json: &[u8], registry: &str) -> Result<Credentials> {
    let mut all = Credentials::from_docker_config_json(json)?;
    let helpers: Helpers = serde_json::from_slice(json)?;
    if let Some(name) = helpers.of(registry) {
        let mut program = OsString::from("docker-credential-");
        program.push(name);
        if let Some(kept) = ask(&mut Command::new(program), registry)? {
            all.merge(kept);
        }
    }
    Ok(all)
}

impl Helpers {
    fn of(&self, registry: &str) -> Option<&str> {
        let of_all = self.creds_store.as_deref();
        let own = self.cred_helpers.get(registry).map(String::as_str);
        own.or(of_all).filter(|name| !name.is_empty())
    }
}

fn ask(program: &mut Command, registry: &str) -> Result<Option<Credentials>> {
    let shown = program.get_program().display().to_string();
    let mut child = program
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {shown}, which keeps the credentials"))?;
    if let Some(mut input) = child.stdin.take() {
        let server = if registry == HUB {
            HUB_SERVER
        } else {
            registry
        };
        // A helper that does not read its input reports why when it exits.
        drop(input.write_all(server.as_bytes()));
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("wait for {shown}"))?;
    if !output.status.success() {
        // Its output is not secret: it found no credentials.
        let output = String::from_utf8_lossy(&output.stdout);
        ensure!(output.contains(UNKNOWN), "{shown}: {}", output.trim());
        return Ok(None);
    }
    let login: Login = serde_json::from_slice(&output.stdout)
        .map_err(|_| anyhow::anyhow!("{shown} does not answer as it should"))?;
    let login = json!({"username": login.username, "password": login.secret});
    let json = json!({"auths": {registry: login}}).to_string();
    Ok(Some(Credentials::from_docker_config_json(json.as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registrys_own_helper_counts_before_that_of_all() {
        let json = json!({
            "credsStore": "all", "credHelpers": {"r.example": "own"}, "auths": {"r.example": {}},
        });
        let helpers: Helpers = serde_json::from_value(json).expect("read them");
        assert_eq!(helpers.of("r.example"), Some("own"));
        assert_eq!(helpers.of("s.example"), Some("all"));
        let none: Helpers = serde_json::from_str("{}").expect("read nothing");
        assert_eq!(none.of("r.example"), None);
    }

    fn asked(answer: &str) -> Result<Option<Credentials>> {
        let mut program = Command::new("sh");
        program.args(["-c", &format!("registry=$(cat); {answer}")]);
        ask(&mut program, "r.example")
    }

    #[test]
    fn helpers_are_asked_for_the_registry() {
        let knows = r#"[ "$registry" = r.example ] && echo '{"Username":"anna","Secret":"pw"}'"#;
        assert!(asked(knows).expect("it answers").is_some());
        let unknown = "echo credentials not found in native keychain; exit 1";
        assert!(asked(unknown).expect("it answers").is_none());
        let error = asked("echo it is locked; exit 1").expect_err("it refuses");
        assert!(error.to_string().ends_with(": it is locked"), "{error}");
        let error = asked("echo hunter2").expect_err("it is not an answer");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        let mut gone = Command::new("/nowhere/docker-credential-gone");
        let error = ask(&mut gone, "r").expect_err("it is gone");
        assert!(
            format!("{error:#}").contains("docker-credential-gone"),
            "{error:#}"
        );
    }
}
