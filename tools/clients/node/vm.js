// Creates a VM, waits until it runs, patches it, uses its console, pauses it and deletes it.
// usage: node vm.js MANIFEST NAMESPACE
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import https from 'node:https';

import * as k8s from '@kubernetes/client-node';
import WebSocket from 'ws';

const [manifest, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromDefault();
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const server = config.getCurrentCluster().server;

const vm = k8s.loadYaml(readFileSync(manifest, 'utf8'));
vm.metadata.namespace = namespace;
const { name } = vm.metadata;

// Follows the VM until an event is the expected one.
function waitUntil(what, reached) {
  const path = `/apis/kubevirt.io/v1/namespaces/${namespace}/virtualmachines`;
  const query = { fieldSelector: `metadata.name=${name}` };
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${name} is not ${what} after 240 s`)), 240_000);
    const watch = new k8s.Watch(config).watch(
      path,
      query,
      (type, object) => {
        console.log(`${type} ${name}: ${object.status?.printableStatus}`);
        if (reached(type, object.status?.printableStatus)) {
          clearTimeout(late);
          watch.then((request) => request.abort());
          resolve();
        }
      },
      (error) => reject(error ?? new Error('the watch ended')),
    );
    watch.catch(reject);
  });
}

// The path of a subresource of the running guest.
const subresource = (verb) =>
  `/apis/subresources.kubevirt.io/v1/namespaces/${namespace}/virtualmachineinstances/${name}/${verb}`;

async function call(verb) {
  const options = { method: 'PUT', headers: { 'Content-Type': 'application/json' } };
  await config.applyToHTTPSOptions(options);
  await new Promise((resolve, reject) => {
    const request = https.request(server + subresource(verb), options, (answer) => {
      answer.resume();
      if (answer.statusCode < 300) resolve();
      else reject(new Error(`${verb}: ${answer.statusCode}`));
    });
    request.on('error', reject);
    request.end('{}');
  });
}

// Connects to the serial console and waits for the shell's prompt.
async function useConsole() {
  const options = {};
  await config.applyToHTTPSOptions(options);
  const url = server.replace('https://', 'wss://') + subresource('console');
  const socket = new WebSocket(url, ['plain.kubevirt.io'], options);
  await new Promise((resolve, reject) => {
    let shown = '';
    const late = setTimeout(() => reject(new Error(`no prompt: ${shown}`)), 180_000);
    const enter = setInterval(() => socket.readyState === WebSocket.OPEN && socket.send(Buffer.from('\n')), 2_000);
    const end = (settle, value) => {
      clearTimeout(late);
      clearInterval(enter);
      settle(value);
    };
    socket.on('message', (bytes) => {
      shown += bytes.toString();
      if (shown.includes('# ')) end(resolve);
    });
    socket.on('error', (error) => end(reject, error));
    socket.on('close', (code) => end(reject, new Error(`the console was closed: ${code}`)));
  });
  socket.close();
}

await objects.create(vm);
const listed = await objects.list(vm.apiVersion, vm.kind, namespace);
assert.deepEqual(listed.items.map((item) => item.metadata.name), [name]);
await waitUntil('running', (_type, status) => status === 'Running');
const label = {
  apiVersion: vm.apiVersion,
  kind: vm.kind,
  metadata: { name, namespace, labels: { patched: 'yes' } },
};
const patched = await objects.patch(label, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch);
assert.equal(patched.metadata.labels.patched, 'yes');
await useConsole();
await call('pause');
await waitUntil('paused', (_type, status) => status === 'Paused');
await call('unpause');
await objects.delete(vm);
await waitUntil('gone', (type) => type === 'DELETED');
process.exit(0);
