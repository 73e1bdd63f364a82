//! The types of `--volume-import` and the data volumes that they make.

use serde_json::{Map, Value, json};

use super::{parameters::Parameters, volumes::Inferable};
use crate::failure::Usage;

/// How a parameter of a source is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Required,
    Optional,
    /// A list, separated by semicolons.
    List,
    /// Exactly one of those of the type that have this use.
    OneOf,
}
use Use::{List, OneOf, Optional, Required};

/// What a data volume is filled from.
#[derive(Clone, Copy, Debug)]
enum From {
    /// A source with these parameters: name, field, use. It needs a size.
    Source(&'static [(&'static str, &'static str, Use)]),
    /// An object that has a size of its own, in a namespace that must be given.
    Object,
    /// A `DataSource`, whose namespace may be left out.
    DataSource,
}

struct Type {
    name: &'static str,
    /// The field below `spec.source`.
    field: &'static str,
    from: From,
    inferable: Inferable,
}

const TYPES: &[Type] = &[
    Type {
        name: "blank",
        field: "blank",
        from: From::Source(&[]),
        inferable: Inferable::No,
    },
    Type {
        name: "gcs",
        field: "gcs",
        from: From::Source(&[
            ("url", "url", Required),
            ("secretref", "secretRef", Optional),
        ]),
        inferable: Inferable::No,
    },
    Type {
        name: "http",
        field: "http",
        from: From::Source(&[
            ("url", "url", Required),
            ("certconfigmap", "certConfigMap", Optional),
            ("extraheaders", "extraHeaders", List),
            ("secretextraheaders", "secretExtraHeaders", List),
            ("secretref", "secretRef", Optional),
        ]),
        inferable: Inferable::No,
    },
    Type {
        name: "imageio",
        field: "imageio",
        from: From::Source(&[
            ("url", "url", Required),
            ("diskid", "diskId", Required),
            ("certconfigmap", "certConfigMap", Optional),
            ("secretref", "secretRef", Optional),
        ]),
        inferable: Inferable::No,
    },
    Type {
        name: "registry",
        field: "registry",
        from: From::Source(&[
            ("url", "url", OneOf),
            ("imagestream", "imageStream", OneOf),
            ("pullmethod", "pullMethod", Optional),
            ("certconfigmap", "certConfigMap", Optional),
            ("secretref", "secretRef", Optional),
        ]),
        inferable: Inferable::Yes,
    },
    Type {
        name: "s3",
        field: "s3",
        from: From::Source(&[
            ("url", "url", Required),
            ("certconfigmap", "certConfigMap", Optional),
            ("secretref", "secretRef", Optional),
        ]),
        inferable: Inferable::No,
    },
    Type {
        name: "vddk",
        field: "vddk",
        from: From::Source(&[
            ("url", "url", Required),
            ("secretref", "secretRef", Required),
            ("uuid", "uuid", Required),
            ("thumbprint", "thumbprint", Required),
            ("backingfile", "backingFile", Optional),
            ("initimageurl", "initImageURL", Optional),
        ]),
        inferable: Inferable::No,
    },
    Type {
        name: "pvc",
        field: "pvc",
        from: From::Object,
        inferable: Inferable::Yes,
    },
    Type {
        name: "snapshot",
        field: "snapshot",
        from: From::Object,
        inferable: Inferable::Yes,
    },
    Type {
        name: "ds",
        field: "sourceRef",
        from: From::DataSource,
        inferable: Inferable::Yes,
    },
];

/// The spec of a data volume.
#[derive(Debug)]
pub(super) struct Imported {
    pub(super) spec: Value,
    pub(super) inferable: Inferable,
}

/// Takes the parameters of a type.
pub(super) fn data_volume(kind: &str, parameters: &mut Parameters) -> Result<Imported, Usage> {
    let Some(found) = TYPES.iter().find(|one| one.name == kind) else {
        let names: Vec<_> = TYPES.iter().map(|one| one.name).collect();
        let message = format!("unknown type {kind:?}: use {}", names.join(", "));
        return Err(parameters.wrong(&message));
    };
    let (field, source) = match found.from {
        From::Source(fields) => {
            let source = source(fields, parameters)?;
            ("source", json!({found.field: source}))
        }
        From::Object => {
            let source = parameters.required("src")?;
            let Some((namespace, name)) = source.split_once('/') else {
                let message = format!("the namespace is missing: write src:NAMESPACE/{source}");
                return Err(parameters.wrong(&message));
            };
            let source = json!({"namespace": namespace, "name": name});
            ("source", json!({found.field: source}))
        }
        From::DataSource => {
            let source = parameters.required("src")?;
            let reference = match source.split_once('/') {
                Some((namespace, name)) => {
                    json!({"kind": "DataSource", "namespace": namespace, "name": name})
                }
                None => json!({"kind": "DataSource", "name": source}),
            };
            ("sourceRef", reference)
        }
    };
    let size = parameters.size()?;
    if size.is_none() && matches!(found.from, From::Source(_)) {
        return Err(parameters.wrong("size is missing: add size:VALUE, such as size:10Gi"));
    }
    let storage = match size {
        Some(size) => json!({"resources": {"requests": {"storage": size}}}),
        None => json!({"resources": {}}),
    };
    Ok(Imported {
        spec: json!({field: source, "storage": storage}),
        inferable: found.inferable,
    })
}

fn source(
    fields: &[(&'static str, &'static str, Use)],
    parameters: &mut Parameters,
) -> Result<Value, Usage> {
    let mut source = Map::new();
    let mut alternatives = vec![];
    let mut chosen = 0;
    for &(name, field, usage) in fields {
        let value = match usage {
            Required => Some(parameters.required(name)?.into()),
            Optional => parameters.take(name).map(Value::from),
            List => parameters
                .take(name)
                .map(|list| list.split(';').collect::<Vec<_>>().into()),
            OneOf => {
                alternatives.push(name);
                let value = parameters.take(name).map(Value::from);
                chosen += usize::from(value.is_some());
                value
            }
        };
        if let Some(value) = value {
            source.insert(field.to_owned(), value);
        }
    }
    if !alternatives.is_empty() && chosen != 1 {
        let alternatives = alternatives.join(" and ");
        return Err(parameters.wrong(&format!("give exactly one of {alternatives}")));
    }
    Ok(source.into())
}

/// The parameters of each type, for `--help`.
pub(super) fn help() -> String {
    let mut help = "Data volume that is made for the VM; may be repeated. All types take type:TYPE, \
                    name:NAME, size:SIZE and bootorder:NUMBER. Parameters of each type, optional ones in \
                    brackets:\n"
        .to_owned();
    for kind in TYPES {
        let parameters = match kind.from {
            From::Source(fields) => {
                let shown = fields.iter().map(|(name, _, usage)| match usage {
                    Required => (*name).to_owned(),
                    OneOf => format!("({name})"),
                    Optional => format!("[{name}]"),
                    List => format!("[{name}, separated by ;]"),
                });
                shown.collect::<Vec<_>>().join(" ")
            }
            From::Object => "src, as NAMESPACE/NAME".to_owned(),
            From::DataSource => "src, as NAME or NAMESPACE/NAME".to_owned(),
        };
        help.push_str("\n  ");
        help.push_str(kind.name);
        help.push_str(": ");
        help.push_str(if parameters.is_empty() {
            "none"
        } else {
            &parameters
        });
    }
    help
}
