//! The configuration of libvirtd and its QEMU driver: few threads, little memory, and nothing that
//! needs privileges.

use std::io;
use std::path::Path;

use crate::file;

const LIBVIRTD: &str = r#"log_outputs="3:stderr"
auth_unix_rw="none"
unix_sock_rw_perms="0700"
min_workers=1
max_workers=4
prio_workers=1
admin_min_workers=1
admin_max_workers=1
max_clients=8
max_anonymous_clients=8
max_client_requests=5
audit_level=0
"#;

const QEMU: &str = r#"security_driver="none"
stdio_handler="file"
cgroup_controllers=[]
namespaces=[]
remember_owner=0
dynamic_ownership=0
max_core=0
dump_guest_core=0
max_queued=0
keepalive_interval=-1
"#;

/// Writes both files into libvirt's configuration directory.
pub(crate) fn write_config(dir: &Path) -> io::Result<()> {
    file::replace(&dir.join("libvirtd.conf"), LIBVIRTD.as_bytes())?;
    file::replace(&dir.join("qemu.conf"), QEMU.as_bytes())
}
