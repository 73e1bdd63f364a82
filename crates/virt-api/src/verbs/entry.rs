//! One verb: its route, its entry in discovery, its right.

use axum::{
    Router,
    extract::Request,
    http::Method,
    middleware::{self, Next},
    routing::MethodRouter,
};
use installation::registration::{Aggregated, SUBRESOURCES, TEMPLATE_SUBRESOURCES};

use super::{contract::Contract, missing::Missing};
use crate::{metrics, settings::Shared};

/// The object of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Vm,
    Vmi,
    /// A template of VMs.
    Template,
    /// An object in the request, in a namespace.
    Namespace,
    Cluster,
}

impl Object {
    pub fn plural(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachines",
            Self::Vmi => "virtualmachineinstances",
            Self::Template => "virtualmachinetemplates",
            Self::Namespace => "namespaces",
            Self::Cluster => "",
        }
    }

    /// The name in messages.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachine",
            Self::Vmi => "virtualmachineinstance",
            Self::Template => "virtualmachinetemplate",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
        }
    }

    /// The API that serves its verbs.
    pub const fn api(self) -> Aggregated {
        match self {
            Self::Template => TEMPLATE_SUBRESOURCES,
            Self::Vm | Self::Vmi | Self::Namespace | Self::Cluster => SUBRESOURCES,
        }
    }
}

/// The lowest of the roles view, edit and admin that has the right to a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every user who has logged in; virt-api does not check it again.
    Everyone,
    View,
    Edit,
    Admin,
    /// Only the role `kubevirt.io:migrate`.
    Migrate,
    /// No role of users: other components, and users whom the administrator permits.
    Component,
}

/// The verb of the right, and the method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Update,
    Create,
}

impl Verb {
    /// The verb in discovery, in roles and in access checks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Update => "update",
            Self::Create => "create",
        }
    }

    pub const fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Update => Method::PUT,
            Self::Create => Method::POST,
        }
    }
}

/// One verb.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub object: Object,
    pub name: &'static str,
    pub verb: Verb,
    pub level: Level,
    pub contract: Contract,
    pub(super) handler: Handler,
}

/// What answers the verb.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handler {
    Built(fn() -> MethodRouter<Shared>),
    /// The same at each of these ends of the path, which hold parameters.
    WithParameters(&'static [&'static str], fn() -> MethodRouter<Shared>),
    Missing(&'static Missing),
}

impl Entry {
    /// Adds the routes. The metrics get the verb from the entry, as a path does not name its parameters.
    pub(crate) fn mount(&'static self, router: Router<Shared>, version: &str) -> Router<Shared> {
        let record =
            move |request: Request, next: Next| metrics::record_request(self, request, next);
        let methods = match self.handler {
            Handler::Built(methods) | Handler::WithParameters(_, methods) => methods(),
            Handler::Missing(missing) => missing.route(self),
        };
        let methods = methods.layer(middleware::from_fn(record));
        let paths = self.paths(version).into_iter();
        paths.fold(router, |router, path| router.route(&path, methods.clone()))
    }

    /// The paths of the verb; parameters are in braces.
    pub fn paths(&self, version: &str) -> Vec<String> {
        let base = format!("/apis/{}/{version}", self.object.api().group);
        let path = match self.object {
            Object::Cluster => format!("{base}/{}", self.name),
            Object::Namespace => format!("{base}/namespaces/{{namespace}}/{}", self.name),
            Object::Vm | Object::Vmi | Object::Template => format!(
                "{base}/namespaces/{{namespace}}/{}/{{name}}/{}",
                self.object.plural(),
                self.name
            ),
        };
        let ends: &[&str] = match self.handler {
            Handler::Built(_) | Handler::Missing(_) => &[""],
            Handler::WithParameters(ends, _) => ends,
        };
        ends.iter().map(|end| format!("{path}{end}")).collect()
    }

    /// What to use instead of a verb that is not built.
    pub(crate) fn instead(&self) -> Option<&'static str> {
        match self.handler {
            Handler::Missing(missing) => Some(missing.instead()),
            Handler::Built(_) | Handler::WithParameters(..) => None,
        }
    }

    /// Whether the verb does more than to answer what to use instead.
    pub fn is_built(&self) -> bool {
        !matches!(self.handler, Handler::Missing(_))
    }

    /// The resource in discovery and in roles.
    pub fn resource(&self) -> String {
        match self.object {
            Object::Namespace | Object::Cluster => self.name.to_owned(),
            Object::Vm | Object::Vmi | Object::Template => {
                format!("{}/{}", self.object.plural(), self.name)
            }
        }
    }
}
