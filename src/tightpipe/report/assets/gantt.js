// A schedule on a canvas; only its visible part is drawn, once per frame.
import { drawAxis } from "axis";
import { drawBars, drawIdle } from "bars";
import { idleAt, rowAt } from "decode";
import { drawDensity } from "density";
import { make, percent, ticks } from "format";
import { drawCritical, drawHovered } from "overlay";
import { listen } from "pointer";
import { describeIdle, describeOperation } from "tooltip";

const LEFT = 34;
const RIGHT = 10;
const AXIS = 24;
const TALLEST_ROW = 22;
const LOWEST_ROW = 8;
const USUAL_HEIGHT = 300;
const NARROW = 3; // mean width of an operation in pixels below which they are drawn as an image

export class Gantt {
  constructor(host, schedule, viewport, page, tooltip) {
    Object.assign(this, { schedule, viewport, page, look: {}, hovered: null, pending: 0 });
    this.row = Math.max(LOWEST_ROW, Math.min(TALLEST_ROW, Math.floor(USUAL_HEIGHT / schedule.devices)));
    this.height = this.row * schedule.devices + AXIS;
    this.canvas = make("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": `Gantt chart of ${schedule.about.label}`,
    });
    this.canvas.style.height = `${this.height}px`;
    host.append(this.heading(), this.canvas);
    this.redraw = () => this.request();
    viewport.listeners.add(this.redraw);
    this.observer = new ResizeObserver(this.redraw);
    this.observer.observe(this.canvas);
    this.unpoint = listen(this, tooltip);
  }

  heading() {
    const { label, cost, bubbleRate, bound, gap } = this.schedule.about;
    const parts = [`cost ${ticks(cost)}`, `bubble rate ${percent(bubbleRate)}`];
    if (bound !== null) parts.push(`bound ${ticks(bound)}`, `gap ${percent(gap)}`);
    return make("div", { class: "heading" }, make("h3", {}, label), make("p", {}, parts.join("   ")));
  }

  remove() {
    this.viewport.listeners.delete(this.redraw);
    this.observer.disconnect();
    cancelAnimationFrame(this.pending);
    this.unpoint();
  }

  restyle(look) {
    this.look = look;
    this.request();
  }

  request() {
    if (!this.pending) this.pending = requestAnimationFrame(() => this.draw());
  }

  get width() {
    return Math.max(1, this.canvas.clientWidth - LEFT - RIGHT);
  }

  draw() {
    this.pending = 0;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [this.canvas.clientWidth, this.height].map((v) => Math.round(v * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      Object.assign(this.canvas, { width, height });
    }
    const context = this.canvas.getContext("2d", { alpha: false });
    const frame = {
      left: LEFT,
      top: 0,
      width: this.width,
      row: this.row,
      bar: Math.max(1, Math.round(this.row * 0.86)),
    };
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.page.paper;
    context.fillRect(0, 0, width, height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.isDense() ? this.drawImage(context, frame, ratio) : this.drawShapes(context, frame);
    this.drawOverlay(context, frame);
    this.drawDevices(context, frame);
    drawAxis(context, this.viewport, frame, this.row * this.schedule.devices, this.page);
  }

  isDense() {
    const { schedule, viewport } = this;
    let visible = 0;
    for (let d = 0; d < schedule.devices; d++) {
      visible += rowAt(schedule, d, viewport.end) - rowAt(schedule, d, viewport.begin);
    }
    return this.width * schedule.devices < visible * NARROW;
  }

  drawImage(context, frame, ratio) {
    const scaled = Object.fromEntries(Object.entries(frame).map(([key, value]) => [key, value * ratio]));
    drawDensity(context, this.schedule, this.viewport, scaled, this.page, this.look);
  }

  drawShapes(context, frame) {
    this.clip(context, frame);
    drawIdle(context, this.schedule, this.viewport, frame, this.page, this.look);
    drawBars(context, this.schedule, this.viewport, frame, this.page, this.look);
    context.restore();
  }

  drawOverlay(context, frame) {
    this.clip(context, frame);
    if (this.look.critical) drawCritical(context, this.schedule, this.viewport, frame, this.page);
    if (this.hovered !== null) drawHovered(context, this.schedule, this.viewport, frame, this.page, this.hovered);
    context.restore();
  }

  // Everything that is drawn until restore() stays within the frame.
  clip(context, frame) {
    context.save();
    context.beginPath();
    context.rect(frame.left, 0, frame.width, this.row * this.schedule.devices);
    context.clip();
  }

  drawDevices(context, frame) {
    context.fillStyle = this.page.ink;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.ceil(12 / frame.row);
    for (let d = 0; d < this.schedule.devices; d += every) {
      context.fillText(String(d), frame.left - 8, d * frame.row + frame.row / 2 + 0.5);
    }
  }

  // Return the time and the device at a place on the canvas; both can lie outside the schedule.
  locate(x, y) {
    const part = (x - LEFT) / this.width;
    return { part, time: this.viewport.begin + part * this.viewport.ticks, device: y / this.row };
  }

  // Return the row of the operation at a place (null where the device is idle), and lines of text about it.
  at(x, y) {
    const { schedule, page } = this;
    const { part, time, device } = this.locate(x, y);
    const d = Math.floor(device);
    if (d >= schedule.devices || part < 0 || part > 1) return null;
    let i = rowAt(schedule, d, time);
    if (i >= schedule.offsets[d] && time < schedule.until[i]) {
      if (i > schedule.offsets[d] && schedule.joined[i - 1] && device - d < 0.5) i--;
      return { row: i, lines: describeOperation(schedule, page, d, i) };
    }
    const k = idleAt(schedule, d, time);
    const idle = k >= schedule.idleOffsets[d] && time < schedule.idleStart[k] + schedule.idleTicks[k];
    return idle ? { row: null, lines: describeIdle(schedule, page, d, k) } : null;
  }

  // Outline the operation in a row, or no operation if the row is null.
  outline(row) {
    if (row !== this.hovered) this.request();
    this.hovered = row;
  }
}
