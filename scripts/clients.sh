#!/usr/bin/env bash
# Brings up a single host and runs other people's clients of Kubernetes and KubeVirt against it, unmodified:
# each lists, creates, watches, changes and deletes a VM. Clients are fetched into the cache directory by the
# ordinary package managers; one that the registries do not have is skipped, with the reason. The last line is
# `N passed, N failed, N skipped`.
#
# usage: scripts/clients.sh [CLIENT]...   (no name: all)
#
# FERROVIRT_PROGRAMS   a directory with built programs, to use instead of building them
# FERROVIRT_EMULATION  set to anything: do not use KVM
set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root" || exit 1

all=(python node client-go kubevirt-client ansible helm kustomize k9s argo-cd)
here=$root/tools/clients
store=$cache/clients
programs=${FERROVIRT_PROGRAMS:-$programs}
manifest=examples/vm-tiny.yaml
helm=helm.sh/helm/v3@v3.19.5
k9s=github.com/derailed/k9s@v0.50.16

passed=0
failed=0
skipped=0
reason=
# The name and the lock are those of scripts/sweep.sh.
work=$(mktemp --directory --tmpdir ferrovirt-e2e-clients-XXXXXX)
exec {owner}>"$work/owner"
flock "$owner"
export PIP_DISABLE_PIP_VERSION_CHECK=1 ANSIBLE_NOCOWS=1 ANSIBLE_NOCOLOR=1

finish() {
    local status=$?
    [ ! -e "$work/state" ] || "$programs/ferrovirt" reset --yes --state-dir "$work/state" >/dev/null
    rm -rf "$work"
    echo "$passed passed, $failed failed, $skipped skipped"
    exit "$status"
}
trap finish EXIT

# Runs a command that fetches something; its error is the reason for skipping the client.
fetch() {
    "$@" >"$work/fetch" 2>&1 && return
    reason=$(grep -im 1 error "$work/fetch" || tail -n 1 "$work/fetch")
    return 1
}

# A virtual environment with the packages of a list: fetch_packages CLIENT
fetch_packages() {
    [ -x "$store/$1/bin/pip" ] || fetch python3 -m venv "$store/$1" || return
    fetch "$store/$1/bin/pip" install --quiet --requirement "$here/$1/requirements.txt"
}

# Builds a program that another project publishes as a Go module: install_go NAME MODULE@VERSION PACKAGE. The
# sources and objects take gigabytes, so they get a directory of their own, which is removed.
install_go() {
    local bin=$store/$1-${2##*@} go=$store/go status
    [ ! -x "$bin/$1" ] || return 0
    mkdir -p "$bin" "$go"
    GOPATH=$go GOCACHE=$go/objects GOFLAGS=-modcacherw CGO_ENABLED=0 go install "${2%@*}$3@${2##*@}" &&
        mv "$go/bin/$1" "$bin"
    status=$?
    rm -rf "$go"
    return "$status"
}

fetch_modules() {
    fetch go -C "$here/$1" mod download
}

build_go() {
    CGO_ENABLED=0 go build -C "$here/$1" -mod=readonly -o "$work/$1" .
}

# Waits for a status of a VM: until_status NAMESPACE NAME STATUS
until_status() {
    kubectl wait --namespace "$1" --for="jsonpath={.status.printableStatus}=$3" --timeout=120s "vm/$2"
}

# Waits until a guest runs: until_ready NAMESPACE NAME
until_ready() {
    kubectl wait --namespace "$1" --for=condition=Ready --timeout=240s "vm/$2"
}

fetch_python() {
    fetch_packages python
}

fetch_node() {
    # npm installs beside the list of packages, and the program looks there for them.
    mkdir -p "$store/node" && cp "$here"/node/* "$store/node" && fetch npm ci --prefix "$store/node"
}

fetch_client-go() {
    fetch_modules client-go
}

fetch_kubevirt-client() {
    fetch_modules kubevirt-client
}

fetch_ansible() {
    local wheel
    [ -x "$store/ansible/bin/pip" ] || fetch python3 -m venv "$store/ansible" || return
    # The package of the collections has a hundred of them.
    grep -v '^ansible==' "$here/ansible/requirements.txt" >"$work/requirements.txt"
    fetch "$store/ansible/bin/pip" install --quiet --requirement "$work/requirements.txt" || return
    [ ! -d "$store/ansible/ansible_collections" ] || return 0
    fetch "$store/ansible/bin/pip" download --quiet --no-deps --dest "$work/wheels" \
        "$(grep '^ansible==' "$here/ansible/requirements.txt")" || return
    wheel=$(echo "$work"/wheels/ansible-*.whl)
    fetch "$store/ansible/bin/python" - "$wheel" "$store/ansible" <<'END'
import sys, zipfile
wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    wanted = ("ansible_collections/kubevirt/core/", "ansible_collections/kubernetes/core/")
    archive.extractall(target, [name for name in archive.namelist() if name.startswith(wanted)])
END
}

fetch_helm() {
    fetch go list -m "$helm"
}

fetch_kustomize() {
    # It is a part of kubectl.
    command -v kubectl >/dev/null || {
        reason="kubectl is not installed"
        return 1
    }
}

fetch_k9s() {
    fetch_packages k9s || return
    fetch go list -m "$k9s"
}

fetch_argo-cd() {
    fetch_modules argo-cd
}

run_python() {
    "$store/python/bin/python" "$here/python/vm.py" "$manifest" python
}

run_node() {
    node "$store/node/vm.js" "$manifest" node
}

run_client-go() {
    build_go client-go && "$work/client-go" "$manifest" client-go
}

run_kubevirt-client() {
    build_go kubevirt-client && "$work/kubevirt-client" "$manifest" kubevirt-client
}

run_ansible() {
    PATH=$store/ansible/bin:$PATH ANSIBLE_COLLECTIONS_PATH=$store/ansible ANSIBLE_HOME=$work/ansible \
        ansible-playbook --inventory localhost, --connection local \
        --extra-vars "vm_namespace=ansible ansible_python_interpreter=$store/ansible/bin/python" "$here/ansible/vm.yaml"
}

run_helm() {
    local chart=$here/helm PATH=$store/helm-${helm##*@}:$PATH
    install_go helm "$helm" /cmd/helm || return
    export HELM_CACHE_HOME=$work/helm HELM_CONFIG_HOME=$work/helm HELM_DATA_HOME=$work/helm
    helm install web "$chart" --namespace helm && until_ready helm web &&
        helm upgrade web "$chart" --namespace helm --set runStrategy=Halted &&
        until_status helm web Stopped &&
        helm rollback web 1 --namespace helm && until_ready helm web &&
        helm list --namespace helm | grep deployed &&
        helm uninstall web --namespace helm --wait &&
        kubectl wait --namespace helm --for=delete --timeout=120s vm/web vmi/web
}

run_kustomize() {
    local overlay=$here/kustomize/overlay
    kubectl apply --namespace kustomize --kustomize "$overlay" && until_ready kustomize shop-web &&
        kubectl diff --namespace kustomize --kustomize "$overlay" &&
        kubectl delete --namespace kustomize --kustomize "$overlay" --timeout=120s
}

run_k9s() {
    install_go k9s "$k9s" "" && kubectl apply --namespace k9s --filename "$manifest" && until_ready k9s tiny &&
        XDG_CONFIG_HOME=$work/k9s XDG_STATE_HOME=$work/k9s XDG_DATA_HOME=$work/k9s XDG_CACHE_HOME=$work/k9s \
            "$store/k9s/bin/python" "$here/k9s/screen.py" tiny Running True -- \
            "$store/k9s-${k9s##*@}/k9s" --namespace k9s --command virtualmachines --headless &&
        kubectl delete --namespace k9s vm/tiny --timeout=120s
}

# What Argo CD says of an object: health KIND NAME EXPECTED
health() {
    local found
    found=$(kubectl get --namespace argo-cd "$1" "$2" --output json | "$work/argo-cd") || return
    echo "$1 $2: $found"
    [ "${found%%:*}" = "$3" ]
}

run_argo-cd() {
    local virtctl=("$programs/virtctl" --namespace argo-cd)
    build_go argo-cd &&
        # The claims of this VM do not exist.
        kubectl apply --namespace argo-cd --filename examples/vm-two-claims.yaml &&
        until_status argo-cd database Stopped && health vm database Suspended &&
        "${virtctl[@]}" start database &&
        until_status argo-cd database ErrorPvcNotFound && health vm database Progressing &&
        kubectl apply --namespace argo-cd --filename "$manifest" &&
        until_ready argo-cd tiny && health vm tiny Healthy && health vmi tiny Healthy &&
        "${virtctl[@]}" pause vm tiny &&
        until_status argo-cd tiny Paused && health vm tiny Suspended && health vmi tiny Suspended &&
        kubectl delete --namespace argo-cd --timeout=120s vm/database vm/tiny
}

# Fetches and runs one client; it counts as one test.
client() {
    local name=$1
    printf '\n== %s\n' "$name"
    "fetch_$name" || {
        echo "skipped: $name: $reason"
        skipped=$((skipped + 1))
        return
    }
    if kubectl create namespace "$name" && "run_$name"; then
        passed=$((passed + 1))
    else
        kubectl get --namespace "$name" vm,vmi,pods >&2
        echo "failed: $name" >&2
        failed=$((failed + 1))
    fi
    # Guests of a client that failed would take memory from the next one.
    kubectl delete namespace "$name" --timeout=120s
}

# Brings up the host on the first of some pod networks that is free.
bring_up() {
    local third flags=(--detach --images "$images" --state-dir "$work/state" --listen "127.0.0.1:$1")
    [ -z "${FERROVIRT_EMULATION:-}" ] || flags+=(--emulation)
    for third in {240..247}; do
        "$programs/ferrovirt" up "${flags[@]}" --pod-cidr "10.241.$third.0/24" \
            2>"$work/up" {owner}>&- && return
        grep -q overlaps "$work/up" || break
    done
    cat "$work/up" >&2
    return 1
}

[ "$#" -gt 0 ] || set -- "${all[@]}"
for name in "$@"; do
    [[ " ${all[*]} " == *" $name "* ]] || fail "there is no client called $name; choose from ${all[*]}"
done
need_root
if [ -z "${FERROVIRT_PROGRAMS:-}" ]; then
    need_cargo
    scripts/setup.sh build image test clients && build_programs && build_images || fail "cannot build Ferrovirt"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
bring_up "$port" || fail "the host does not start"
export KUBECONFIG=$work/state/kubeconfig KUBECACHEDIR=$work/kubectl
for name in "$@"; do
    client "$name"
done
[ "$failed" -eq 0 ]
