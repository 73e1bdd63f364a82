//! The VM of `run`: pure.

use serde_json::{Value, json};

use super::{command::Run, image::Image};
use crate::{create::reference, failure::Usage};

const ROOT: &str = "root";
const SEED: &str = "cloudinit";

/// The VM, with this public key for its user.
pub(super) fn manifest(flags: &Run, namespace: &str, key: Option<&str>) -> Result<Value, Usage> {
    let Run { name, image, .. } = flags;
    let root = match image {
        Image::Container(image) => json!({"name": ROOT, "containerDisk": {"image": image}}),
        Image::Web(_) | Image::File(_) => {
            json!({"name": ROOT, "dataVolume": {"name": data_volume(name)}})
        }
    };
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "virtio"}});
    let mut domain = json!({"devices": {
        "disks": [disk(ROOT), disk(SEED)],
        "interfaces": [{"name": "default", "masquerade": {}}],
        "rng": {},
    }});
    let mut spec = json!({"runStrategy": "Always"});
    if let Some(text) = &flags.instancetype {
        let kinds = [
            "virtualmachineinstancetype",
            "virtualmachineclusterinstancetype",
        ];
        spec["instancetype"] = reference("--instancetype", text, kinds)?;
    } else {
        domain["memory"] = json!({"guest": flags.memory});
        domain["cpu"] = json!({"cores": flags.cpu});
    }
    if let Some(text) = &flags.preference {
        let kinds = [
            "virtualmachinepreference",
            "virtualmachineclusterpreference",
        ];
        spec["preference"] = reference("--preference", text, kinds)?;
    }
    if let Image::Web(url) = image {
        let storage = json!({"resources": {"requests": {"storage": flags.size}}});
        spec["dataVolumeTemplates"] = json!([{
            "metadata": {"name": data_volume(name)},
            "spec": {"source": {"http": {"url": url}}, "storage": storage},
        }]);
    }
    let seed = json!({"name": SEED, "cloudInitNoCloud": {"userData": user_data(flags, key)}});
    spec["template"] = json!({"spec": {
        "domain": domain,
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [root, seed],
    }});
    Ok(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }))
}

/// The data volume of the disk.
pub(super) fn data_volume(vm: &str) -> String {
    format!("{vm}-root")
}

/// JSON is YAML, too, and needs no quoting of our own.
fn user_data(flags: &Run, key: Option<&str>) -> String {
    let mut data = json!({});
    if let Some(user) = &flags.username {
        data["user"] = user.as_str().into();
    }
    if let Some(key) = key {
        data["ssh_authorized_keys"] = json!([key]);
    }
    format!("#cloud-config\n{data}\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, ObjectCommand};

    fn made(line: &str) -> Result<Value, Usage> {
        let words = std::iter::once("virtctl").chain(line.split(' '));
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Objects(ObjectCommand::Run(flags)) = &cli.command else {
            panic!("{line}")
        };
        manifest(flags, "tests", Some("ssh-ed25519 AAAA me"))
    }

    #[test]
    fn vm_has_the_disk_and_the_key() {
        let vm = made("run debian --image quay.io/containerdisks/debian:13 -l me").unwrap();
        let spec = &vm["spec"]["template"]["spec"];
        let image = &spec["volumes"][0]["containerDisk"]["image"];
        assert_eq!(image, "quay.io/containerdisks/debian:13");
        let seed = &spec["volumes"][1]["cloudInitNoCloud"]["userData"];
        assert_eq!(
            seed,
            "#cloud-config\n{\"user\":\"me\",\"ssh_authorized_keys\":[\"ssh-ed25519 AAAA me\"]}\n"
        );
        assert_eq!(spec["domain"]["memory"]["guest"], "1Gi");
        assert_eq!(vm["metadata"]["namespace"], "tests");
        assert_eq!(vm["spec"].get("dataVolumeTemplates"), None);
    }

    #[test]
    fn image_of_a_web_server_is_imported() {
        let vm = made(
            "run debian --image https://example.org/a,b.qcow2 --size 20Gi --instancetype \
             virtualmachineclusterinstancetype/u1.small --preference debian",
        )
        .unwrap();
        let template = &vm["spec"]["dataVolumeTemplates"][0];
        assert_eq!(
            template["spec"]["source"]["http"]["url"],
            "https://example.org/a,b.qcow2"
        );
        assert_eq!(
            template["spec"]["storage"]["resources"]["requests"]["storage"],
            "20Gi"
        );
        let volume = &vm["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume["dataVolume"]["name"], template["metadata"]["name"]);
        assert_eq!(vm["spec"]["template"]["spec"]["domain"].get("memory"), None);
        assert_eq!(vm["spec"]["instancetype"]["name"], "u1.small");
        assert_eq!(vm["spec"]["preference"], json!({"name": "debian"}));
    }

    #[test]
    fn uploaded_file_is_the_disk() {
        let vm = made("run debian --image ./debian.qcow2").unwrap();
        let volume = &vm["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume["dataVolume"]["name"], "debian-root");
        assert_eq!(vm["spec"].get("dataVolumeTemplates"), None);
    }

    #[test]
    fn wrong_reference_is_refused() {
        let error = made("run a --image b --preference x/y")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("virtualmachineclusterpreference/NAME"),
            "{error}"
        );
    }
}
