//! From a VMI to a libvirt domain.
