// The summary table sorts by a click on a heading, and filters by words and comparisons.
import { cell, make } from "format";

const COMPARISON = /^([a-z_]+)(>=|<=|>|<|=)(.+)$/i;
const COMPARE = {
  ">": (a, b) => a > b,
  "<": (a, b) => a < b,
  ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b,
  "=": (a, b) => a === b,
};

export class ResultTable {
  constructor(host, filter, count, page, onSelect) {
    Object.assign(this, { filter, count, page, onSelect, selected: -1, column: -1, direction: 1 });
    this.heads = page.columns.map((column, i) => this.head(column, i));
    this.lines = page.rows.map((row, i) => this.line(row, i));
    this.body = make("tbody", {}, ...this.lines);
    host.append(
      make(
        "table",
        { class: "results", role: "grid" },
        make("thead", {}, make("tr", {}, ...this.heads)),
        this.body,
      ),
    );
    filter.oninput = () => this.refresh();
    this.refresh();
  }

  head(column, i) {
    const button = make("button", { type: "button" }, column.title);
    button.onclick = () => this.sort(i);
    return make("th", { scope: "col", class: column.kind, "aria-sort": "none" }, button);
  }

  line(row, i) {
    const cells = this.page.columns.map((column, k) =>
      make("td", { class: column.kind }, cell(row[k], column.kind)),
    );
    const line = make("tr", { tabindex: "0" }, ...cells);
    line.onclick = () => this.select(i);
    line.onkeydown = (event) => this.key(event, i);
    return line;
  }

  key(event, i) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (step) {
      let next = this.lines[i][step];
      while (next?.hidden) next = next[step];
      next?.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      this.select(i);
    } else return;
    event.preventDefault();
  }

  select(i) {
    this.lines[this.selected]?.removeAttribute("aria-selected");
    this.selected = i;
    this.lines[i].setAttribute("aria-selected", "true");
    this.onSelect(i);
  }

  sort(i) {
    this.direction = this.column === i ? -this.direction : 1;
    this.column = i;
    this.heads.forEach((head, k) => {
      head.setAttribute("aria-sort", k !== i ? "none" : this.direction > 0 ? "ascending" : "descending");
    });
    const order = this.lines
      .map((_, k) => k)
      .sort((a, b) => this.compare(this.page.rows[a][i], this.page.rows[b][i]));
    this.body.replaceChildren(...order.map((k) => this.lines[k]));
  }

  // Cells without a value come last, in both directions of sorting.
  compare(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    const textual = typeof a === "string" || typeof b === "string";
    const less = textual ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b;
    return this.direction * less;
  }

  refresh() {
    const words = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    this.lines.forEach((line, i) => {
      line.hidden = !words.every((word) => this.matches(this.page.rows[i], line, word));
      shown += !line.hidden;
    });
    this.count.value =
      shown === this.lines.length ? `${shown} rows` : `${shown} of ${this.lines.length} rows`;
  }

  matches(row, line, word) {
    const [, name, sign, value] = COMPARISON.exec(word) ?? [];
    const column = this.page.columns.findIndex((c) => c.key === name);
    if (column < 0) return line.textContent.toLowerCase().includes(word);
    const held = row[column];
    if (typeof held === "number") return COMPARE[sign](held, Number(value));
    return held !== null && COMPARE[sign](String(held).toLowerCase(), value);
  }
}
