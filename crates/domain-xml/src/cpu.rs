//! Virtual CPUs: how many, in which topology, of which model.

use kubevirt_api::domain::Cpu;

use crate::element::Element;
use crate::{Acceleration, Input, RenderError};

const HOST_MODEL: &str = "host-model";
const HOST_PASSTHROUGH: &str = "host-passthrough";

#[derive(Debug)]
pub(crate) struct Processors<'a> {
    cpu: Option<&'a Cpu>,
    acceleration: Acceleration,
    /// Sockets with the head room for hotplug.
    sockets: u32,
    cores: u32,
    threads: u32,
    enabled: u32,
    /// The guest may grow in memory, which libvirt only allows with a NUMA cell.
    needs_cell: bool,
}

pub(crate) fn of<'a>(input: &Input<'a>) -> Result<Processors<'a>, RenderError> {
    let domain = &input.vmi.spec.domain;
    let cpu = domain.cpu.as_ref();
    let count = |value: Option<u32>| value.filter(|count| *count > 0).unwrap_or(1);
    let sockets = count(cpu.and_then(|cpu| cpu.sockets));
    let cores = count(cpu.and_then(|cpu| cpu.cores));
    let threads = count(cpu.and_then(|cpu| cpu.threads));
    let max_sockets = cpu.and_then(|cpu| cpu.max_sockets).unwrap_or(0);
    if max_sockets != 0 && max_sockets < sockets {
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
    let sockets_at_most = max_sockets.max(sockets);
    let (Some(enabled), Some(_)) = (product(sockets), product(sockets_at_most)) else {
        return Err(RenderError::invalid(
            "spec.domain.cpu",
            "too many virtual CPUs",
        ));
    };
    let memory = domain.memory.as_ref();
    Ok(Processors {
        cpu,
        acceleration: input.facts.acceleration,
        sockets: sockets_at_most,
        cores,
        threads,
        enabled,
        needs_cell: memory.is_some_and(|m| m.max_guest.is_some() && m.max_guest != m.guest),
    })
}

impl Processors<'_> {
    fn total(&self) -> u32 {
        // Checked when it was made.
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
        });
        vec![count, Element::new("vcpus").children(each)]
    }

    pub(crate) fn render_cpu(&self, memory: u64) -> Element {
        let model = self.cpu.and_then(|cpu| cpu.model.as_deref());
        let topology = Element::new("topology")
            .attr("sockets", self.sockets)
            .attr("cores", self.cores)
            .attr("threads", self.threads);
        self.render_model(
            model
                .filter(|model| !model.is_empty())
                .unwrap_or(HOST_MODEL),
        )
        .child(topology)
        .children(self.render_features(model))
        .children(self.needs_cell.then(|| self.render_cell(memory)))
    }

    fn render_model(&self, model: &str) -> Element {
        let cpu = Element::new("cpu");
        match (model, self.acceleration) {
            (HOST_MODEL, _) => cpu.attr("mode", HOST_MODEL),
            (HOST_PASSTHROUGH, Acceleration::Kvm) => cpu.attr("mode", HOST_PASSTHROUGH),
            // An emulated CPU has no host to pass through; all it can do comes closest.
            (HOST_PASSTHROUGH, Acceleration::Emulation) => cpu.attr("mode", "maximum"),
            (name, _) => cpu
                .attr("mode", "custom")
                .child(Element::new("model").text(name)),
        }
    }

    fn render_features(&self, model: Option<&str>) -> Vec<Element> {
        let asked = self.cpu.map_or(&[][..], |cpu| &cpu.features);
        let render = |name: &str, policy: Option<&str>| {
            let policy = policy.filter(|policy| !policy.is_empty());
            Element::new("feature")
                .attr("name", name)
                .attr("policy", policy.unwrap_or("require"))
        };
        let mut features: Vec<Element> = asked
            .iter()
            .map(|f| render(&f.name, f.policy.as_deref()))
            .collect();
        let named = model.is_some_and(|m| !["", HOST_MODEL, HOST_PASSTHROUGH].contains(&m));
        // Named models promise mpx, which no current CPU has.
        if named && !asked.iter().any(|feature| feature.name == "mpx") {
            features.push(render("mpx", Some("disable")));
        }
        features
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
