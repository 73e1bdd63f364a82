// A terminal of the VT100 family: what most guests send on a serial port.

import { Grid } from "./grid.js";
import { Parser } from "./parser.js";
import { PLAIN, styled } from "./style.js";

const TAB = 8;
/// What the terminal is: a VT100 with advanced video, as guests ask on login.
const IDENTITY = "\x1b[?1;2c";
const LINES = "jklmnqtuvwx";
const DRAWN = "┘┐┌└┼─├┤┴┬│";

export class Screen {
  /// `answer` is called with text that the guest asked for.
  constructor({ columns = 80, rows = 24, answer = () => {} } = {}) {
    this.answer = answer;
    this.columns = columns;
    this.rows = rows;
    this.reset();
    this.parser = new Parser({
      print: (text) => this.print(text),
      control: (character) => this.control(character),
      escape: (sequence) => this.escape(sequence),
      sequence: (final, numbers, prefix) => this.sequence(final, numbers, prefix),
    });
  }

  write(text) {
    this.parser.write(text);
  }

  reset() {
    this.main = new Grid(this.columns, this.rows);
    this.grid = this.main;
    Object.assign(this, { row: 0, column: 0, style: PLAIN, top: 0, bottom: this.rows - 1 });
    Object.assign(this, { wraps: true, applicationKeys: false, isCursorShown: true, draws: false, saved: undefined });
  }

  print(text) {
    for (const character of text) {
      if (this.column >= this.columns) {
        if (this.wraps) {
          this.column = 0;
          this.lineFeed();
        } else this.column = this.columns - 1;
      }
      const drawn = this.draws ? DRAWN[LINES.indexOf(character)] : undefined;
      this.grid.set(this.row, this.column, drawn ?? character, this.style);
      this.column += 1;
    }
  }

  control(character) {
    if (character === "\r") this.column = 0;
    else if ("\n\v\f".includes(character)) this.lineFeed();
    else if (character === "\b") this.column = Math.max(0, Math.min(this.column, this.columns - 1) - 1);
    else if (character === "\t") this.column = Math.min(this.columns - 1, (Math.floor(this.column / TAB) + 1) * TAB);
  }

  lineFeed() {
    if (this.row === this.bottom) this.scrollUp(1);
    else if (this.row < this.rows - 1) this.row += 1;
  }

  scrollUp(count) {
    const options = { style: this.style, remember: this.grid === this.main };
    this.grid.scrollUp(this.top, this.bottom, count, options);
  }

  escape(sequence) {
    const known = {
      7: () => this.save(), 8: () => this.restore(), c: () => this.reset(),
      D: () => this.lineFeed(), E: () => ((this.column = 0), this.lineFeed()), M: () => this.reverseLineFeed(),
      "(0": () => (this.draws = true), "(B": () => (this.draws = false),
    };
    known[sequence]?.();
  }

  reverseLineFeed() {
    if (this.row === this.top) this.grid.scrollDown(this.top, this.bottom, 1, this.style);
    else if (this.row > 0) this.row -= 1;
  }

  save() {
    const { row, column, style } = this;
    this.saved = { row, column, style };
  }

  restore() {
    Object.assign(this, this.saved ?? { row: 0, column: 0, style: PLAIN });
  }

  move(row, column) {
    this.row = Math.max(0, Math.min(this.rows - 1, row));
    this.column = Math.max(0, Math.min(this.columns - 1, column));
  }

  sequence(final, numbers, prefix) {
    if (prefix === "?") return this.mode(final, numbers);
    if (prefix !== "") return;
    const first = Math.min(numbers[0] || 1, 1000);
    const column = Math.min(this.column, this.columns - 1);
    const { row, style, grid } = this;
    const isInside = row >= this.top && row <= this.bottom;
    const known = {
      A: () => this.move(row - first, column), B: () => this.move(row + first, column),
      C: () => this.move(row, column + first), D: () => this.move(row, column - first),
      E: () => this.move(row + first, 0), F: () => this.move(row - first, 0),
      G: () => this.move(row, first - 1), d: () => this.move(first - 1, column),
      H: () => this.move(first - 1, (numbers[1] || 1) - 1), f: () => this.move(first - 1, (numbers[1] || 1) - 1),
      J: () => this.eraseScreen(numbers[0] ?? 0), K: () => this.eraseLine(numbers[0] ?? 0),
      L: () => isInside && grid.scrollDown(row, this.bottom, first, style),
      M: () => isInside && grid.scrollUp(row, this.bottom, first, { style }),
      P: () => grid.deleteCells(row, column, first, style), "@": () => grid.insertCells(row, column, first, style),
      X: () => grid.erase(row, column, Math.min(this.columns, column + first), style),
      S: () => this.scrollUp(first), T: () => grid.scrollDown(this.top, this.bottom, first, style),
      m: () => (this.style = styled(style, numbers)),
      r: () => this.region(numbers), s: () => this.save(), u: () => this.restore(),
      c: () => this.answer(IDENTITY),
      n: () => this.report(numbers[0]),
    };
    known[final]?.();
  }

  region([top = 1, bottom = this.rows]) {
    const last = Math.min(bottom || this.rows, this.rows);
    if (top >= last) return;
    Object.assign(this, { top: Math.max(0, top - 1), bottom: last - 1 });
    this.move(0, 0);
  }

  report(kind) {
    if (kind === 5) this.answer("\x1b[0n");
    if (kind === 6) this.answer(`\x1b[${this.row + 1};${Math.min(this.column, this.columns - 1) + 1}R`);
  }

  eraseLine(part) {
    const column = Math.min(this.column, this.columns - 1);
    this.grid.erase(this.row, part === 0 ? column : 0, part === 1 ? column + 1 : this.columns, this.style);
  }

  eraseScreen(part) {
    if (part === 3) this.grid.history.length = 0;
    if (part > 1) this.grid.lines = this.grid.lines.map(() => this.grid.blank(this.style));
    if (part > 1) return;
    this.eraseLine(part);
    const [from, to] = part === 0 ? [this.row + 1, this.rows] : [0, this.row];
    for (let row = from; row < to; row += 1) this.grid.erase(row, 0, this.columns, this.style);
  }

  mode(final, numbers) {
    if (final !== "h" && final !== "l") return;
    const on = final === "h";
    for (const number of numbers) {
      if (number === 1) this.applicationKeys = on;
      else if (number === 7) this.wraps = on;
      else if (number === 25) this.isCursorShown = on;
      else if ([47, 1047, 1049].includes(number)) this.alternate(on);
    }
  }

  /// Full-screen programs draw on a screen of their own.
  alternate(on) {
    if (on === (this.grid !== this.main)) return;
    if (on) this.save();
    this.grid = on ? new Grid(this.columns, this.rows) : this.main;
    if (!on) this.restore();
  }
}
