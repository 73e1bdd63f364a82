//! Which of the pod's own CPUs runs which thread of the guest, and the NUMA cells that follow from it.
//!
//! The virtual CPUs of a core share a core of the host, as long as there are whole ones; then they
//! share the rest of a NUMA cell. Only a guest that does not see the host's cells may have a core in
//! two of them.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::annotations;
use kubevirt_api::domain::IoThreadsPolicy;
use model::{Guest, Topology};

use crate::element::Element;
use crate::io_threads::IoThreads;
use crate::{Acceleration, HostCpu, Input, RenderError};

const FIELD: &str = "spec.domain.cpu.dedicatedCpuPlacement";
const NUMA_FIELD: &str = "spec.domain.cpu.numa.guestMappingPassthrough";

/// The host's CPUs for each thread of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pinning {
    /// One for each virtual CPU that the guest has or is to have.
    pub(crate) vcpus: Vec<HostCpu>,
    emulator: Vec<u32>,
    io_threads: Vec<Vec<u32>>,
    /// The virtual CPUs with realtime priority, as libvirt writes sets.
    realtime: Option<String>,
}

/// Priority of the virtual CPUs of a realtime guest: the lowest one.
const REALTIME_PRIORITY: u32 = 1;

/// The threads that need CPUs.
#[derive(Debug, Clone, Copy)]
struct Demand {
    cores: usize,
    threads: usize,
    emulator: usize,
    /// I/O threads with CPUs of their own.
    pool: usize,
    /// I/O threads that share the CPUs of other threads.
    shared: usize,
    sees_cells: bool,
}

/// `None` if the guest shares the host's CPUs.
pub(crate) fn of(
    input: &Input<'_>,
    io_threads: &IoThreads,
) -> Result<Option<Pinning>, RenderError> {
    if !input.guest.has_dedicated_cpus() {
        return Ok(None);
    }
    let pinning = pin(&demand(input.guest, io_threads), &input.facts.cpus)?;
    Ok(Some(Pinning {
        realtime: realtime(input.guest),
        ..pinning
    }))
}

/// All virtual CPUs, unless the user names some.
fn realtime(guest: &Guest<'_>) -> Option<String> {
    let realtime = guest.vmi.spec.domain.cpu.as_ref()?.realtime.as_ref()?;
    let mask = realtime.mask.clone().filter(|mask| !mask.is_empty());
    Some(mask.unwrap_or_else(|| format!("0-{}", guest.topology.vcpus() - 1)))
}

fn demand(guest: &Guest<'_>, io_threads: &IoThreads) -> Demand {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let domain = &guest.vmi.spec.domain;
    let vcpus = vcpus(guest);
    let threads = u64::from(guest.topology.threads);
    let all_io_threads = count(io_threads.count.into());
    let has_pool = domain.io_threads_policy == Some(IoThreadsPolicy::SupplementalPool);
    let pool = if has_pool { all_io_threads } else { 0 };
    let annotated = guest.vmi.metadata.annotations.as_ref();
    let completes = annotated
        .is_some_and(|all| all.contains_key(annotations::EMULATOR_THREAD_COMPLETE_TO_EVEN_PARITY));
    let is_even = (count(vcpus) + pool).is_multiple_of(2);
    Demand {
        cores: count(vcpus / threads),
        threads: count(threads),
        emulator: match (guest.isolates_emulator(), completes && is_even) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        },
        pool,
        shared: all_io_threads - pool,
        sees_cells: sees_cells(guest),
    }
}

/// Those of the spec. A guest that moves may have more yet, which it does not give back.
fn vcpus(guest: &Guest<'_>) -> u64 {
    let status = guest.vmi.status.as_ref();
    let current = status.and_then(|status| status.current_cpu_topology.as_ref()?.sockets);
    let most = guest.topology.max_sockets;
    let current = most.zip(current).map_or(0, |(most, now)| now.min(most));
    let sockets = guest.topology.sockets.max(current);
    Topology {
        sockets,
        ..guest.topology
    }
    .vcpus()
}

/// Whether the guest's NUMA cells are those of its CPUs on the host.
pub(crate) fn sees_cells(guest: &Guest<'_>) -> bool {
    let cpu = guest.vmi.spec.domain.cpu.as_ref();
    let numa = cpu.and_then(|cpu| cpu.numa.as_ref());
    numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

fn pin(demand: &Demand, own: &[HostCpu]) -> Result<Pinning, RenderError> {
    let needed = demand.cores * demand.threads + demand.emulator + demand.pool;
    if own.len() < needed {
        let problem = format!(
            "the pod has {} CPUs of its own, the guest needs {needed}",
            own.len()
        );
        return Err(RenderError::invalid(FIELD, &problem));
    }
    let mut free = Free::of(own);
    let mut vcpus = Vec::new();
    for _ in 0..demand.cores {
        let core = free
            .take_core(demand.threads)
            .or_else(|| free.take_in_cell(demand.threads));
        let core = match core {
            None if demand.sees_cells => {
                let problem = "the CPUs of the pod are spread so that a core would be in two cells";
                return Err(RenderError::invalid(NUMA_FIELD, problem));
            }
            None => free.take(demand.threads),
            Some(core) => core,
        };
        vcpus.extend(core);
    }
    let ids = |cpus: Vec<HostCpu>| -> Vec<u32> { cpus.into_iter().map(|cpu| cpu.id).collect() };
    let emulator = ids(free.take(demand.emulator));
    let pool = ids(free.take(demand.pool));
    let io_threads = if demand.pool > 0 {
        pool.into_iter().map(|id| vec![id]).collect()
    } else if emulator.is_empty() {
        spread(demand.shared, &vcpus)
    } else {
        vec![emulator.clone(); demand.shared]
    };
    Ok(Pinning {
        vcpus,
        emulator,
        io_threads,
        realtime: None,
    })
}

/// Divides the CPUs among I/O threads, or the threads among CPUs if there are more of them.
fn spread(threads: usize, vcpus: &[HostCpu]) -> Vec<Vec<u32>> {
    let mut shares = vec![Vec::new(); threads];
    for at in 0..threads.max(vcpus.len()) {
        if let (Some(cpu), true) = (vcpus.get(at % vcpus.len().max(1)), threads > 0) {
            shares[at % threads].push(cpu.id);
        }
    }
    shares
}

/// The CPUs that no thread has yet, by cell and core.
struct Free(BTreeMap<(u32, u32), Vec<HostCpu>>);

impl Free {
    fn of(own: &[HostCpu]) -> Self {
        let mut cores: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for cpu in own {
            cores.entry((cpu.cell, cpu.core)).or_default().push(*cpu);
        }
        for cpus in cores.values_mut() {
            cpus.sort_by_key(|cpu| cpu.id);
        }
        Self(cores)
    }

    /// That many threads of one core.
    fn take_core(&mut self, threads: usize) -> Option<Vec<HostCpu>> {
        let mut cores = self.0.values_mut();
        let core = cores.find(|cpus| cpus.len() >= threads)?;
        Some(core.drain(..threads).collect())
    }

    /// That many CPUs of one cell.
    fn take_in_cell(&mut self, threads: usize) -> Option<Vec<HostCpu>> {
        let cells: BTreeSet<u32> = self.0.keys().map(|(cell, _)| *cell).collect();
        let count = |cell| -> usize {
            let cores = self.0.iter().filter(|((own, _), _)| *own == cell);
            cores.map(|(_, cpus)| cpus.len()).sum()
        };
        let cell = cells.into_iter().find(|cell| count(*cell) >= threads)?;
        Some(self.take_where(threads, |own| own == cell))
    }

    fn take(&mut self, count: usize) -> Vec<HostCpu> {
        self.take_where(count, |_| true)
    }

    fn take_where(&mut self, count: usize, fits: impl Fn(u32) -> bool) -> Vec<HostCpu> {
        let mut taken = Vec::new();
        for ((cell, _), cpus) in &mut self.0 {
            if fits(*cell) {
                let missing = count - taken.len();
                taken.extend(cpus.drain(..missing.min(cpus.len())));
            }
        }
        taken
    }
}

impl Pinning {
    /// Nothing for an emulated guest: libvirt does not know which thread runs which of its virtual CPUs, and
    /// refuses to pin them. They share all CPUs of the pod.
    pub(crate) fn render(&self, acceleration: Acceleration) -> Option<Element> {
        if acceleration == Acceleration::Emulation {
            return None;
        }
        let vcpus = self.vcpus.iter().enumerate().map(|(id, cpu)| {
            Element::new("vcpupin")
                .attr("vcpu", id)
                .attr("cpuset", cpu.id)
        });
        let emulator = (!self.emulator.is_empty())
            .then(|| Element::new("emulatorpin").attr("cpuset", list(&self.emulator)));
        let io_threads = self.io_threads.iter().zip(1..).map(|(cpus, id): (_, u32)| {
            Element::new("iothreadpin")
                .attr("iothread", id)
                .attr("cpuset", list(cpus))
        });
        let realtime = self.realtime.as_ref().map(|vcpus| {
            Element::new("vcpusched")
                .attr("vcpus", vcpus)
                .attr("scheduler", "fifo")
                .attr("priority", REALTIME_PRIORITY)
        });
        let tuning = Element::new("cputune").children(vcpus).children(emulator);
        Some(tuning.children(io_threads).children(realtime))
    }

    /// The host's CPUs of the emulator's threads, if they have some of their own.
    pub(crate) fn emulator(&self, acceleration: Acceleration) -> &[u32] {
        match acceleration {
            Acceleration::Kvm => &self.emulator,
            // QEMU's threads for virtual CPUs are where the others are.
            Acceleration::Emulation => &[],
        }
    }

    /// The virtual CPUs on each cell of the host.
    pub(crate) fn cells(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut cells: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (cpu, id) in self.vcpus.iter().zip(0..) {
            cells.entry(cpu.cell).or_default().push(id);
        }
        cells
    }
}

/// `1,2,5`
pub(crate) fn list(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cells of two cores with two threads: 0 to 3 in cell 0, 4 to 7 in cell 1.
    fn host(ids: &[u32]) -> Vec<HostCpu> {
        let cpu = |id: &u32| HostCpu {
            id: *id,
            core: id / 2,
            cell: id / 4,
        };
        ids.iter().map(cpu).collect()
    }

    fn demand(cores: usize, threads: usize) -> Demand {
        Demand {
            cores,
            threads,
            emulator: 0,
            pool: 0,
            shared: 0,
            sees_cells: false,
        }
    }

    fn check(demand: Demand, own: &[u32], expected: &str) {
        let found = match pin(&demand, &host(own)) {
            Err(error) => error.to_string(),
            Ok(pinning) => {
                let vcpus: Vec<u32> = pinning.vcpus.iter().map(|cpu| cpu.id).collect();
                let io: Vec<String> = pinning.io_threads.iter().map(|one| list(one)).collect();
                let emulator = list(&pinning.emulator);
                format!("{} / {emulator} / {}", list(&vcpus), io.join(" "))
            }
        };
        assert_eq!(found, expected, "{demand:?} {own:?}");
    }

    #[test]
    fn cores_are_whole_then_in_a_cell_then_anywhere() {
        check(demand(2, 2), &[0, 1, 2, 3], "0,1,2,3 /  / ");
        check(demand(2, 2), &[1, 2, 3, 4, 5], "2,3,4,5 /  / ");
        check(demand(2, 2), &[0, 2, 4, 5], "4,5,0,2 /  / ");
        check(demand(1, 2), &[0, 4], "0,4 /  / ");
        check(demand(3, 1), &[7, 1, 0], "0,1,7 /  / ");
        let sees_cells = Demand {
            sees_cells: true,
            ..demand(1, 2)
        };
        check(
            sees_cells,
            &[0, 4],
            "spec.domain.cpu.numa.guestMappingPassthrough: the CPUs of the pod are spread so that a \
             core would be in two cells",
        );
        check(
            demand(3, 1),
            &[0, 1],
            "spec.domain.cpu.dedicatedCpuPlacement: the pod has 2 CPUs of its own, the guest needs 3",
        );
    }

    #[test]
    fn guest_that_has_more_cpus_than_its_spec_keeps_them_when_it_moves() {
        for (most, now, expected) in [
            (Some(4), Some(2), 2),
            (Some(4), Some(9), 4),
            (Some(4), None, 1),
            (None, Some(2), 1),
        ] {
            let vmi = serde_json::json!({
                "spec": {"domain": {"cpu": {"sockets": 1, "maxSockets": most}}},
                "status": {"currentCPUTopology": {"sockets": now}},
            });
            let vmi = serde_json::from_value(vmi).unwrap();
            assert_eq!(vcpus(&Guest::of(&vmi)), expected, "{most:?} {now:?}");
        }
    }

    #[test]
    fn threads_of_an_emulated_guest_are_not_pinned() {
        let isolated = Demand {
            emulator: 1,
            ..demand(2, 1)
        };
        let pinning = pin(&isolated, &host(&[0, 1, 2])).unwrap();
        assert!(pinning.render(Acceleration::Kvm).is_some());
        assert_eq!(pinning.emulator(Acceleration::Kvm), [2]);
        assert!(pinning.render(Acceleration::Emulation).is_none());
        assert_eq!(pinning.emulator(Acceleration::Emulation), [0_u32; 0]);
    }

    #[test]
    fn other_threads_have_the_rest_or_share() {
        let isolated = Demand {
            emulator: 1,
            shared: 2,
            ..demand(2, 1)
        };
        check(isolated, &[0, 1, 2], "0,1 / 2 / 2 2");
        let pool = Demand {
            pool: 2,
            emulator: 1,
            ..demand(1, 2)
        };
        check(pool, &[0, 1, 2, 3, 4], "0,1 / 2 / 3 4");
        let few = Demand {
            shared: 2,
            ..demand(4, 1)
        };
        check(few, &[0, 1, 2, 3], "0,1,2,3 /  / 0,2 1,3");
        let many = Demand {
            shared: 3,
            ..demand(2, 1)
        };
        check(many, &[0, 1], "0,1 /  / 0 1 0");
    }
}
