//! A VFS for `SQLite` that passes everything on to the usual one, and records writes and syncs.
#![expect(
    unsafe_code,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the VFS of SQLite is an interface in C"
)]

use std::{
    collections::BTreeMap,
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    ptr,
    sync::Once,
};

use bytes::Bytes;
use parking_lot::Mutex;
use rusqlite::ffi;

use crate::store::EventKind;

/// The name under which the VFS is registered.
pub(super) const NAME: &CStr = c"recording";

/// One step of the recording, in the order of time.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Write {
        file: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: String,
        size: usize,
    },
    Sync {
        file: String,
    },
    Delete {
        file: String,
        /// Whether the directory was synced as well.
        durable: bool,
    },
    /// A client got the answer to a write.
    Acknowledged(Acknowledged),
}

#[derive(Debug, Clone)]
pub(super) struct Acknowledged {
    pub(super) revision: u64,
    pub(super) kind: EventKind,
    pub(super) body: Bytes,
}

/// The recording of one directory.
#[derive(Debug)]
pub(super) struct Tape {
    dir: PathBuf,
}

/// Recordings by directory; files elsewhere are not recorded.
static TAPES: Mutex<BTreeMap<PathBuf, Vec<Op>>> = Mutex::new(BTreeMap::new());

/// Open files by the address that `SQLite` passes.
static OPEN: Mutex<BTreeMap<usize, OpenFile>> = Mutex::new(BTreeMap::new());

struct OpenFile {
    dir: PathBuf,
    name: String,
    real: ffi::sqlite3_io_methods,
}

impl Tape {
    /// Records the files of a directory that are opened through this VFS.
    pub(super) fn record(dir: &Path) -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(register);
        TAPES.lock().insert(dir.to_owned(), Vec::new());
        Self {
            dir: dir.to_owned(),
        }
    }

    pub(super) fn acknowledged(&self, write: Acknowledged) {
        push(&self.dir, Op::Acknowledged(write));
    }

    /// Ends the recording.
    pub(super) fn take(&self) -> Vec<Op> {
        TAPES.lock().remove(&self.dir).unwrap_or_default()
    }
}

fn push(dir: &Path, op: Op) {
    if let Some(ops) = TAPES.lock().get_mut(dir) {
        ops.push(op);
    }
}

fn register() {
    // SAFETY: finds the default VFS, which is never unregistered.
    let real = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    // SAFETY: checked not to be null; a VFS is plain data.
    let usual = unsafe { real.as_ref() }.expect("a default VFS");
    let ours = Box::leak(Box::new(ffi::sqlite3_vfs {
        zName: NAME.as_ptr(),
        pNext: ptr::null_mut(),
        pAppData: real.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        ..*usual
    }));
    // SAFETY: leaked, so it lives as long as the process.
    let code = unsafe { ffi::sqlite3_vfs_register(ours, 0) };
    assert_eq!(code, ffi::SQLITE_OK);
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: `register` stored the usual VFS here.
    let real: *mut ffi::sqlite3_vfs = unsafe { (*vfs).pAppData }.cast();
    // SAFETY: every VFS can open; the arguments are those of the caller.
    let code = unsafe { ((*real).xOpen.expect("xOpen"))(real, name, file, flags, out_flags) };
    if code != ffi::SQLITE_OK || name.is_null() {
        return code;
    }
    // SAFETY: the usual VFS has set the methods of a file that it opened.
    let methods = unsafe { *(*file).pMethods };
    let recording = ffi::sqlite3_io_methods {
        // Without memory maps, which would bypass the recording.
        iVersion: 2,
        xClose: Some(close),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        ..methods
    };
    // SAFETY: the file is open; the methods are leaked, so they outlive it.
    unsafe { (*file).pMethods = Box::leak(Box::new(recording)) };
    let (dir, name) = split(name);
    let opened = OpenFile {
        dir,
        name,
        real: methods,
    };
    OPEN.lock().insert(file.addr(), opened);
    code
}

unsafe extern "C" fn delete(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: `register` stored the usual VFS here.
    let real: *mut ffi::sqlite3_vfs = unsafe { (*vfs).pAppData }.cast();
    // SAFETY: every VFS can delete; the arguments are those of the caller.
    let code = unsafe { ((*real).xDelete.expect("xDelete"))(real, name, sync_directory) };
    if code == ffi::SQLITE_OK {
        let (dir, file) = split(name);
        let durable = sync_directory != 0;
        push(&dir, Op::Delete { file, durable });
    }
    code
}

/// Directory and name of a file.
fn split(name: *const c_char) -> (PathBuf, String) {
    // SAFETY: file names of `SQLite` end with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let file = path.file_name().expect("a file name").to_string_lossy();
    let dir = path.parent().expect("an absolute path");
    (dir.to_owned(), file.into_owned())
}

/// The usual methods of a file, and its recording.
fn opened(file: *mut ffi::sqlite3_file) -> (ffi::sqlite3_io_methods, PathBuf, String) {
    let open = OPEN.lock();
    let one = open.get(&file.addr()).expect("an open file");
    (one.real, one.dir.clone(), one.name.clone())
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let one = OPEN.lock().remove(&file.addr()).expect("an open file");
    // SAFETY: the file was opened by the VFS of these methods.
    unsafe { (one.real.xClose.expect("xClose"))(file) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    let (real, dir, name) = opened(file);
    // SAFETY: the file was opened by the VFS of these methods; the arguments are the caller's.
    let code = unsafe { (real.xWrite.expect("xWrite"))(file, bytes, count, offset) };
    if code == ffi::SQLITE_OK {
        let count = usize::try_from(count).expect("a size");
        // SAFETY: the caller has that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
        let op = Op::Write {
            file: name,
            offset: usize::try_from(offset).expect("an offset"),
            bytes: bytes.to_vec(),
        };
        push(&dir, op);
    }
    code
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    let (real, dir, name) = opened(file);
    // SAFETY: the file was opened by the VFS of these methods.
    let code = unsafe { (real.xTruncate.expect("xTruncate"))(file, size) };
    if code == ffi::SQLITE_OK {
        let size = usize::try_from(size).expect("a size");
        push(&dir, Op::Truncate { file: name, size });
    }
    code
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let (real, dir, name) = opened(file);
    // SAFETY: the file was opened by the VFS of these methods.
    let code = unsafe { (real.xSync.expect("xSync"))(file, flags) };
    if code == ffi::SQLITE_OK {
        push(&dir, Op::Sync { file: name });
    }
    code
}
