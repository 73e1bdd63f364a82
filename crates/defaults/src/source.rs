//! The architecture that a VM's disk is made for, from the label of its `DataSource`.

use kubevirt_api::{VirtualMachine, data_source::DataSource, labels};

/// Known values of the label.
const KNOWN: [&str; 3] = ["amd64", "arm64", "s390x"];

/// A reference to a `DataSource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSourceRef {
    pub namespace: String,
    pub name: String,
}

/// The `DataSource` of the first data volume template that has one.
pub fn of_vm(vm: &VirtualMachine) -> Option<DataSourceRef> {
    let templates = vm.spec.data_volume_templates.iter();
    let source = templates
        .filter_map(|template| template.spec.source_ref.as_ref())
        .find(|source| source.kind.eq_ignore_ascii_case("DataSource"))?;
    let namespace = source.namespace.clone().filter(|one| !one.is_empty());
    let default = || vm.metadata.namespace.clone().unwrap_or_default();
    Some(DataSourceRef {
        namespace: namespace.unwrap_or_else(default),
        name: source.name.clone(),
    })
}

/// The architecture on the label of the source, if known.
pub fn architecture(source: &DataSource) -> Option<String> {
    let labels = source.metadata.labels.as_ref()?;
    let label = labels.get(labels::TEMPLATE_ARCHITECTURE)?;
    KNOWN.contains(&label.as_str()).then(|| label.clone())
}

/// The `DataSource` that this one refers to. Callers follow only one such reference.
pub fn referenced_by(source: &DataSource) -> Option<DataSourceRef> {
    let other = source.spec.source.data_source.as_ref()?;
    Some(DataSourceRef {
        namespace: other.namespace.clone(),
        name: other.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_template_with_a_data_source_is_used() {
        let vm = json!({
            "metadata": { "namespace": "here" },
            "spec": { "template": {}, "dataVolumeTemplates": [
                { "spec": { "source": { "blank": {} } } },
                { "spec": { "sourceRef": { "kind": "datasource", "name": "first" } } },
                { "spec": { "sourceRef": { "kind": "DataSource", "namespace": "images", "name": "second" } } },
            ] },
        });
        let vm: VirtualMachine = serde_json::from_value(vm).expect("a VM");
        let found = of_vm(&vm).expect("a reference");
        assert_eq!((&*found.namespace, &*found.name), ("here", "first"));
    }

    #[test]
    fn unknown_architecture_is_ignored() {
        for (label, wanted) in [("s390x", Some("s390x")), ("vax", None)] {
            let source =
                json!({ "metadata": { "labels": { "template.kubevirt.io/architecture": label } } });
            let source: DataSource = serde_json::from_value(source).expect("a source");
            assert_eq!(architecture(&source).as_deref(), wanted);
        }
        let source =
            json!({ "spec": { "source": { "dataSource": { "namespace": "n", "name": "s" } } } });
        let source: DataSource = serde_json::from_value(source).expect("a source");
        assert_eq!(referenced_by(&source).expect("a reference").name, "s");
        assert_eq!(architecture(&source), None);
    }
}
