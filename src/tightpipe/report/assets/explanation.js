// The tables beneath a chart show where the time goes, and what would help.
import { make, ticks } from "format";

export function explanation(about, page, goTo) {
  const found = about.explanation;
  const blocks = [
    deviceTable(found, page),
    pathTable(found, goTo),
    idleTable(found, goTo),
    relaxationTable(found),
  ];
  const body = make("div", { class: "explanation" }, ...blocks.filter(Boolean));
  return make("details", {}, make("summary", {}, "Where the time goes"), body);
}

function block(title, heads, rows) {
  const numeric = (k) => (typeof rows[0][k] === "number" ? "number" : "");
  const head = make(
    "tr",
    {},
    ...heads.map((text, k) => make("th", { scope: "col", class: numeric(k) }, text)),
  );
  const body = rows.map((row) => make("tr", {}, ...row.map((value) => field(value))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "block" }, make("h4", {}, title), make("div", { class: "scroll" }, table));
}

function field(value) {
  if (value instanceof Node) return make("td", {}, value);
  if (typeof value === "number") return make("td", { class: "number" }, ticks(value));
  return make("td", {}, value ?? "–");
}

function deviceTable(found, page) {
  const met = page.reasons.filter(({ name }) => found.devices.some((d) => d.reasons[name] > 0));
  const heads = ["device", "idle", ...page.phases, ...met.map(({ name }) => name)];
  const rows = found.devices.map((d) => [
    d.device,
    d.idle,
    ...page.phases.map((phase) => d.phases[phase]),
    ...met.map(({ name }) => d.reasons[name]),
  ]);
  return block("Idle ticks by device, phase and what it waits for", heads, rows);
}

function pathTable(found, goTo) {
  const step = found.path.some((leg) => leg.step > 0) ? ["step"] : [];
  const columns = ["ticks", "computing", "messages", ...step, "late", "devices", "operations"];
  const rows = found.path.map((leg) => [link(leg, goTo), ...columns.map((column) => leg[column])]);
  return block("Critical path: the ticks sum to the cost", ["from", ...columns], rows);
}

function idleTable(found, goTo) {
  const rows = found.longest.map((i) => [i.device, link(i, goTo), i.ticks, i.phase, i.reason, i.text]);
  const title = `Longest idle intervals (${rows.length} of ${ticks(found.intervals)})`;
  return rows.length > 0 && block(title, ["device", "from", "ticks", "phase", "waits for", ""], rows);
}

function relaxationTable(found) {
  const rows = found.relaxations.map((r) => [r.name, r.how, r.cost, r.saved, r.unrelaxed]);
  const heads = ["relaxed", "how", "cost", "saved", "the same way without it"];
  return rows.length > 0 && block("What weaker constraints would give", heads, rows);
}

// Return a time as a button that moves the charts to it.
function link({ start, ticks: length }, goTo) {
  const button = make("button", { type: "button", class: "time" }, ticks(start));
  button.onclick = () => goTo(start - length, start + 2 * length);
  return button;
}
