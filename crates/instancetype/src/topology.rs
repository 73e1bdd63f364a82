//! How the vCPUs of an instance type become sockets, cores and threads.

use kubevirt_api::preference::{PreferredCpuTopology, SpreadAcross, VirtualMachinePreferenceSpec};

/// Default ratio of `spread`.
const RATIO: u32 = 2;
const THREADS_PER_CORE: u32 = 2;

/// How vCPUs are presented to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Sockets,
    Cores,
    Threads,
    Spread(Spread),
    /// The guest has no preference; sockets are used.
    Any,
}

/// The levels that vCPUs are spread over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// This many cores per socket.
    SocketsCores(u32),
    /// This many cores per socket, two threads per core.
    SocketsCoresThreads(u32),
    /// This many threads per core.
    CoresThreads(u32),
}

/// Sockets, cores per socket, threads per core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    pub sockets: u32,
    pub cores: u32,
    pub threads: u32,
}

impl Topology {
    const ONE: Self = Self {
        sockets: 1,
        cores: 1,
        threads: 1,
    };
}

impl Layout {
    /// The preferred layout, from the current values or their deprecated aliases.
    pub fn of(preference: Option<&VirtualMachinePreferenceSpec>) -> Self {
        use PreferredCpuTopology as Preferred;

        let cpu = preference.and_then(|preference| preference.cpu.as_ref());
        let preferred = cpu.and_then(|cpu| cpu.preferred_cpu_topology.as_ref());
        match preferred {
            Some(Preferred::Cores | Preferred::PreferCores) => Self::Cores,
            Some(Preferred::Threads | Preferred::PreferThreads) => Self::Threads,
            Some(Preferred::Any | Preferred::PreferAny) => Self::Any,
            Some(Preferred::Spread | Preferred::PreferSpread) => {
                Self::Spread(Spread::of(preference))
            }
            // Unknown values are refused by the validation of preferences.
            Some(Preferred::Sockets | Preferred::PreferSockets | Preferred::Other(_)) | None => {
                Self::Sockets
            }
        }
    }

    /// Why this number of vCPUs cannot be spread evenly, if so.
    pub fn problem(self, vcpus: u32) -> Option<String> {
        let Self::Spread(spread) = self else {
            return None;
        };
        let by = match spread {
            Spread::SocketsCores(ratio) | Spread::CoresThreads(ratio) => ratio,
            Spread::SocketsCoresThreads(ratio) => ratio.saturating_mul(THREADS_PER_CORE),
        };
        let is_even = vcpus <= 1 || vcpus.is_multiple_of(by);
        (!is_even).then(|| {
            format!(
                "the preference spreads vCPUs by {by}, which does not divide {vcpus}; choose an \
                 instance type with a multiple of {by}, or another ratio in spec.cpu.spreadOptions \
                 of the preference"
            )
        })
    }

    pub fn topology(self, vcpus: u32) -> Topology {
        if vcpus <= 1 {
            return Topology::ONE;
        }
        let sockets = |sockets| Topology {
            sockets,
            ..Topology::ONE
        };
        match self {
            Self::Sockets | Self::Any => sockets(vcpus),
            Self::Cores => Topology {
                cores: vcpus,
                ..Topology::ONE
            },
            Self::Threads => Topology {
                threads: vcpus,
                ..Topology::ONE
            },
            Self::Spread(Spread::SocketsCores(ratio)) => Topology {
                cores: ratio,
                ..sockets(vcpus / ratio)
            },
            Self::Spread(Spread::SocketsCoresThreads(ratio)) => Topology {
                sockets: vcpus / THREADS_PER_CORE / ratio,
                cores: ratio,
                threads: THREADS_PER_CORE,
            },
            Self::Spread(Spread::CoresThreads(ratio)) => Topology {
                sockets: 1,
                cores: vcpus / ratio,
                threads: ratio,
            },
        }
    }
}

impl Spread {
    fn of(preference: Option<&VirtualMachinePreferenceSpec>) -> Self {
        let cpu = preference.and_then(|preference| preference.cpu.as_ref());
        let options = cpu.and_then(|cpu| cpu.spread_options.as_ref());
        let deprecated = preference.and_then(|one| one.prefer_spread_socket_to_core_ratio);
        let ratio = options.and_then(|options| options.ratio).or(deprecated);
        let ratio = ratio.filter(|ratio| *ratio != 0).unwrap_or(RATIO);
        match options.and_then(|options| options.across.as_ref()) {
            Some(SpreadAcross::CoresThreads) => Self::CoresThreads(ratio),
            Some(SpreadAcross::SocketsCoresThreads) => Self::SocketsCoresThreads(ratio),
            Some(SpreadAcross::SocketsCores | SpreadAcross::Other(_)) | None => {
                Self::SocketsCores(ratio)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layout(preference: &serde_json::Value) -> Layout {
        let preference = serde_json::from_value(preference.clone()).expect("a preference");
        Layout::of(Some(&preference))
    }

    #[test]
    fn vcpus_follow_the_preferred_topology() {
        let topology = |value| json!({ "cpu": { "preferredCPUTopology": value } });
        let spread = |options| json!({ "cpu": { "preferredCPUTopology": "spread", "spreadOptions": options } });
        for (preference, vcpus, wanted) in [
            (json!({}), 4, [4, 1, 1]),
            (topology("sockets"), 4, [4, 1, 1]),
            (topology("preferSockets"), 4, [4, 1, 1]),
            (topology("cores"), 4, [1, 4, 1]),
            (topology("preferCores"), 4, [1, 4, 1]),
            (topology("threads"), 4, [1, 1, 4]),
            (topology("preferThreads"), 4, [1, 1, 4]),
            (topology("any"), 4, [4, 1, 1]),
            (topology("preferAny"), 4, [4, 1, 1]),
            (topology("preferSpread"), 8, [4, 2, 1]),
            (topology("spread"), 1, [1, 1, 1]),
            (topology("cores"), 1, [1, 1, 1]),
            (spread(json!({ "ratio": 4 })), 8, [2, 4, 1]),
            (
                spread(json!({ "across": "SocketsCores", "ratio": 0 })),
                8,
                [4, 2, 1],
            ),
            (spread(json!({ "across": "CoresThreads" })), 8, [1, 4, 2]),
            (
                spread(json!({ "across": "SocketsCoresThreads", "ratio": 4 })),
                16,
                [2, 4, 2],
            ),
        ] {
            let Topology {
                sockets,
                cores,
                threads,
            } = layout(&preference).topology(vcpus);
            assert_eq!([sockets, cores, threads], wanted, "{preference} {vcpus}");
            assert_eq!(
                layout(&preference).problem(vcpus),
                None,
                "{preference} {vcpus}"
            );
        }
    }

    #[test]
    fn spread_options_override_the_deprecated_ratio() {
        let deprecated = json!({ "preferSpreadSocketToCoreRatio": 3, "cpu": { "preferredCPUTopology": "spread" } });
        assert_eq!(layout(&deprecated).topology(9).cores, 3);
        let both = json!({ "preferSpreadSocketToCoreRatio": 3, "cpu": { "preferredCPUTopology": "spread", "spreadOptions": { "ratio": 4 } } });
        assert_eq!(layout(&both).topology(8).cores, 4);
    }

    #[test]
    fn ratio_must_divide_the_vcpus() {
        let spread = |options| json!({ "cpu": { "preferredCPUTopology": "spread", "spreadOptions": options } });
        for (options, vcpus, by) in [
            (json!({}), 3, "by 2"),
            (json!({ "ratio": 3 }), 4, "by 3"),
            (json!({ "across": "CoresThreads" }), 5, "by 2"),
            (
                json!({ "across": "SocketsCoresThreads", "ratio": 2 }),
                6,
                "by 4",
            ),
        ] {
            let problem = layout(&spread(options)).problem(vcpus).expect("a problem");
            assert!(problem.contains(by), "{problem}");
        }
    }
}
