#!/usr/bin/env bash
# Builds everything, brings up the single host and starts an example VM. A second run reuses what
# exists.
#
# FERROVIRT_STATE_DIR  the state directory (default: /var/lib/ferrovirt)
# FERROVIRT_EMULATION  set to anything: do not use KVM
# FERROVIRT_UP_FLAGS   further flags for `ferrovirt up`, such as --pod-cidr 10.99.0.0/24
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"

vm=tiny
greeting="Welcome to Ferrovirt"
# Emulated guests boot slowly on a busy host.
patience=180
state=${FERROVIRT_STATE_DIR:-/var/lib/ferrovirt}

step() {
    printf '\n== %s\n' "$*"
}

need_root
need_cargo

step "Installing missing packages"
scripts/setup.sh build image demo

step "Building programs"
build_programs

step "Building the launcher image and the tiny guest"
build_images

step "Bringing up the single host"
flags=(--detach --images "$images" --state-dir "$state")
[ -z "${FERROVIRT_EMULATION:-}" ] || flags+=(--emulation)
# shellcheck disable=SC2206  # words are meant to be split
flags+=(${FERROVIRT_UP_FLAGS:-})
# The next commands are printed at the end, when the guest has booted.
"$programs/ferrovirt" up "${flags[@]}" | sed '/^Ferrovirt is up\. Next:/,$d; /^Guests run/d'
export KUBECONFIG=$state/kubeconfig

# Print it also when the host was up before.
"$programs/ferrovirt" status --state-dir "$state" | sed -n 's/^guests run by/Guests run by/p'

step "Starting the virtual machine of examples/vm-$vm.yaml"
began=$SECONDS
was_running=$(kubectl get vmi "$vm" --ignore-not-found --output 'jsonpath={.status.phase}')
kubectl apply --filename "examples/vm-$vm.yaml"

# Print each change of its status.
{
    kubectl get vm "$vm" --watch --output 'jsonpath={.status.printableStatus}{"\n"}' 2>/dev/null |
        while IFS= read -r status; do
            # The first event may have no status yet.
            [ -z "$status" ] || [ "$status" = "${last:-}" ] || echo "  $vm: $status"
            last=$status
        done
} &
watcher=$!
coproc console { exec "$programs/virtctl" console "$vm" 2>&1; }
# Bash closes its copies when the process ends.
exec {from_guest}<&"${console[0]}" {to_guest}>&"${console[1]}"
talker=$console_PID

leave() {
    # The watcher is a pipeline whose kubectl would end only at its next write.
    pkill -P "$watcher" 2>/dev/null || true
    kill "$watcher" "$talker" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
}
trap leave EXIT

answered=
while [ $((SECONDS - began)) -lt "$patience" ]; do
    line=
    if IFS= read -r -t 1 -u "$from_guest" line; then
        line=${line%$'\r'}
        [ -z "$line" ] || echo "  $vm | $line"
    elif ! kill -0 "$talker" 2>/dev/null; then
        fail "the console of $vm ended; see 'kubectl describe vmi $vm' with KUBECONFIG=$KUBECONFIG"
    fi
    case $line in
    *"$greeting"*)
        answered="greeted after $((SECONDS - began)) s"
        break
        ;;
    *"$vm:"*"# "*)
        # A prompt has no line end, so the read timed out.
        echo "  $vm | $line"
        answered="was running already and responds"
        break
        ;;
    esac
    # A guest that booted before shows its prompt after a newline.
    if [ "$was_running" = Running ]; then
        printf '\n' >&"$to_guest" || true
    fi
done
[ -n "$answered" ] || {
    kubectl get vm,vmi,pods >&2 || true
    fail "$vm did not greet within $patience s; $state/ferrovirt.log may say why"
}
leave
trap - EXIT

step "The guest $answered. Next:"
cat <<END
  export KUBECONFIG=$KUBECONFIG PATH=\$PATH:$programs
  virtctl console $vm          open its console; Ctrl+] leaves it
  kubectl get vm,vmi,pods      look at it
  virtctl stop $vm             stop it; it does not start again until: virtctl start $vm
  make demo-down               remove everything
END
