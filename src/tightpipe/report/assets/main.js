// The page consists of the table, the charts of the selected row, and the explanations beneath them.
import { decode } from "decode";
import { explanation } from "explanation";
import { make } from "format";
import { Gantt } from "gantt";
import { legend } from "legend";
import { ResultTable } from "table";
import { Viewport } from "viewport";

const page = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const decoded = new Map(); // charts are decoded when they are first looked at
let viewport = null; // of all charts that are shown
let shown = []; // schedules, from top to bottom
let gantts = []; // their charts
let selection = 0; // how many rows were selected so far

function load(number) {
  if (!decoded.has(number)) {
    const text = byId(`chart-${number}`).textContent;
    decoded.set(number, decode(page.charts[number], text));
  }
  return decoded.get(number);
}

async function show(stack) {
  const mine = ++selection;
  const schedules = await Promise.all(stack.map(load));
  if (mine !== selection) return; // another row was selected meanwhile
  gantts.forEach((gantt) => gantt.remove());
  byId("panels").replaceChildren();
  byId("schedules").hidden = stack.length === 0;
  if (stack.length === 0) return;
  shown = schedules;
  const begin = Math.min(...schedules.map((s) => s.begin));
  viewport = new Viewport(begin, Math.max(...schedules.map((s) => s.end)));
  gantts = schedules.map(panel);
  restyle();
}

// Add a chart, with its explanation beneath.
function panel(schedule) {
  const article = make("article", { class: "panel" });
  byId("panels").append(article);
  const gantt = new Gantt(article, schedule, viewport, page, byId("tooltip"));
  article.append(explanation(schedule.about, page, (from, to) => viewport.set(from, to)));
  return gantt;
}

function restyle() {
  const look = { critical: byId("show-critical").checked, reasons: byId("show-reasons").checked };
  byId("legend").replaceChildren(...legend(page, shown, look.reasons));
  gantts.forEach((gantt) => gantt.restyle(look));
}

const table = new ResultTable(byId("results"), byId("filter"), byId("count"), page, (row) =>
  show(page.stacks[row]),
);
byId("zoom-in").onclick = () => viewport.zoom(0.5, 0.5);
byId("zoom-out").onclick = () => viewport.zoom(0.5, 2);
byId("fit").onclick = () => viewport.fit();
byId("show-critical").onchange = restyle;
byId("show-reasons").onchange = restyle;
const first = page.stacks.findIndex((stack) => stack.length > 0);
if (first >= 0) table.select(first);
