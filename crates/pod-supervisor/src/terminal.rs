//! The process that keeps a container's terminal. It copies the terminal's output into the container's log and to
//! attached clients, and their input into the terminal.
//!
//! The helper that creates the container starts it, and it ends with the container. Supervisors and nodes that are
//! started again find it running: without it the kernel would hang up on the container's programs.
//!
//! A client connects to the socket [`layout::terminal_socket`](crate::layout::terminal_socket), reads the output as it
//! is, and sends [`frame`]s.
//!
//! **Invariants**: it never waits for a client, and one that does not read is disconnected. While no supervisor reads the
//! log, the output of the terminal waits, as that of other containers does.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::fchown,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{Pid, PidfdFlags, Uid, getppid, pidfd_open},
    pty::{OpenptFlags, ioctl_tiocgptpeer},
    termios::{Winsize, tcsetwinsize},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

use crate::layout;

/// The socket by which the container's first process sends its terminal.
const CONSOLE_SOCKET: &str = "console.sock";
/// More clients than people attach.
const MAX_CLIENTS: usize = 8;
/// A client that reads nothing while this much piles up is disconnected.
const MAX_UNREAD: usize = 256 << 10;
/// While the program has this much input to read, clients wait.
const MAX_INPUT: usize = 64 << 10;
/// The rest of the output of a container that has ended: the kernel keeps less.
const MAX_REST: usize = 1 << 20;
/// No program has the terminal open: one may open it again.
const HUNG_UP_MS: i64 = 500;
/// How long the rest of the output waits for a supervisor that reads it.
const LAST_MS: i64 = 10_000;
const HEADER: usize = 3;

/// What a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    Input,
    /// Columns and rows, two bytes each.
    Size,
}

/// The most bytes of a frame.
pub const MAX_FRAME: usize = 0xffff;

/// The frame with its header; what is too long for it is left out.
pub fn frame(kind: Frame, bytes: &[u8]) -> Vec<u8> {
    let bytes = bytes.get(..MAX_FRAME).unwrap_or(bytes);
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let kind = match kind {
        Frame::Input => 0,
        Frame::Size => 1,
    };
    let mut out = vec![kind];
    out.extend(length.to_be_bytes());
    out.extend(bytes);
    out
}

/// The frame with the size of a client's window.
pub fn size_frame(columns: u16, rows: u16) -> Vec<u8> {
    let [first, second] = columns.to_be_bytes();
    let [third, fourth] = rows.to_be_bytes();
    frame(Frame::Size, &[first, second, third, fourth])
}

/// The terminal of a container that is being created.
#[derive(Debug)]
pub(crate) struct Console {
    path: PathBuf,
    listener: UnixListener,
    clients: UnixListener,
}

impl Console {
    /// Prepares the sockets of an attempt. The paths are relative: absolute ones may be too long for a socket address.
    pub(crate) fn prepare(container: &str, attempt: u32) -> io::Result<Self> {
        let path = layout::attempt_dir(container, attempt).join(CONSOLE_SOCKET);
        let socket = layout::terminal_socket(container, attempt);
        let clients = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, PermissionsExt::from_mode(0o600))?;
        Ok(Self {
            listener: UnixListener::bind(&path)?,
            path,
            clients,
        })
    }

    /// Absolute.
    pub(crate) fn path(&self, pod_dir: &Path) -> PathBuf {
        pod_dir.join(&self.path)
    }

    /// Takes the terminal that the container's first process has sent, gives it to the container's user, which `owner`
    /// is on the host, and starts the process that keeps it.
    pub(crate) fn keep(self, init: i32, owner: u32, log: File) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        let master = receive(&stream)?;
        // Programs may open /dev/stdout by its name.
        let program = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        fchown(&program, Some(Uid::from_raw(owner)), None)?;
        drop(program);
        fs::remove_file(&self.path)?;
        let supervisor = getppid().ok_or_else(|| io::Error::other("the supervisor is gone"))?;
        // Its three standard streams are the descriptors that it inherits.
        Command::new("/proc/self/exe")
            .arg("terminal")
            .arg(init.to_string())
            .arg(supervisor.as_raw_nonzero().to_string())
            .stdin(master)
            .stdout(log)
            .stderr(Stdio::from(OwnedFd::from(self.clients)))
            .spawn()?;
        Ok(())
    }
}

fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut text = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        stream,
        &mut [io::IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let sent = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    sent.ok_or_else(|| io::Error::other("the container sent no terminal"))
}

/// Body of `pod-supervisor terminal <process> <supervisor>`, which has terminal, log and socket as its standard streams;
/// returns when the container's first process has ended.
pub fn run(init: i32, supervisor: i32) -> io::Result<()> {
    let init = Pid::from_raw(init).ok_or_else(|| io::Error::other("not a process"))?;
    // Not fatal: a supervisor that was just killed has no namespace any more, and the terminal outlives it.
    drop(leave_mounts_of_helper(supervisor));
    let init = match pidfd_open(init, PidfdFlags::empty()) {
        // It was faster than this process, and its output is still in the terminal.
        Err(rustix::io::Errno::SRCH) => None,
        opened => Some(opened?),
    };
    let mut keeper = Keeper {
        init,
        master: File::from(io::stdin().as_fd().try_clone_to_owned()?),
        log: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        listener: UnixListener::from(io::stderr().as_fd().try_clone_to_owned()?),
        clients: Vec::new(),
        to_log: Vec::new(),
        to_program: Vec::new(),
        is_hung_up: false,
    };
    rustix::io::ioctl_fionbio(&keeper.master, true)?;
    rustix::io::ioctl_fionbio(&keeper.log, true)?;
    keeper.listener.set_nonblocking(true)?;
    while !keeper.wait()? {
        keeper.copy();
    }
    keeper.finish();
    Ok(())
}

/// The helper that started this process has the container's root and copies of the host's mounts in a mount namespace of
/// its own. They would be in use for as long as this process runs, also after the host has unmounted them.
fn leave_mounts_of_helper(supervisor: i32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{supervisor}/ns/mnt"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}

#[derive(Debug)]
struct Keeper {
    /// None if it has ended already.
    init: Option<OwnedFd>,
    master: File,
    log: File,
    listener: UnixListener,
    clients: Vec<Client>,
    to_log: Vec<u8>,
    to_program: Vec<u8>,
    /// No program has the terminal open.
    is_hung_up: bool,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    is_gone: bool,
}

impl Keeper {
    /// Waits until there is something to copy. Returns whether the container has ended.
    fn wait(&self) -> io::Result<bool> {
        if self.init.is_none() {
            return Ok(true);
        }
        let again = Timespec {
            tv_sec: 0,
            tv_nsec: HUNG_UP_MS * 1_000_000,
        };
        let mut all = self.interests();
        match poll(&mut all, self.is_hung_up.then_some(&again)) {
            Ok(_) => Ok(all.first().is_some_and(|init| !init.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// What there is to wait for; the container's first process comes first.
    fn interests(&self) -> Vec<PollFd<'_>> {
        let init = self.init.iter();
        let mut all: Vec<_> = init.map(|init| PollFd::new(init, PollFlags::IN)).collect();
        // Further clients wait: a listener that nobody accepts from stays ready.
        if self.clients.len() < MAX_CLIENTS {
            all.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, self.to_log.is_empty());
        interest.set(PollFlags::OUT, !self.to_program.is_empty());
        // A hang-up is reported whether asked for or not.
        if !interest.is_empty() && !self.is_hung_up {
            all.push(PollFd::new(&self.master, interest));
        }
        if !self.to_log.is_empty() {
            all.push(PollFd::new(&self.log, PollFlags::OUT));
        }
        let may_send = self.to_program.len() < MAX_INPUT;
        for client in &self.clients {
            let mut interest = PollFlags::empty();
            interest.set(PollFlags::IN, may_send);
            interest.set(PollFlags::OUT, !client.output.is_empty());
            if !interest.is_empty() {
                all.push(PollFd::new(&client.stream, interest));
            }
        }
        all
    }

    /// Copies what can be copied without waiting.
    fn copy(&mut self) {
        while self.clients.len() < MAX_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    input: Vec::new(),
                    output: Vec::new(),
                    is_gone: false,
                });
            }
        }
        self.is_hung_up = false;
        if self.to_log.is_empty() {
            self.read_terminal();
        }
        for client in &mut self.clients {
            client.flush();
            if self.to_program.len() < MAX_INPUT {
                client.receive();
            }
            while let Some((kind, bytes)) = client.next_frame() {
                match (kind, &bytes[..]) {
                    (0, bytes) => self.to_program.extend(bytes),
                    (1, [a, b, c, d]) => {
                        let size = Winsize {
                            ws_col: u16::from_be_bytes([*a, *b]),
                            ws_row: u16::from_be_bytes([*c, *d]),
                            ws_xpixel: 0,
                            ws_ypixel: 0,
                        };
                        client.is_gone |= tcsetwinsize(&self.master, size).is_err();
                    }
                    _ => client.is_gone = true,
                }
            }
        }
        self.clients.retain(|client| !client.is_gone);
        write_some(&mut self.log, &mut self.to_log);
        if !self.is_hung_up {
            // Some kernels refuse it while no program has the terminal open.
            self.is_hung_up = !write_some(&mut self.master, &mut self.to_program);
        }
    }

    /// Reads a part of the output. Returns whether there may be more.
    fn read_terminal(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let read = match self.master.read(&mut buffer) {
            Ok(count) if count > 0 => buffer.get(..count).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Ok(_) | Err(_) => {
                self.is_hung_up = true;
                return false;
            }
        };
        self.to_log.extend(read);
        for client in &mut self.clients {
            client.output.extend(read);
            client.is_gone |= client.output.len() > MAX_UNREAD;
        }
        true
    }

    /// The rest of the output, after the container has ended.
    fn finish(&mut self) {
        while self.to_log.len() < MAX_REST && self.read_terminal() {}
        for client in &mut self.clients {
            client.flush();
        }
        let patience = Timespec {
            tv_sec: LAST_MS / 1000,
            tv_nsec: 0,
        };
        while !self.to_log.is_empty() {
            let mut room = [PollFd::new(&self.log, PollFlags::OUT)];
            match poll(&mut room, Some(&patience)) {
                Ok(0) => return,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            if !write_some(&mut self.log, &mut self.to_log) {
                return;
            }
        }
    }
}

impl Client {
    fn flush(&mut self) {
        self.is_gone |= !write_some(&mut self.stream, &mut self.output);
    }

    fn receive(&mut self) {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_gone = true,
            Ok(count) => self.input.extend(buffer.get(..count).unwrap_or_default()),
            Err(error) => self.is_gone |= !is_for_now(&error),
        }
    }

    /// The kind and the bytes of the next whole frame.
    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let [kind, first, second, ..] = self.input[..] else {
            return None;
        };
        let end = HEADER + usize::from(u16::from_be_bytes([first, second]));
        let bytes = self.input.get(HEADER..end)?.to_vec();
        self.input.drain(..end);
        Some((kind, bytes))
    }
}

/// Writes what there is room for. Returns whether more can be written later.
fn write_some(to: &mut impl io::Write, bytes: &mut Vec<u8>) -> bool {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return false,
            Ok(count) => drop(bytes.drain(..count)),
            Err(error) => return is_for_now(&error),
        }
    }
    true
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keeper of the terminal, and the program's end of it.
    fn keeper(socket: &Path) -> (Keeper, File) {
        use rustix::pty::{grantpt, openpt, unlockpt};

        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let program = File::from(ioctl_tiocgptpeer(&master, flags).unwrap());
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let keeper = Keeper {
            init: Some(pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap()),
            master: File::from(master),
            log: tempfile::tempfile().unwrap(),
            listener,
            clients: Vec::new(),
            to_log: Vec::new(),
            to_program: Vec::new(),
            is_hung_up: false,
        };
        (keeper, program)
    }

    /// Whether the keeper would have something to do at once.
    fn is_ready(keeper: &Keeper) -> bool {
        let mut fds = keeper.interests();
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    #[test]
    fn keeper_rests_while_more_clients_wait_than_it_takes() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("terminal.sock");
        let (mut keeper, _program) = keeper(&socket);
        let mut clients: Vec<_> = (0..=MAX_CLIENTS)
            .map(|_| UnixStream::connect(&socket).unwrap())
            .collect();
        assert!(is_ready(&keeper));
        keeper.copy();
        assert_eq!(keeper.clients.len(), MAX_CLIENTS);
        assert!(!is_ready(&keeper));
        // One leaves, and the last one takes its place.
        drop(clients.swap_remove(0));
        assert!(is_ready(&keeper));
        keeper.copy();
        keeper.copy();
        assert_eq!(keeper.clients.len(), MAX_CLIENTS);
        assert!(!is_ready(&keeper));
    }

    #[test]
    fn keeper_rests_while_no_program_has_the_terminal_open() {
        let dir = tempfile::tempdir().unwrap();
        let (mut keeper, program) = keeper(&dir.path().join("terminal.sock"));
        keeper.copy();
        assert!(!keeper.is_hung_up);
        drop(program);
        // The log is full, so that the output is not read.
        let (_reader, mut full) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&full, true).unwrap();
        write_some(&mut full, &mut vec![0; 1 << 20]);
        keeper.log = File::from(OwnedFd::from(full));
        keeper.to_log.push(b'a');
        keeper.to_program.push(b'b');
        keeper.copy();
        assert!(!is_ready(&keeper));
        // With room in the log, the end of the output shows, after an echo of the input.
        keeper.log = tempfile::tempfile().unwrap();
        for _ in 0..4 {
            keeper.copy();
        }
        assert!(keeper.is_hung_up);
        assert!(!is_ready(&keeper));
    }

    #[test]
    fn frames_are_read_once_they_are_whole() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let mut client = Client {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            is_gone: false,
        };
        let sent = [frame(Frame::Input, b"ls\n"), size_frame(300, 17)].concat();
        let (first, second) = sent.split_at(5);
        client.input.extend(first);
        assert_eq!(client.next_frame(), None);
        client.input.extend(second);
        assert_eq!(client.next_frame(), Some((0, b"ls\n".to_vec())));
        assert_eq!(client.next_frame(), Some((1, vec![1, 44, 0, 17])));
        assert_eq!(client.next_frame(), None);
        assert!(client.input.is_empty());
    }

    #[test]
    fn frame_has_at_most_its_length() {
        let long = vec![7; MAX_FRAME + 10];
        let sent = frame(Frame::Input, &long);
        assert_eq!(sent[..HEADER], [0, 0xff, 0xff]);
        assert_eq!(sent.len(), HEADER + MAX_FRAME);
        assert_eq!(frame(Frame::Input, b"")[..], [0, 0, 0]);
    }
}
