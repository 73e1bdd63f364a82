// The characters of a terminal: rows of cells, and lines that have scrolled away.

import { PLAIN } from "./style.js";

const HISTORY = 2000;

export class Grid {
  constructor(columns, rows) {
    Object.assign(this, { columns, rows, history: [] });
    this.lines = Array.from({ length: rows }, () => this.blank());
  }

  blank(style = PLAIN) {
    const paper = style.paper ? Object.freeze({ paper: style.paper }) : PLAIN;
    return Array.from({ length: this.columns }, () => [" ", paper]);
  }

  set(row, column, character, style) {
    this.lines[row][column] = [character, style];
  }

  /// Moves the lines of a region up; the first ones are remembered if the region begins at the top.
  scrollUp(top, bottom, count, { style, remember }) {
    for (let done = 0; done < Math.min(count, bottom - top + 1); done += 1) {
      const [gone] = this.lines.splice(top, 1);
      this.lines.splice(bottom, 0, this.blank(style));
      if (remember && top === 0) this.history.push(gone);
    }
    if (this.history.length > HISTORY) this.history.splice(0, this.history.length - HISTORY);
  }

  scrollDown(top, bottom, count, style) {
    for (let done = 0; done < Math.min(count, bottom - top + 1); done += 1) {
      this.lines.splice(bottom, 1);
      this.lines.splice(top, 0, this.blank(style));
    }
  }

  /// Blanks cells of one row, from a column up to another, exclusive.
  erase(row, from, to, style) {
    this.lines[row].splice(from, to - from, ...this.blank(style).slice(from, to));
  }

  insertCells(row, column, count, style) {
    this.lines[row].splice(column, 0, ...this.blank(style).slice(0, count));
    this.lines[row].length = this.columns;
  }

  deleteCells(row, column, count, style) {
    this.lines[row].splice(column, count);
    while (this.lines[row].length < this.columns) this.lines[row].push(this.blank(style)[0]);
  }

  text(row) {
    return this.lines[row].map(([character]) => character).join("").trimEnd();
  }
}
