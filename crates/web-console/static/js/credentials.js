// Finds a token in what a user gives: the token itself, or a kubeconfig. Nothing of it is sent before.

import { places } from "./create/place.js";

const OTHERWISE = "Sign in with a token, for example of kubectl create token NAME, or start virtctl ui.";
const WITHOUT_TOKEN = {
  "client-certificate-data": "a certificate, which a page cannot use",
  "client-certificate": "a certificate, which a page cannot use",
  exec: "credentials that a program makes, which a page cannot start",
  "auth-provider": "credentials of a provider, which a page cannot ask",
  tokenFile: "a token in another file: choose that file",
  username: "a password, which Kubernetes no longer accepts",
};

/// What a token says about itself, if it is a JSON web token; the API server alone decides whether it is true.
export function claimsOf(token) {
  try {
    const [, payload] = token.split(".");
    const bytes = Uint8Array.from(atob(payload.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
    const claims = JSON.parse(new TextDecoder().decode(bytes));
    return { namespace: claims["kubernetes.io"]?.namespace, until: Number(claims.exp) || undefined };
  } catch {
    return {};
  }
}

/// The token in a text and what is known about it, or a `problem`.
export function credentialsIn(text) {
  const given = text.trim();
  if (given === "") return { problem: "Give a token, or choose a kubeconfig." };
  if (/^[\x21-\x7e]+$/.test(given) && !given.startsWith("{")) return withClaims(given);
  const found = fromKubeconfig(given);
  return found.problem ? found : withClaims(found.token, found.namespace);
}

function withClaims(token, namespace) {
  const claims = claimsOf(token);
  return { token, namespace: namespace ?? claims.namespace, until: claims.until };
}

function fromKubeconfig(text) {
  const config = fieldsOf(text);
  if (!config) return { problem: "This is neither a token nor a kubeconfig." };
  const current = config.get("current-context");
  const contexts = named(config, "contexts");
  if (!current || !contexts.has(current)) {
    return { problem: "This kubeconfig has no current context: choose one with kubectl config use-context." };
  }
  const context = (name) => config.get(`contexts.${contexts.get(current)}.context.${name}`);
  const name = context("user");
  const user = named(config, "users").get(name);
  if (user === undefined) return { problem: `This kubeconfig has no user ${name ?? ""}, whom its context names.` };
  const token = config.get(`users.${user}.user.token`);
  if (token) return { token, namespace: context("namespace") };
  const [, has] = Object.entries(WITHOUT_TOKEN).find(([field]) =>
    [...config.keys()].some((key) => `${key}.`.startsWith(`users.${user}.user.${field}.`))) ?? [];
  return { problem: `The user ${name} of this kubeconfig has ${has ?? "no token"}. ${OTHERWISE}` };
}

/// The entries of a list by their names.
function named(config, list) {
  const found = [...config].map(([key, value]) => [key.match(new RegExp(`^${list}\\.(\\d+)\\.name$`))?.[1], value]);
  return new Map(found.filter(([index]) => index !== undefined).map(([index, value]) => [value, index]));
}

/// Every field of a kubeconfig by its path, of JSON or of YAML in block style; undefined if it is neither.
function fieldsOf(text) {
  if (!text.startsWith("{")) {
    const rows = text.split("\n");
    const found = places(text).map(({ line, at }) => [at.join("."), scalar(rows[line])]);
    return found.some(([path]) => path === "users") ? new Map(found) : undefined;
  }
  try {
    const found = [];
    const visit = (value, at) => {
      found.push([at.join("."), value]);
      if (value && typeof value === "object") for (const [key, child] of Object.entries(value)) visit(child, [...at, key]);
    };
    visit(JSON.parse(text), []);
    return new Map(found);
  } catch {
    return undefined;
  }
}

function scalar(row) {
  const value = row.replace(/^\s*(?:-\s+)*(?:"[^"]*"|'[^']*'|[^\s"'#:][^:]*?)\s*:\s*/, "").trim();
  const quoted = value.match(/^(["'])(.*?)\1\s*(?:#.*)?$/);
  return quoted ? quoted[2] : value.replace(/\s+#.*$/, "");
}
