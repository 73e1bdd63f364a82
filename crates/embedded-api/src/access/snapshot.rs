//! The rules of all roles and their subjects, read together.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use apimachinery::{meta, rbac::Rule};
use parking_lot::Mutex;
use serde_json::Value;

use super::{Attributes, Decision, GROUP};
use crate::{
    api::Api,
    auth::Identity,
    error::ApiError,
    store::{Collection, Scope},
};

/// The current snapshot, if one was read since the last change.
#[derive(Debug, Default)]
pub(crate) struct Current {
    /// Counts changes, so that a snapshot read before a change is not kept after it.
    changes: AtomicU64,
    snapshot: Mutex<Option<Arc<Snapshot>>>,
}

impl Current {
    /// A role or binding was written.
    pub(crate) fn invalidate(&self) {
        let mut snapshot = self.snapshot.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        *snapshot = None;
    }

    pub(crate) async fn get(&self, api: &Api) -> Result<Arc<Snapshot>, ApiError> {
        if let Some(snapshot) = &*self.snapshot.lock() {
            return Ok(Arc::clone(snapshot));
        }
        let before = self.changes.load(Ordering::SeqCst);
        let read = Arc::new(Snapshot::read(api).await?);
        let mut snapshot = self.snapshot.lock();
        if self.changes.load(Ordering::SeqCst) == before {
            *snapshot = Some(Arc::clone(&read));
        }
        Ok(read)
    }
}

/// The subjects of a role.
#[derive(Debug)]
struct Binding {
    /// `ClusterRoleBinding "x"`, for the reasons of decisions.
    display: String,
    subjects: Vec<Subject>,
    role: RoleRef,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
}

/// A role by its namespace (none for cluster roles) and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RoleRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl RoleRef {
    /// The role of a binding.
    pub(crate) fn of(binding: &Value) -> Self {
        let role = &binding["roleRef"];
        let namespace = if role["kind"] == "Role" {
            meta::namespace(binding)
        } else {
            ""
        };
        Self {
            namespace: namespace.to_owned(),
            name: role["name"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn kind(&self) -> &'static str {
        if self.namespace.is_empty() {
            "ClusterRole"
        } else {
            "Role"
        }
    }

    fn not_found(&self) -> String {
        let kind = self.kind().to_lowercase();
        format!("{kind}.{GROUP} {:?} not found", self.name)
    }
}

/// All roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    roles: HashMap<RoleRef, Vec<Rule>>,
    /// By namespace; cluster role bindings have none.
    bindings: HashMap<String, Vec<Binding>>,
}

impl Snapshot {
    async fn read(api: &Api) -> Result<Self, ApiError> {
        let mut out = Self::default();
        for plural in ["clusterroles", "roles"] {
            for role in objects(api, plural).await? {
                let key = RoleRef {
                    namespace: meta::namespace(&role).to_owned(),
                    name: meta::name(&role).to_owned(),
                };
                out.roles.insert(key, Rule::all_of(&role));
            }
        }
        for plural in ["clusterrolebindings", "rolebindings"] {
            for binding in objects(api, plural).await? {
                let namespace = meta::namespace(&binding).to_owned();
                let bindings = out.bindings.entry(namespace).or_default();
                bindings.push(Binding::of(&binding));
            }
        }
        Ok(out)
    }

    /// The rules of a role, if it exists.
    pub(crate) fn role(&self, role: &RoleRef) -> Option<&[Rule]> {
        self.roles.get(role).map(Vec::as_slice)
    }

    pub(crate) fn decide(&self, identity: &Identity, wanted: &Attributes) -> Decision {
        let action = wanted.action();
        let mut missing = Vec::new();
        for (binding, subject) in self.bindings_of(identity, wanted.namespace()) {
            let Some(rules) = self.roles.get(&binding.role) else {
                missing.push(binding.role.not_found());
                continue;
            };
            if rules.iter().any(|rule| rule.allows(&action)) {
                let reason = format!(
                    "RBAC: allowed by {} of {} {:?} to {}",
                    binding.display,
                    binding.role.kind(),
                    binding.role.name,
                    subject.show(),
                );
                return Decision {
                    allowed: true,
                    reason,
                };
            }
        }
        let reason = match missing.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Decision {
            allowed: false,
            reason,
        }
    }

    pub(crate) fn rules_of(&self, identity: &Identity, namespace: &str) -> Vec<Rule> {
        self.bindings_of(identity, namespace)
            .filter_map(|(binding, _)| self.role(&binding.role))
            .flatten()
            .cloned()
            .collect()
    }

    /// Roles in bindings of the identity that do not exist.
    pub(crate) fn missing_roles<'a>(
        &'a self,
        identity: &'a Identity,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a RoleRef> {
        self.bindings_of(identity, namespace)
            .map(|(binding, _)| &binding.role)
            .filter(|role| !self.roles.contains_key(role))
    }

    /// The bindings of an identity, cluster role bindings first.
    fn bindings_of<'a>(
        &'a self,
        identity: &'a Identity,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        let of = |namespace: &str| self.bindings.get(namespace).into_iter().flatten();
        let own = (!namespace.is_empty()).then(|| of(namespace));
        of("")
            .chain(own.into_iter().flatten())
            .filter_map(|binding| {
                let subject = binding
                    .subjects
                    .iter()
                    .find(|subject| subject.is(identity))?;
                Some((binding, subject))
            })
    }
}

impl Binding {
    fn of(binding: &Value) -> Self {
        let namespace = meta::namespace(binding);
        let name = meta::name(binding);
        let display = if namespace.is_empty() {
            format!("ClusterRoleBinding {name:?}")
        } else {
            format!("RoleBinding {:?}", format!("{name}/{namespace}"))
        };
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        Self {
            display,
            subjects: subjects
                .filter_map(|subject| Subject::of(subject, namespace))
                .collect(),
            role: RoleRef::of(binding),
        }
    }
}

impl Subject {
    fn of(subject: &Value, namespace: &str) -> Option<Self> {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match text("kind") {
            "User" => Some(Self::User(text("name").to_owned())),
            "Group" => Some(Self::Group(text("name").to_owned())),
            "ServiceAccount" => {
                let own = text("namespace");
                let namespace = if own.is_empty() { namespace } else { own };
                let user = Identity::service_account_user(namespace, text("name"));
                Some(Self::User(user))
            }
            _ => None,
        }
    }

    fn is(&self, identity: &Identity) -> bool {
        match self {
            Self::User(user) => identity.user == *user,
            Self::Group(group) => identity.groups.contains(group),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Group(group) => format!("Group {group:?}"),
            Self::User(user) => match Identity::parse_service_account(user) {
                Some((namespace, name)) => {
                    format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
                }
                None => format!("User {user:?}"),
            },
        }
    }
}

async fn objects(api: &Api, plural: &str) -> Result<Vec<Value>, ApiError> {
    let scope = Scope::all(Collection::new(GROUP, plural));
    let page = api.store.list(&scope, None, None).await?;
    page.items
        .iter()
        .map(|stored| Ok(stored.parse()?))
        .collect()
}
