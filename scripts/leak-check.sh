#!/usr/bin/env bash
# Lists everything Ferrovirt creates on a host. Compare the output before and after:
#   scripts/leak-check.sh >before; make demo demo-down; scripts/leak-check.sh | diff before -
set -uo pipefail

section() {
    echo "# $1"
}

section processes
for directory in /proc/[0-9]*; do
    name=$(cat "$directory/comm" 2>/dev/null) || continue
    # Skip zombies.
    grep -qs '^State:.Z' "$directory/status" && continue
    case $name in
    ferrovirt | pod-supervisor* | virt-launcher* | libvirtd | qemu-system-* | swtpm | passt*) ;;
    *) grep -qs ferrovirt "$directory/cgroup" || continue ;;
    esac
    echo "${directory#/proc/} $name"
done | sort

section mounts
awk '{ print $2, $3 }' /proc/self/mounts | sort

section interfaces
ls /sys/class/net | sort

section "network namespaces"
ls /run/netns 2>/dev/null | sort

section "nftables tables"
if command -v nft >/dev/null; then nft list tables | sort; else echo "unknown: nft is not installed"; fi

section cgroups
find /sys/fs/cgroup -type d -name '*ferrovirt*' | sort

section "kernel settings"
for name in net.ipv4.ip_forward net.ipv4.conf.all.forwarding; do
    echo "$name $(cat "/proc/sys/${name//.//}")"
done

section files
for path in /var/lib/ferrovirt* /run/ferrovirt* /etc/ferrovirt* "${TMPDIR:-/tmp}"/ferrovirt*; do
    [ -e "$path" ] && echo "$path"
done
exit 0
