//! The SSH key that may log in to the guest.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::printer::Printer;

/// Names of the keys that an SSH client uses by itself.
const USUAL: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];
/// The key that is made if there is none.
const OURS: &str = "id_virtctl";

/// A public key, and the file with the private one if an SSH client does not find it by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) public: String,
    pub(super) identity: Option<PathBuf>,
}

/// The key of this file.
pub(super) fn of_file(file: &Path) -> Result<Key> {
    let public = std::fs::read_to_string(file)
        .with_context(|| format!("read --ssh-key {}", file.display()))?;
    let public = public.trim().to_owned();
    let is_public =
        public.starts_with("ssh-") || public.starts_with("ecdsa-") || public.starts_with("sk-");
    if !is_public || public.lines().count() != 1 {
        bail!(
            "--ssh-key {} is not a public key in one line: give the file that ends with .pub",
            file.display()
        );
    }
    Ok(Key {
        public,
        identity: Some(file.with_extension("")),
    })
}

/// The key of this directory that an SSH client would use, or the one that was made here before.
pub(super) fn find(directory: &Path) -> Option<Key> {
    let usual = USUAL.iter().map(|name| (name, None));
    let ours = (&OURS, Some(directory.join(OURS)));
    let mut all = usual.chain([ours]);
    all.find_map(|(name, identity)| {
        let key = of_file(&directory.join(format!("{name}.pub"))).ok()?;
        Some(Key { identity, ..key })
    })
}

/// Makes a key without a passphrase.
pub(super) async fn make(printer: Printer, directory: &Path) -> Result<Key> {
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let file = directory.join(OURS);
    let made = tokio::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "virtctl run", "-f"])
        .arg(&file)
        .output()
        .await
        .context(
            "start ssh-keygen: install the OpenSSH client, or give a public key by --ssh-key",
        )?;
    if !made.status.success() {
        bail!(
            "ssh-keygen failed: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        );
    }
    printer.note(&format!("Made the SSH key {}", file.display()));
    let key = of_file(&file.with_extension("pub"))?;
    Ok(Key {
        identity: Some(file),
        ..key
    })
}

/// Where SSH clients have their keys.
pub(super) fn directory() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    let home = home.context("find the home directory: give a public key by --ssh-key")?;
    Ok(PathBuf::from(home).join(".ssh"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_the_ssh_client_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(find(dir.path()), None);
        write("id_virtctl.pub", "ssh-ed25519 OURS virtctl run\n");
        let ours = find(dir.path()).unwrap();
        assert_eq!(ours.identity, Some(dir.path().join("id_virtctl")));
        write("id_rsa.pub", "ssh-rsa USUAL me\n");
        let usual = find(dir.path()).unwrap();
        assert_eq!(
            (usual.public.as_str(), usual.identity),
            ("ssh-rsa USUAL me", None)
        );
    }

    #[test]
    fn private_key_is_not_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("id_ed25519");
        std::fs::write(&file, "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n").unwrap();
        let error = of_file(&file).unwrap_err().to_string();
        assert!(error.contains("ends with .pub"), "{error}");
    }
}
