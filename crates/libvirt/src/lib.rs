//! libvirt's wire protocol.
