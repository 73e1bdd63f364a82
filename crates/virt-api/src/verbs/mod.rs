//! The verbs of the subresource API.
//!
//! A verb is a module here and a row of [`ALL`], which has its route, discovery and right; a test compares
//! the rights with the roles of users. Verbs on a VM change the VM, and virt-controller does the rest;
//! verbs on a VMI are sent to its node under the same name; streams connect the caller to a device of the
//! guest. `expand` returns a VM and changes none.

mod body;
mod changes;
mod guest;
mod on_vm;
mod on_vmi;

mod console;
mod expand;
mod filesystemlist;
mod freeze;
mod guestosinfo;
mod pause;
mod reset;
mod restart;
mod softreboot;
mod start;
mod stop;
mod unfreeze;
mod unpause;
mod userlist;
mod vnc;

use axum::{Router, http::Method};

pub(crate) use body::NoOptions;
pub(crate) use on_vm::{Change, ObservedVm, VmVerb};
pub(crate) use on_vmi::{AgentVerb, StreamVerb, VmiVerb};

use crate::settings::Shared;

/// The object of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Vm,
    Vmi,
    /// An object in the request, in a namespace.
    Namespace,
}

impl Object {
    pub fn plural(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachines",
            Self::Vmi => "virtualmachineinstances",
            Self::Namespace => "namespaces",
        }
    }

    /// The name in messages.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachine",
            Self::Vmi => "virtualmachineinstance",
            Self::Namespace => "namespace",
        }
    }
}

/// The lowest of the roles view, edit and admin that has the right to a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    View,
    Edit,
    Admin,
}

/// One verb: its route, its entry in discovery and its right.
#[derive(Debug, Clone)]
pub struct Entry {
    pub object: Object,
    pub name: &'static str,
    pub method: Method,
    pub level: Level,
    mount: fn(Router<Shared>, &str) -> Router<Shared>,
}

impl Entry {
    pub(crate) fn mount(&self, router: Router<Shared>, version: &str) -> Router<Shared> {
        let object = match self.object {
            Object::Namespace => String::new(),
            object => format!("/{}/{{name}}", object.plural()),
        };
        let path = format!(
            "/apis/subresources.kubevirt.io/{version}/namespaces/{{namespace}}{object}/{}",
            self.name,
        );
        (self.mount)(router, &path)
    }

    /// The resource in discovery and in roles.
    pub fn resource(&self) -> String {
        match self.object {
            Object::Namespace => self.name.to_owned(),
            object => format!("{}/{}", object.plural(), self.name),
        }
    }

    /// The verb in discovery, in roles and in access checks.
    pub fn access(&self) -> &'static str {
        access(&self.method)
    }
}

pub(crate) fn access(method: &Method) -> &'static str {
    if *method == Method::GET {
        "get"
    } else {
        "update"
    }
}

/// All verbs.
pub const ALL: &[Entry] = &[
    on_vm::entry::<start::Start>(),
    on_vm::entry::<stop::Stop>(),
    on_vm::entry::<restart::Restart>(),
    expand::OF_VM,
    expand::OF_BODY,
    on_vmi::entry::<pause::Pause>(),
    on_vmi::entry::<unpause::Unpause>(),
    on_vmi::entry::<softreboot::SoftReboot>(),
    on_vmi::entry::<reset::Reset>(),
    on_vmi::entry::<freeze::Freeze>(),
    on_vmi::entry::<unfreeze::Unfreeze>(),
    on_vmi::agent_entry::<guestosinfo::GuestOsInfo>(),
    on_vmi::agent_entry::<userlist::UserList>(),
    on_vmi::agent_entry::<filesystemlist::FileSystemList>(),
    on_vmi::stream_entry::<console::Console>(),
    on_vmi::stream_entry::<vnc::Vnc>(),
];
