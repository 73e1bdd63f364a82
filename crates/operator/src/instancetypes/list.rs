//! The common instance types and preferences, from two tables.
//!
//! Names, values and labels are those of the project common-instancetypes that `KubeVirt` installs. Labels that
//! repeat the spec are derived from it.

use std::collections::BTreeMap;

use kubevirt_api::{
    instancetype::VirtualMachineClusterInstancetype, preference::VirtualMachineClusterPreference,
};
use serde::Deserialize;
use serde_json::{Value, json};

const INSTANCETYPES: &str = include_str!("../../data/instancetypes.yaml");
const PREFERENCES: &str = include_str!("../../data/preferences.yaml");
/// The version of that project.
const VERSION: &str = "v1.7.0";
const PREFIX: &str = "instancetype.kubevirt.io/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Instancetype,
    Preference,
}

/// One object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Common {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) spec: Value,
    pub(super) labels: BTreeMap<String, String>,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Instancetype => VirtualMachineClusterInstancetype::KIND,
            Self::Preference => VirtualMachineClusterPreference::KIND,
        }
    }
}

/// All objects, sorted by kind and name.
pub(super) fn common() -> Vec<Common> {
    let series: Vec<Series> =
        serde_saphyr::from_str(INSTANCETYPES).expect("a test reads the table");
    let preferences: Vec<Preference> =
        serde_saphyr::from_str(PREFERENCES).expect("a test reads the table");
    let types = series.iter().flat_map(Series::objects);
    types
        .chain(preferences.into_iter().map(Preference::object))
        .collect()
}

/// Instance types that differ in size only.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Series {
    name: String,
    class: String,
    icon: String,
    #[serde(default = "empty")]
    spec: Value,
    /// Whether sockets can be added to a running guest.
    max_sockets: Option<MaxSockets>,
    sizes: Vec<Size>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum MaxSockets {
    AsBooted,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    name: String,
    cpu: u32,
    memory: String,
    pages: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Preference {
    name: String,
    required_memory: Option<String>,
    spec: Value,
}

fn empty() -> Value {
    json!({})
}

impl Series {
    fn objects(&self) -> impl Iterator<Item = Common> {
        self.sizes.iter().map(|size| self.object(size))
    }

    fn object(&self, size: &Size) -> Common {
        let mut spec = self.spec.clone();
        spec["cpu"]["guest"] = size.cpu.into();
        spec["memory"]["guest"] = size.memory.as_str().into();
        let mut labels = Labels::new();
        labels.add("class", &self.class);
        labels.add("icon-pf", &self.icon);
        labels.add("version", "1");
        labels.add("size", &size.name);
        labels.add("cpu", &size.cpu.to_string());
        labels.add("memory", &size.memory);
        if let Some(pages) = &size.pages {
            spec["memory"]["hugepages"]["pageSize"] = pages.as_str().into();
            labels.add("hugepages", pages);
        }
        if let Some(MaxSockets::AsBooted) = self.max_sockets {
            spec["cpu"]["maxSockets"] = size.cpu.into();
        }
        for name in [
            "dedicatedCPUPlacement",
            "isolateEmulatorThread",
            "numa",
            "realtime",
        ] {
            if !spec["cpu"][name].is_null() {
                labels.add(name, "true");
            }
        }
        Common {
            kind: Kind::Instancetype,
            name: format!("{}.{}", self.name, size.name),
            spec,
            labels: labels.0,
        }
    }
}

impl Preference {
    fn object(self) -> Common {
        let text = |path: &str| self.spec.pointer(path).and_then(Value::as_str);
        let requirements = &self.spec["requirements"];
        let mut labels = Labels::new();
        if let Some(os) = text("/annotations/vm.kubevirt.io~1os") {
            labels.add("os-type", os);
        }
        if let Some(cpu) = requirements["cpu"]["guest"].as_u64() {
            labels.add("required-cpu", &cpu.to_string());
        }
        let memory = self.required_memory.as_deref();
        if let Some(memory) = memory.or(text("/requirements/memory/guest")) {
            labels.add("required-memory", memory);
        }
        if let Some(architecture) = text("/requirements/architecture") {
            labels.add("required-architecture", architecture);
        }
        if let Some(architecture) = text("/preferredArchitecture") {
            labels.add("preferred-architecture", architecture);
            labels.add("arch", architecture);
        }
        Common {
            kind: Kind::Preference,
            name: self.name,
            spec: self.spec,
            labels: labels.0,
        }
    }
}

struct Labels(BTreeMap<String, String>);

impl Labels {
    fn new() -> Self {
        let mut labels = Self(BTreeMap::new());
        labels.add("common-instancetypes-version", VERSION);
        labels.add("vendor", "kubevirt.io");
        labels
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.insert(format!("{PREFIX}{name}"), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn find(name: &str) -> Common {
        let mut all = common().into_iter();
        all.find(|one| one.name == name).expect("it exists")
    }

    #[test]
    fn all_objects_exist_once() {
        let all = common();
        let count = |kind| all.iter().filter(|one| one.kind == kind).count();
        assert_eq!(count(Kind::Instancetype), 65);
        assert_eq!(count(Kind::Preference), 54);
        let names: BTreeSet<_> = all.iter().map(|one| &one.name).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn instance_type_is_its_series_with_its_size() {
        let found = find("cx1.large1gi");
        let cpu = json!({
            "dedicatedCPUPlacement": true, "isolateEmulatorThread": true, "guest": 2, "maxSockets": 2,
            "numa": {"guestMappingPassthrough": {}},
        });
        let memory = json!({"guest": "4Gi", "hugepages": {"pageSize": "1Gi"}});
        let spec = json!({"cpu": cpu, "memory": memory, "ioThreadsPolicy": "auto"});
        assert_eq!(found.spec, spec);
        let label = |name: &str| found.labels.get(&format!("{PREFIX}{name}"));
        for (name, value) in [
            ("class", "compute.exclusive"),
            ("size", "large1gi"),
            ("cpu", "2"),
            ("memory", "4Gi"),
            ("hugepages", "1Gi"),
            ("numa", "true"),
            ("vendor", "kubevirt.io"),
        ] {
            assert_eq!(label(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(label("realtime"), None);
        let plain = find("u1.small");
        assert_eq!(
            plain.spec,
            json!({"cpu": {"guest": 1}, "memory": {"guest": "2Gi"}})
        );
    }

    #[test]
    fn labels_of_a_preference_repeat_its_requirements() {
        let found = find("rhel.10.arm64");
        let label = |name: &str| found.labels.get(&format!("{PREFIX}{name}")).cloned();
        assert_eq!(label("os-type").as_deref(), Some("linux"));
        assert_eq!(label("required-cpu").as_deref(), Some("1"));
        assert_eq!(label("required-memory").as_deref(), Some("1.5Gi"));
        assert_eq!(label("required-architecture").as_deref(), Some("arm64"));
        assert_eq!(label("arch").as_deref(), Some("arm64"));
        assert_eq!(found.spec["requirements"]["memory"]["guest"], "1536Mi");
    }
}
