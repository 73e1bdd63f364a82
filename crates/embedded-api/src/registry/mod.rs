//! The served kinds: built-in ones, those of CRDs, and those of other servers.
//!
//! Invariant: a snapshot is immutable and replaced as a whole. Holds parsed schemas, no objects.

pub(crate) mod builtin;
pub(crate) mod convert;
pub(crate) mod custom;
pub(crate) mod schema;

use std::{collections::HashMap, sync::Arc};

use apimachinery::{
    GroupKind, GroupResource, Resource, Subresource, Violation,
    jsonpath::JsonPath,
    meta,
    resource::join_api_version,
    schema::{Interner, Schema},
    selector::FieldSelector,
    shape::Type,
    table::Layout,
};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::{
    kinds::Strategy,
    store::{Collection, StoreError, Stored},
};
use builtin::{BuiltIn, References};
use schema::BuiltInSchemas;

/// One version of a kind.
#[derive(Debug)]
pub(crate) struct Served {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    /// The warning for users of a deprecated version.
    pub deprecation: Option<String>,
    pub subresources: Vec<Subresource>,
    pub collection: Collection,
    /// The version of stored objects.
    pub storage_api_version: String,
    pub origin: Origin,
}

/// The source of a kind.
#[derive(Debug)]
pub(crate) enum Origin {
    BuiltIn(&'static BuiltIn),
    Custom(Box<Custom>),
}

/// The definition of one version in a CRD.
#[derive(Debug)]
pub(crate) struct Custom {
    pub schema: Arc<Schema>,
    pub columns: Layout,
    pub selectable: Vec<String>,
    pub scale: Option<Scale>,
    /// The name of the CRD.
    pub definition: String,
    pub stored: StoredAs,
    /// The webhook that converts between versions; without one they differ in their label only.
    pub conversion: Option<Value>,
}

/// The stored version of a custom kind.
#[derive(Debug)]
pub(crate) struct StoredAs {
    pub schema: Arc<Schema>,
    /// Objects stored before this revision may lack defaults of the schema.
    pub since: u64,
}

/// Where a custom kind stores its replicas.
#[derive(Debug)]
pub(crate) struct Scale {
    pub spec_replicas: Vec<String>,
    pub status_replicas: JsonPath,
    pub selector: Option<JsonPath>,
}

impl Served {
    pub(crate) fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }

    pub(crate) fn resource(&self) -> GroupResource<'_> {
        GroupResource {
            group: &self.group,
            resource: &self.plural,
        }
    }

    pub(crate) fn group_kind(&self) -> GroupKind<'_> {
        GroupKind {
            group: &self.group,
            kind: &self.kind,
        }
    }

    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        self.subresources
            .iter()
            .any(|subresource| subresource.name == name)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether stored objects have this version.
    pub(crate) fn is_storage_version(&self) -> bool {
        self.storage_api_version == self.api_version()
    }

    /// Whether `metadata.generation` is counted.
    pub(crate) fn has_generation(&self) -> bool {
        match &self.origin {
            Origin::BuiltIn(kind) => kind.generation,
            Origin::Custom(_) => true,
        }
    }

    /// How the fields of this kind merge.
    pub(crate) fn shape(&self) -> Type<'_> {
        match &self.origin {
            Origin::BuiltIn(kind) => Type::built_in(kind.group, kind.kind),
            Origin::Custom(custom) => Type::Custom(&custom.schema),
        }
    }

    /// The schema whose defaults an object stored at this revision may lack.
    pub(crate) fn later_schema(&self, revision: u64) -> Option<&Schema> {
        match &self.origin {
            Origin::Custom(custom) if revision < custom.stored.since => Some(&custom.stored.schema),
            _ => None,
        }
    }

    /// The behaviour of a built-in kind.
    pub(crate) fn strategy(&self) -> Option<&'static Strategy> {
        match &self.origin {
            Origin::BuiltIn(kind) => Some(&kind.strategy),
            Origin::Custom(_) => None,
        }
    }

    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.origin, Origin::Custom(_))
    }

    pub(crate) fn check_fields(
        &self,
        selector: &FieldSelector,
    ) -> Result<(), apimachinery::selector::SelectorError> {
        let mut offered = FieldSelector::offered(&self.group, &self.plural).to_vec();
        if let Origin::Custom(custom) = &self.origin {
            offered.extend(custom.selectable.iter().map(String::as_str));
        }
        selector.check(&offered)
    }

    fn to_resource(&self, schema: Value) -> Resource {
        Resource {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
            singular: self.singular.clone(),
            short_names: self.short_names.clone(),
            categories: self.categories.clone(),
            namespaced: self.namespaced,
            verbs: self.verbs.iter().map(ToString::to_string).collect(),
            subresources: self.subresources.clone(),
            schema,
            takes_strategic_patches: !self.is_custom(),
        }
    }
}

/// A group and version of another server.
#[derive(Debug, Clone)]
pub(crate) struct Aggregated {
    pub group: String,
    pub version: String,
    pub backend: Backend,
    /// The resources that the server reported; empty until its first response.
    pub resources: Vec<Resource>,
    pub documents: Arc<Documents>,
}

/// The `OpenAPI` documents of another server; null if it has none.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    pub v2: Value,
    /// Of its group and version.
    pub v3: Value,
}

/// The connection to another server, from the spec of an `APIService`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    pub namespace: String,
    pub service: String,
    pub port: u16,
    /// Base64-encoded PEM, as in the object.
    pub ca_bundle: String,
}

#[derive(Debug, Clone)]
struct Snapshot {
    custom: Vec<Arc<Served>>,
    aggregated: Vec<Arc<Aggregated>>,
}

/// The currently served kinds.
#[derive(Debug)]
pub(crate) struct Registry {
    built_in: Vec<Arc<Served>>,
    live: RwLock<Arc<Snapshot>>,
    schemas: BuiltInSchemas,
    definitions: Mutex<Definitions>,
}

/// Parsed definitions, so that an unchanged definition is not parsed again.
#[derive(Debug, Default)]
struct Definitions {
    /// By the definition's revision, which is unique.
    kinds: HashMap<u64, Vec<Arc<Served>>>,
    shared: Interner,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            built_in: builtin::KINDS
                .iter()
                .map(|kind| Arc::new(serve(kind)))
                .collect(),
            live: RwLock::new(Arc::new(Snapshot {
                custom: Vec::new(),
                aggregated: Vec::new(),
            })),
            schemas: BuiltInSchemas::default(),
            definitions: Mutex::default(),
        }
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        self.all()
            .into_iter()
            .find(|kind| kind.version == version && kind.is(group, plural))
    }

    /// The preferred version of a kind, by the kind's name.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<Arc<Served>> {
        self.all()
            .into_iter()
            .find(|served| served.group == group && served.kind == kind)
    }

    /// Every kind whose objects are in our store.
    pub(crate) fn all(&self) -> Vec<Arc<Served>> {
        let live = Arc::clone(&self.live.read());
        self.built_in.iter().chain(&live.custom).cloned().collect()
    }

    pub(crate) fn aggregated(&self, group: &str, version: &str) -> Option<Arc<Aggregated>> {
        let live = Arc::clone(&self.live.read());
        live.aggregated
            .iter()
            .find(|a| a.group == group && a.version == version)
            .cloned()
    }

    pub(crate) fn all_aggregated(&self) -> Vec<Arc<Aggregated>> {
        self.live.read().aggregated.clone()
    }

    /// Replaces the kinds of CRDs by those of these definitions. Returns the errors of invalid
    /// definitions, which define no kinds.
    pub(crate) fn set_definitions(
        &self,
        stored: &[Stored],
    ) -> Result<Vec<(String, Vec<Violation>)>, StoreError> {
        let mut definitions = self.definitions.lock();
        let mut wrong = Vec::new();
        let mut kinds = HashMap::new();
        let mut custom = Vec::new();
        for one in stored {
            let found = if let Some(known) = definitions.kinds.remove(&one.revision) {
                known
            } else {
                let definition = one.parse()?;
                match custom::versions(&definition, one.revision, &mut definitions.shared) {
                    Ok(versions) => versions.into_iter().map(Arc::new).collect(),
                    Err(violations) => {
                        wrong.push((meta::name(&definition).to_owned(), violations));
                        Vec::new()
                    }
                }
            };
            custom.extend(found.iter().cloned());
            kinds.insert(one.revision, found);
        }
        definitions.kinds = kinds;
        let mut live = self.live.write();
        *live = Arc::new(Snapshot {
            custom,
            aggregated: live.aggregated.clone(),
        });
        Ok(wrong)
    }

    /// Replaces the groups of other servers.
    pub(crate) fn set_aggregated(&self, aggregated: Vec<Aggregated>) {
        let mut live = self.live.write();
        let aggregated = aggregated.into_iter().map(Arc::new).collect();
        *live = Arc::new(Snapshot {
            custom: live.custom.clone(),
            aggregated,
        });
    }

    /// Whether the group and version is built in.
    pub(crate) fn has_built_in(&self, group: &str, version: &str) -> bool {
        self.built_in
            .iter()
            .any(|kind| kind.group == group && (kind.version == version || group.is_empty()))
    }

    /// Calls `with` with the schema of a kind, if it has one.
    pub(crate) fn with_schema<T>(
        &self,
        kind: &Served,
        with: impl FnOnce(&Schema) -> T,
    ) -> Option<T> {
        match &kind.origin {
            Origin::BuiltIn(kind) => self.schemas.of(kind).map(|schema| with(&schema)),
            Origin::Custom(custom) => Some(with(&custom.schema)),
        }
    }

    /// The resources for discovery.
    pub(crate) fn resources(&self) -> Vec<Resource> {
        let mut out = self.own_resources(|_| Value::Null);
        for aggregated in self.all_aggregated() {
            out.extend(aggregated.resources.iter().cloned());
        }
        out
    }

    /// The resources of this server with their schemas. `custom` supplies those of CRDs, which are not
    /// cached. Other servers describe theirs in their own documents.
    pub(crate) fn own_resources(&self, custom: impl Fn(&Served) -> Value) -> Vec<Resource> {
        let all = self.all();
        all.iter()
            .map(|kind| kind.to_resource(custom(kind)))
            .collect()
    }
}

/// The schema of a built-in kind for documents.
pub(crate) fn document_schema(kind: &Served) -> Value {
    match &kind.origin {
        Origin::BuiltIn(kind) => (kind.schema)(References::Kept),
        Origin::Custom(_) => Value::Null,
    }
}

fn serve(kind: &'static BuiltIn) -> Served {
    let api_version = join_api_version(kind.group, kind.version);
    let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    let (collection, storage_api_version) = match &kind.stored_as {
        Some(alias) => (
            Collection::new(alias.group, alias.plural),
            alias.api_version.to_owned(),
        ),
        None => (Collection::new(kind.group, kind.plural), api_version),
    };
    Served {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        kind: kind.kind.to_owned(),
        list_kind: format!("{}List", kind.kind),
        plural: kind.plural.to_owned(),
        singular: kind.singular.to_owned(),
        short_names: texts(kind.short_names),
        categories: texts(kind.categories),
        namespaced: kind.namespaced,
        verbs: kind.verbs,
        deprecation: None,
        subresources: kind
            .subresources
            .iter()
            .map(builtin::Sub::to_subresource)
            .collect(),
        collection,
        storage_api_version,
        origin: Origin::BuiltIn(kind),
    }
}
