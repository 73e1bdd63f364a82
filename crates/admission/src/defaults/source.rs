//! What the disk of a VM is made for, by the label of the data source that it comes from.

use kubevirt_api::{VirtualMachine, data_source::DataSource, labels};

/// Architectures that a source may be made for.
const KNOWN: [&str; 3] = ["amd64", "arm64", "s390x"];

/// Where a data source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub namespace: String,
    pub name: String,
}

/// The data source of the first data volume template that has one.
pub fn place(vm: &VirtualMachine) -> Option<Place> {
    let templates = vm.spec.data_volume_templates.iter();
    let source = templates
        .filter_map(|template| template.spec.source_ref.as_ref())
        .find(|source| source.kind.eq_ignore_ascii_case("DataSource"))?;
    let namespace = source.namespace.clone().filter(|its| !its.is_empty());
    let own = || vm.metadata.namespace.clone().unwrap_or_default();
    Some(Place {
        namespace: namespace.unwrap_or_else(own),
        name: source.name.clone(),
    })
}

/// What the source is made for.
pub fn architecture(source: &DataSource) -> Option<String> {
    let labels = source.metadata.labels.as_ref()?;
    let label = labels.get(labels::TEMPLATE_ARCHITECTURE)?;
    KNOWN.contains(&label.as_str()).then(|| label.clone())
}

/// The source that this one stands for. One such step is taken, no more.
pub fn behind(source: &DataSource) -> Option<Place> {
    let other = source.spec.source.data_source.as_ref()?;
    Some(Place {
        namespace: other.namespace.clone(),
        name: other.name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn first_template_with_a_data_source_counts() {
        let vm = json!({
            "metadata": { "namespace": "here" },
            "spec": { "template": {}, "dataVolumeTemplates": [
                { "spec": { "source": { "blank": {} } } },
                { "spec": { "sourceRef": { "kind": "datasource", "name": "first" } } },
                { "spec": { "sourceRef": { "kind": "DataSource", "namespace": "images", "name": "second" } } },
            ] },
        });
        let vm: VirtualMachine = serde_json::from_value(vm).expect("a VM");
        let found = place(&vm).expect("a place");
        assert_eq!((&*found.namespace, &*found.name), ("here", "first"));
    }

    #[test]
    fn unknown_architectures_say_nothing() {
        for (label, wanted) in [("s390x", Some("s390x")), ("vax", None)] {
            let source =
                json!({ "metadata": { "labels": { "template.kubevirt.io/architecture": label } } });
            let source: DataSource = serde_json::from_value(source).expect("a source");
            assert_eq!(architecture(&source).as_deref(), wanted);
        }
        let source =
            json!({ "spec": { "source": { "dataSource": { "namespace": "n", "name": "s" } } } });
        let source: DataSource = serde_json::from_value(source).expect("a source");
        assert_eq!(behind(&source).expect("a place").name, "s");
        assert_eq!(architecture(&source), None);
    }
}
