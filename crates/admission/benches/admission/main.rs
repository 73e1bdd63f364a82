//! Benchmarks: the time from bytes to a review of a VM, and time and memory of hostile manifests.
//!
//! Run by `cargo xtask bench admission`; without arguments it measures everything, with the name of
//! a manifest only that one. Each manifest runs in a separate process to measure its memory alone. A
//! result is a line: name, tab, value, tab, unit.

mod hostile;

use std::sync::Arc;
use std::{
    error::Error,
    fs,
    hint::black_box,
    io::Write as _,
    process::Command,
    time::{Duration, Instant},
};

use admission::{review, review::Stage};
use apimachinery::schema::Schema;
use cluster_config::ClusterConfig;
use defaults::Environment;
use hostile::{Format, Manifest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::VirtualMachine;
use serde_json::{Value, json};
use uuid::Uuid;

/// A typical VM: two disks, a network, cloud-init, resources, probes.
const TYPICAL: &str = include_str!("typical.yaml");
const ROUNDS: usize = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds a flag.
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let mut out = std::io::stdout().lock();
    match wanted {
        None => {
            for (name, value) in typical()? {
                writeln!(out, "admission.typical.{name}\t{value:.1}\tµs")?;
            }
            for manifest in hostile::all() {
                let program = std::env::current_exe()?;
                let done = Command::new(program).arg(manifest.name).output()?;
                if !done.status.success() {
                    return Err(String::from_utf8_lossy(&done.stderr).into());
                }
                out.write_all(&done.stdout)?;
            }
        }
        Some(name) => {
            let mut all = hostile::all().into_iter();
            let manifest = all.find(|one| one.name == name).ok_or("no such manifest")?;
            drop(all);
            let (time, memory) = cost(&manifest)?;
            let time = time.as_secs_f64() * 1000.0;
            writeln!(out, "admission.hostile.{name}.time\t{time:.1}\tms")?;
            writeln!(out, "admission.hostile.{name}.memory\t{memory:.1}\tMiB")?;
        }
    }
    Ok(())
}

/// Median of the microseconds of each step.
fn typical() -> Result<Vec<(&'static str, f64)>, Box<dyn Error>> {
    let value: Value = serde_saphyr::from_str(TYPICAL)?;
    let bytes = serde_json::to_vec(&value)?;
    let schema = schema()?;
    let body = body(&value);
    let whole = || -> Option<Value> {
        let mut value: Value = serde_json::from_slice(&bytes).ok()?;
        schema.prune(&mut value);
        schema.fill_defaults(&mut value);
        black_box(schema.validate(&value));
        let body = self::body(&value);
        black_box(answer(Stage::Mutate, &body));
        Some(answer(Stage::Validate, &body))
    };
    Ok(vec![
        (
            "decode",
            median(|| serde_json::from_slice::<VirtualMachine>(&bytes).ok()),
        ),
        (
            "decode-yaml",
            median(|| serde_saphyr::from_str::<VirtualMachine>(TYPICAL).ok()),
        ),
        (
            "schema",
            median(|| {
                let mut value = value.clone();
                schema.prune(&mut value);
                schema.fill_defaults(&mut value);
                schema.validate(&value)
            }),
        ),
        ("default", median(|| answer(Stage::Mutate, &body))),
        ("validate", median(|| answer(Stage::Validate, &body))),
        ("whole", median(whole)),
    ])
}

fn median<T>(step: impl Fn() -> T) -> f64 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(step());
            start.elapsed()
        })
        .collect();
    times.sort();
    let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
    median.as_secs_f64() * 1e6
}

/// Time and memory to parse a manifest, validate it by the schema and review it.
fn cost(manifest: &Manifest) -> Result<(Duration, f64), Box<dyn Error>> {
    let schema = schema()?;
    // Resets the peak, which includes the memory of the schema.
    fs::write("/proc/self/clear_refs", "5")?;
    let before = resident("VmRSS:")?;
    let start = Instant::now();
    let value: Option<Value> = match manifest.format {
        Format::Json => serde_json::from_slice(&manifest.bytes).ok(),
        Format::Yaml => std::str::from_utf8(&manifest.bytes)
            .ok()
            .and_then(|text| serde_saphyr::from_str(text).ok()),
    };
    if let Some(mut value) = value {
        schema.prune(&mut value);
        schema.fill_defaults(&mut value);
        black_box(schema.validate(&value));
        let body = body(&value);
        drop(value);
        for stage in [Stage::Mutate, Stage::Validate] {
            black_box(answer(stage, &body));
        }
    }
    let time = start.elapsed();
    let peak = resident("VmHWM:")?;
    Ok((time, (peak - before).max(0.0)))
}

/// A field of the process status, in MiB.
fn resident(what: &str) -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.ok_or("no such line")?.parse::<f64>()? / 1024.0)
}

fn schema() -> Result<Arc<Schema>, Box<dyn Error>> {
    let mut definitions = kubevirt_api::crds::ALL.iter();
    let (_, text) = definitions
        .find(|(name, _)| *name == "virtualmachines.kubevirt.io")
        .ok_or("no definition")?;
    let definition: Value = serde_saphyr::from_str(text)?;
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    Schema::parse(schema, "schema").map_err(|found| format!("{found:?}").into())
}

fn body(object: &Value) -> Value {
    json!({ "request": {
        "uid": "u",
        "operation": "CREATE",
        "kind": { "group": "kubevirt.io", "version": "v1", "kind": object["kind"] },
        "userInfo": { "username": "a-user" },
        "object": object,
    }})
}

fn answer(stage: Stage, body: &Value) -> Value {
    let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let env = Environment {
        now: &now,
        new_uuid: &Uuid::new_v4,
    };
    review(stage, body, &ClusterConfig::default(), env)
}
