//! Virtual CPUs: their number, topology and model.

use kubevirt_api::domain::CpuFeature;
use model::{Architecture, CpuModel};

use crate::element::Element;
use crate::memory::Memory;
use crate::numa::Cells;
use crate::{Acceleration, Input, RenderError};

#[derive(Debug)]
pub(crate) struct Processors<'a> {
    model: CpuModel<'a>,
    features: &'a [CpuFeature],
    acceleration: Acceleration,
    /// Sockets, including those for hotplug.
    sockets: u32,
    cores: u32,
    threads: u32,
    /// Virtual CPUs that the guest starts with.
    enabled: u32,
    /// Bytes of memory of the one NUMA cell, if there must be one.
    cell: Option<u64>,
    /// The host's cells.
    cells: Option<Cells>,
    is_amd64: bool,
    /// Whether the guest goes on from a saved state, whose processors libvirt has numbered.
    goes_on: bool,
}

pub(crate) fn of<'a>(
    input: &Input<'a>,
    memory: &Memory,
    cells: Option<Cells>,
) -> Result<Processors<'a>, RenderError> {
    let topology = input.guest.topology;
    let (sockets, cores, threads) = (topology.sockets, topology.cores, topology.threads);
    let is_arm64 = input.guest.architecture == Architecture::Arm64;
    // CPUs of arm64 cannot be plugged in.
    let max_sockets = topology.max_sockets.filter(|_| !is_arm64);
    let max_sockets = max_sockets.unwrap_or(sockets);
    if max_sockets < sockets {
        return Err(RenderError::invalid(
            "spec.domain.cpu.maxSockets",
            "must not be less than spec.domain.cpu.sockets",
        ));
    }
    let product = |sockets: u32| {
        sockets
            .checked_mul(cores)
            .and_then(|n| n.checked_mul(threads))
    };
    let (Some(enabled), Some(_)) = (product(sockets), product(max_sockets)) else {
        return Err(RenderError::invalid(
            "spec.domain.cpu",
            "too many virtual CPUs",
        ));
    };
    let domain = &input.guest.vmi.spec.domain;
    let mut processors = Processors {
        model: input.guest.cpu_model,
        features: domain.cpu.as_ref().map_or(&[][..], |cpu| &cpu.features),
        acceleration: input.facts.acceleration,
        sockets: max_sockets,
        cores,
        threads,
        enabled,
        cell: memory.needs_cell().then_some(memory.bytes),
        cells,
        is_amd64: input.guest.architecture == Architecture::Amd64,
        goes_on: input.guest.goes_on(),
    };
    let total = processors.total();
    if let Some(cells) = &mut processors.cells {
        cells.complete(total);
    }
    Ok(processors)
}

impl Processors<'_> {
    fn total(&self) -> u32 {
        // `of` has checked that the product fits.
        self.sockets * self.cores * self.threads
    }

    pub(crate) fn render_vcpus(&self) -> Vec<Element> {
        let count = Element::new("vcpu")
            .attr("placement", "static")
            .text(self.total());
        if self.total() == self.enabled {
            return vec![count];
        }
        let fixed = self.cores * self.threads;
        let yes_no = |yes: bool| if yes { "yes" } else { "no" };
        let each = (0..self.total()).map(|id| {
            Element::new("vcpu")
                .attr("id", id)
                .attr("enabled", yes_no(id < self.enabled))
                .attr("hotpluggable", yes_no(id >= fixed))
                .attr_if("order", self.order(id))
        });
        vec![count, Element::new("vcpus").children(each)]
    }

    /// Which of the enabled ones it is, from 1: as libvirt numbers those of a new guest.
    fn order(&self, id: u32) -> Option<u32> {
        (self.goes_on && id < self.enabled).then_some(id + 1)
    }

    /// The NUMA cells, if they are the host's.
    pub(crate) fn cells(&self) -> Option<&Cells> {
        self.cells.as_ref()
    }

    pub(crate) fn render_cpu(&self) -> Element {
        let topology = Element::new("topology")
            .attr("sockets", self.sockets)
            .attr("cores", self.cores)
            .attr("threads", self.threads);
        self.render_model()
            .child(topology)
            .children(self.render_features())
            .children(self.render_cells())
    }

    fn render_model(&self) -> Element {
        let cpu = Element::new("cpu");
        match (self.model, self.acceleration) {
            (CpuModel::Unset | CpuModel::HostModel, _) => cpu.attr("mode", "host-model"),
            (CpuModel::HostPassthrough, Acceleration::Kvm) => cpu.attr("mode", "host-passthrough"),
            // An emulated CPU cannot pass the host's through; all features come closest.
            (CpuModel::HostPassthrough, Acceleration::Emulation) => cpu.attr("mode", "maximum"),
            (CpuModel::Named(name), _) => cpu
                .attr("mode", "custom")
                .child(Element::new("model").text(name)),
        }
    }

    fn render_features(&self) -> Vec<Element> {
        let render = |name: &str, policy: Option<&str>| {
            let policy = policy.filter(|policy| !policy.is_empty());
            Element::new("feature")
                .attr("name", name)
                .attr("policy", policy.unwrap_or("require"))
        };
        let mut features: Vec<Element> = self
            .features
            .iter()
            .map(|f| render(&f.name, f.policy.as_deref()))
            .collect();
        let is_named = self.is_amd64 && matches!(self.model, CpuModel::Named(_));
        // Named models include mpx, which no current CPU has.
        if is_named && !self.features.iter().any(|feature| feature.name == "mpx") {
            features.push(render("mpx", Some("disable")));
        }
        features
    }

    fn render_cells(&self) -> Option<Element> {
        let hosts = self.cells.as_ref().map(Cells::render);
        hosts.or_else(|| self.cell.map(|memory| self.render_cell(memory)))
    }

    fn render_cell(&self, memory: u64) -> Element {
        let last = self.total() - 1;
        let cell = Element::new("cell")
            .attr("id", 0)
            .attr("cpus", format!("0-{last}"))
            .attr("memory", memory.div_ceil(1024))
            .attr("unit", "KiB");
        Element::new("numa").child(cell)
    }
}
