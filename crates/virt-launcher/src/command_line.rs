//! The mode of this process, and its flags.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use error_chain::error_chain;
use tracing::level_filters::LevelFilter;

use crate::monitor::{self, AfterFailure, FINAL_EXIT_CODE};
use crate::settings::{Guest, Paths};
use crate::{agent, hold_volumes, hooks, passt, probe, run};

/// Environment variable for the level of the log: `error`, `warn`, `info`, `debug`, `trace`.
const LOG_LEVEL: &str = "VIRT_LAUNCHER_LOG";
/// The same as a number, as `KubeVirt` counts it.
const VERBOSITY: &str = "VIRT_LAUNCHER_LOG_VERBOSITY";
/// The mode of a pod that brings volumes to another pod.
const HOLD_VOLUMES: &str = "hold-volumes";
const USAGE: &str = "usage: virt-launcher-monitor --uid UID [--name NAME] [--namespace NAMESPACE] [--simulate-crash] [--keep-after-failure]
       virt-launcher probe-node --output DIR [--image REFERENCE] [--kvm-reason TEXT]";

/// The mode of this process.
#[derive(Debug, PartialEq, Eq)]
enum Mode {
    Monitor,
    Launcher,
    StartLibvirtd,
    ProbeNode,
}

/// An invalid command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
enum UsageError {
    #[error("unknown flag {0:?}")]
    Unknown(String),
    #[error("flag {0} needs a value")]
    Missing(&'static str),
}

/// The whole program: reads arguments and environment, and runs the mode they select.
pub fn main() -> ExitCode {
    start_logging();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut rest: Vec<OsString> = arguments.collect();
    if is_called(&name, "virt-probe") {
        return agent::probe::run(&Paths::from_environment(), &rest);
    }
    if rest.first().is_some_and(|first| first == HOLD_VOLUMES) {
        let socket = Path::new(launcher_channel::ATTACHMENT_SOCKET);
        return match hold_volumes::run(socket) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!(error = error_chain(&error), "failed to hold the volumes");
                ExitCode::FAILURE
            }
        };
    }
    if let Some((first, rest)) = rest.split_first() {
        if first == passt::START_PASST {
            return passt::become_passt(rest);
        }
        if first == hooks::SIDECAR_SHIM {
            return hooks::run_shim(rest);
        }
    }
    let mode = mode(&name, rest.first(), std::process::id());
    let has_mode = rest
        .first()
        .is_some_and(|first| !first.to_string_lossy().starts_with("--"));
    if has_mode {
        rest.remove(0);
    }
    match start(&mode, &rest) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}\n{USAGE}");
            ExitCode::from(FINAL_EXIT_CODE)
        }
    }
}

fn start(mode: &Mode, arguments: &[OsString]) -> Result<ExitCode, UsageError> {
    let flags = Flags::parse(arguments)?;
    let paths = Paths::from_environment();
    let ended = match mode {
        Mode::StartLibvirtd => monitor::start_libvirtd(&paths),
        Mode::Monitor => monitor::run(&paths, arguments, flags.after_failure()),
        Mode::Launcher if flags.simulate_crash => {
            tracing::error!("failing at once, as --simulate-crash requests");
            return Ok(ExitCode::from(FINAL_EXIT_CODE));
        }
        Mode::Launcher => run::run(&paths, flags.guest()?),
        Mode::ProbeNode => {
            let output = flags.output.ok_or(UsageError::Missing("--output"))?;
            let settings = probe::Settings {
                output,
                image: flags.image,
                kvm_reason: flags.kvm_reason,
            };
            probe::run(&settings, arguments)
        }
    };
    Ok(ended.unwrap_or_else(|error| {
        tracing::error!(error = error_chain(error.as_ref()), "virt-launcher failed");
        ExitCode::FAILURE
    }))
}

/// The mode by the program's name, else by the first argument, else by being process 1.
fn mode(name: &OsString, first: Option<&OsString>, pid: u32) -> Mode {
    if is_called(name, "virt-launcher-monitor") {
        return Mode::Monitor;
    }
    match first.and_then(|first| first.to_str()) {
        Some("monitor") => Mode::Monitor,
        Some("run") => Mode::Launcher,
        Some(monitor::START_LIBVIRTD) => Mode::StartLibvirtd,
        Some("probe-node") => Mode::ProbeNode,
        _ if pid == 1 => Mode::Monitor,
        _ => Mode::Launcher,
    }
}

fn is_called(program: &OsString, name: &str) -> bool {
    let file = Path::new(program).file_name();
    file.is_some_and(|file| file == name)
}

#[derive(Debug, Default)]
struct Flags {
    name: String,
    uid: String,
    namespace: String,
    output: Option<PathBuf>,
    image: Option<String>,
    kvm_reason: Option<String>,
    /// For tests of what happens to a VM whose launcher always fails.
    simulate_crash: bool,
    /// For a look at the pod of a guest that failed.
    keep_after_failure: bool,
}

impl Flags {
    fn parse(arguments: &[OsString]) -> Result<Self, UsageError> {
        let mut flags = Self::default();
        let mut rest = arguments
            .iter()
            .map(|argument| argument.to_string_lossy().into_owned());
        while let Some(argument) = rest.next() {
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (argument, None),
            };
            let mut value = |name| {
                value
                    .clone()
                    .or_else(|| rest.next())
                    .ok_or(UsageError::Missing(name))
            };
            match flag.as_str() {
                "--name" => flags.name = value("--name")?,
                "--uid" => flags.uid = value("--uid")?,
                "--namespace" => flags.namespace = value("--namespace")?,
                "--output" => flags.output = Some(value("--output")?.into()),
                "--kvm-reason" => flags.kvm_reason = Some(value("--kvm-reason")?),
                "--image" => flags.image = Some(value("--image")?),
                "--simulate-crash" => flags.simulate_crash = true,
                "--keep-after-failure" => flags.keep_after_failure = true,
                // The plan has the grace period; the flag only shows it in the pod.
                "--grace-period-seconds" => drop(value("--grace-period-seconds")?),
                _ => return Err(UsageError::Unknown(flag)),
            }
        }
        Ok(flags)
    }

    fn after_failure(&self) -> AfterFailure {
        if self.keep_after_failure {
            AfterFailure::Keep
        } else {
            AfterFailure::End
        }
    }

    fn guest(self) -> Result<Guest, UsageError> {
        if self.uid.is_empty() {
            return Err(UsageError::Missing("--uid"));
        }
        Ok(Guest {
            uid: self.uid,
            name: self.name,
            namespace: self.namespace,
        })
    }
}

fn start_logging() {
    let level = std::env::var(LOG_LEVEL)
        .ok()
        .and_then(|level| level.parse().ok());
    let format = std::env::var(logging::FORMAT_VARIABLE)
        .ok()
        .and_then(|format| format.parse().ok());
    let style = logging::Style {
        format: format.unwrap_or_default(),
        colours: false,
        modules: false,
    };
    let verbosity = std::env::var(VERBOSITY);
    let verbosity = verbosity.ok().and_then(|level| level.parse().ok());
    let level: LevelFilter = level.unwrap_or_else(|| level_of(verbosity));
    // A level is a valid filter.
    let _valid = logging::start(&level.to_string(), style);
}

fn level_of(verbosity: Option<u64>) -> LevelFilter {
    match verbosity {
        None | Some(0..=2) => LevelFilter::INFO,
        Some(3..=5) => LevelFilter::DEBUG,
        Some(_) => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_selects_a_level() {
        let levels = [None, Some(2), Some(3), Some(6)].map(level_of);
        let expected = [
            LevelFilter::INFO,
            LevelFilter::INFO,
            LevelFilter::DEBUG,
            LevelFilter::TRACE,
        ];
        assert_eq!(levels, expected);
    }

    #[test]
    fn mode_follows_from_name_argument_and_process_id() {
        let check = |name: &str, first: Option<&str>, pid, expected: Mode| {
            let first = first.map(OsString::from);
            assert_eq!(
                mode(&name.into(), first.as_ref(), pid),
                expected,
                "{name} {first:?} {pid}"
            );
        };
        check(
            "/usr/bin/virt-launcher-monitor",
            Some("--name"),
            1,
            Mode::Monitor,
        );
        check("/usr/bin/virt-launcher", Some("--name"), 1, Mode::Monitor);
        check(
            "/usr/bin/virt-launcher",
            Some("probe-node"),
            1,
            Mode::ProbeNode,
        );
        check("virt-launcher", Some("run"), 8, Mode::Launcher);
        check(
            "virt-launcher",
            Some("start-libvirtd"),
            9,
            Mode::StartLibvirtd,
        );
    }

    /// The monitor does not restart a launcher that ends with this code, so the pod fails.
    #[test]
    fn simulated_crash_is_final() {
        let arguments = ["--uid", "u", "--simulate-crash"].map(OsString::from);
        let ended = start(&Mode::Launcher, &arguments).unwrap();
        assert_eq!(ended, ExitCode::from(FINAL_EXIT_CODE));
    }

    #[test]
    fn flag_values_follow_a_blank_or_an_equals_sign() {
        let parse = |arguments: &[&str]| {
            Flags::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
        };
        let flags = parse(&["--uid", "u", "--name=n", "--grace-period-seconds", "45"]).unwrap();
        assert_eq!((flags.uid.as_str(), flags.name.as_str()), ("u", "n"));
        assert_eq!(
            parse(&["--what"]).unwrap_err(),
            UsageError::Unknown("--what".to_owned())
        );
        assert_eq!(parse(&["--uid"]).unwrap_err(), UsageError::Missing("--uid"));
        assert!(parse(&["--name", "n"]).unwrap().guest().is_err());
    }
}
