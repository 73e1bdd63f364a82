//! Watches guests by their console logs and processes alone.

use std::{
    convert::Infallible,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use tokio::time::{Instant, interval};

use super::Guest;
use crate::{
    DEADLINE, Environment, GuestProcesses, TestNamespace, processes::start_time, processes_of_pod,
};

/// The sampling interval.
const INTERVAL: Duration = Duration::from_millis(200);
/// A guest that counts every second and is silent for this long was interrupted, however busy the host.
const SILENCE: Duration = Duration::from_secs(10);
const QEMU: &str = "qemu-system-x86";

#[derive(Debug)]
pub(super) struct Observer {
    guests: Vec<Watched>,
    guest_processes: GuestProcesses,
}

#[derive(Debug)]
struct Watched {
    name: String,
    log: PathBuf,
    /// The read position in the log.
    offset: u64,
    /// The beginning of an incomplete line.
    partial: String,
    last: u64,
    last_at: Instant,
    longest_silence: Duration,
    process: (i32, String),
    fault: Option<String>,
}

#[derive(Debug)]
pub(super) struct Findings {
    /// A message for each interrupted guest.
    pub(super) faults: Vec<String>,
    /// A message for each VM that ran twice at once or was restarted.
    pub(super) duplicated: Vec<String>,
    pub(super) longest_silence: Duration,
    pub(super) samples: usize,
}

impl Observer {
    pub(super) fn of<H: Environment>(test: &TestNamespace<H>, guests: &[Guest]) -> Self {
        let watch = |guest: &Guest| {
            let all = processes_of_pod(&guest.pod);
            let qemu = all.iter().find(|(_, name)| name == QEMU);
            let (pid, _) = *qemu.expect("a running guest has a QEMU");
            let log = test.serial_log_file(&guest.vmi).expect("a guest has a log");
            // During boot other programs write to the console, even within a line.
            let bytes = fs::read(&log).expect("read a guest's log");
            let text = String::from_utf8_lossy(&bytes);
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            let last = text[..whole].lines().filter_map(number).next_back();
            Watched {
                name: guest.name.clone(),
                log,
                offset: u64::try_from(bytes.len()).expect("a length"),
                partial: text[whole..].to_owned(),
                last: last.expect("the guest counts"),
                last_at: Instant::now(),
                longest_silence: Duration::ZERO,
                process: (
                    pid,
                    start_time(pid).expect("a running process has a start time"),
                ),
                fault: None,
            }
        };
        Self {
            guests: guests.iter().map(watch).collect(),
            guest_processes: GuestProcesses::of(&test.namespace),
        }
    }

    /// Samples all guests.
    pub(super) async fn watch(&mut self) -> Infallible {
        let mut ticks = interval(INTERVAL);
        loop {
            ticks.tick().await;
            self.sample();
        }
    }

    /// Waits until each guest has counted after the last kill or was found interrupted.
    pub(super) async fn wait_for_all_to_count(&mut self) {
        let before: Vec<u64> = self.guests.iter().map(|guest| guest.last).collect();
        let mut ticks = interval(INTERVAL);
        let until = Instant::now() + DEADLINE;
        while Instant::now() < until {
            ticks.tick().await;
            self.sample();
            let mut pairs = self.guests.iter().zip(&before);
            if pairs.all(|(guest, before)| guest.fault.is_some() || guest.last > before + 1) {
                return;
            }
        }
    }

    fn sample(&mut self) {
        let now = Instant::now();
        for guest in &mut self.guests {
            guest.sample(now);
        }
        self.guest_processes.sample();
    }

    pub(super) fn findings(&self) -> Findings {
        let fault = |guest: &Watched| {
            let fault = guest.fault.as_ref()?;
            Some(format!("{} was interrupted: {fault}", guest.name))
        };
        let silences = self.guests.iter().map(|guest| guest.longest_silence);
        let restarted = self.guests.iter().filter_map(|guest| {
            let lifetimes = self.guest_processes.lifetimes(&guest.name);
            (lifetimes != 1).then(|| format!("{} had {lifetimes} processes", guest.name))
        });
        Findings {
            faults: self.guests.iter().filter_map(fault).collect(),
            duplicated: self
                .guest_processes
                .duplicates()
                .into_iter()
                .chain(restarted)
                .collect(),
            longest_silence: silences.max().unwrap_or_default(),
            samples: self.guest_processes.samples(),
        }
    }
}

impl Watched {
    fn sample(&mut self, now: Instant) {
        if self.fault.is_none() {
            self.fault = self.read(now).err();
        }
    }

    fn read(&mut self, now: Instant) -> Result<(), String> {
        let (pid, birth) = &self.process;
        if start_time(*pid).as_ref() != Some(birth) {
            return Err(format!("its process {pid} is gone"));
        }
        let mut fresh = String::new();
        let mut log = File::open(&self.log).map_err(|err| format!("its log: {err}"))?;
        log.seek(SeekFrom::Start(self.offset))
            .map_err(|err| format!("its log: {err}"))?;
        let mut bytes = Vec::new();
        let count = log
            .read_to_end(&mut bytes)
            .map_err(|err| format!("its log: {err}"))?;
        self.offset += u64::try_from(count).unwrap_or(0);
        fresh.push_str(&std::mem::take(&mut self.partial));
        fresh.push_str(&String::from_utf8_lossy(&bytes));
        let whole = fresh.rfind('\n').map_or(0, |end| end + 1);
        fresh[whole..].clone_into(&mut self.partial);
        self.count(&fresh[..whole], now)
    }

    fn count(&mut self, lines: &str, now: Instant) -> Result<(), String> {
        for number in lines.lines().filter_map(number) {
            if number != self.last + 1 {
                return Err(format!("{number} came after {}", self.last));
            }
            self.longest_silence = self.longest_silence.max(now - self.last_at);
            self.last = number;
            self.last_at = now;
        }
        let silence = now - self.last_at;
        if silence > SILENCE {
            return Err(format!(
                "silent for {} s after {}",
                silence.as_secs(),
                self.last
            ));
        }
        Ok(())
    }
}

fn number(line: &str) -> Option<u64> {
    line.trim().strip_prefix("count ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(log: PathBuf) -> Watched {
        let pid = i32::try_from(std::process::id()).unwrap();
        Watched {
            name: "guest".to_owned(),
            log,
            offset: 0,
            partial: String::new(),
            last: 0,
            last_at: Instant::now(),
            longest_silence: Duration::ZERO,
            process: (pid, start_time(pid).unwrap()),
            fault: None,
        }
    }

    fn after(text: &str, more: &str) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut guest = watched(file.path().to_owned());
        fs::write(file.path(), text).unwrap();
        guest.sample(Instant::now());
        fs::write(file.path(), format!("{text}{more}")).unwrap();
        guest.sample(Instant::now());
        guest.fault
    }

    #[test]
    fn count_without_gaps_passes() {
        assert_eq!(
            after("hello\ncount 1\r\ncount 2\ncou", "nt 3\ncount 4"),
            None
        );
    }

    #[test]
    fn gap_restart_and_lost_process_are_found() {
        assert_eq!(after("count 1\n", "count 3\n").unwrap(), "3 came after 1");
        assert_eq!(
            after("count 1\ncount 2\n", "count 1\n").unwrap(),
            "1 came after 2"
        );
        let mut guest = watched("/dev/null".into());
        guest.process.1 = "0".to_owned();
        guest.sample(Instant::now());
        assert!(guest.fault.unwrap().ends_with("is gone"));
    }

    #[test]
    fn silent_guest_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "count 1\n").unwrap();
        let mut guest = watched(file.path().to_owned());
        guest.sample(Instant::now());
        guest.sample(guest.last_at + Duration::from_secs(11));
        assert_eq!(guest.fault.unwrap(), "silent for 11 s after 1");
    }
}
