//! `top`: what guests use of their nodes, live.
//!
//! The server has counters since the start of each guest; the rates come from two readings. **Invariant**: a
//! guest that was started anew between two readings has no rates.

use std::{collections::BTreeMap, io::IsTerminal, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::StreamExt;
use kubevirt_api::usage::VirtualMachineInstanceUsage as Usage;
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{ObjectOutput, Output},
    connect::Cluster,
    objects::{self, text},
    printer::{Printer, size},
    subresource::{self, get},
    table,
};

/// Requests at the same time.
const REQUESTS: usize = 8;

#[derive(Debug, Clone, Args)]
pub struct Top {
    /// Names of VMs or VMIs; without any, all that run
    pub names: Vec<String>,
    /// Guests of all namespaces
    #[arg(long, short = 'A', conflicts_with = "names")]
    pub all_namespaces: bool,
    /// Seconds between two readings
    #[arg(long, default_value_t = 2, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval: u64,
    /// Print once and end, on a terminal, too
    #[arg(long)]
    pub once: bool,
    #[arg(long, short, value_enum)]
    pub output: Option<Output>,
}

/// One guest and its counters, or why they could not be read.
#[derive(Debug, Clone)]
struct Reading {
    uid: String,
    node: String,
    usage: Result<Usage, String>,
}

/// Namespace and name.
type Key = (String, String);
type Readings = BTreeMap<Key, Reading>;

/// A guest that runs.
#[derive(Debug)]
struct Running {
    key: Key,
    uid: String,
    node: String,
}

/// A line of the table.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    node: String,
    /// Thousandths of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_millicores: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_read_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_written_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_received_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_sent_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(crate) async fn top(cluster: &Cluster, printer: Printer, flags: &Top) -> Result<()> {
    let is_live = !flags.once && flags.output.is_none() && std::io::stdout().is_terminal();
    let mut before = read(cluster, flags).await?;
    loop {
        tokio::time::sleep(Duration::from_secs(flags.interval)).await;
        let now = read(cluster, flags).await?;
        let rows = rows(&before, &now);
        match flags.output {
            Some(output) => {
                let format = match output {
                    Output::Json => ObjectOutput::Json,
                    Output::Yaml => ObjectOutput::Yaml,
                };
                let rows = serde_json::to_value(&rows).context("write the rows")?;
                return printer.object(format, &rows);
            }
            None if is_live => printer.screen(&table(&rows, flags.all_namespaces)),
            None => {
                printer.line(&table(&rows, flags.all_namespaces));
                return Ok(());
            }
        }
        before = now;
    }
}

async fn read(cluster: &Cluster, flags: &Top) -> Result<Readings> {
    let path = if flags.all_namespaces {
        objects::VMI.everywhere()
    } else {
        objects::VMI.all(&cluster.namespace)
    };
    let running = running(&objects::list(cluster, &path).await?, &flags.names)?;
    let all: Readings = futures::stream::iter(running)
        .map(
            |Running {
                 key: (namespace, name),
                 uid,
                 node,
             }| {
                let within = Cluster {
                    namespace: namespace.clone(),
                    ..cluster.clone()
                };
                async move {
                    let usage = usage(&within, &name).await;
                    let usage = usage.map_err(|err| format!("{err:#}"));
                    ((namespace, name), Reading { uid, node, usage })
                }
            },
        )
        .buffer_unordered(REQUESTS)
        .collect()
        .await;
    // One guest may have just ended; if none can be read, something is wrong.
    let mut problems = all.values().map(|reading| reading.usage.as_ref().err());
    if let Some(Some(problem)) = problems.next()
        && problems.all(|other| other.is_some())
    {
        bail!("{problem}");
    }
    Ok(all)
}

async fn usage(cluster: &Cluster, vmi: &str) -> Result<Usage> {
    let path = subresource::path(cluster, "virtualmachineinstances", vmi, "usage");
    serde_json::from_value(get(cluster, &path).await?).context("read the answer")
}

/// The guests that run.
fn running(vmis: &[Value], names: &[String]) -> Result<Vec<Running>> {
    let field = |vmi: &Value, pointer| text(vmi, pointer).unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for vmi in vmis {
        let name = field(vmi, "/metadata/name");
        let is_wanted = names.is_empty() || names.contains(&name);
        if is_wanted && text(vmi, "/status/phase") == Some("Running") {
            let key = (field(vmi, "/metadata/namespace"), name);
            found.push(Running {
                key,
                uid: field(vmi, "/metadata/uid"),
                node: field(vmi, "/status/nodeName"),
            });
        }
    }
    let missing = names
        .iter()
        .find(|name| !found.iter().any(|running| running.key.1 == **name));
    match missing {
        Some(name) => bail!("{name} does not run: `virtctl why {name}` explains why"),
        None => Ok(found),
    }
}

fn rows(before: &Readings, now: &Readings) -> Vec<Row> {
    let row = |(key, reading): (&Key, &Reading)| {
        let mut row = Row {
            namespace: key.0.clone(),
            name: key.1.clone(),
            node: reading.node.clone(),
            ..Row::default()
        };
        let usage = match &reading.usage {
            Ok(usage) => usage,
            Err(problem) => {
                row.problem = Some(problem.clone());
                return row;
            }
        };
        row.memory_bytes = Some(usage.memory_bytes);
        let known = before.get(key).filter(|known| known.uid == reading.uid);
        let Some(Ok(known)) = known.map(|known| &known.usage) else {
            return row;
        };
        let rate = |get: fn(&Usage) -> Option<u64>| rate(get, known, usage);
        row.cpu_millicores = rate(|usage| Some(usage.cpu_milliseconds));
        row.disk_read_bytes_per_second = rate(|usage| usage.disk_read_bytes);
        row.disk_written_bytes_per_second = rate(|usage| usage.disk_written_bytes);
        row.network_received_bytes_per_second = rate(|usage| Some(usage.network_received_bytes));
        row.network_sent_bytes_per_second = rate(|usage| Some(usage.network_sent_bytes));
        row
    };
    now.iter().map(row).collect()
}

/// The increase of a counter in a second; `None` if it or the clock went back, after a move to another node.
fn rate(get: fn(&Usage) -> Option<u64>, before: &Usage, now: &Usage) -> Option<u64> {
    let time = now
        .clock_milliseconds
        .checked_sub(before.clock_milliseconds)?;
    let increase = get(now)?.checked_sub(get(before)?)?;
    increase.saturating_mul(1000).checked_div(time)
}

fn table(rows: &[Row], with_namespace: bool) -> String {
    if rows.is_empty() {
        return "No guest runs.".to_owned();
    }
    let mut lines = vec![
        [
            "NAMESPACE",
            "NAME",
            "NODE",
            "CPU",
            "MEMORY",
            "READ/S",
            "WRITTEN/S",
            "RECEIVED/S",
            "SENT/S",
        ]
        .map(str::to_owned),
    ];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    lines.extend(rows.iter().map(|row| {
        let bytes = |bytes: Option<u64>| or_dash(bytes.map(size));
        [
            row.namespace.clone(),
            row.name.clone(),
            row.node.clone(),
            or_dash(row.cpu_millicores.map(percent)),
            bytes(row.memory_bytes),
            bytes(row.disk_read_bytes_per_second),
            bytes(row.disk_written_bytes_per_second),
            bytes(row.network_received_bytes_per_second),
            bytes(row.network_sent_bytes_per_second),
        ]
    }));
    let mut text = table::lines(&lines, usize::from(!with_namespace));
    text.extend(rows.iter().filter_map(|row| {
        let problem = row.problem.as_ref()?;
        Some(format!("{}: {problem}", row.name))
    }));
    text.join("\n")
}

/// Of one CPU.
fn percent(millicores: u64) -> String {
    format!("{}.{} %", millicores / 10, millicores % 10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(uid: &str, clock: u64, counter: u64) -> Reading {
        Reading {
            uid: uid.to_owned(),
            node: "node1".to_owned(),
            usage: Ok(Usage {
                clock_milliseconds: clock,
                cpu_milliseconds: counter,
                memory_bytes: 300 << 20,
                disk_read_bytes: Some(counter * 1024),
                disk_written_bytes: None,
                network_received_bytes: counter * 2048,
                network_sent_bytes: counter,
            }),
        }
    }

    fn readings(all: &[(&str, Reading)]) -> Readings {
        let keyed = all
            .iter()
            .map(|(name, one)| (("n".to_owned(), (*name).to_owned()), one.clone()));
        keyed.collect()
    }

    #[test]
    fn rates_come_from_two_readings_of_the_same_guest() {
        let gone = Reading {
            usage: Err("not running".to_owned()),
            ..reading("d", 0, 0)
        };
        let before = readings(&[
            ("a", reading("a", 1000, 500)),
            ("anew", reading("old", 1000, 500)),
            ("moved", reading("m", 9000, 500)),
        ]);
        let now = readings(&[
            ("a", reading("a", 3000, 2500)),
            ("anew", reading("new", 3000, 800)),
            ("gone", gone),
            ("moved", reading("m", 1000, 600)),
        ]);
        let rows = rows(&before, &now);
        let [same, anew, gone, moved] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        assert_eq!(same.cpu_millicores, Some(1000));
        assert_eq!(same.disk_read_bytes_per_second, Some(1_024_000));
        assert_eq!(same.disk_written_bytes_per_second, None);
        assert_eq!(same.network_received_bytes_per_second, Some(2_048_000));
        assert_eq!(same.network_sent_bytes_per_second, Some(1000));
        for other in [anew, moved] {
            assert_eq!(other.cpu_millicores, None, "{other:?}");
            assert_eq!(other.memory_bytes, Some(300 << 20), "{other:?}");
        }
        assert_eq!(gone.problem.as_deref(), Some("not running"));
        let text = table(&rows, true);
        let line = text.lines().nth(1).unwrap_or_default();
        let words: Vec<_> = line.split_whitespace().collect();
        let expected = "n a node1 100.0 % 300.0 MiB 1000.0 KiB - 1.9 MiB 1000 B";
        assert_eq!(words.join(" "), expected);
        assert!(text.ends_with("\ngone: not running"), "{text}");
        let without = table(&rows, false);
        assert!(without.starts_with("NAME "), "{without}");
        assert_eq!(table(&[], false), "No guest runs.");
    }

    #[test]
    fn guests_that_run_are_shown_and_a_named_one_must_run() {
        let vmi = |name: &str, phase: &str| {
            json!({"metadata": {"name": name, "namespace": "n", "uid": name},
                   "status": {"phase": phase, "nodeName": "node1"}})
        };
        let vmis = [
            vmi("a", "Running"),
            vmi("b", "Scheduled"),
            vmi("c", "Running"),
        ];
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            let found = running(&vmis, &wanted)?.into_iter();
            let names = found.map(|running| running.key.1);
            Ok::<Vec<String>, anyhow::Error>(names.collect())
        };
        assert_eq!(names(&[]).unwrap(), ["a", "c"]);
        assert_eq!(names(&["c"]).unwrap(), ["c"]);
        let error = names(&["c", "b"]).unwrap_err().to_string();
        assert_eq!(error, "b does not run: `virtctl why b` explains why");
    }
}
