//! The page of metrics: XML as vhostmd writes it, with the list of metrics of the original.

use std::fmt::{self, Display};

use launcher_channel::DownwardMetrics;

use super::figures::Figures;

/// The longest name of a node.
const MAX_NAME: usize = 253;
/// Clients look for that of the original.
const VENDOR: &str = "kubevirt.io";
const PRODUCT: &str = concat!("Ferrovirt ", env!("CARGO_PKG_VERSION"));

/// What a metric describes.
#[derive(Debug, Clone, Copy)]
enum Context {
    Host,
    Guest,
}

struct Metric {
    name: &'static str,
    context: Context,
    unit: Option<&'static str>,
    value: Value,
}

enum Value {
    Text(String),
    Signed(u64),
    Unsigned(u64),
    Real(f64),
}

/// All metrics, as a document that ends with a line break.
pub(super) fn render(plan: &DownwardMetrics, figures: &Figures) -> String {
    let metrics = metrics(plan, figures);
    let all: String = metrics.iter().map(ToString::to_string).collect();
    format!("<metrics>\n{all}</metrics>\n")
}

fn metrics(plan: &DownwardMetrics, figures: &Figures) -> [Metric; 17] {
    use Context::{Guest, Host};
    let kib = Some("KiB");
    let seconds = Some("s");
    let of = |context, name, unit, value| Metric {
        name,
        context,
        unit,
        value,
    };
    let unsigned = |context, name, unit, value| of(context, name, unit, Value::Unsigned(value));
    let text = |name, text: &str| of(Host, name, None, Value::Text(text.to_owned()));
    let memory = &figures.memory;
    let used = memory.total.saturating_sub(memory.available);
    let swapped = memory.swap_total.saturating_sub(memory.swap_free);
    let free = memory.free.saturating_add(memory.swap_free);
    let guest_kib = plan.memory_bytes / 1024;
    let (cpu, guest_cpu) = (figures.cpu_seconds, figures.guest_cpu_seconds);
    [
        text("HostName", &printable(&plan.node)),
        text("HostSystemInfo", "linux"),
        text("VirtualizationVendor", VENDOR),
        text("VirtProductInfo", PRODUCT),
        of(Guest, "TotalCPUTime", seconds, Value::Real(guest_cpu)),
        unsigned(Guest, "ResourceProcessorLimit", None, plan.virtual_cpus),
        unsigned(
            Guest,
            "PhysicalMemoryAllocatedToVirtualSystem",
            kib,
            guest_kib,
        ),
        unsigned(Guest, "ResourceMemoryLimit", kib, guest_kib),
        of(
            Host,
            "NumberOfPhysicalCPUs",
            None,
            Value::Signed(figures.cpus),
        ),
        of(Host, "TotalCPUTime", seconds, Value::Real(cpu)),
        unsigned(Host, "FreePhysicalMemory", kib, memory.free),
        unsigned(Host, "FreeVirtualMemory", kib, free),
        unsigned(Host, "MemoryAllocatedToVirtualServers", kib, used),
        unsigned(Host, "UsedVirtualMemory", kib, used.saturating_add(swapped)),
        unsigned(Host, "PagedInMemory", kib, figures.paged_in_kib),
        unsigned(Host, "PagedOutMemory", kib, figures.paged_out_kib),
        of(Host, "Time", seconds, Value::Signed(figures.time)),
    ]
}

/// The characters of a node's name, none of which XML treats specially.
fn printable(name: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-._".contains(*c);
    name.chars().filter(is_plain).take(MAX_NAME).collect()
}

impl Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = match self.context {
            Context::Host => "host",
            Context::Guest => "vm",
        };
        let kind = match self.value {
            Value::Text(_) => "string",
            Value::Signed(_) => "int64",
            Value::Unsigned(_) => "uint64",
            Value::Real(_) => "real64",
        };
        write!(f, "  <metric type=\"{kind}\" context=\"{context}\"")?;
        if let Some(unit) = self.unit {
            write!(f, " unit=\"{unit}\"")?;
        }
        let name = self.name;
        writeln!(f, ">\n    <name>{name}</name>")?;
        match &self.value {
            Value::Text(text) => writeln!(f, "    <value>{text}</value>")?,
            Value::Signed(number) | Value::Unsigned(number) => {
                writeln!(f, "    <value>{number}</value>")?;
            }
            Value::Real(number) => writeln!(f, "    <value>{number:.6}</value>")?,
        }
        writeln!(f, "  </metric>")
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Memory;
    use super::*;

    fn plan(node: &str) -> DownwardMetrics {
        DownwardMetrics {
            node: node.to_owned(),
            virtual_cpus: 2,
            memory_bytes: 128 << 20,
            disk: None,
            port: None,
        }
    }

    #[test]
    fn page_lists_the_metrics_with_their_types_and_units() {
        let figures = Figures {
            cpus: 4,
            cpu_seconds: 1234.5,
            memory: Memory {
                total: 8000,
                free: 1000,
                available: 3000,
                swap_total: 500,
                swap_free: 400,
            },
            paged_in_kib: 11,
            paged_out_kib: 22,
            time: 1_750_000_000,
            guest_cpu_seconds: 6.25,
        };
        let page = render(&plan("node01"), &figures);
        insta::assert_snapshot!(page.replace(PRODUCT, "PRODUCT"));
    }

    /// The end of a response is an empty line.
    #[test]
    fn page_is_ascii_without_empty_lines_whatever_the_name() {
        for name in ["", "n<1>\n\n&amp;", "näme", &"x".repeat(10_000)] {
            let page = render(&plan(name), &Figures::default());
            assert!(page.is_ascii() && !page.contains("\n\n"), "{page}");
            assert!(page.len() < 4096, "{}", page.len());
            assert_eq!(page.matches('<').count(), 2 + 17 * 6, "{page}");
        }
    }
}
