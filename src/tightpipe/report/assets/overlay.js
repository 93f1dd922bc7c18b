// Marks over the operations: the critical path, and the outline of the operation beneath the pointer.
import { extent } from "bars";
import { source } from "decode";
import { paint } from "paint";

export function drawCritical(context, schedule, viewport, frame, page) {
  const { critical } = schedule;
  context.strokeStyle = page.ink;
  context.lineWidth = 1;
  context.beginPath();
  let last = null;
  for (const i of critical) {
    const [x, y, width, height] = box(schedule, viewport, frame, i);
    paint(context, page, schedule, i, [x, y, width, height]);
    if (last && last[1] !== y + height / 2) {
      context.moveTo(...last);
      context.lineTo(x, y + height / 2);
    }
    last = [x + width, y + height / 2];
  }
  context.stroke();
}

// Outline an operation and the operation whose result it needs, and draw a line between them.
export function drawHovered(context, schedule, viewport, frame, page, i) {
  const [x, y, width, height] = box(schedule, viewport, frame, i);
  context.strokeStyle = page.ink;
  context.lineWidth = 2;
  context.strokeRect(x, y, width, height);
  const from = source(schedule, i);
  if (from < 0) return;
  const [x0, y0, width0, height0] = box(schedule, viewport, frame, from);
  context.strokeRect(x0, y0, width0, height0);
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x0 + width0, y0 + height0 / 2);
  context.lineTo(x, y + height / 2);
  context.stroke();
}

// Return the rectangle of an operation.
function box(schedule, viewport, frame, i) {
  const scale = frame.width / viewport.ticks;
  const d = schedule.offsets.findIndex((first) => first > i) - 1;
  const y = frame.top + d * frame.row + (frame.row - frame.bar) / 2;
  const [top, height] = extent(schedule, d, i, y, frame.bar);
  const left = frame.left + (schedule.start[i] - viewport.begin) * scale;
  return [left, top, Math.max(1, schedule.duration[i] * scale), height];
}
