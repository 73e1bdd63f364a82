//! The system call filter of `RuntimeDefault`: denies calls that no workload needs and that have
//! exposed kernel vulnerabilities. Capabilities, namespaces and cgroups restrict the rest.
//!
//! It is a deny list, so that a new system call does not break a newer libc or QEMU; the drawback is
//! that a new dangerous call is allowed until it is added here.

use std::io;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

const DENIED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// `clone` with any of these flags creates a namespace.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;
/// System calls of the x32 ABI have this bit set.
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_FIRST_ARGUMENT: u32 = 16;

/// Filters this process and its descendants. Needs no-new-privileges or `CAP_SYS_ADMIN`.
pub(crate) fn install() -> io::Result<()> {
    let mut program = program();
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

fn program() -> Vec<libc::sock_filter> {
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
        // A filter cannot read its flags, which are in memory; libc falls back to `clone`.
        jump(JUMP_IF_EQUAL, number(libc::SYS_clone3), 0, 1),
        step(RETURN, unknown),
        jump(JUMP_IF_EQUAL, number(libc::SYS_clone), 0, 4),
        step(LOAD, OFFSET_FIRST_ARGUMENT),
        jump(JUMP_IF_ANY_BIT, NAMESPACE_FLAGS, 0, 1),
        step(RETURN, denied),
        step(RETURN, ALLOW),
    ];
    for call in DENIED {
        program.push(jump(JUMP_IF_EQUAL, number(*call), 0, 1));
        program.push(step(RETURN, denied));
    }
    program.push(step(RETURN, ALLOW));
    program
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

    /// Runs the program as the kernel does.
    fn action(number: u32, first_argument: u32) -> u32 {
        let program = program();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let one = program[at];
            at += 1;
            match one.code {
                LOAD => {
                    loaded = match one.k {
                        OFFSET_ARCH => AUDIT_ARCH,
                        OFFSET_NUMBER => number,
                        _ => first_argument,
                    }
                }
                RETURN => return one.k,
                JUMP_IF_EQUAL => at += usize::from(if loaded == one.k { one.jt } else { one.jf }),
                _ => at += usize::from(if loaded & one.k != 0 { one.jt } else { one.jf }),
            }
        }
    }

    #[test]
    fn dangerous_calls_are_denied_and_ordinary_ones_allowed() {
        let eperm = ERRNO | 1;
        assert_eq!(action(number(libc::SYS_read), 0), ALLOW);
        assert_eq!(action(number(libc::SYS_ioctl), 0), ALLOW);
        assert_eq!(action(number(libc::SYS_mount), 0), eperm);
        assert_eq!(action(number(libc::SYS_unshare), 0), eperm);
        assert_eq!(action(number(libc::SYS_clone), 0x003d_0f00), ALLOW);
        assert_eq!(action(number(libc::SYS_clone), 0x1000_0000), eperm);
        assert_eq!(
            action(number(libc::SYS_clone3), 0),
            ERRNO | libc::ENOSYS.cast_unsigned()
        );
        assert_eq!(action(X32 | 1, 0), ERRNO | libc::ENOSYS.cast_unsigned());
    }
}
