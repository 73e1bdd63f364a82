// Objects as YAML. The API server reads YAML, so nothing here parses it.

const PLAIN = /^[A-Za-z_/][\w ./-]*$/;
const OTHERWISE = /^(true|false|null|yes|no|on|off|y|n|~)$/i;

export function yaml(value) {
  return lines(value).join("\n") + "\n";
}

function lines(value) {
  if (Array.isArray(value)) {
    return value.flatMap((item) => hang("- ", "  ", isNested(item) ? lines(item) : scalar(item)));
  }
  return Object.entries(value).filter(([, item]) => item !== undefined).flatMap(([key, item]) => {
    const name = text(key);
    if (isNested(item)) return [`${name}:`, ...lines(item).map((line) => (Array.isArray(item) ? line : `  ${line}`))];
    return hang(`${name}: `, "  ", scalar(item));
  });
}

function isNested(value) {
  return value !== null && typeof value === "object" && Object.keys(value).length > 0;
}

function hang(first, others, [head, ...rest]) {
  return [first + head, ...rest.map((line) => others + line)];
}

function scalar(value) {
  if (value === null || typeof value !== "object") {
    if (typeof value !== "string") return [String(value)];
    const isBlock = value.includes("\n") && !/^\s|[ \t]\n|\r|\n\n$|[^\x20-\x7e\n]/.test(value);
    if (!isBlock) return [text(value)];
    const kept = value.endsWith("\n");
    return [kept ? "|" : "|-", ...(kept ? value.slice(0, -1) : value).split("\n")];
  }
  return [Array.isArray(value) ? "[]" : "{}"];
}

/// A string, quoted as in JSON if anything about it could be read otherwise.
function text(value) {
  const isPlain = PLAIN.test(value) && !OTHERWISE.test(value) && !value.endsWith(" ");
  return isPlain ? value : JSON.stringify(value);
}
