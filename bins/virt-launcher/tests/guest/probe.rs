//! `probe-node` in the launcher image.

use std::path::Path;

use crate::bundle::{Bundle, Setup};
use crate::{PROGRAM, exit_code};

#[tokio::test]
async fn node_is_probed_with_and_without_kvm() {
    let program = Path::new(PROGRAM);
    for kvm in [false, true] {
        let setup = Setup {
            programs: &[("virt-launcher", program)],
            kvm,
            ..Setup::default()
        };
        let mut pod = Bundle::start(
            &setup,
            &[
                "/run/bin/virt-launcher",
                "probe-node",
                "--output",
                "/run/private/o",
                "--image=i",
            ],
        );
        let code = exit_code(&mut pod);
        assert_eq!(code, 0, "{}", pod.log());
        let output = pod.run_dir().join("private/o");
        let node: serde_json::Value =
            serde_json::from_slice(&std::fs::read(output.join("node.json")).unwrap()).unwrap();
        let machines = node["machineTypes"].as_array().unwrap();
        assert!(machines.iter().any(|machine| machine == "q35"), "{node}");
        assert!(!node["cpuModels"].as_array().unwrap().is_empty(), "{node}");
        assert_eq!(node["launcherImage"], "i");
        let cache = std::fs::read_to_string(output.join("capabilities.xml"));
        if node["repeatWithoutKvm"] == true {
            assert!(cache.is_err());
        } else {
            let cache = cache.unwrap();
            assert!(!cache.contains("cpu-unavailable-features"));
            let name = node["capabilitiesCacheFile"].as_str().unwrap();
            assert!(
                name.len() == 68 && Path::new(name).extension().is_some(),
                "{name}"
            );
        }
        let left: Vec<_> = std::fs::read_dir(&output).unwrap().collect();
        assert!(left.len() <= 2, "{left:?}");
        eprintln!("kvm={kvm}: {} {}", node["kvm"], node["kvmReason"]);
    }
}
