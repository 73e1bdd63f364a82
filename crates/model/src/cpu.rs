//! Virtual CPUs and the machine's architecture.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::domain::Cpu;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture<'a> {
    Amd64,
    Arm64,
    S390x,
    Unknown(&'a str),
}

/// Sockets, cores and threads at the start of the guest. None is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    pub sockets: u32,
    pub cores: u32,
    pub threads: u32,
    /// Sockets that the guest may grow to.
    pub max_sockets: Option<u32>,
}

/// Whether the guest relies on a time stamp counter of one frequency on all nodes: its own clock or its
/// Hyper-V timers would be wrong on another.
pub fn needs_fixed_tsc(vmi: &VirtualMachineInstance) -> bool {
    let domain = &vmi.spec.domain;
    let mut features = domain.cpu.iter().flat_map(|cpu| &cpu.features);
    let is_invariant = features.any(|feature| {
        feature.name == "invtsc" && matches!(feature.policy.as_deref(), Some("require" | "force"))
    });
    let hyperv = domain.features.as_ref().and_then(|all| all.hyperv.as_ref());
    let reenlightenment = hyperv.and_then(|hyperv| hyperv.reenlightenment.as_ref());
    is_invariant || reenlightenment.is_some_and(|feature| feature.enabled != Some(false))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuModel<'a> {
    /// The VMI names none; the guest runs with the host's model.
    Unset,
    HostModel,
    HostPassthrough,
    Named(&'a str),
}

impl<'a> Architecture<'a> {
    pub(crate) fn of(name: Option<&'a str>) -> Self {
        match name {
            None | Some("" | "amd64") => Self::Amd64,
            Some("arm64") => Self::Arm64,
            Some("s390x") => Self::S390x,
            Some(other) => Self::Unknown(other),
        }
    }

    pub fn as_str(self) -> &'a str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::S390x => "s390x",
            Self::Unknown(name) => name,
        }
    }
}

impl Topology {
    /// A part that is missing or zero counts as one.
    pub fn of(cpu: Option<&Cpu>) -> Self {
        let positive = |count: Option<u32>| count.filter(|count| *count > 0);
        let part = |count: fn(&Cpu) -> Option<u32>| positive(cpu.and_then(count)).unwrap_or(1);
        Self {
            sockets: part(|cpu| cpu.sockets),
            cores: part(|cpu| cpu.cores),
            threads: part(|cpu| cpu.threads),
            max_sockets: positive(cpu.and_then(|cpu| cpu.max_sockets)),
        }
    }

    /// Virtual CPUs that the guest starts with.
    pub fn vcpus(self) -> u64 {
        [self.sockets, self.cores, self.threads]
            .into_iter()
            .map(u64::from)
            .fold(1, u64::saturating_mul)
    }
}

impl<'a> CpuModel<'a> {
    pub(crate) fn of(cpu: Option<&'a Cpu>) -> Self {
        match cpu.and_then(|cpu| cpu.model.as_deref()) {
            None | Some("") => Self::Unset,
            Some("host-model") => Self::HostModel,
            Some("host-passthrough") => Self::HostPassthrough,
            Some(name) => Self::Named(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_cpus_are_the_product_of_the_given_parts() {
        for (sockets, cores, threads, expected) in [
            (None, None, None, 1),
            (Some(0), Some(0), Some(0), 1),
            (Some(2), Some(3), None, 6),
            (Some(2), Some(2), Some(2), 8),
            (Some(u32::MAX), Some(u32::MAX), Some(u32::MAX), u64::MAX),
        ] {
            let cpu = Cpu {
                sockets,
                cores,
                threads,
                ..Cpu::default()
            };
            assert_eq!(Topology::of(Some(&cpu)).vcpus(), expected, "{cpu:?}");
        }
        assert_eq!(Topology::of(None).vcpus(), 1);
    }

    #[test]
    fn architecture_is_amd64_unless_named() {
        for (name, expected) in [
            (None, Architecture::Amd64),
            (Some(""), Architecture::Amd64),
            (Some("arm64"), Architecture::Arm64),
            (Some("s390x"), Architecture::S390x),
            (Some("mips"), Architecture::Unknown("mips")),
        ] {
            assert_eq!(Architecture::of(name), expected);
        }
    }

    #[test]
    fn cpu_models_of_the_host_are_no_names() {
        for (model, expected) in [
            ("", CpuModel::Unset),
            ("host-model", CpuModel::HostModel),
            ("host-passthrough", CpuModel::HostPassthrough),
            ("EPYC", CpuModel::Named("EPYC")),
        ] {
            let cpu = Cpu {
                model: Some(model.to_owned()),
                ..Cpu::default()
            };
            assert_eq!(CpuModel::of(Some(&cpu)), expected);
        }
        assert_eq!(CpuModel::of(None), CpuModel::Unset);
    }
}
