//! The verbs of the subresource API.
//!
//! A verb is a module here and a line in [`ALL`]. Verbs on a VM change the VM and leave the rest
//! to its controller; verbs on a VMI are passed to the node that runs it, under the same name;
//! streams join the caller to a device of the guest. `expand` answers with a VM and changes none.

mod body;
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
pub(crate) use on_vm::{Change, SeenVm, VmVerb};
pub(crate) use on_vmi::{AgentVerb, StreamVerb, VmiVerb};

use crate::settings::Shared;

/// What a verb is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Vm,
    Vmi,
    /// What is sent along, in a namespace.
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

    /// As refusals name it.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachine",
            Self::Vmi => "virtualmachineinstance",
            Self::Namespace => "namespace",
        }
    }
}

/// One verb, as routes, discovery and rights need it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub object: Object,
    pub name: &'static str,
    pub method: Method,
    mount: fn(Router<Shared>, &str) -> Router<Shared>,
}

impl Entry {
    pub(crate) fn mount(&self, router: Router<Shared>, version: &str) -> Router<Shared> {
        let of_what = match self.object {
            Object::Namespace => String::new(),
            object => format!("/{}/{{name}}", object.plural()),
        };
        let path = format!(
            "/apis/subresources.kubevirt.io/{version}/namespaces/{{namespace}}{of_what}/{}",
            self.name,
        );
        (self.mount)(router, &path)
    }

    /// As discovery and rights call it.
    pub fn resource(&self) -> String {
        match self.object {
            Object::Namespace => self.name.to_owned(),
            object => format!("{}/{}", object.plural(), self.name),
        }
    }

    /// The verb of an access check.
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

/// Every verb there is.
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
