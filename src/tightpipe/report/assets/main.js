// The page: table, the charts of the selected row, and what is beneath them.
import { decode } from "decode";
import { explanation } from "explanation";
import { Gantt } from "gantt";
import { legend } from "legend";
import { ResultTable } from "table";
import { Viewport } from "viewport";

const page = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const decoded = new Map(); // charts are decoded when they are first looked at
let viewport = null;
let gantts = [];
let selection = 0;

function load(number) {
  if (!decoded.has(number)) {
    const text = byId(`chart-${number}`).textContent;
    decoded.set(number, decode(page.charts[number], text));
  }
  return decoded.get(number);
}

async function show(stack) {
  const mine = ++selection;
  byId("schedules").hidden = stack.length === 0;
  const schedules = await Promise.all(stack.map(load));
  if (mine !== selection) return; // another row was selected meanwhile
  gantts.forEach((gantt) => gantt.remove());
  byId("panels").replaceChildren();
  if (stack.length === 0) return;
  const begin = Math.min(...schedules.map((s) => s.begin));
  viewport = new Viewport(begin, Math.max(...schedules.map((s) => s.end)));
  byId("legend").replaceChildren(...legend(page, schedules, byId("show-reasons").checked));
  gantts = schedules.map((schedule) => {
    const panel = document.createElement("article");
    panel.className = "panel";
    byId("panels").append(panel);
    const gantt = new Gantt(panel, schedule, viewport, page, byId("tooltip"));
    panel.append(explanation(schedule.about, page, (from, to) => viewport.set(from, to)));
    return gantt;
  });
  restyle();
  document.body.dataset.shown = stack.join(" ");
}

function restyle() {
  const look = { critical: byId("show-critical").checked, reasons: byId("show-reasons").checked };
  gantts.forEach((gantt) => gantt.restyle(look));
}

async function relegend() {
  const stack = (document.body.dataset.shown ?? "").split(" ").map(Number);
  const schedules = await Promise.all(stack.map(load));
  byId("legend").replaceChildren(...legend(page, schedules, byId("show-reasons").checked));
  restyle();
}

const table = new ResultTable(byId("results"), byId("filter"), byId("count"), page, (row) => show(page.stacks[row]));
byId("zoom-in").onclick = () => viewport.zoom(0.5, 0.5);
byId("zoom-out").onclick = () => viewport.zoom(0.5, 2);
byId("fit").onclick = () => viewport.fit();
byId("show-critical").onchange = restyle;
byId("show-reasons").onchange = relegend;
const first = page.stacks.findIndex((stack) => stack.length > 0);
if (first >= 0) table.select(first);
