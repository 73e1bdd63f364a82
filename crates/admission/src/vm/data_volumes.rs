//! Data volume templates, which are created and deleted with a VM.

use kubevirt_api::data_volume::{DataVolumeSource, DataVolumeTemplateSpec};
use validation::Violation;

use super::input::Input;

pub(super) fn templates(input: &Input<'_>) -> Vec<Violation> {
    let spec = &input.vm.spec;
    let old = input.old.map(|old| &old.spec.data_volume_templates);
    let is_changed = old != Some(&spec.data_volume_templates);
    let namespace = input.vm.metadata.namespace.as_deref();
    let volumes = input.template().map_or(&[][..], |spec| &spec.volumes);
    let mut found = Vec::new();
    for (path, template) in paths(input) {
        let metadata = template.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.as_deref());
        let name = name.unwrap_or_default();
        if name.is_empty() {
            let detail = "no name; give metadata.name";
            found.push(Violation::required(format!("{path}.name"), detail));
        }
        let is_used = volumes.iter().any(|volume| {
            let by_data_volume = volume.data_volume.as_ref().map(|source| &source.name);
            let by_claim = volume.persistent_volume_claim.as_ref();
            let by_claim = by_claim.map(|source| &source.claim_name);
            by_data_volume.or(by_claim).is_some_and(|used| used == name)
        });
        if !is_used {
            let detail = format!(
                "no volume of the template uses {name:?}; add one with dataVolume: {{name: {name}}}"
            );
            found.push(Violation::required(path.clone(), detail));
        }
        let own = metadata.and_then(|metadata| metadata.namespace.as_deref());
        let is_elsewhere =
            own.is_some_and(|own| !own.is_empty() && namespace.is_some_and(|of_vm| of_vm != own));
        if is_changed && is_elsewhere {
            let detail = "data volumes are created in the VM's namespace; leave the namespace out";
            found.push(Violation::invalid(
                format!("{path}.metadata.namespace"),
                detail,
            ));
        }
    }
    found
}

pub(super) fn storage(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter(|(_, template)| template.spec.pvc.is_some() == template.spec.storage.is_some())
        .map(|(path, template)| {
            let detail = match template.spec.pvc {
                Some(_) => "pvc and storage are both set; choose one",
                None => "neither pvc nor storage; give storage with resources.requests.storage",
            };
            Violation::invalid(path, detail)
        })
        .collect()
}

pub(super) fn sources(input: &Input<'_>) -> Vec<Violation> {
    paths(input)
        .filter_map(|(path, template)| Some(Violation::invalid(path, source_problem(template)?)))
        .collect()
}

fn source_problem(template: &DataVolumeTemplateSpec) -> Option<&'static str> {
    let spec = &template.spec;
    let of_pvc = spec
        .pvc
        .as_ref()
        .is_some_and(|pvc| pvc.data_source.is_some() || pvc.data_source_ref.is_some());
    let of_storage = spec
        .storage
        .as_ref()
        .is_some_and(|storage| storage.data_source.is_some() || storage.data_source_ref.is_some());
    let populated = of_pvc || of_storage;
    match (&spec.source, &spec.source_ref, populated) {
        (Some(_), _, true) | (_, Some(_), true) => {
            Some("dataSource or dataSourceRef is set together with source or sourceRef; choose one")
        }
        (Some(_), Some(_), _) => Some("source and sourceRef are both set; choose one"),
        (None, None, false) => Some("no source; give source or sourceRef"),
        (Some(source), None, _) if source_count(source) != 1 => {
            Some("source must have exactly one member, such as blank: {}")
        }
        _ => None,
    }
}

fn source_count(source: &DataVolumeSource) -> usize {
    [
        source.http.is_some(),
        source.s3.is_some(),
        source.gcs.is_some(),
        source.registry.is_some(),
        source.pvc.is_some(),
        source.upload.is_some(),
        source.blank.is_some(),
        source.imageio.is_some(),
        source.vddk.is_some(),
        source.snapshot.is_some(),
    ]
    .into_iter()
    .filter(|given| *given)
    .count()
}

fn paths<'a>(
    input: &Input<'a>,
) -> impl Iterator<Item = (String, &'a DataVolumeTemplateSpec)> + use<'a> {
    let templates = &input.vm.spec.data_volume_templates;
    templates
        .iter()
        .enumerate()
        .map(|(i, template)| (format!("spec.dataVolumeTemplates[{i}]"), template))
}
