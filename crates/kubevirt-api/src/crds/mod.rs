//! The `CustomResourceDefinition` manifests: generated from the types, checked in under
//! `deploy/crds`, and part of the binary so that a single host needs no files.
//!
//! The generator itself (feature `schema`) is in [`manifests`], `definition` (the parts of a definition), `kinds`
//! (one row a kind, one file a group), `rules` (CEL) and `structural` (from Rust types to schemas). Without the
//! feature none of it is compiled: programs embed the manifests, not the schemas.
//!
//! [`IMPORTER`] has the kinds of the importer apart, under `deploy/importer`: CDI defines the same kinds.
//!
//! Invariant: [`ALL`], the rows and the files under `deploy/crds` name the same kinds; a file has
//! the name of its definition.

#[cfg(feature = "schema")]
mod definition;
#[cfg(feature = "schema")]
mod kinds;
#[cfg(feature = "schema")]
pub mod manifests;
#[cfg(feature = "schema")]
pub(crate) mod rules;
#[cfg(feature = "schema")]
mod structural;
#[cfg(feature = "schema")]
pub mod subresources;
#[cfg(feature = "schema")]
pub mod wire;

/// Name and text of a definition, from the file of its name.
macro_rules! crd {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../deploy/crds/", $name, ".yaml")),
        )
    };
}

/// Name and YAML text of every definition.
pub const ALL: &[(&str, &str)] = &[
    crd!("kubevirts.kubevirt.io"),
    crd!("virtualmachineinstancemigrations.kubevirt.io"),
    crd!("virtualmachineinstancepresets.kubevirt.io"),
    crd!("virtualmachineinstancereplicasets.kubevirt.io"),
    crd!("virtualmachineinstances.kubevirt.io"),
    crd!("virtualmachines.kubevirt.io"),
    crd!("migrationpolicies.migrations.kubevirt.io"),
    crd!("plugins.plugin.kubevirt.io"),
    crd!("virtualmachinebackuprestores.backup.ferrovirt.io"),
    crd!("virtualmachinebackups.backup.kubevirt.io"),
    crd!("virtualmachinebackuptrackers.backup.kubevirt.io"),
    crd!("virtualmachineclones.clone.kubevirt.io"),
    crd!("virtualmachineclusterinstancetypes.instancetype.kubevirt.io"),
    crd!("virtualmachineclusterpreferences.instancetype.kubevirt.io"),
    crd!("virtualmachineexports.export.kubevirt.io"),
    crd!("virtualmachineinstancetypes.instancetype.kubevirt.io"),
    crd!("virtualmachinepools.pool.kubevirt.io"),
    crd!("virtualmachinepreferences.instancetype.kubevirt.io"),
    crd!("virtualmachinerestores.snapshot.kubevirt.io"),
    crd!("virtualmachinesnapshotcontents.snapshot.kubevirt.io"),
    crd!("virtualmachinesnapshots.snapshot.kubevirt.io"),
    crd!("virtualmachinetemplaterequests.template.kubevirt.io"),
    crd!("virtualmachinetemplates.template.kubevirt.io"),
];

/// The same of the kinds of the importer. Not installed where CDI defines them.
pub const IMPORTER: &[(&str, &str)] = &[
    (
        "cdiconfigs.cdi.kubevirt.io",
        include_str!("../../../../deploy/importer/cdiconfigs.cdi.kubevirt.io.yaml"),
    ),
    (
        "dataimportcrons.cdi.kubevirt.io",
        include_str!("../../../../deploy/importer/dataimportcrons.cdi.kubevirt.io.yaml"),
    ),
    (
        "datasources.cdi.kubevirt.io",
        include_str!("../../../../deploy/importer/datasources.cdi.kubevirt.io.yaml"),
    ),
    (
        "datavolumes.cdi.kubevirt.io",
        include_str!("../../../../deploy/importer/datavolumes.cdi.kubevirt.io.yaml"),
    ),
    (
        "storageprofiles.cdi.kubevirt.io",
        include_str!("../../../../deploy/importer/storageprofiles.cdi.kubevirt.io.yaml"),
    ),
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    fn listed() -> BTreeSet<String> {
        ALL.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    #[test]
    fn every_file_is_listed_once() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let files: BTreeSet<String> = fs::read_dir(folder)
            .expect("the folder of the definitions")
            .map(|entry| {
                let name = entry.expect("an entry").file_name();
                let name = name.into_string().expect("text");
                let stem = name.strip_suffix(".yaml");
                stem.expect("only definitions lie here").to_owned()
            })
            .collect();
        assert_eq!(files, listed());
        assert_eq!(ALL.len(), listed().len());
    }

    #[test]
    fn names_match_the_manifests() {
        for (name, text) in ALL.iter().chain(IMPORTER) {
            let value: serde_json::Value = serde_saphyr::from_str(text).expect(name);
            assert_eq!(value["metadata"]["name"], *name);
        }
    }

    #[cfg(feature = "schema")]
    #[test]
    fn checked_in_files_of_the_importer_are_current() {
        let rendered = manifests::render_importer().expect("definitions render");
        let listed = IMPORTER
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        assert_eq!(rendered, listed.collect::<Vec<_>>());
    }

    /// Calls `check` with every node of the schemas of a definition, and its path.
    fn each_node(check: &mut impl FnMut(&str, &serde_json::Value)) {
        fn walk(
            path: &str,
            node: &serde_json::Value,
            check: &mut impl FnMut(&str, &serde_json::Value),
        ) {
            check(path, node);
            for (name, child) in node["properties"].as_object().into_iter().flatten() {
                walk(&format!("{path}.{name}"), child, check);
            }
            for key in ["items", "additionalProperties"] {
                if node[key].is_object() {
                    walk(&format!("{path}[]"), &node[key], check);
                }
            }
        }
        for (name, text) in ALL {
            let value: serde_json::Value = serde_saphyr::from_str(text).expect(name);
            for version in value["spec"]["versions"].as_array().into_iter().flatten() {
                walk(name, &version["schema"]["openAPIV3Schema"], check);
            }
        }
    }

    #[test]
    fn selectors_and_references_are_applied_as_a_whole() {
        let (mut selectors, mut references) = (0, 0);
        each_node(&mut |path, node| {
            let has = |name: &str| node["properties"][name].is_object();
            let is_selector = has("matchLabels") && has("matchExpressions");
            let is_secret = path.to_lowercase().ends_with("secretref") && has("name");
            if is_selector || is_secret {
                assert_eq!(node["x-kubernetes-map-type"], "atomic", "{path}");
            }
            if is_secret {
                assert!(node["required"].is_null(), "{path}: `{{}}` is valid");
                assert_eq!(node["properties"]["name"]["default"], "", "{path}");
            }
            selectors += usize::from(is_selector);
            references += usize::from(is_secret);
        });
        assert!(
            selectors > 100 && references > 10,
            "{selectors} {references}"
        );
    }

    /// A copy of a VM holds whatever its status was.
    #[test]
    fn embedded_statuses_have_no_enumerations() {
        let mut embedded = 0;
        each_node(&mut |path, node| {
            if path.contains(".status") {
                assert!(node["enum"].is_null(), "{path}");
            }
            embedded += usize::from(path.contains(".spec.") && path.ends_with(".status"));
        });
        assert!(embedded > 0);
    }

    #[cfg(feature = "schema")]
    #[test]
    fn checked_in_files_are_current() {
        let rendered = manifests::render().expect("definitions render");
        let names: BTreeSet<String> = rendered.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(
            names,
            listed(),
            "rows of `kinds` against `ALL`: add the missing one"
        );
        for (name, text) in rendered {
            let (_, checked_in) = ALL
                .iter()
                .find(|(listed, _)| *listed == name)
                .expect("listed");
            assert!(
                text == *checked_in,
                "{name} is stale: run `cargo xtask generate`"
            );
        }
    }
}
