// The key of this tab. The link that opened the page is exchanged for it and works only once.

const KEY = "ferrovirt.key";
const NAMESPACE = "ferrovirt.namespace";

export function key() {
  return sessionStorage.getItem(KEY);
}

/// The namespace of the user's kubeconfig.
export function ownNamespace() {
  return sessionStorage.getItem(NAMESPACE) ?? "default";
}

export function signOut() {
  sessionStorage.removeItem(KEY);
}

/// Signs in with the link in the address, if there is one. Returns why it failed, or undefined.
export async function signInFromAddress() {
  const secret = location.hash.match(/^#link=([\w-]+)$/)?.[1];
  if (!secret) return undefined;
  history.replaceState(null, "", "/console/#/");
  return signIn(secret);
}

/// Signs in with a link or its secret part.
export async function signIn(text) {
  const link = text.trim().replace(/^.*#link=/, "");
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ link });
  let response;
  try {
    response = await fetch("/console/session", { method: "POST", headers, body });
  } catch {
    return "The server does not answer: is virtctl ui still running?";
  }
  const answer = await response.json();
  if (!response.ok) return answer.message;
  sessionStorage.setItem(KEY, answer.key);
  sessionStorage.setItem(NAMESPACE, answer.namespace);
  return undefined;
}
