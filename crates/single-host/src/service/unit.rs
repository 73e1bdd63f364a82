//! Renders the units of the service and the list of kernel modules.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The service of `ferrovirt up`.
pub(super) const SERVICE: &str = "ferrovirt.service";
/// The service whose stop, at the shutdown of the host, powers off the guests.
pub(super) const GUESTS: &str = "ferrovirt-guests.service";
/// Where an administrator's units are, relative to the root directory.
pub(super) const UNITS: &str = "etc/systemd/system";
/// The kernel modules to load at boot, relative to the root directory.
pub(super) const MODULES_FILE: &str = "etc/modules-load.d/ferrovirt.conf";

/// Modules that nothing loads by itself when it is first needed: file system of containers, network of
/// guests.
pub(super) const MODULES: [&str; 3] = ["overlay", "tun", "vhost_net"];

/// The first line of every file that `install` writes.
pub(super) const MARK: &str = "# Written by `ferrovirt install`, removed by `ferrovirt uninstall`.";

/// The line that names the state directory; systemd ignores keys that begin with `X-`.
const STATE_DIR_KEY: &str = "X-FerrovirtStateDir=";

/// Longest time that a shutdown of the host waits for guests; systemd reboots by force after 30 minutes.
pub(crate) const LONGEST_SHUTDOWN: Duration = Duration::from_mins(20);
/// Time for the rest of `down`.
const STOP_MARGIN: Duration = Duration::from_mins(5);

/// The service as the administrator wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    /// This program.
    pub(super) program: PathBuf,
    pub(super) state_dir: PathBuf,
    /// Flags of `ferrovirt up` besides `--state-dir`.
    pub(super) flags: Vec<String>,
}

/// A file to write: its path relative to the root directory, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Everything that the service consists of.
pub(super) fn files(service: &Service) -> Vec<Rendered> {
    let unit = |name: &str, text| Rendered {
        path: Path::new(UNITS).join(name),
        text,
    };
    let modules = Rendered {
        path: MODULES_FILE.into(),
        text: format!("{MARK}\n{}\n", MODULES.join("\n")),
    };
    vec![
        modules,
        unit(GUESTS, guests(service)),
        unit(SERVICE, server(service)),
    ]
}

/// Links below the root directory that start the services at boot, as `systemctl enable` makes them.
pub(super) fn links() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    [GUESTS, SERVICE].into_iter().map(|name| {
        let link = Path::new(UNITS).join("multi-user.target.wants").join(name);
        (link, Path::new("/").join(UNITS).join(name))
    })
}

/// The state directory of a unit that `install` wrote.
pub(super) fn state_dir(text: &str) -> Option<PathBuf> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(STATE_DIR_KEY));
    line.map(PathBuf::from)
}

fn server(service: &Service) -> String {
    let state_dir = service.state_dir.display().to_string();
    let mut words = vec![
        service.program.display().to_string(),
        "up".to_owned(),
        "--state-dir".to_owned(),
        state_dir.clone(),
    ];
    words.extend(service.flags.iter().cloned());
    format!(
        "{MARK}
# Change it by `systemctl edit {SERVICE}`, or by installing again with other flags.
[Unit]
Description=Ferrovirt: virtual machines under the Kubernetes API
Wants=network-online.target {GUESTS}
# Stopped before the guests are powered off, so that nothing starts them again.
After=network-online.target local-fs.target systemd-modules-load.service {GUESTS}
RequiresMountsFor={mounts}
# Restarted for as long as it fails: guests run meanwhile, and nothing else manages them.
StartLimitIntervalSec=0
{STATE_DIR_KEY}{state_dir}

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
Environment=FERROVIRT_LOG=info
Restart=on-failure
RestartSec=2
# The first start unpacks an image and probes the host.
TimeoutStartSec=15min
TimeoutStopSec=60
# Pods outlive this process: they have control groups and supervisors of their own.
KillMode=process
Delegate=yes
TasksMax=infinity
LimitNOFILE=1048576
OOMScoreAdjust={oom_score}

[Install]
WantedBy=multi-user.target
",
        mounts = quoted(&state_dir),
        command = command(&words),
        oom_score = pod_supervisor::oom::SERVER,
    )
}

fn guests(service: &Service) -> String {
    let state_dir = service.state_dir.display().to_string();
    let stop = [
        &service.program.display().to_string(),
        "down",
        "--for-shutdown",
        "--state-dir",
        &state_dir,
    ]
    .map(ToOwned::to_owned);
    format!(
        "{MARK}
[Unit]
Description=Ferrovirt: power off guests when the host shuts down
After=network-online.target local-fs.target
RequiresMountsFor={mounts}
{STATE_DIR_KEY}{state_dir}

[Service]
Type=oneshot
RemainAfterExit=yes
# Does nothing unless the host is shutting down.
ExecStop={command}
KillMode=process
# Longer than `down --for-shutdown` waits for a guest.
TimeoutStopSec={timeout}

[Install]
WantedBy=multi-user.target
",
        mounts = quoted(&state_dir),
        command = command(&stop),
        timeout = LONGEST_SHUTDOWN.saturating_add(STOP_MARGIN).as_secs(),
    )
}

/// A command line as systemd reads it.
fn command(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| escaped(word)).collect();
    words.join(" ")
}

/// A word of a command line: neither specifiers (`%`) nor variables (`$`) are expanded.
fn escaped(word: &str) -> String {
    quoted(&word.replace('$', "$$"))
}

/// A value in quotes if it needs them, without specifiers.
fn quoted(value: &str) -> String {
    let value = value.replace('%', "%%");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%$[]".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value;
    }
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        Service {
            program: "/usr/local/bin/ferrovirt".into(),
            state_dir: "/var/lib/ferrovirt".into(),
            flags: vec!["--listen".into(), "0.0.0.0:6443".into()],
        }
    }

    fn text(service: &Service, name: &str) -> String {
        let found = files(service)
            .into_iter()
            .find(|file| file.path.ends_with(name));
        found.expect("the file").text
    }

    #[test]
    fn words_of_a_command_line_are_quoted() {
        for (word, expected) in [
            ("/usr/bin/a-b_c.d", "/usr/bin/a-b_c.d"),
            ("[::1]:6443", "[::1]:6443"),
            ("a b", "\"a b\""),
            ("", "\"\""),
            ("50%", "50%%"),
            ("$HOME", "$$HOME"),
            ("say \"yes\"", "\"say \\\"yes\\\"\""),
            ("back\\slash", "\"back\\\\slash\""),
            ("a;b", "\"a;b\""),
        ] {
            assert_eq!(escaped(word), expected, "{word}");
        }
    }

    #[test]
    fn service_starts_the_program_with_its_flags() {
        let text = text(&service(), SERVICE);
        let expected = "ExecStart=/usr/local/bin/ferrovirt up --state-dir /var/lib/ferrovirt --listen \
                        0.0.0.0:6443\n";
        assert!(text.contains(expected), "{text}");
        for line in [
            "Type=notify",
            "Restart=on-failure",
            "KillMode=process",
            "OOMScoreAdjust=-999",
            "WantedBy=multi-user.target",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn guests_have_longer_than_the_program_waits() {
        let text = text(&service(), GUESTS);
        assert!(text.contains("ExecStop=/usr/local/bin/ferrovirt down --for-shutdown "));
        assert!(text.contains("TimeoutStopSec=1500\n"), "{text}");
    }

    #[test]
    fn state_directory_is_read_from_a_unit() {
        let service = Service {
            state_dir: "/srv/vm data".into(),
            ..service()
        };
        for name in [SERVICE, GUESTS] {
            let text = text(&service, name);
            assert_eq!(state_dir(&text), Some("/srv/vm data".into()));
            assert!(text.starts_with(MARK));
            assert!(
                text.contains("RequiresMountsFor=\"/srv/vm data\"\n"),
                "{text}"
            );
        }
        assert_eq!(state_dir("[Unit]\n"), None);
    }
}
