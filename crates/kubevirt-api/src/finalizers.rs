//! Finalizers: who must have looked at an object before it may go.

/// On VMIs: kept until no pod of the VMI is left.
pub const VMI: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// The unqualified form of [`VMI`] that older versions used.
pub const VMI_OLD: &str = "foregroundDeleteVirtualMachine";
/// On VMs and on VMIs made by a VM: the VM controller sees the last state before it goes.
pub const VM_CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
