// Splits a terminal's output into text, control characters and escape sequences.

const CONTROLS = /[\x00-\x1f\x7f]/;
/// A guest cannot make us keep more of an unfinished sequence.
const LONGEST = 256;

/// Calls `on.print(text)`, `on.control(character)`, `on.escape(intermediates + final)` and
/// `on.sequence(final, numbers, prefix)`.
export class Parser {
  constructor(on) {
    this.on = on;
    this.state = "text";
    this.kept = "";
  }

  write(text) {
    let from = 0;
    for (let at = 0; at < text.length; at += 1) {
      const isText = this.state === "text" && !CONTROLS.test(text[at]);
      if (isText) continue;
      if (this.state === "text" && at > from) this.on.print(text.slice(from, at));
      this.next(text[at]);
      from = at + 1;
    }
    if (this.state === "text" && text.length > from) this.on.print(text.slice(from));
  }

  next(character) {
    if (character === "\x1b" && this.state !== "string") return this.enter("escape");
    if (character === "\x18" || character === "\x1a") return this.enter("text");
    if (this.state === "string") return this.inString(character);
    if (CONTROLS.test(character)) return this.on.control(character);
    if (this.kept.length >= LONGEST) return this.enter("text");
    if (this.state === "escape") this.inEscape(character);
    else if (this.state === "sequence") this.inSequence(character);
  }

  enter(state) {
    this.state = state;
    this.kept = "";
  }

  inEscape(character) {
    if (this.kept === "" && character === "[") return this.enter("sequence");
    // Titles, colours and other strings are for the terminal's window, which a guest has none of.
    if (this.kept === "" && "]PX^_".includes(character)) return this.enter("string");
    this.kept += character;
    if (character < "0") return;
    const sequence = this.kept;
    this.enter("text");
    this.on.escape(sequence);
  }

  inSequence(character) {
    if (character < "@" || character > "~") {
      this.kept += character;
      return;
    }
    const [, prefix, numbers] = this.kept.match(/^([<=>?]?)([\d;:]*)/);
    this.enter("text");
    const list = numbers === "" ? [] : numbers.split(/[;:]/).map((one) => Number(one || 0));
    this.on.sequence(character, list, prefix);
  }

  inString(character) {
    const ended = character === "\x07" || (this.kept === "\x1b" && character === "\\");
    this.kept = character === "\x1b" ? "\x1b" : "";
    if (ended) this.enter("text");
  }
}
