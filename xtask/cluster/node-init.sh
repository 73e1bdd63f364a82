#!/bin/sh
# Process 1 of a node: sets up its mounts, then keeps containerd, the kubelet and kube-proxy running.
# It runs in new PID, mount, UTS and IPC namespaces; its mounts are not visible outside.
#
# usage: node-init.sh NAME HOME BIN API CGROUP
set -eu
name=$1 home=$2 bin=$3 api=$4 cgroup=$5
keeper=$(dirname "$0")/keep.sh
export PATH="$bin:$PATH"

hostname "$name"
mkdir -p "$home/lib" "$home/log"
mount --bind "$home/lib" /var/lib
mount --bind "$home/log" /var/log
mount -t tmpfs -o mode=755 tmpfs /run
# A fresh sysfs shows this node's interfaces; the cgroup mounts of the host go below it.
mkdir /run/sys
mount -t sysfs sysfs /run/sys
mount --move /sys/fs/cgroup /run/sys/fs/cgroup
mount --move /run/sys /sys
rmdir /run/sys
mount -t proc proc /proc
mount --make-rshared /
mkdir -p /run/lock /var/lib/kubelet /var/lib/cni

# The kubelet needs its root cgroup in every controller, with CPUs assigned before any process can run.
for controller in /sys/fs/cgroup/*/; do
    [ -e "$controller/cgroup.procs" ] || continue
    mkdir -p "$controller/$cgroup"
    for file in cpuset.cpus cpuset.mems; do
        [ ! -e "$controller/$file" ] || cat "$controller/$file" >"$controller/$cgroup/$file"
    done
done
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mkdir -p "/sys/fs/cgroup/$cgroup"
    for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
    done
fi

keep() {
    sh "$keeper" "$@" >>"/var/log/$log.log" 2>&1 &
}

# Without containerd the kubelet would exit and be restarted later than necessary.
after_containerd='until [ -S /run/containerd/containerd.sock ]; do sleep 0.05; done; exec "$@"'

log=containerd keep containerd --config "$home/containerd.toml"
log=kubelet keep sh -c "$after_containerd" - kubelet --config="$home/kubelet.yaml" \
    --kubeconfig="$api" --hostname-override="$name" --node-ip="$(cat "$home/address")"
log=kube-proxy keep kube-proxy --config="$home/proxy.yaml"
# Process 1 reaps orphaned processes.
while :; do wait || true; sleep 1; done
