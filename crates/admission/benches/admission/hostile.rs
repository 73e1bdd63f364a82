//! Hostile manifests of about 1 MiB.

use std::fmt::Write as _;

/// Syntax of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
}

#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) name: &'static str,
    pub(crate) format: Format,
    pub(crate) bytes: Vec<u8>,
}

const SIZE: usize = 1 << 20;
const ITEMS: usize = 100_000;

pub(crate) fn all() -> Vec<Manifest> {
    use Format::{Json, Yaml};
    let manifest = |name, format, text: String| Manifest {
        name,
        format,
        bytes: text.into_bytes(),
    };
    vec![
        manifest("deep-objects", Json, deep("{\"a\":", "1", "}")),
        manifest("deep-lists", Json, deep("[", "", "]")),
        manifest("deep-flow-yaml", Yaml, deep("[", "", "]")),
        manifest("deep-block-yaml", Yaml, staircase()),
        manifest(
            "many-disks",
            Json,
            many("domain\":{\"devices\":{\"disks", "}}", |index| {
                format!("{{\"name\":\"d{index}\"}}")
            }),
        ),
        manifest(
            "many-equal-disks",
            Json,
            many("domain\":{\"devices\":{\"disks", "}}", |_| {
                "{\"name\":\"d\"}".to_owned()
            }),
        ),
        manifest(
            "many-volumes",
            Json,
            many("volumes", "", |index| format!("{{\"name\":\"v{index}\"}}")),
        ),
        manifest(
            "many-networks",
            Json,
            many("networks", "", |_| "{}".to_owned()),
        ),
        manifest(
            "many-interfaces",
            Json,
            many("domain\":{\"devices\":{\"interfaces", "}}", |_| {
                "{}".to_owned()
            }),
        ),
        manifest(
            "many-tolerations",
            Json,
            many("tolerations", "", |_| "{}".to_owned()),
        ),
        manifest("many-keys", Json, many_keys()),
        manifest(
            "one-long-text",
            Json,
            vmi(&format!("\"hostname\":\"{}\"", "a".repeat(SIZE))),
        ),
        manifest(
            "one-long-number",
            Json,
            vmi(&format!(
                "\"terminationGracePeriodSeconds\":{}",
                "9".repeat(SIZE)
            )),
        ),
        manifest(
            "one-long-quantity",
            Json,
            vmi(&format!(
                "\"domain\":{{\"memory\":{{\"guest\":\"{}\"}}}}",
                "9".repeat(SIZE)
            )),
        ),
        manifest("aliases-of-aliases", Yaml, bomb()),
        manifest("many-aliases", Yaml, aliases()),
        manifest("many-documents", Yaml, "---\na: b\n".repeat(SIZE / 9)),
        Manifest {
            name: "not-utf-8",
            format: Yaml,
            bytes: [vmi("").as_bytes(), &[0xff; SIZE]].concat(),
        },
    ]
}

fn deep(open: &str, middle: &str, close: &str) -> String {
    let times = SIZE / (open.len() + close.len());
    format!("{}{middle}{}", open.repeat(times), close.repeat(times))
}

/// One nesting level deeper on each line.
fn staircase() -> String {
    let mut text = String::new();
    let lines = (0_usize..).take_while(|depth| depth * depth / 2 < SIZE);
    for depth in lines {
        text.push_str(&" ".repeat(depth));
        text.push_str("a:\n");
    }
    text
}

fn vmi(spec: &str) -> String {
    format!(
        "{{\"apiVersion\":\"kubevirt.io/v1\",\"kind\":\"VirtualMachineInstance\",\
         \"metadata\":{{\"name\":\"a\"}},\"spec\":{{{spec}}}}}"
    )
}

fn many(field: &str, close: &str, item: impl Fn(usize) -> String) -> String {
    let items: Vec<String> = (0..ITEMS).map(item).collect();
    vmi(&format!("\"{field}\":[{}]{close}", items.join(",")))
}

fn many_keys() -> String {
    let entries: Vec<String> = (0..ITEMS)
        .map(|index| format!("\"k{index}\":\"\""))
        .collect();
    vmi(&format!("\"nodeSelector\":{{{}}}", entries.join(",")))
}

/// Nested aliases that expand tenfold on each level.
fn bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let items = vec![below; 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{items}]").expect("text takes it");
    }
    text
}

/// One list that is aliased many times.
fn aliases() -> String {
    let list = vec!["x"; 1000].join(", ");
    format!("a: &a [{list}]\nb: [{}]\n", vec!["*a"; SIZE / 4].join(", "))
}
