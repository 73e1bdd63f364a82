// Whose rights this tab has: the key that a link was exchanged for, or a token of the user. Both are kept for this
// tab only, and a token goes nowhere but to the server of this page.

const KEY = "ferrovirt.key";
const NAMESPACE = "ferrovirt.namespace";
const METHOD = "ferrovirt.method";
const ACCOUNT = "ferrovirt.account";
const REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const SILENT = "The server does not answer: is it still running?";

export function key() {
  return sessionStorage.getItem(KEY);
}

/// How the user signed in: `link` or `token`.
export function method() {
  return sessionStorage.getItem(METHOD) ?? "link";
}

/// The name of a user with a token, and when the token ends (seconds since 1970), as far as they are known.
export function account() {
  return JSON.parse(sessionStorage.getItem(ACCOUNT) ?? "{}");
}

/// The namespace of the user's kubeconfig or token.
export function ownNamespace() {
  return sessionStorage.getItem(NAMESPACE) ?? "default";
}

/// Forgets the user, and what this tab showed last.
export function signOut() {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith("ferrovirt.")) sessionStorage.removeItem(name);
}

/// Why a token is no longer accepted.
export function expired({ until }, now) {
  const why = until && until * 1000 <= now ? `Your token expired at ${timeOf(until)}.`
    : "Your token is no longer accepted: it has expired or was revoked.";
  return `${why} Sign in with a new one.`;
}

/// Seconds since 1970 as a time of the user's day.
export function timeOf(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/// How this server lets users sign in; with links, if it cannot be asked.
export async function waysIn() {
  try {
    const response = await fetch("/console/sign-in");
    return response.ok ? (await response.json()).method : "link";
  } catch {
    return "link";
  }
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
  const response = await post("/console/session", { link });
  if (!response) return "The server does not answer: is virtctl ui still running?";
  const answer = await response.json();
  if (!response.ok) return answer.message;
  keep(answer, "link");
  return undefined;
}

/// Signs in with a token, after the API server has accepted it. Returns why it failed, or undefined.
export async function signInWithToken({ token, namespace, until }) {
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
  const response = await post(REVIEWS, review, { Authorization: `Bearer ${token}` });
  if (!response) return SILENT;
  if (response.status === 401) {
    return "The API server does not accept this token: it has expired, was revoked, or is one of another cluster.";
  }
  const answer = await response.json().catch(() => ({}));
  // A server that does not tell users their names has accepted the token all the same.
  if (!response.ok && ![403, 404].includes(response.status)) return answer.message ?? `The server answered ${response.status}.`;
  keep({ key: token, namespace: namespace || "default" }, "token");
  sessionStorage.setItem(ACCOUNT, JSON.stringify({ name: answer.status?.userInfo?.username, until }));
  return undefined;
}

function keep(answer, way) {
  sessionStorage.setItem(KEY, answer.key);
  sessionStorage.setItem(NAMESPACE, answer.namespace);
  sessionStorage.setItem(METHOD, way);
}

async function post(path, body, more = {}) {
  const headers = { "Content-Type": "application/json", ...more };
  try {
    return await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    return undefined;
  }
}
