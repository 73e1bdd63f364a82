//! The system call filter of `RuntimeDefault`, which also applies to containers without a profile: what
//! container runtimes refuse by default. Some calls are refused unless the container has a capability.
//!
//! It lists what is refused, up to the newest system call that it knows. A newer one does not exist for
//! the container, so that a newer libc or QEMU falls back to what it did before, and no new call is
//! allowed before it was judged here. `mknod` is allowed: making a device needs a capability, and opening
//! one is decided by the device filter.

use std::io;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// System calls that a container can make only with one of these capabilities; without any, never.
struct Refused {
    calls: &'static [libc::c_long],
    unless: &'static [&'static str],
}

/// The number of `open_tree_attr`, which libc does not have yet. Newer calls are unknown here.
const OPEN_TREE_ATTR: libc::c_long = 467;
const NEWEST: libc::c_long = OPEN_TREE_ATTR;

/// Not in every libc.
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: libc::c_long = 320;
#[cfg(target_arch = "aarch64")]
const KEXEC_FILE_LOAD: libc::c_long = 294;

const REFUSED: &[Refused] = &[
    // Keys are not separated by namespaces; the others had many vulnerabilities, or no use here.
    Refused {
        calls: &[
            libc::SYS_add_key,
            libc::SYS_keyctl,
            libc::SYS_request_key,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            KEXEC_FILE_LOAD,
            libc::SYS_kexec_load,
            libc::SYS_migrate_pages,
            libc::SYS_move_pages,
            libc::SYS_nfsservctl,
            libc::SYS_pivot_root,
            libc::SYS_swapoff,
            libc::SYS_swapon,
            #[cfg(target_arch = "x86_64")]
            libc::SYS__sysctl,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_sysfs,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_uselib,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_ustat,
        ],
        unless: &[],
    },
    Refused {
        calls: &[
            libc::SYS_fanotify_init,
            libc::SYS_fsconfig,
            libc::SYS_fsmount,
            libc::SYS_fsopen,
            libc::SYS_fspick,
            libc::SYS_lookup_dcookie,
            libc::SYS_mount,
            libc::SYS_mount_setattr,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            OPEN_TREE_ATTR,
            libc::SYS_quotactl,
            libc::SYS_quotactl_fd,
            libc::SYS_setdomainname,
            libc::SYS_sethostname,
            libc::SYS_setns,
            libc::SYS_umount2,
            libc::SYS_unshare,
        ],
        unless: &["CAP_SYS_ADMIN"],
    },
    Refused {
        calls: &[libc::SYS_bpf],
        unless: &["CAP_SYS_ADMIN", "CAP_BPF"],
    },
    Refused {
        calls: &[libc::SYS_perf_event_open],
        unless: &["CAP_SYS_ADMIN", "CAP_PERFMON"],
    },
    Refused {
        calls: &[libc::SYS_syslog],
        unless: &["CAP_SYS_ADMIN", "CAP_SYSLOG"],
    },
    Refused {
        calls: &[libc::SYS_open_by_handle_at],
        unless: &["CAP_DAC_READ_SEARCH"],
    },
    Refused {
        calls: &[libc::SYS_reboot],
        unless: &["CAP_SYS_BOOT"],
    },
    Refused {
        calls: &[libc::SYS_chroot],
        unless: &["CAP_SYS_CHROOT"],
    },
    Refused {
        calls: &[
            libc::SYS_delete_module,
            libc::SYS_finit_module,
            libc::SYS_init_module,
        ],
        unless: &["CAP_SYS_MODULE"],
    },
    Refused {
        calls: &[
            libc::SYS_get_mempolicy,
            libc::SYS_mbind,
            libc::SYS_set_mempolicy,
            libc::SYS_set_mempolicy_home_node,
        ],
        unless: &["CAP_SYS_NICE"],
    },
    Refused {
        calls: &[libc::SYS_acct],
        unless: &["CAP_SYS_PACCT"],
    },
    Refused {
        calls: &[
            libc::SYS_kcmp,
            libc::SYS_pidfd_getfd,
            libc::SYS_process_madvise,
        ],
        unless: &["CAP_SYS_PTRACE"],
    },
    #[cfg(target_arch = "x86_64")]
    Refused {
        calls: &[libc::SYS_ioperm, libc::SYS_iopl],
        unless: &["CAP_SYS_RAWIO"],
    },
    Refused {
        calls: &[
            libc::SYS_clock_adjtime,
            libc::SYS_clock_settime,
            libc::SYS_settimeofday,
        ],
        unless: &["CAP_SYS_TIME"],
    },
    Refused {
        calls: &[libc::SYS_vhangup],
        unless: &["CAP_SYS_TTY_CONFIG"],
    },
];

/// `clone` with any of these flags creates a namespace.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;
/// What `personality` may be set to: Linux, 32-bit Linux, each also with an old version number. The last
/// value only queries it.
const PERSONALITIES: [u32; 5] = [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff];
/// The requests of `ioctl` that change the attributes of a file, without and with its project: the owner of a file may
/// take it out of the project that limits a volume.
const FILE_ATTRIBUTES: [u32; 3] = [0x4004_6602, 0x4008_6602, 0x401c_5820];
/// Sockets to the host, past the pod's network.
const AF_VSOCK: u32 = 40;
/// System calls of the x32 ABI have this bit set.
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_GREATER: u16 = 0x25;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_FIRST_ARGUMENT: u32 = 16;
const OFFSET_SECOND_ARGUMENT: u32 = 24;

/// Filters this process, which has or will have these capabilities, and its descendants. Needs
/// no-new-privileges or `CAP_SYS_ADMIN`.
pub(crate) fn install(capabilities: &[String]) -> io::Result<()> {
    let mut program = program(capabilities);
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).expect("the table is short"),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions outlive the call, which copies them.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn program(capabilities: &[String]) -> Vec<libc::sock_filter> {
    let has = |names: &[&str]| {
        names
            .iter()
            .any(|name| capabilities.iter().any(|one| one == name))
    };
    let denied = ERRNO | libc::EPERM.cast_unsigned();
    let unknown = ERRNO | libc::ENOSYS.cast_unsigned();
    let mut program = vec![
        step(LOAD, OFFSET_ARCH),
        // Every check falls through to its return, or skips it.
        jump(JUMP_IF_EQUAL, AUDIT_ARCH, 1, 0),
        step(RETURN, unknown),
        step(LOAD, OFFSET_NUMBER),
        jump(JUMP_IF_ANY_BIT, X32, 0, 1),
        step(RETURN, unknown),
        jump(JUMP_IF_GREATER, number(NEWEST), 0, 1),
        step(RETURN, unknown),
    ];
    if !has(&["CAP_SYS_ADMIN"]) {
        // A filter cannot read its flags, which are in memory; libc falls back to `clone`.
        program.push(jump(JUMP_IF_EQUAL, number(libc::SYS_clone3), 0, 1));
        program.push(step(RETURN, unknown));
        let flags = [
            jump(JUMP_IF_ANY_BIT, NAMESPACE_FLAGS, 0, 1),
            step(RETURN, denied),
            step(RETURN, ALLOW),
        ];
        on_argument(
            &mut program,
            (libc::SYS_clone, OFFSET_FIRST_ARGUMENT),
            &flags,
        );
        // As on a file system without attributes, which programs expect.
        let unsupported = ERRNO | libc::EOPNOTSUPP.cast_unsigned();
        let mut requests = Vec::new();
        for value in FILE_ATTRIBUTES {
            requests.push(jump(JUMP_IF_EQUAL, value, 0, 1));
            requests.push(step(RETURN, unsupported));
        }
        requests.push(step(RETURN, ALLOW));
        on_argument(
            &mut program,
            (libc::SYS_ioctl, OFFSET_SECOND_ARGUMENT),
            &requests,
        );
    }
    let mut personalities = Vec::new();
    for value in PERSONALITIES {
        personalities.push(jump(JUMP_IF_EQUAL, value, 0, 1));
        personalities.push(step(RETURN, ALLOW));
    }
    personalities.push(step(RETURN, denied));
    on_argument(
        &mut program,
        (libc::SYS_personality, OFFSET_FIRST_ARGUMENT),
        &personalities,
    );
    let families = [
        jump(JUMP_IF_EQUAL, AF_VSOCK, 0, 1),
        step(RETURN, denied),
        step(RETURN, ALLOW),
    ];
    on_argument(
        &mut program,
        (libc::SYS_socket, OFFSET_FIRST_ARGUMENT),
        &families,
    );
    for refused in REFUSED.iter().filter(|one| !has(one.unless)) {
        for call in refused.calls {
            program.push(jump(JUMP_IF_EQUAL, number(*call), 0, 1));
            program.push(step(RETURN, denied));
        }
    }
    program.push(step(RETURN, ALLOW));
    program
}

/// Decides about one system call by the argument at that offset. The steps must end with a return.
fn on_argument(
    program: &mut Vec<libc::sock_filter>,
    (call, offset): (libc::c_long, u32),
    steps: &[libc::sock_filter],
) {
    let skipped = u8::try_from(steps.len() + 1).expect("the steps are few");
    program.push(jump(JUMP_IF_EQUAL, number(call), 0, skipped));
    program.push(step(LOAD, offset));
    program.extend_from_slice(steps);
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).expect("system call numbers are small and positive")
}

fn step(code: u16, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel does. The argument is the one that decides about the call.
    fn action(capabilities: &[&str], number: u32, argument: u32) -> u32 {
        let capabilities: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
        let program = program(&capabilities);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let one = program[at];
            at += 1;
            let holds = match one.code {
                LOAD => {
                    loaded = match one.k {
                        OFFSET_ARCH => AUDIT_ARCH,
                        OFFSET_NUMBER => number,
                        _ => argument,
                    };
                    continue;
                }
                RETURN => return one.k,
                JUMP_IF_EQUAL => loaded == one.k,
                JUMP_IF_GREATER => loaded > one.k,
                JUMP_IF_ANY_BIT => loaded & one.k != 0,
                other => panic!("no instruction {other:#x} in this program"),
            };
            at += usize::from(if holds { one.jt } else { one.jf });
        }
    }

    const EPERM: u32 = ERRNO | 1;
    const ENOSYS: u32 = ERRNO | 0x26;
    const EOPNOTSUPP: u32 = ERRNO | 0x5f;

    #[test]
    fn dangerous_calls_are_refused_and_ordinary_ones_allowed() {
        for (call, argument, expected) in [
            (libc::SYS_read, 0, ALLOW),
            (libc::SYS_ioctl, 0, ALLOW),
            // To read them, and to set them.
            (libc::SYS_ioctl, 0x801c_581f, ALLOW),
            (libc::SYS_ioctl, 0x401c_5820, EOPNOTSUPP),
            (libc::SYS_ioctl, 0x4008_6602, EOPNOTSUPP),
            (libc::SYS_mknodat, 0, ALLOW),
            (libc::SYS_ptrace, 0, ALLOW),
            (libc::SYS_mount, 0, EPERM),
            (libc::SYS_unshare, 0, EPERM),
            (libc::SYS_bpf, 0, EPERM),
            (libc::SYS_chroot, 0, EPERM),
            (libc::SYS_keyctl, 0, EPERM),
            (libc::SYS_io_uring_setup, 0, EPERM),
            (libc::SYS_quotactl_fd, 0, EPERM),
            (libc::SYS_open_by_handle_at, 0, EPERM),
            (libc::SYS_clone, 0x003d_0f00, ALLOW),
            (libc::SYS_clone, 0x1000_0000, EPERM),
            (libc::SYS_clone, 0x0002_0000, EPERM),
            (libc::SYS_clone3, 0, ENOSYS),
            (libc::SYS_personality, 0, ALLOW),
            (libc::SYS_personality, 8, ALLOW),
            (libc::SYS_personality, 0xffff_ffff, ALLOW),
            // Without random addresses; an old system's layout.
            (libc::SYS_personality, 0x0004_0000, EPERM),
            (libc::SYS_personality, 0x0040_0000, EPERM),
            (libc::SYS_socket, 2, ALLOW),
            (libc::SYS_socket, AF_VSOCK, EPERM),
            (libc::SYS_futex_waitv, 0, ALLOW),
            (OPEN_TREE_ATTR, 0, EPERM),
            (NEWEST + 1, 0, ENOSYS),
            (NEWEST + 1000, 0, ENOSYS),
            (libc::c_long::from(X32) | 1, 0, ENOSYS),
        ] {
            assert_eq!(action(&[], number(call), argument), expected, "{call}");
        }
    }

    #[test]
    fn capability_allows_the_calls_that_need_it() {
        for (capability, call, argument) in [
            ("CAP_SYS_ADMIN", libc::SYS_mount, 0),
            ("CAP_SYS_ADMIN", libc::SYS_setns, 0),
            ("CAP_SYS_ADMIN", libc::SYS_clone, 0x1000_0000),
            ("CAP_SYS_ADMIN", libc::SYS_clone3, 0),
            ("CAP_SYS_ADMIN", libc::SYS_ioctl, 0x401c_5820),
            ("CAP_SYS_ADMIN", libc::SYS_bpf, 0),
            ("CAP_SYS_ADMIN", OPEN_TREE_ATTR, 0),
            ("CAP_BPF", libc::SYS_bpf, 0),
            ("CAP_PERFMON", libc::SYS_perf_event_open, 0),
            ("CAP_SYSLOG", libc::SYS_syslog, 0),
            ("CAP_DAC_READ_SEARCH", libc::SYS_open_by_handle_at, 0),
            ("CAP_SYS_BOOT", libc::SYS_reboot, 0),
            ("CAP_SYS_CHROOT", libc::SYS_chroot, 0),
            ("CAP_SYS_MODULE", libc::SYS_init_module, 0),
            ("CAP_SYS_NICE", libc::SYS_mbind, 0),
            ("CAP_SYS_PACCT", libc::SYS_acct, 0),
            ("CAP_SYS_PTRACE", libc::SYS_kcmp, 0),
            ("CAP_SYS_TIME", libc::SYS_clock_settime, 0),
            ("CAP_SYS_TTY_CONFIG", libc::SYS_vhangup, 0),
        ] {
            let call = number(call);
            assert_ne!(
                action(&["CAP_CHOWN"], call, argument),
                ALLOW,
                "{capability}"
            );
            let with = action(&["CAP_CHOWN", capability], call, argument);
            assert_eq!(with, ALLOW, "{capability}");
        }
        // No capability allows these.
        let all = crate::capabilities::all();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for call in [
            libc::SYS_keyctl,
            libc::SYS_kexec_load,
            libc::SYS_userfaultfd,
        ] {
            assert_eq!(action(&all, number(call), 0), EPERM, "{call}");
        }
    }
}
