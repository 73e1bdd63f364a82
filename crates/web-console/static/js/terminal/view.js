// Draws a terminal into an element, and sends what is typed.

import { element } from "../dom.js";
import { isLeave, sent } from "./keys.js";
import { Screen } from "./screen.js";

/// Two rows or so.
const NEAR = 40;
const ATTRIBUTES = ["bold", "faint", "italic", "underline"];

/// A terminal. `onText` is called with what is typed, `onLeave` when the user leaves it.
export class TerminalView {
  constructor({ label, onText, onLeave }) {
    this.onText = onText;
    this.screen = new Screen({ answer: onText });
    // Not interpreted as UTF-8 before a character is complete.
    this.decoder = new TextDecoder();
    this.output = element("div", { role: "log", "aria-label": label, "aria-live": "off", tabindex: "-1" });
    this.input = element("textarea", {
      class: "input", "aria-label": `${label}: input`, autocapitalize: "off", autocomplete: "off", spellcheck: "false",
    });
    this.element = element("div", { class: "terminal" }, this.output, this.input);
    this.element.addEventListener("click", () => getSelection().isCollapsed && this.focus());
    this.input.addEventListener("keydown", (event) => {
      if (isLeave(event)) return event.preventDefault(), onLeave();
      const text = event.isComposing ? undefined : sent(event, this.screen);
      if (text === undefined) return;
      event.preventDefault();
      onText(text);
    });
    this.input.addEventListener("input", (event) => {
      if (event.isComposing) return;
      onText(this.input.value.replaceAll("\n", "\r"));
      this.input.value = "";
    });
    this.drawing = 0;
    this.followed = 0;
  }

  focus() {
    this.input.focus({ preventScroll: true });
  }

  /// Shows bytes from the guest.
  write(bytes) {
    this.screen.write(this.decoder.decode(bytes, { stream: true }));
    this.drawing ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.drawing = 0;
    const { grid, isCursorShown, row } = this.screen;
    // A user who has scrolled up keeps the place.
    const follows = this.element.scrollTop >= this.followed - NEAR;
    const column = Math.min(this.screen.column, this.screen.columns - 1);
    const past = grid.history.map((cells) => drawnOnce(cells));
    const rows = grid.lines.map((cells, index) => drawnRow(cells, isCursorShown && index === row ? column : -1));
    this.output.replaceChildren(...past, ...rows);
    const { offsetTop, offsetHeight } = rows[row];
    const wanted = Math.max(rows[0].offsetTop, offsetTop + 2 * offsetHeight - this.element.clientHeight);
    if (!follows) return;
    this.element.scrollTop = past.length || wanted > rows[0].offsetTop ? wanted : 0;
    this.followed = this.element.scrollTop;
  }
}

/// Lines that have scrolled away do not change.
const past = new WeakMap();

function drawnOnce(cells) {
  if (!past.has(cells)) past.set(cells, drawnRow(cells, -1));
  return past.get(cells);
}

/// A row as runs of cells with the same style.
function drawnRow(cells, cursor) {
  const row = element("div", { class: "row" });
  let from = 0;
  for (let at = 1; at <= cells.length; at += 1) {
    const isEnd = at === cells.length || cells[at][1] !== cells[from][1] || at === cursor || from === cursor;
    if (!isEnd) continue;
    const text = cells.slice(from, at).map(([character]) => character).join("");
    row.append(run(text, cells[from][1], from === cursor));
    from = at;
  }
  return row;
}

function run(text, style, isCursor) {
  const classes = ATTRIBUTES.filter((name) => style[name]);
  if (isCursor) classes.push("cursor");
  const { ink, paper, inverse } = style;
  if (classes.length === 0 && !ink && !paper && !inverse) return text;
  const made = element("span", { class: classes.join(" ") }, text);
  if (!isCursor) {
    made.style.color = inverse ? paper ?? "#0f1113" : ink ?? "";
    made.style.backgroundColor = inverse ? ink ?? "#d8dadc" : paper ?? "";
  }
  return made;
}
