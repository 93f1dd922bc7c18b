// Reactions of a chart to the wheel, the pointer and keys.
import { place } from "tooltip";

const KEY_STEP = 1 / 8; // of the window
const KEY_ZOOM = 0.7;
const WHEEL_ZOOM = 0.0015; // per pixel of the wheel, in powers of e

// Let the user move a chart; return a function that hides the tooltip and the outline.
export function listen(gantt, tooltip) {
  const { canvas, viewport } = gantt;
  let grabbed = null; // where a drag is, in pixels

  const leave = () => {
    tooltip.hidden = true;
    gantt.outline(null);
  };

  const wheel = (event) => {
    event.preventDefault();
    leave();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      viewport.pan(((event.deltaX || event.deltaY) * viewport.ticks) / gantt.width);
    } else {
      const { part } = gantt.locate(event.offsetX, 0);
      viewport.zoom(Math.min(1, Math.max(0, part)), Math.exp(event.deltaY * WHEEL_ZOOM));
    }
  };

  const grab = (event) => {
    grabbed = event.clientX;
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("grabbed");
    leave();
  };

  const release = () => {
    grabbed = null;
    canvas.classList.remove("grabbed");
  };

  const move = (event) => {
    if (grabbed === null) return hover(event);
    viewport.pan(((grabbed - event.clientX) * viewport.ticks) / gantt.width);
    grabbed = event.clientX;
  };

  const hover = (event) => {
    const found = gantt.at(event.offsetX, event.offsetY);
    if (!found) return leave();
    gantt.outline(found.row);
    place(tooltip, event, found.lines);
  };

  const keys = {
    ArrowLeft: () => viewport.pan(-viewport.ticks * KEY_STEP),
    ArrowRight: () => viewport.pan(viewport.ticks * KEY_STEP),
    "+": () => viewport.zoom(0.5, KEY_ZOOM),
    "=": () => viewport.zoom(0.5, KEY_ZOOM),
    "-": () => viewport.zoom(0.5, 1 / KEY_ZOOM),
    0: () => viewport.fit(),
  };

  const key = (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    leave();
    keys[event.key]();
  };

  canvas.addEventListener("wheel", wheel, { passive: false });
  canvas.addEventListener("pointerdown", grab);
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", () => viewport.fit());
  canvas.addEventListener("keydown", key);
  return leave;
}
