//! `ferrovirt install`: writes the units and starts the service.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser as _;

use super::{
    systemd,
    unit::{self, GUESTS, MARK, MODULES, SERVICE, Service, UNITS},
};
use crate::{
    cli,
    printer::Printer,
    state_dir::{Locked, StateDir},
};

/// The program beside this one that every pod needs.
const SUPERVISOR: &str = "pod-supervisor";
/// Files that others than root may write are readable, but must not run as root.
const WRITABLE_BY_OTHERS: u32 = 0o022;

pub(crate) fn install(flags: &cli::Install, printer: Printer) -> Result<()> {
    let program = std::env::current_exe()
        .and_then(|program| program.canonicalize())
        .context("find this program")?;
    let service = service(flags, program)?;
    if flags.dry_run {
        for file in unit::files(&service) {
            printer.line(&format!("# /{}\n{}", file.path.display(), file.text));
        }
        return Ok(());
    }
    if let Some(root) = &flags.root {
        write_all(root, &service)?;
        enable_offline(root)?;
        let root = root.display();
        printer.line(&format!(
            "Installed below {root}: Ferrovirt starts when that system boots."
        ));
        return Ok(());
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "installing a service needs root: run it with sudo"
    );
    systemd::check()?;
    check_holder(&service)?;
    let changed = write_all(Path::new("/"), &service)?;
    start(changed, printer)?;
    printer.line(&format!(
        "Ferrovirt is installed: it starts at boot, and guests power off when the host shuts down.\n  systemctl \
         status {SERVICE}\n  export KUBECONFIG={}",
        service.state_dir.join("kubeconfig").display(),
    ));
    Ok(())
}

/// Parses and checks everything before anything is written.
fn service(flags: &cli::Install, program: PathBuf) -> Result<Service> {
    check_program(&program)?;
    let program = match &flags.root {
        Some(root) => inside(root, program),
        None => program,
    };
    let state_dir = std::path::absolute(&flags.state.state_dir)
        .with_context(|| format!("--state-dir {}", flags.state.state_dir.display()))?;
    let service = Service {
        program,
        state_dir,
        flags: up_flags(flags)?,
    };
    let state_dir = service.state_dir.to_str().map(ToOwned::to_owned);
    let paths = service.program.to_str().map(ToOwned::to_owned);
    let mut words = service
        .flags
        .iter()
        .cloned()
        .map(Some)
        .chain([state_dir, paths]);
    ensure!(
        words.all(|word| word.is_some_and(|word| !word.contains(char::is_control))),
        "a path or flag has a line break or bytes that are not UTF-8, which a unit cannot have: rename it"
    );
    Ok(service)
}

/// The program's path when `root` is the root directory; unchanged if it is elsewhere.
fn inside(root: &Path, program: PathBuf) -> PathBuf {
    let root = root.canonicalize();
    let inner = root.ok().and_then(|root| {
        let inner = program.strip_prefix(root).ok()?;
        Some(Path::new("/").join(inner))
    });
    inner.unwrap_or(program)
}

/// The flags of `up` in the unit.
fn up_flags(flags: &cli::Install) -> Result<Vec<String>> {
    let mut words = Vec::new();
    if let Some(listen) = flags.listen {
        words.extend(["--listen".to_owned(), listen.to_string()]);
    }
    for name in &flags.names {
        words.extend(["--name".to_owned(), name.clone()]);
    }
    words.extend(flags.up_flags.iter().cloned());
    let given = std::iter::once("up").chain(words.iter().map(String::as_str));
    let up = match UpOnly::try_parse_from(given) {
        Ok(UpOnly::Up(up)) => up,
        Err(error) => bail!("flags of `ferrovirt up` after `--`: {}", error.render()),
    };
    for (is_given, flag, remedy) in [
        (
            up.detach || up.detached,
            "--detach",
            "leave it out: systemd runs the service in the background",
        ),
        (
            words.iter().any(|word| word.starts_with("--state-dir")),
            "--state-dir",
            "give it before `--`",
        ),
    ] {
        ensure!(!is_given, "{flag} after `--`: {remedy}");
    }
    if let Some(images) = up.images {
        ensure!(
            images.is_absolute(),
            "--images {}: give an absolute path, since the service starts in /",
            images.display(),
        );
        // It may come from the environment, which the service does not have.
        if !words.iter().any(|word| word.starts_with("--images")) {
            words.extend(["--images".to_owned(), images.display().to_string()]);
        }
    }
    Ok(words)
}

/// The command line of `up` alone.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true)]
enum UpOnly {
    Up(cli::Up),
}

/// A service runs as root, so only root may be able to replace its programs.
fn check_program(program: &Path) -> Result<()> {
    let supervisor = program.with_file_name(SUPERVISOR);
    ensure!(
        supervisor.is_file(),
        "{} does not exist: copy {SUPERVISOR} beside {}",
        supervisor.display(),
        program.display(),
    );
    for path in program.ancestors().chain([supervisor.as_path()]) {
        let metadata = fs::metadata(path).with_context(|| format!("read {}", path.display()))?;
        ensure!(
            metadata.uid() == 0 && metadata.mode() & WRITABLE_BY_OTHERS == 0,
            "{} can be changed by others than root, and the service would run it as root: copy ferrovirt and \
             {SUPERVISOR} to /usr/local/bin and run `/usr/local/bin/ferrovirt install`",
            path.display(),
        );
    }
    Ok(())
}

/// Refuses while a process that systemd does not know runs on the state directory.
fn check_holder(service: &Service) -> Result<()> {
    if !service.state_dir.exists() {
        return Ok(());
    }
    let state = StateDir::open(&service.state_dir)?;
    let Locked::Theirs(holder) = state.lock()? else {
        return Ok(());
    };
    if holder.is_some() && holder == systemd::main_process(SERVICE)? {
        return Ok(());
    }
    let pid = holder.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    bail!(
        "Ferrovirt already runs in {} without the service: end that process with `kill {pid}` (guests keep \
         running), then install again",
        state.root().display(),
    )
}

/// Writes every file that differs; returns whether one did.
fn write_all(root: &Path, service: &Service) -> Result<bool> {
    let files = unit::files(service);
    for file in &files {
        check_replaceable(&root.join(&file.path), service)?;
    }
    let mut changed = false;
    for file in &files {
        let path = root.join(&file.path);
        if fs::read_to_string(&path).is_ok_and(|text| text == file.text) {
            continue;
        }
        let dir = path.parent().unwrap_or(root);
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        durable_file::replace(&path, file.text.as_bytes(), 0o644)
            .with_context(|| format!("write {}", path.display()))?;
        changed = true;
    }
    Ok(changed)
}

/// Whether the file is missing, or ours for the same state directory.
fn check_replaceable(path: &Path, service: &Service) -> Result<()> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        text => text.with_context(|| format!("read {}", path.display()))?,
    };
    ensure!(
        text.starts_with(MARK),
        "{} exists and was not written by `ferrovirt install`: move it away",
        path.display(),
    );
    match unit::state_dir(&text) {
        Some(other) if other != service.state_dir => bail!(
            "--state-dir {}: the service is installed with {}; run `ferrovirt uninstall` first, which keeps its data",
            service.state_dir.display(),
            other.display(),
        ),
        _ => Ok(()),
    }
}

/// Makes the links of `systemctl enable`, for a system that does not run.
fn enable_offline(root: &Path) -> Result<()> {
    for (link, target) in unit::links() {
        let link = root.join(link);
        let made =
            fs::create_dir_all(link.parent().unwrap_or(root)).and_then(|()| symlink(target, &link));
        match made {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("create {}", link.display()))?,
        }
    }
    Ok(())
}

fn start(changed: bool, printer: Printer) -> Result<()> {
    load_modules(printer);
    systemd::control(&["daemon-reload"])?;
    systemd::control(&["enable", "--quiet", GUESTS, SERVICE])?;
    systemd::start("start", GUESTS)?;
    let verb = match (systemd::is_active(SERVICE)?, changed) {
        (true, false) => return Ok(()),
        (true, true) => "restart",
        (false, _) => "start",
    };
    printer.line(&format!("Starting /{UNITS}/{SERVICE} ..."));
    systemd::start(verb, SERVICE)
}

/// Loads what later boots load. A missing module may be part of the kernel; `up` names what it lacks.
fn load_modules(printer: Printer) {
    for module in MODULES {
        let loaded = Command::new("modprobe").args(["--quiet", module]).status();
        if !loaded.is_ok_and(|status| status.success()) {
            printer.line(&format!(
                "The kernel module {module} was not loaded; it may be built in."
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn flags(words: &[&str]) -> cli::Install {
        #[derive(Debug, clap::Parser)]
        #[command(no_binary_name = true)]
        enum InstallOnly {
            Install(cli::Install),
        }
        let words = std::iter::once("install").chain(words.iter().copied());
        let InstallOnly::Install(flags) = InstallOnly::try_parse_from(words).expect("valid flags");
        flags
    }

    fn example(state_dir: &str) -> Service {
        Service {
            program: "/usr/local/bin/ferrovirt".into(),
            state_dir: state_dir.into(),
            flags: vec![],
        }
    }

    /// Flags of `install`, and those of `up` that follow, or part of the error.
    type Case<'a> = (&'a [&'a str], Result<&'a [&'a str], &'a str>);

    #[test]
    fn flags_of_up_are_checked_and_passed_on() {
        let listen = ["--listen", "0.0.0.0:6443"];
        let cases: [Case<'_>; 9] = [
            (&[], Ok(&[])),
            (&["--listen", "0.0.0.0:6443"], Ok(&listen)),
            (
                &["--name", "host.example", "--name", "192.0.2.7"],
                Ok(&["--name", "host.example", "--name", "192.0.2.7"]),
            ),
            (
                &["--", "--emulation", "--images", "/srv/images"],
                Ok(&["--emulation", "--images", "/srv/images"]),
            ),
            (&["--", "--images", "images"], Err("give an absolute path")),
            (&["--", "--detach"], Err("leave it out")),
            (&["--", "--state-dir=/srv"], Err("give it before `--`")),
            (&["--", "--emulate"], Err("--emulate")),
            (&["--", "--name", "a b"], Err("give a DNS name")),
        ];
        for (given, expected) in cases {
            match (up_flags(&flags(given)), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{given:?}"),
                (Err(error), Err(text)) => {
                    assert!(error.to_string().contains(text), "{given:?}: {error}");
                }
                (found, _) => panic!("{given:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn installing_twice_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let service = example("/var/lib/ferrovirt");
        assert!(write_all(root.path(), &service).unwrap());
        enable_offline(root.path()).unwrap();
        assert!(!write_all(root.path(), &service).unwrap());
        enable_offline(root.path()).unwrap();
        let link = root
            .path()
            .join("etc/systemd/system/multi-user.target.wants/ferrovirt.service");
        assert_eq!(
            fs::read_link(link).unwrap(),
            Path::new("/etc/systemd/system/ferrovirt.service")
        );
        let modules = fs::read_to_string(root.path().join(unit::MODULES_FILE)).unwrap();
        assert!(modules.lines().any(|line| line == "overlay"), "{modules}");
        let changed = Service {
            flags: vec!["--emulation".into()],
            ..service
        };
        assert!(write_all(root.path(), &changed).unwrap());
    }

    #[test]
    fn foreign_unit_and_other_directory_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let unit = root.path().join(UNITS).join(SERVICE);
        fs::create_dir_all(unit.parent().unwrap()).unwrap();
        fs::write(&unit, "[Unit]\n").unwrap();
        let error = write_all(root.path(), &example("/one"))
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("move it away"), "{error}");
        assert!(
            !root.path().join(unit::MODULES_FILE).exists(),
            "nothing is half done"
        );

        fs::remove_file(&unit).unwrap();
        write_all(root.path(), &example("/one")).unwrap();
        let error = write_all(root.path(), &example("/two"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("the service is installed with /one"),
            "{error}"
        );
    }

    #[test]
    fn program_that_others_may_replace_is_refused() {
        let root = tempfile::Builder::new().tempdir_in("/root").unwrap();
        let program = root.path().join("ferrovirt");
        fs::write(&program, "").unwrap();
        let error = check_program(&program).unwrap_err().to_string();
        assert!(error.contains("copy pod-supervisor beside"), "{error}");

        fs::write(root.path().join(SUPERVISOR), "").unwrap();
        check_program(&program).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = check_program(&program).unwrap_err().to_string();
        assert!(
            error.contains("/usr/local/bin/ferrovirt install"),
            "{error}"
        );
    }

    #[test]
    fn program_inside_of_the_other_root_is_named_as_there() {
        let root = tempfile::tempdir().unwrap();
        let program = root
            .path()
            .canonicalize()
            .unwrap()
            .join("usr/bin/ferrovirt");
        let found = inside(root.path(), program.clone());
        assert_eq!(found, Path::new("/usr/bin/ferrovirt"));
        for other in ["/", "/srv/other", "/does/not/exist"] {
            assert_eq!(
                inside(Path::new(other), program.clone()),
                program,
                "{other}"
            );
        }
    }

    #[test]
    fn path_that_no_unit_can_have_is_refused() {
        let mut given = flags(&["--state-dir", "/srv/a\nb"]);
        let root = tempfile::Builder::new().tempdir_in("/root").unwrap();
        let program = root.path().join("ferrovirt");
        fs::write(&program, "").unwrap();
        fs::write(root.path().join(SUPERVISOR), "").unwrap();
        let error = service(&given, program.clone()).unwrap_err().to_string();
        assert!(error.contains("line break"), "{error}");
        given.state.state_dir = "/srv/a".into();
        assert_eq!(
            service(&given, program).unwrap().state_dir,
            Path::new("/srv/a")
        );
    }
}
