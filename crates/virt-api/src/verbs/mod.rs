//! The verbs of the subresource API.
//!
//! A verb is a module here and a row of [`ALL`], which has its route, discovery and right; tests compare
//! the rows with the list of `KubeVirt`'s verbs, to which we add `usage`, `suspend`, `resume` and the verbs of
//! templates, which are another project's there, and with the roles of users. Verbs on a VM change the VM,
//! and virt-controller does the rest; verbs on a VMI are sent to its node under the same name; streams
//! connect the caller to a device of the guest. Verbs that are not built are rows in `missing`.

mod body;
mod changes;
mod contract;
mod entry;
mod guest;
mod missing;
mod on_vm;
mod on_vmi;
mod query;
mod volume_changes;

mod cancel_evacuation;
mod console;
mod expand;
mod filesystemlist;
mod freeze;
mod guestfs;
mod guestosinfo;
pub(crate) mod healthz;
mod memory_dump;
mod migrate;
mod object_graph;
mod pause;
mod port_forward;
mod profiler;
mod reset;
mod restart;
mod screenshot;
mod sev;
mod softreboot;
mod start;
mod stop;
mod suspend;
mod template;
mod unfreeze;
mod unpause;
mod usage;
mod usb_redirection;
mod userlist;
mod version;
mod vnc;
mod volumes;
mod vsock;

#[cfg(test)]
mod texts;

pub(crate) use body::NoOptions;
pub use contract::{Answer, Contract};
pub use entry::{Entry, Level, Object, Verb};
pub(crate) use on_vm::{Change, ObservedVm, VmVerb};
pub(crate) use on_vmi::{AgentVerb, BytesVerb, StreamVerb, VmiVerb};

/// All verbs.
pub static ALL: &[Entry] = &[
    on_vm::entry::<start::Start>(),
    on_vm::entry::<stop::Stop>(),
    on_vm::entry::<restart::Restart>(),
    on_vm::entry::<suspend::Suspend>(),
    on_vm::entry::<suspend::Resume>(),
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
    on_vmi::stream_entry::<usb_redirection::UsbRedirection>(),
    on_vmi::bytes_entry::<screenshot::Screenshot>(),
    on_vmi::bytes_entry::<usage::Usage>(),
    object_graph::OF_VM,
    object_graph::OF_VMI,
    cancel_evacuation::OF_VM,
    cancel_evacuation::OF_VMI,
    port_forward::TO_VM,
    port_forward::TO_VMI,
    version::ENTRY,
    healthz::ENTRY,
    guestfs::ENTRY,
    volumes::ADD_TO_VM,
    volumes::REMOVE_FROM_VM,
    volumes::ADD_TO_VMI,
    volumes::REMOVE_FROM_VMI,
    memory_dump::DUMP,
    memory_dump::REMOVE,
    migrate::ENTRY,
    missing::BACKUP,
    missing::REDEFINE_CHECKPOINT,
    vsock::ENTRY,
    sev::CERTIFICATES,
    sev::MEASUREMENT,
    sev::SESSION,
    sev::SECRET,
    profiler::START,
    profiler::STOP,
    profiler::DUMP,
    template::PROCESS,
    template::CREATE,
];
