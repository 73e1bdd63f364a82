"""Creates a VM, waits until it runs, patches it, uses its console, pauses it and deletes it.

usage: vm.py MANIFEST NAMESPACE
"""

import ssl
import sys
import time

import websocket
import yaml
from kubernetes import client, config, watch

manifest, namespace = sys.argv[1:]
config.load_kube_config()
objects = client.CustomObjectsApi()
vms = {"group": "kubevirt.io", "version": "v1", "namespace": namespace, "plural": "virtualmachines"}


def create():
    with open(manifest, encoding="utf-8") as file:
        vm = yaml.safe_load(file)
    objects.create_namespaced_custom_object(**vms, body=vm)
    return vm["metadata"]["name"]


def wait(name, what, reached):
    """Follows the VM until an event is the expected one."""
    events = watch.Watch().stream(
        objects.list_namespaced_custom_object,
        **vms,
        field_selector=f"metadata.name={name}",
        timeout_seconds=240,
    )
    for event in events:
        status = event["object"].get("status", {}).get("printableStatus")
        print(f"{event['type']} {name}: {status}")
        if reached(event["type"], status):
            return
    sys.exit(f"{name} is not {what} after 240 s")


def subresource(name, verb):
    """The path of a subresource of the running guest."""
    guest = f"namespaces/{namespace}/virtualmachineinstances/{name}"
    return f"/apis/subresources.kubevirt.io/v1/{guest}/{verb}"


def use_console(name):
    """Connects to the serial console and waits for the shell's prompt."""
    settings = client.Configuration.get_default_copy()
    headers = {}
    client.ApiClient().update_params_for_auth(headers, [], ["BearerToken"])
    console = websocket.create_connection(
        settings.host.replace("https://", "wss://") + subresource(name, "console"),
        subprotocols=["plain.kubevirt.io"],
        header=headers,
        sslopt={
            "cert_reqs": ssl.CERT_REQUIRED,
            "ca_certs": settings.ssl_ca_cert,
            "certfile": settings.cert_file,
            "keyfile": settings.key_file,
        },
        timeout=2,
    )
    shown = b""
    end = time.monotonic() + 180
    while b"# " not in shown:
        if time.monotonic() > end:
            sys.exit(f"the console of {name} shows no prompt: {shown!r}")
        try:
            shown += console.recv()
        except websocket.WebSocketTimeoutException:
            console.send_binary(b"\n")
    console.close()


def call(name, verb):
    client.ApiClient().call_api(
        subresource(name, verb),
        "PUT",
        header_params={"Content-Type": "application/json"},
        body={},
        auth_settings=["BearerToken"],
    )


name = create()
found = objects.list_namespaced_custom_object(**vms)["items"]
assert [vm["metadata"]["name"] for vm in found] == [name], found
wait(name, "running", lambda _kind, status: status == "Running")
patch = {"metadata": {"labels": {"patched": "yes"}}}
patched = objects.patch_namespaced_custom_object(**vms, name=name, body=patch)
assert patched["metadata"]["labels"]["patched"] == "yes", patched
use_console(name)
call(name, "pause")
wait(name, "paused", lambda _kind, status: status == "Paused")
call(name, "unpause")
objects.delete_namespaced_custom_object(**vms, name=name)
wait(name, "gone", lambda kind, _status: kind == "DELETED")
