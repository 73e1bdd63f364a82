// Finds the line of a field in YAML, to show an error where it is.

/// The path of a field, `spec.disks[0].name`, as its parts. Keys with dots are in brackets and quotes.
export function parts(path) {
  const found = path.matchAll(/\[(?:"([^"]*)"|([^\]]*))\]|([^.[\]]+)/g);
  return [...found].map(([, quoted, bracket, plain]) => quoted ?? bracket ?? plain);
}

/// The number of the line, from 0, of a field or of the nearest one around it; -1 if there is none.
export function lineOf(source, path) {
  const wanted = parts(path);
  let best = { line: -1, depth: 0 };
  for (const { line, at } of places(source)) {
    const isPrefix = at.length <= wanted.length && at.every((part, index) => part === wanted[index]);
    if (isPrefix && at.length > best.depth) best = { line, depth: at.length };
  }
  return best.line;
}

/// Every field of block style with its line.
export function places(source) {
  const found = [];
  // The fields and items around the current line, the innermost last.
  let open = [];
  let block = -1;
  source.split("\n").forEach((text, line) => {
    let indent = text.search(/\S/);
    if (indent < 0 || text[indent] === "#") return;
    if (block >= 0 && indent > block) return;
    block = -1;
    let rest = text.slice(indent);
    while (rest.startsWith("- ") || rest === "-") {
      // An item may stand as far left as the key of its list.
      open = open.filter((one) => one.indent < indent || (one.indent === indent && !one.item && one.isList));
      const list = open.at(-1);
      if (list) list.items = (list.items ?? -1) + 1;
      const at = [...(list?.at ?? []), String(list?.items ?? 0)];
      found.push({ line, at });
      open.push({ indent, at, item: true });
      const skipped = rest.length - rest.slice(1).trimStart().length;
      indent += skipped;
      rest = rest.slice(skipped);
    }
    const key = rest.match(/^(?:"([^"]*)"|'([^']*)'|([^\s"'#:][^:]*?))\s*:(?=\s|$)\s*(.*)$/);
    if (!key) return;
    open = open.filter((one) => one.indent < indent);
    const at = [...(open.at(-1)?.at ?? []), key[1] ?? key[2] ?? key[3]];
    found.push({ line, at });
    open.push({ indent, at, isList: key[4] === "" || key[4].startsWith("#") });
    if (/^[|>]/.test(key[4])) block = indent;
  });
  return found;
}

/// The fields of an error and what is wrong with each: from its causes, or from its message if the server
/// could not read the object.
export function faults(error) {
  const causes = error.causes.filter(({ field }) => field && field !== "<nil>");
  if (causes.length > 0) return causes.map(({ field, message }) => ({ field, message }));
  const unknown = [...error.message.matchAll(/(unknown|duplicate) field "([^"]+)"/g)];
  return unknown.map(([, kind, field]) => ({ field, message: `${kind} field` }));
}
