//! Warnings about a valid VM.

use cluster_config::ClusterConfig;
use instancetype::TEMPLATE_PATH;
use kubevirt_api::VirtualMachine;

use crate::guest_warnings::{Described, guest_warnings};

/// Warnings for the author of a VM.
pub fn warnings(vm: &VirtualMachine, config: &ClusterConfig) -> Vec<String> {
    let mut all = Vec::new();
    if vm.spec.running.is_some() {
        let deprecated = "spec.running is deprecated; use spec.runStrategy: Always instead of \
                          true, Halted instead of false";
        all.push(deprecated.to_owned());
    }
    let template = &vm.spec.template;
    if let Some(spec) = &template.spec {
        let guest = Described {
            spec,
            spec_path: TEMPLATE_PATH,
        };
        all.extend(guest_warnings(&guest, config));
    }
    all
}
