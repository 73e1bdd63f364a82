// Uploads a disk image: a data volume that waits for one, a token, and the file itself.

import { ApiError, call } from "./api.js";
import { key } from "./session.js";
import { watch } from "./watch.js";

export const GROUP = "cdi.kubevirt.io";
export const PLURAL = "datavolumes";
const TOKENS = "upload.cdi.kubevirt.io";
/// A volume does not wait for a VM that uses it.
const AT_ONCE = "cdi.kubevirt.io/storage.bind.immediate.requested";
const ENDED = ["Succeeded", "Failed"];
const GIB = 2 ** 30;
/// What a server without uploads is told, by the code of its answer.
const MISSING = "This server receives no uploads: it has no data volumes (CDI), or no upload proxy.";
/// The file is sent from its start again after every failure: the protocol has no way to go on in the middle.
export const NO_RESUME = "An upload cannot be resumed: send the file again, from its start.";

export function volumesOf(namespace) {
  return `/apis/${GROUP}/v1beta1/namespaces/${namespace}/${PLURAL}`;
}

export function volumeOf({ namespace, name, size, storageClass }) {
  const storage = { resources: { requests: { storage: size } }, storageClassName: storageClass || undefined };
  return {
    apiVersion: `${GROUP}/v1beta1`, kind: "DataVolume",
    metadata: { namespace, name, annotations: { [AT_ONCE]: "" } },
    spec: { source: { upload: {} }, storage, contentType: "kubevirt" },
  };
}

/// A size for the volume of a file that is not compressed: whole GiB.
export function sizeFor(bytes) {
  return `${Math.max(1, Math.ceil(bytes / GIB))}Gi`;
}

/// A name for the volume of a file.
export function nameFor(file) {
  const base = file.toLowerCase().replace(/\.(gz|xz|zst|img|raw|qcow2|iso|vmdk|vdi|vhd|vhdx)(?=\.|$)/g, "");
  return base.replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 50).replace(/-+$/, "");
}

/// What a data volume is doing, and why it does not get on.
export function stateOf({ metadata, status }) {
  if (metadata.deletionTimestamp) return { word: "Terminating", why: "" };
  const running = status?.conditions?.find(({ type }) => type === "Running");
  const why = status?.phase === "Succeeded" ? "" : running?.message ?? "";
  return { word: status?.phase || "Pending", why };
}

/// Sends a file into a new data volume, or into one that still waits for its file. `onStep` gets each step and, while
/// bytes are sent, their number. Stops by `signal`. Fails with an error that says what to do.
export async function upload({ file, ...volume }, onStep, signal) {
  onStep("Creating the data volume");
  await create(volume);
  onStep("Waiting for the volume");
  await untilReady(volume, signal);
  onStep("Asking for a token");
  const token = await tokenFor(volume);
  onStep("Sending", 0);
  await send(file, token, (sent) => onStep(sent < file.size ? "Sending" : "Converting", sent), signal);
}

async function create(volume) {
  const { namespace, name } = volume;
  try {
    await call("POST", volumesOf(namespace), { query: { fieldValidation: "Strict" }, body: JSON.stringify(volumeOf(volume)) });
  } catch (error) {
    if (error.code === 404) throw new ApiError(404, { message: MISSING });
    if (error.code !== 409) throw error;
    const present = await call("GET", `${volumesOf(namespace)}/${name}`);
    if (!present.spec.source?.upload || ENDED.includes(present.status?.phase)) {
      throw new ApiError(409, { message: `There is a data volume ${name} already: choose another name.` });
    }
  }
}

function untilReady({ namespace, name }, signal) {
  return new Promise((resolve, reject) => {
    const end = (finish, value) => {
      stop();
      signal.removeEventListener("abort", cancelled);
      finish(value);
    };
    const cancelled = () => end(reject, new ApiError(0, { message: "Cancelled." }));
    const stop = watch(volumesOf(namespace), { fieldSelector: `metadata.name=${name}` }, {
      onError: (failure) => failure && [401, 403, 404].includes(failure.code) && end(reject, failure),
      onObjects: ([volume]) => {
        if (!volume) return end(reject, new ApiError(404, { message: `The data volume ${name} was deleted.` }));
        const { word, why } = stateOf(volume);
        if (word === "UploadReady") return end(resolve);
        if (ENDED.includes(word)) return end(reject, new ApiError(409, { message: why || `The data volume ${name} ended as ${word}.` }));
      },
    });
    if (signal.aborted) cancelled();
    else signal.addEventListener("abort", cancelled);
  });
}

async function tokenFor({ namespace, name }) {
  const body = JSON.stringify({
    apiVersion: `${TOKENS}/v1beta1`, kind: "UploadTokenRequest",
    metadata: { namespace, generateName: "token-for-console-" }, spec: { pvcName: name },
  });
  try {
    const { status } = await call("POST", `/apis/${TOKENS}/v1beta1/namespaces/${namespace}/uploadtokenrequests`, { body });
    return status.token;
  } catch (error) {
    if (error.code === 404) throw new ApiError(404, { message: MISSING });
    throw error;
  }
}

/// Sends the file; `fetch` does not tell how much was sent.
function send(file, token, onSent, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const fail = (code, message) => reject(new ApiError(code, { message }));
    request.open("POST", "/console/upload");
    request.setRequestHeader("Authorization", `Bearer ${key()}`);
    request.setRequestHeader("X-Upload-Token", token);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", ({ loaded }) => onSent(loaded));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve();
      else fail(request.status, `${messageOf(request.responseText)} ${NO_RESUME}`);
    });
    request.addEventListener("error", () => fail(0, `The connection broke. ${NO_RESUME}`));
    request.addEventListener("abort", () => fail(0, `Cancelled. ${NO_RESUME}`));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}

function messageOf(text) {
  try {
    return JSON.parse(text).message || "The server refused the file.";
  } catch {
    return text || "The server refused the file.";
  }
}
