//! The numbers of the programs and procedures this crate uses.
//!
//! They belong to an append-only wire format: a number never changes its meaning.

/// The main program, `REMOTE_PROGRAM`.
pub const REMOTE: u32 = 0x2000_8086;
/// QEMU's own calls, `QEMU_PROGRAM`.
pub const QEMU: u32 = 0x2000_8087;
/// Pings and pongs, `KEEPALIVE_PROGRAM`.
pub const KEEPALIVE: u32 = 0x6b65_6570;

macro_rules! procedures {
    ($($name:ident = $number:literal,)*) => {
        $(#[doc = concat!("`REMOTE_PROC_", stringify!($name), "`")] pub const $name: i32 = $number;)*

        /// Every number of the main program known here.
        pub const ALL: &[i32] = &[$($name),*];

        /// The name of a number of the main program, for messages.
        pub fn name(number: i32) -> &'static str {
            match number {
                $($number => stringify!($name),)*
                _ => "unknown procedure",
            }
        }
    };
}

procedures! {
    CONNECT_OPEN = 1,
    CONNECT_CLOSE = 2,
    CONNECT_GET_VERSION = 4,
    CONNECT_GET_CAPABILITIES = 7,
    DOMAIN_GET_XML_DESC = 14,
    DOMAIN_REBOOT = 27,
    DOMAIN_RESUME = 28,
    DOMAIN_SUSPEND = 34,
    CONNECT_SUPPORTS_FEATURE = 60,
    AUTH_LIST = 66,
    CONNECT_GET_LIB_VERSION = 157,
    DOMAIN_MEMORY_STATS = 159,
    DOMAIN_ATTACH_DEVICE_FLAGS = 160,
    DOMAIN_ABORT_JOB = 164,
    DOMAIN_MIGRATE_SET_MAX_DOWNTIME = 166,
    DOMAIN_UPDATE_DEVICE_FLAGS = 174,
    DOMAIN_CREATE_WITH_FLAGS = 196,
    DOMAIN_SET_VCPUS_FLAGS = 199,
    DOMAIN_SCREENSHOT = 211,
    DOMAIN_GET_STATE = 212,
    DOMAIN_SAVE_FLAGS = 232,
    DOMAIN_RESTORE_FLAGS = 233,
    DOMAIN_DESTROY_FLAGS = 234,
    DOMAIN_RESET = 245,
    DOMAIN_SHUTDOWN_FLAGS = 258,
    DOMAIN_GET_JOB_STATS = 298,
    DOMAIN_MIGRATE_BEGIN3_PARAMS = 302,
    DOMAIN_MIGRATE_PREPARE3_PARAMS = 303,
    DOMAIN_MIGRATE_PERFORM3_PARAMS = 305,
    DOMAIN_MIGRATE_FINISH3_PARAMS = 306,
    DOMAIN_MIGRATE_CONFIRM3_PARAMS = 307,
    CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY = 316,
    DOMAIN_EVENT_CALLBACK_LIFECYCLE = 318,
    DOMAIN_EVENT_CALLBACK_REBOOT = 319,
    DOMAIN_EVENT_CALLBACK_WATCHDOG = 321,
    DOMAIN_EVENT_CALLBACK_IO_ERROR_REASON = 324,
    DOMAIN_EVENT_CALLBACK_CONTROL_ERROR = 325,
    DOMAIN_EVENT_CALLBACK_DEVICE_REMOVED = 333,
    DOMAIN_CORE_DUMP_WITH_FORMAT = 334,
    CONNECT_GET_DOMAIN_CAPABILITIES = 342,
    DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE = 348,
    DOMAIN_DEFINE_XML_FLAGS = 350,
    DOMAIN_MIGRATE_START_POST_COPY = 364,
    DOMAIN_DETACH_DEVICE_ALIAS = 392,
    CONNECT_BASELINE_HYPERVISOR_CPU = 394,
    DOMAIN_BACKUP_BEGIN = 421,
    DOMAIN_GET_MESSAGES = 426,
}

/// `QEMU_PROC_DOMAIN_MONITOR_COMMAND`, of the program [`QEMU`].
pub const QEMU_DOMAIN_MONITOR_COMMAND: i32 = 1;
/// `QEMU_PROC_DOMAIN_AGENT_COMMAND`, of the program [`QEMU`].
pub const QEMU_DOMAIN_AGENT_COMMAND: i32 = 3;
/// `KEEPALIVE_PROC_PING`, of the program [`KEEPALIVE`].
pub const KEEPALIVE_PING: i32 = 1;
/// `KEEPALIVE_PROC_PONG`, of the program [`KEEPALIVE`].
pub const KEEPALIVE_PONG: i32 = 2;
