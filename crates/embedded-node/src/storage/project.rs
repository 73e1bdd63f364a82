//! Limits of directories, by the project quotas of the file system that they are on.
//!
//! A directory gets the number of a project, which what is made in it inherits, and the kernel refuses blocks and
//! files of a project above its limits. ext4 and XFS have this if they are mounted with `prjquota`.
//!
//! Stateless, as the kernel knows the number of each directory and the limits of each number. **Invariants.** The limits are
//! set last: a project without limits was interrupted, and is completed by the next call. The numbers of others
//! are left alone. A tenant may change the directory meanwhile, so that names are opened relative to their
//! directory and never followed if they are symbolic links.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, RawFd},
    path::Path,
};

use parking_lot::Mutex;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags},
    io::Errno,
    ioctl::{Getter, Opcode, Setter, ioctl, opcode},
};

/// The first number of a project of ours; there are [`PROJECTS`]. Administrators count from 1, and the kubelet from
/// 1048577.
const FIRST: u32 = 0x4656_0000;
const PROJECTS: u32 = 1 << 16;
/// Deeper trees are refused: each level keeps a descriptor open.
const DEEPEST: u32 = 200;
/// A file system of the size of the limit would have no more files.
const BYTES_OF_A_FILE: u64 = 4096;
const FEWEST_FILES: u64 = 1000;

/// What is made in a directory belongs to the directory's project.
const INHERIT: u32 = 0x200;
/// The kind of quotas.
const PROJECT: u32 = 2;
const SET_QUOTA: u32 = libc::Q_SETQUOTA.cast_unsigned();
const GET_QUOTA: u32 = libc::Q_GETQUOTA.cast_unsigned();
const GET_STATE: u32 = 0x5808;
/// In the state: limits of projects are enforced.
const ENFORCED: u16 = 1 << 5;
/// The unit of limits of blocks.
const UNIT: u64 = 1024;

/// The kernel's `struct fsxattr`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Attributes {
    flags: u32,
    extent: u32,
    extents: u32,
    project: u32,
    copied_extent: u32,
    padding: [u8; 8],
}

const GET_ATTRIBUTES: Opcode = opcode::read::<Attributes>(b'X', 31);
const SET_ATTRIBUTES: Opcode = opcode::write::<Attributes>(b'X', 32);

/// The kernel's `struct fs_quota_statv`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct State {
    version: i8,
    padding: u8,
    flags: u16,
    in_core: u32,
    /// Of users, groups and projects.
    files: [FileState; 3],
    times: [i32; 3],
    warnings: [u16; 4],
    more: u32,
    reserved: [u64; 7],
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct FileState {
    inode: u64,
    blocks: u64,
    extents: u32,
    padding: u32,
}

/// What a limited directory takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    /// The most that it may take.
    pub(super) limit: u64,
}

/// Limits what the directory and all in it take; false if the file system does not enforce such limits, or the
/// directory is in a project of another program. Until it has its limit, no pod may use the directory meanwhile: names
/// cannot be moved between projects.
pub(super) fn limit(dir: &Path, bytes: u64) -> io::Result<bool> {
    let dir = open(CWD, dir)?;
    if !is_enforced(&dir)? {
        return Ok(false);
    }
    let Some(project) = project_of(&dir)? else {
        return Ok(false);
    };
    let limits = quota(&dir, project)?;
    let wanted = bytes.div_ceil(UNIT);
    if limits.dqb_bhardlimit == wanted {
        return Ok(true);
    }
    if limits.dqb_bhardlimit == 0 {
        join_below(&dir, project, DEEPEST)?;
    }
    let files = (bytes / BYTES_OF_A_FILE).max(FEWEST_FILES);
    set_quota(&dir, project, wanted, files)?;
    Ok(true)
}

/// What the directory takes; `None` if it has no limit.
pub(super) fn usage(dir: &Path) -> io::Result<Option<Usage>> {
    let dir = open(CWD, dir)?;
    let project = attributes(dir.as_fd())?.map_or(0, |now| now.project);
    if !is_ours(project) || !is_enforced(&dir)? {
        return Ok(None);
    }
    let quota = quota(&dir, project)?;
    Ok((quota.dqb_bhardlimit > 0).then(|| Usage {
        bytes: quota.dqb_curspace,
        limit: quota.dqb_bhardlimit.saturating_mul(UNIT),
    }))
}

/// Lifts the limit of a directory that is about to be removed, so that its number is free then.
pub(super) fn lift(dir: &Path) -> io::Result<()> {
    let dir = match open(CWD, dir) {
        // A file, or nothing.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other?,
    };
    let project = attributes(dir.as_fd())?.map_or(0, |now| now.project);
    if !is_ours(project) || !is_enforced(&dir)? {
        return Ok(());
    }
    set_quota(&dir, project, 0, 0)
}

fn is_ours(project: u32) -> bool {
    (FIRST..FIRST + PROJECTS).contains(&project)
}

/// The project of the directory, which it gets if it has none. `None`: it is in a project of another program, or
/// all numbers are taken.
fn project_of(dir: &OwnedFd) -> io::Result<Option<u32>> {
    /// Two directories must not find the same number free.
    static CHOOSING: Mutex<()> = Mutex::new(());
    // Neither may one directory get two numbers, from two callers.
    let _one_at_a_time = CHOOSING.lock();
    let Some(now) = attributes(dir.as_fd())? else {
        return Ok(None);
    };
    if is_ours(now.project) {
        return Ok(Some(now.project));
    }
    if now.project != 0 {
        return Ok(None);
    }
    // Numbers begin at another one for each directory, so that few are asked about.
    let start = u32::try_from(rustix::fs::fstat(dir)?.st_ino % u64::from(PROJECTS)).unwrap_or(0);
    for step in 0..PROJECTS {
        let project = FIRST + (start + step) % PROJECTS;
        let quota = quota(dir, project)?;
        let is_free = quota.dqb_curinodes == 0
            && quota.dqb_curspace == 0
            && quota.dqb_bhardlimit == 0
            && quota.dqb_ihardlimit == 0;
        if is_free {
            join(dir.as_fd(), FileType::Directory, project)?;
            return Ok(Some(project));
        }
    }
    Ok(None)
}

/// Gives what is in the directory the project, for what was there before its directory had it.
fn join_below(dir: &OwnedFd, project: u32, levels: u32) -> io::Result<()> {
    if levels == 0 {
        let message = format!("the volume has directories deeper than {DEEPEST} levels");
        return Err(io::Error::other(message));
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match join_entry(dir, name, project, levels) {
            // Another name took its place since the directory was read, and has inherited the project.
            Err(error) if is_gone(&error) => {}
            done => done?,
        }
    }
    Ok(())
}

fn join_entry(dir: &OwnedFd, name: &CStr, project: u32, levels: u32) -> io::Result<()> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let inner = open(dir, name)?;
            join(inner.as_fd(), FileType::Directory, project)?;
            join_below(&inner, project, levels - 1)
        }
        FileType::RegularFile => {
            // A pipe that took the place of the file would block.
            let flags = OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            join(file.as_fd(), FileType::RegularFile, project)
        }
        // Takes nothing but its name, and cannot be opened.
        _ => Ok(()),
    }
}

/// Whether a name does not lead to what it led to before.
fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO];
    Errno::from_io_error(error).is_some_and(|error| gone.contains(&error))
}

fn join(file: BorrowedFd<'_>, kind: FileType, project: u32) -> io::Result<()> {
    let Some(now) = attributes(file)? else {
        return Err(Errno::OPNOTSUPP.into());
    };
    let flags = match kind {
        FileType::Directory => now.flags | INHERIT,
        _ => now.flags,
    };
    if (now.project, now.flags) == (project, flags) {
        return Ok(());
    }
    let after = Attributes {
        flags,
        project,
        ..now
    };
    // SAFETY: the kernel reads one structure of this layout.
    let set = unsafe { Setter::<SET_ATTRIBUTES, Attributes>::new(after) };
    // SAFETY: as above; the call changes nothing in this process.
    Ok(unsafe { ioctl(file, set) }?)
}

/// `None` if the file system has no such attributes.
fn attributes(file: BorrowedFd<'_>) -> io::Result<Option<Attributes>> {
    // SAFETY: the kernel writes one structure of this layout.
    let get = unsafe { Getter::<GET_ATTRIBUTES, Attributes>::new() };
    // SAFETY: as above.
    match unsafe { ioctl(file, get) } {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the file system of the directory enforces the limits of projects.
fn is_enforced(dir: &OwnedFd) -> io::Result<bool> {
    let mut state = State {
        version: 1,
        ..State::default()
    };
    // SAFETY: the kernel reads and writes one structure of this layout, which lives until the call returns.
    let done = unsafe { call(dir.as_raw_fd(), GET_STATE, 0, (&raw mut state).cast()) };
    match done {
        Ok(()) => Ok(state.flags & ENFORCED != 0),
        // No quotas, no file system on a disk, a kernel before 5.14, or no right to it.
        Err(
            Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::NODEV
            | Errno::SRCH
            | Errno::PERM,
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn quota(dir: &OwnedFd, project: u32) -> io::Result<libc::dqblk> {
    let mut quota = no_quota();
    // SAFETY: the kernel writes one structure of this layout, which lives until the call returns.
    let done = unsafe { call(dir.as_raw_fd(), GET_QUOTA, project, (&raw mut quota).cast()) };
    match done {
        Ok(()) => Ok(quota),
        // XFS has no record of a number that was never used.
        Err(Errno::NOENT) => Ok(no_quota()),
        Err(error) => Err(error.into()),
    }
}

fn set_quota(dir: &OwnedFd, project: u32, units: u64, files: u64) -> io::Result<()> {
    let mut quota = libc::dqblk {
        dqb_bhardlimit: units,
        dqb_ihardlimit: files,
        dqb_valid: libc::QIF_BLIMITS | libc::QIF_ILIMITS,
        ..no_quota()
    };
    // SAFETY: the kernel reads one structure of this layout, which lives until the call returns.
    let done = unsafe { call(dir.as_raw_fd(), SET_QUOTA, project, (&raw mut quota).cast()) };
    Ok(done?)
}

fn no_quota() -> libc::dqblk {
    libc::dqblk {
        dqb_bhardlimit: 0,
        dqb_bsoftlimit: 0,
        dqb_curspace: 0,
        dqb_ihardlimit: 0,
        dqb_isoftlimit: 0,
        dqb_curinodes: 0,
        dqb_btime: 0,
        dqb_itime: 0,
        dqb_valid: 0,
    }
}

/// `quotactl_fd`, about the file system of the directory.
///
/// # Safety
///
/// The address is that of the structure that the kernel reads or writes for this command.
unsafe fn call(
    dir: RawFd,
    command: u32,
    project: u32,
    address: *mut libc::c_void,
) -> Result<(), Errno> {
    let (dir, project) = (libc::c_long::from(dir), libc::c_ulong::from(project));
    let command = libc::c_ulong::from((command << 8) | PROJECT);
    // SAFETY: the caller vouches for the address.
    match unsafe { libc::syscall(libc::SYS_quotactl_fd, dir, command, project, address) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

fn open(dir: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::process::CommandExt as _,
        path::PathBuf,
        process::{Command, Stdio},
    };

    use rustix::mount::{MountFlags, UnmountFlags};

    use super::*;
    use crate::storage::loop_device;

    const MIB: u64 = 1 << 20;

    /// A file system of its own, in a file.
    struct FileSystem {
        dir: tempfile::TempDir,
        device: PathBuf,
    }

    impl FileSystem {
        fn make() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let image = dir.path().join("image");
            File::create(&image).unwrap().set_len(64 * MIB).unwrap();
            let made = Command::new("mkfs.ext4")
                .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
                .args(["-q", "-m", "0", "-I", "256", "-O", "quota,project"])
                .args(["-E", "quotatype=prjquota"])
                .arg(&image)
                .status();
            assert!(made.unwrap().success());
            fs::create_dir(dir.path().join("mounted")).unwrap();
            let device = loop_device::attach(&image).unwrap();
            Self { dir, device }
        }

        fn root(&self) -> PathBuf {
            self.dir.path().join("mounted")
        }

        fn mount(&self, options: &CStr) -> rustix::io::Result<()> {
            rustix::mount::mount(
                &self.device,
                self.root(),
                "ext4",
                MountFlags::empty(),
                options,
            )
        }

        fn unmount(&self) {
            rustix::mount::unmount(self.root(), UnmountFlags::DETACH).ok();
        }
    }

    impl Drop for FileSystem {
        fn drop(&mut self) {
            self.unmount();
            loop_device::detach(&self.device).ok();
        }
    }

    /// Writes as a user without capabilities, as QEMU and containers do: root may exceed limits.
    fn write(file: &Path, mebibytes: u64) -> bool {
        let done = Command::new("dd")
            .args(["if=/dev/zero", "bs=64K", "status=none"])
            .arg(format!("count={}", mebibytes * 16))
            .uid(65534)
            .gid(65534)
            .stdout(File::create(file).unwrap())
            .stderr(Stdio::null())
            .status();
        done.unwrap().success()
    }

    #[test]
    fn directory_takes_no_more_than_its_limit() {
        let disk = FileSystem::make();
        if disk.mount(c"prjquota").is_err() {
            // A kernel without quotas.
            assert!(!limit(disk.dir.path(), 8 * MIB).unwrap());
            return;
        }
        let [one, two] = ["one", "two"].map(|name| disk.root().join(name));
        for dir in [&one, &two] {
            fs::create_dir(dir).unwrap();
        }
        assert_eq!(usage(&one).unwrap(), None);
        // Files that were there before count.
        fs::create_dir(one.join("inner")).unwrap();
        assert!(write(&one.join("inner/before"), 2));
        std::os::unix::fs::symlink("/none", one.join("inner/link")).unwrap();
        for _ in 0..2 {
            assert!(limit(&one, 8 * MIB).unwrap());
        }
        assert!(limit(&two, 16 * MIB).unwrap());
        let taken = usage(&one).unwrap().unwrap();
        assert_eq!(taken.limit, 8 * MIB);
        assert!((2 * MIB..3 * MIB).contains(&taken.bytes), "{taken:?}");
        assert!(!write(&one.join("more"), 8), "above the limit");
        assert!(usage(&one).unwrap().unwrap().bytes <= 8 * MIB);
        assert!(write(&two.join("other"), 12), "each has its own");
        // Larger, as a claim that was expanded.
        assert!(limit(&one, 24 * MIB).unwrap());
        assert!(write(&one.join("more"), 8));

        lift(&one).unwrap();
        assert_eq!(usage(&one).unwrap(), None);
        lift(&disk.root().join("none")).unwrap();
        // Interrupted after the directory had its project: completed.
        assert!(limit(&one, 16 * MIB).unwrap());
        assert!(usage(&one).unwrap().unwrap().bytes > 8 * MIB);
    }

    #[test]
    fn directory_gets_one_project_from_several_callers() {
        let disk = FileSystem::make();
        if disk.mount(c"prjquota").is_err() {
            return;
        }
        let dir = disk.root().join("dir");
        let inner = dir.join("inner");
        fs::create_dir_all(&inner).unwrap();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| assert!(limit(&dir, 8 * MIB).unwrap()));
            }
        });
        let project = |dir: &Path| {
            let dir = open(CWD, dir).unwrap();
            attributes(dir.as_fd()).unwrap().unwrap().project
        };
        assert!(is_ours(project(&dir)));
        assert_eq!(project(&inner), project(&dir));
    }

    #[test]
    fn projects_of_others_are_left_alone() {
        let disk = FileSystem::make();
        if disk.mount(c"prjquota").is_err() {
            return;
        }
        let dir = disk.root().join("managed");
        fs::create_dir(&dir).unwrap();
        let opened = open(CWD, &dir).unwrap();
        join(opened.as_fd(), FileType::Directory, 7).unwrap();
        let inner = dir.join("inner");
        fs::create_dir(&inner).unwrap();
        for dir in [&dir, &inner] {
            assert!(!limit(dir, MIB).unwrap());
            lift(dir).unwrap();
        }
        let inner = open(CWD, &inner).unwrap();
        assert_eq!(attributes(inner.as_fd()).unwrap().unwrap().project, 7);
    }

    #[test]
    fn limits_that_are_not_enforced_are_not_set() {
        let disk = FileSystem::make();
        if disk.mount(c"noquota").is_err() {
            return;
        }
        let dir = disk.root().join("dir");
        fs::create_dir(&dir).unwrap();
        assert!(!limit(&dir, MIB).unwrap());
        assert_eq!(usage(&dir).unwrap(), None);
        lift(&dir).unwrap();
        assert!(write(&dir.join("file"), 4));
    }
}
