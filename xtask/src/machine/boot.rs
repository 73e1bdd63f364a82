//! Runs QEMU with the machine's disks and reads the results from its second serial port.
//!
//! **Invariant**: QEMU does not outlive us, nor the time limit.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{accelerator::Accelerator, image::Image};

const CPUS: u32 = 2;
/// The line with the scenario's exit status.
const END: &str = "machine: ended with ";
/// For the guest to power off after that line.
const POWER_OFF: Duration = Duration::from_secs(30);
/// Lines of the console shown with an error.
const LAST_LINES: usize = 15;
/// Profiles take long to load; the scenario that needs them does it.
const COMMAND_LINE: &str =
    "console=ttyS0 root=/dev/vda rw panic=-1 mitigations=off systemd.mask=apparmor.service";

/// One run of the machine.
#[derive(Debug)]
pub(super) struct Boot<'a> {
    pub(super) image: &'a Image,
    pub(super) accelerator: Accelerator,
    /// The archive that the machine unpacks.
    pub(super) parts: &'a Path,
    /// From `/dev/vdc` on.
    pub(super) disks: Vec<Disk>,
    pub(super) memory_mib: u32,
    pub(super) scenario: Option<&'static str>,
    pub(super) console: Console,
}

/// A disk besides that of the system.
#[derive(Debug)]
pub(super) enum Disk {
    Plain(PathBuf),
    /// QEMU writes down what happens to it, in the format of the kernel's dm-log-writes.
    Recorded {
        data: PathBuf,
        log: PathBuf,
    },
}

/// Where the messages of the kernel and of systemd go.
#[derive(Debug)]
pub(super) enum Console {
    File(PathBuf),
    Terminal,
}

/// How a scenario ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) status: i32,
    pub(super) output: Vec<String>,
}

impl Boot<'_> {
    /// Runs the scenario and shows each line of its output.
    pub(super) fn run(&self, limit: Duration, mut show: impl FnMut(&str)) -> Result<Outcome> {
        let (_killed_at_the_end, lines) = self.started()?;
        let deadline = Instant::now() + limit;
        let mut output = Vec::new();
        while let Some(line) = self.next_line(&lines, deadline)? {
            if let Some(status) = line.strip_prefix(END) {
                let status = status.parse();
                let status = status.with_context(|| format!("understand {line:?}"))?;
                wait_for_power_off(&lines);
                return Ok(Outcome { status, output });
            }
            show(&line);
            output.push(line);
        }
        bail!(
            "no end after {} s{}",
            limit.as_secs(),
            self.end_of_console()
        )
    }

    /// Runs the scenario and kills the machine some time after a line of its output.
    pub(super) fn cut(
        &self,
        limit: Duration,
        (begin, after): (&str, Duration),
        mut show: impl FnMut(&str),
    ) -> Result<()> {
        let (_killed_at_the_end, lines) = self.started()?;
        let mut deadline = Instant::now() + limit;
        let mut has_begun = false;
        while let Some(line) = self.next_line(&lines, deadline)? {
            show(&line);
            if line.starts_with(END) {
                bail!("the scenario ended by itself: {line}");
            }
            if line == begin {
                has_begun = true;
                deadline = Instant::now() + after;
            }
        }
        anyhow::ensure!(
            has_begun,
            "no line {begin:?} after {} s{}",
            limit.as_secs(),
            self.end_of_console()
        );
        Ok(())
    }

    fn started(&self) -> Result<(Qemu, mpsc::Receiver<String>)> {
        let mut qemu = self.start(Stdio::null(), Stdio::piped())?;
        let output = qemu.0.stdout.take().context("the output is a pipe")?;
        Ok((qemu, lines_of(output)))
    }

    /// The next line of output; `None` at the deadline.
    fn next_line(
        &self,
        lines: &mpsc::Receiver<String>,
        deadline: Instant,
    ) -> Result<Option<String>> {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!(
                    "the machine ended without a result{}",
                    self.end_of_console()
                )
            }
        }
    }

    /// Connects the terminal with the machine's console until it ends.
    pub(super) fn shell(&self) -> Result<()> {
        let mut qemu = self.start(Stdio::inherit(), Stdio::inherit())?;
        let status = qemu.0.wait().context("wait for QEMU")?;
        anyhow::ensure!(status.success(), "QEMU ended with {status}");
        Ok(())
    }

    fn start(&self, input: Stdio, output: Stdio) -> Result<Qemu> {
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"])
            .args(self.arguments())
            .stdin(input)
            .stdout(output)
            .spawn()
            .map(Qemu)
            .context("start QEMU: install qemu-system-x86")
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = self.accelerator.arguments().map(str::to_owned).into();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add("-m", self.memory_mib.to_string());
        add("-smp", CPUS.to_string());
        add("-display", "none".to_owned());
        add("-kernel", self.image.kernel.display().to_string());
        add("-initrd", self.image.initrd.display().to_string());
        let name = self
            .scenario
            .map(|name| format!(" machine.scenario={name}"));
        add(
            "-append",
            COMMAND_LINE.to_owned() + &name.unwrap_or_default(),
        );
        for serial in match &self.console {
            Console::File(path) => [format!("file:{}", path.display()), "stdio".to_owned()],
            Console::Terminal => ["mon:stdio".to_owned(), "null".to_owned()],
        } {
            add("-serial", serial);
        }
        // Changes go to a temporary file that ends with QEMU.
        let options = "format=raw,snapshot=on,cache=unsafe";
        let root = self.image.disk.display();
        add("-drive", format!("file={root},if=none,id=root,{options}"));
        let parts = self.parts.display();
        let options = "format=raw,readonly=on";
        add("-drive", format!("file={parts},if=none,id=parts,{options}"));
        // In the order of their letters: a drive with `if=virtio` would come after all devices.
        for name in ["root", "parts"] {
            add("-device", format!("virtio-blk-pci,drive={name}"));
        }
        for (number, disk) in (0_u32..).zip(&self.disks) {
            let nodes = disk.nodes(number);
            for node in nodes {
                add("-blockdev", node);
            }
            add(
                "-device",
                format!("virtio-blk-pci,drive=disk{number},write-cache=on"),
            );
        }
        add("-device", "virtio-rng-pci".to_owned());
        arguments.push("-nodefaults".to_owned());
        arguments
    }

    fn end_of_console(&self) -> String {
        let Console::File(path) = &self.console else {
            return String::new();
        };
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let begin = lines.len().saturating_sub(LAST_LINES);
        let last = lines.get(begin..).unwrap_or_default().join("\n  ");
        format!("; the end of its console:\n  {last}")
    }
}

impl Disk {
    /// The nodes of QEMU's block layer; the last one is `diskN`.
    fn nodes(&self, number: u32) -> Vec<String> {
        let file = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},filename={}", path.display())
        };
        match self {
            Self::Plain(path) => vec![file(&format!("disk{number}"), path)],
            Self::Recorded { data, log } => vec![
                file(&format!("data{number}"), data),
                file(&format!("log{number}"), log),
                format!(
                    "driver=blklogwrites,node-name=disk{number},file=data{number},log=log{number}"
                ),
            ],
        }
    }
}

/// The running process; killed when dropped.
struct Qemu(Child);

/// Waits until the guest has powered off, which closes the output.
fn wait_for_power_off(lines: &mpsc::Receiver<String>) {
    let deadline = Instant::now() + POWER_OFF;
    while Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        if lines.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        if self.0.kill().is_ok() && self.0.wait().is_err() {
            // Nothing is left to do.
        }
    }
}

/// The lines of a serial port, until it is closed.
fn lines_of(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(scenario: Option<&'static str>, console: Console) -> String {
        let image = Image {
            disk: "/i/disk.raw".into(),
            kernel: "/i/vmlinuz".into(),
            initrd: "/i/initrd".into(),
        };
        let boot = Boot {
            image: &image,
            accelerator: Accelerator::Tcg,
            parts: Path::new("/p.tar"),
            disks: vec![Disk::Recorded {
                data: "/d".into(),
                log: "/l".into(),
            }],
            memory_mib: 512,
            scenario,
            console,
        };
        boot.arguments().join(" ")
    }

    #[test]
    fn scenario_is_named_and_the_disk_is_thrown_away() {
        let run = arguments(Some("devices"), Console::File("/c.log".into()));
        for part in [
            "-accel tcg",
            "-m 512",
            " machine.scenario=devices -serial file:/c.log -serial stdio",
            "file=/i/disk.raw,if=none,id=root,format=raw,snapshot=on",
            "file=/p.tar,if=none,id=parts,format=raw,readonly=on",
            "virtio-blk-pci,drive=root -device virtio-blk-pci,drive=parts -blockdev ",
            "driver=blklogwrites,node-name=disk0,file=data0,log=log0 \
             -device virtio-blk-pci,drive=disk0,",
        ] {
            assert!(run.contains(part), "{part} is not in {run}");
        }
    }

    #[test]
    fn shell_has_the_terminal_as_its_console() {
        let shell = arguments(None, Console::Terminal);
        assert!(shell.contains("-serial mon:stdio -serial null"), "{shell}");
        assert!(!shell.contains("machine.scenario"), "{shell}");
    }
}
