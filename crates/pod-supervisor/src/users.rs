//! The user namespace of a pod whose users are not those of the host: root in it is an ordinary user outside.
//!
//! The pod's other namespaces are created in it, so that its root may configure them. It is stored nowhere: it
//! owns the pod's UTS namespace, by which it is found.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
    process::{Gid, Signal, Uid, set_parent_process_death_signal},
    thread::{
        CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags, capabilities,
        move_into_link_name_space, set_capabilities, set_keep_capabilities, set_thread_groups,
        set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::model::User;

/// A pod has the users and groups 0 to 65535.
pub const IDS: u32 = 1 << 16;

/// What supervisor and child send each other after each step.
const DONE: [u8; 1] = *b"\n";

/// Body of `pod-supervisor namespaces`, a child of the supervisor: makes the namespaces and keeps them until the
/// supervisor has entered them, which closes its standard input.
pub fn hold_namespaces() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut done = [0; 1];
    unshare(UnshareFlags::NEWUSER)?;
    io::stdout().write_all(&DONE)?;
    io::stdout().flush()?;
    io::stdin().read_exact(&mut done)?;
    unshare(UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWNET)?;
    io::stdout().write_all(&DONE)?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Makes namespaces whose users 0 to 65535 are those of the host from `first` on, and gives the process that
/// holds them to `enter`.
pub(crate) fn with_namespaces(
    first: u32,
    enter: impl FnOnce(i32) -> io::Result<()>,
) -> io::Result<()> {
    let mut holder = Command::new("/proc/self/exe")
        .arg("namespaces")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let missing = || io::Error::other("a pipe to the process that makes them is missing");
    let mut input = holder.stdin.take().ok_or_else(missing)?;
    let mut output = holder.stdout.take().ok_or_else(missing)?;
    let mut done = [0; 1];
    output.read_exact(&mut done)?;
    for map in ["uid_map", "gid_map"] {
        let file = Path::new("/proc").join(holder.id().to_string()).join(map);
        fs::write(file, format!("0 {first} {IDS}"))?;
    }
    input.write_all(&DONE)?;
    output.read_exact(&mut done)?;
    enter(i32::try_from(holder.id()).map_err(io::Error::other)?)?;
    drop(input);
    holder.wait()?;
    Ok(())
}

/// The user namespace of the pod whose namespaces this process is in.
pub(crate) fn of_this_pod() -> io::Result<OwnedFd> {
    let names = File::open("/proc/self/ns/uts")?;
    // SAFETY: the descriptor is open; the request has no argument and returns a new descriptor.
    match unsafe { libc::ioctl(names.as_raw_fd(), libc::NS_GET_USERNS) } {
        fd if fd >= 0 => {
            // SAFETY: the descriptor is new and owned by nobody else.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Becomes a user of the pod with this user namespace, with all capabilities in it. This process must be root of the
/// host and have one thread.
pub(crate) fn enter_as(namespace: BorrowedFd<'_>, user: &User) -> io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::User))?;
    let groups: Vec<Gid> = user.groups.iter().map(|id| Gid::from_raw(*id)).collect();
    set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;
    let all = CapabilitySet::all() & capabilities(None)?.permitted;
    let sets = CapabilitySets {
        effective: all,
        permitted: all,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// A copy of a mount, or of a part of one, that is mounted nowhere yet.
pub(crate) struct MountCopy(OwnedFd);

impl MountCopy {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        Ok(Self(open_tree(rustix::fs::CWD, path, flags)?))
    }

    /// Files in it belong to those that a user namespace maps their owners to.
    pub(crate) fn map_owners(self, users: BorrowedFd<'_>) -> io::Result<Self> {
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: u64::try_from(users.as_raw_fd()).map_err(io::Error::other)?,
        };
        // SAFETY: both descriptors are open, the path is an empty string, and the size is that of the attributes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.0.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
                &raw const attributes,
                size_of_val(&attributes),
            )
        };
        match result {
            0 => Ok(self),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Mounts it at a new directory or file.
    pub(crate) fn attach(&self, at: &Path) -> io::Result<()> {
        if File::from(self.0.try_clone()?).metadata()?.is_dir() {
            fs::create_dir(at)?;
        } else {
            File::create_new(at)?;
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(self.0.as_fd(), "", rustix::fs::CWD, at, flags)?;
        Ok(())
    }
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: this process has one thread and shares no descriptor table.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}
