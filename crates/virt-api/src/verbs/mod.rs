//! The verbs of the subresource API.
//!
//! A verb is a module here and a line in [`ALL`]. Verbs on a VM change the VM and leave the rest
//! to its controller; verbs on a VMI are passed to the node that runs it, under the same name;
//! streams join the caller to a device of the guest.

mod on_vm;
mod on_vmi;

mod console;
mod pause;
mod restart;
mod start;
mod stop;
mod unpause;
mod vnc;

use axum::{Router, http::Method};

pub(crate) use on_vm::{Change, SeenVm, VmVerb};
pub(crate) use on_vmi::{StreamVerb, VmiVerb};

use crate::settings::Shared;

/// What a verb is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    Vm,
    Vmi,
}

impl Object {
    pub fn plural(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachines",
            Self::Vmi => "virtualmachineinstances",
        }
    }

    /// As refusals name it.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Self::Vm => "virtualmachine",
            Self::Vmi => "virtualmachineinstance",
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
        let path = format!(
            "/apis/subresources.kubevirt.io/{version}/namespaces/{{namespace}}/{}/{{name}}/{}",
            self.object.plural(),
            self.name,
        );
        (self.mount)(router, &path)
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
    on_vmi::entry::<pause::Pause>(),
    on_vmi::entry::<unpause::Unpause>(),
    on_vmi::stream_entry::<console::Console>(),
    on_vmi::stream_entry::<vnc::Vnc>(),
];
