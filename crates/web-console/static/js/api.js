// Requests to the Kubernetes API.

import { account, expired, key, method } from "./session.js";

export const VMS = "virtualmachines";
export const VMIS = "virtualmachineinstances";
export const SUBRESOURCES = "subresources.kubevirt.io";

const EXPIRED = "The API server no longer accepts the credentials of your kubeconfig: renew them, for example with "
  + "kubectl get namespaces, and start virtctl ui again.";

/// An answer that is an error: a `Status` of the API server, or of the server of this page.
export class ApiError extends Error {
  constructor(code, status) {
    super(status.message || `The server answered ${code}.`);
    this.code = code;
    this.reason = status.reason;
    this.causes = status.details?.causes ?? [];
  }
}

/// The collection of a kind of kubevirt.io, in one namespace or in all.
export function collection(plural, namespace) {
  const group = "/apis/kubevirt.io/v1";
  return namespace ? `${group}/namespaces/${namespace}/${plural}` : `${group}/${plural}`;
}

export function subresource(plural, { namespace, name }, verb) {
  return `/apis/${SUBRESOURCES}/v1/namespaces/${namespace}/${plural}/${name}/${verb}`;
}

/// Sends a request and returns the response, whatever its code. `type` is that of the body.
export async function send(method, path, { query = {}, body, type = "application/json", signal } = {}) {
  const mine = key();
  const signedOut = () => new ApiError(0, { message: "You have signed out." });
  if (!mine) throw signedOut();
  const headers = { Authorization: `Bearer ${mine}`, Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = type;
  const search = new URLSearchParams(query).toString();
  const url = search ? `${path}?${search}` : path;
  let response;
  try {
    response = await fetch(url, { method, headers, body, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, { message: "The server does not answer: is it still running?" });
  }
  // A late answer to an earlier key must not end the session of the next one.
  if (response.status === 401 && key() !== mine) throw signedOut();
  return response;
}

/// Sends a request and returns the object of the answer.
export async function call(method, path, options) {
  const response = await send(method, path, options);
  if (!response.ok) throw await errorOf(response);
  const text = await response.text();
  return text ? JSON.parse(text) : {};
}

export async function errorOf(response) {
  const text = await response.text();
  if (response.status === 401) {
    const isToken = method() === "token";
    // The server of this page names the scheme; without it the API server rejects the user. A new link would not
    // help then, but a new token does.
    if (!isToken && !response.headers.has("WWW-Authenticate")) return new ApiError(401, { message: EXPIRED });
    const detail = isToken ? expired(account(), Date.now()) : "";
    document.dispatchEvent(new CustomEvent("signed-out", { detail }));
  }
  try {
    return new ApiError(response.status, JSON.parse(text));
  } catch {
    return new ApiError(response.status, { message: text });
  }
}
