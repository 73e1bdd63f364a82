#!/usr/bin/env bash
# From nothing to a guest that greets on its console, and how to go on from there. Run again, it
# finds what is there already.
#
# FERROVIRT_STATE_DIR  where everything is kept (default: /var/lib/ferrovirt)
# FERROVIRT_EMULATION  set to anything: do not use KVM even where it works
# FERROVIRT_UP_FLAGS   further flags for `ferrovirt up`, such as --pod-cidr 10.99.0.0/24
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"

vm=tiny
greeting="Welcome to Ferrovirt"
# Emulated guests on a busy machine take their time.
patience=180
state=${FERROVIRT_STATE_DIR:-/var/lib/ferrovirt}

step() {
    printf '\n== %s\n' "$*"
}

need_root
need_cargo

step "Installing what is missing"
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
# What to type next is said at the end, when there is a guest to talk to.
"$programs/ferrovirt" up "${flags[@]}" | sed '/^Ferrovirt is up\. Next:/,$d; /^Guests run/d'
export KUBECONFIG=$state/kubeconfig

# Also when it was up already.
"$programs/ferrovirt" status --state-dir "$state" | sed -n 's/^guests run by/Guests run by/p'

step "Starting the virtual machine of examples/vm-$vm.yaml"
began=$SECONDS
was_running=$(kubectl get vmi "$vm" --ignore-not-found --output 'jsonpath={.status.phase}')
kubectl apply --filename "examples/vm-$vm.yaml"

# Its status, one line for each change.
{
    kubectl get vm "$vm" --watch --output 'jsonpath={.status.printableStatus}{"\n"}' 2>/dev/null |
        while IFS= read -r status; do
            # The first event may come before there is a status.
            [ -z "$status" ] || [ "$status" = "${last:-}" ] || echo "  $vm: $status"
            last=$status
        done
} &
watcher=$!
coproc console { exec "$programs/virtctl" console "$vm" 2>&1; }
# Kept apart: bash forgets them when the process ends.
exec {from_guest}<&"${console[0]}" {to_guest}>&"${console[1]}"
talker=$console_PID

leave() {
    # The watcher is a pipeline; its kubectl ends with the next write, so it is ended here.
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
        # A prompt has no line end, so it is what a read that timed out got.
        echo "  $vm | $line"
        answered="was running already and answers"
        break
        ;;
    esac
    # One that has greeted before shows its prompt when asked.
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
  make demo-down               take everything down and forget it
END
