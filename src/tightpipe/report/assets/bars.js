// Operations are drawn as rectangles with kind and microbatch, if they are wide enough in the time window.
import { idleAt, rowAt } from "decode";
import { paint, STRIP } from "paint";

const LOWEST_LABEL = 9; // height of a bar in pixels from which on it bears a number
const FONT = "system-ui, sans-serif";
export const FADED = 0.25; // opacity of what is not on the critical path where that is shown

// Draw the operations in a frame: left, top, width, row (pitch of devices) and bar (height), in CSS pixels.
export function drawBars(context, schedule, viewport, frame, page, look) {
  const scale = frame.width / viewport.ticks;
  const x = (time) => frame.left + (time - viewport.begin) * scale;
  const labels = [];
  context.globalAlpha = look.critical ? FADED : 1;
  for (let d = 0; d < schedule.devices; d++) {
    const y = frame.top + d * frame.row + (frame.row - frame.bar) / 2;
    let i = Math.max(rowAt(schedule, d, viewport.begin), schedule.offsets[d]);
    if (i > schedule.offsets[d] && schedule.joined[i - 1]) i--;
    for (; i < schedule.offsets[d + 1] && schedule.start[i] < viewport.end; i++) {
      const left = Math.max(x(schedule.start[i]), frame.left - 1);
      const width = Math.min(x(schedule.until[i]), frame.left + frame.width + 1) - left;
      const [from, height] = extent(schedule, d, i, y, frame.bar);
      paint(context, page, schedule, i, [left, from, width - (width > 3 ? 0.5 : 0), height]);
      const room = schedule.about.length.length > 0 ? (1 - STRIP) * height : height;
      if (room >= LOWEST_LABEL) labels.push([i, left + width / 2, from + room / 2 + 0.5, width, room]);
    }
  }
  drawNumbers(context, schedule, labels, page);
  context.globalAlpha = 1;
}

// Write the microbatch into each bar that is wide enough, after the kind if that fits into all of them.
function drawNumbers(context, schedule, labels, page) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  const sizes = new Map(); // of a bar's height: what its text takes
  for (const height of labels.map((label) => label[4])) {
    if (!sizes.has(height)) sizes.set(height, measure(context, height, page));
  }
  const needs = ([i, , , , height], named) => {
    const { digit, names } = sizes.get(height);
    return (named ? names[schedule.kind[i]] : 0) + (String(schedule.microbatch[i]).length + 0.8) * digit;
  };
  const named = labels.every((label) => label[3] >= needs(label, true));
  for (const label of labels) {
    const [i, x, y, width, height] = label;
    const needed = needs(label, named);
    if (width < needed) continue;
    const [kind, { font, size, digit }] = [schedule.kind[i], sizes.get(height)];
    const colour = page.colours[kind][schedule.lane[i]];
    if (page.hatched[kind]) {
      // A plate in the colour of the bar keeps the hatching away from the text.
      context.fillStyle = colour;
      context.fillRect(x - (needed - 0.4 * digit) / 2, y - size / 2, needed - 0.4 * digit, size);
    }
    if (context.font !== font) context.font = font;
    context.fillStyle = page.inks[kind][schedule.lane[i]];
    context.fillText((named ? page.kinds[kind] : "") + schedule.microbatch[i], x, y);
  }
}

// Return the font for a bar of this height, and the widths of a digit and of the names of kinds in it.
function measure(context, height, page) {
  const size = Math.min(11, Math.floor(height));
  context.font = `${size}px ${FONT}`;
  const width = (text) => context.measureText(text).width;
  return { size, font: context.font, digit: width("0"), names: page.kinds.map(width) };
}

// Draw the idle time that the objective charges, with a strip for its reason.
export function drawIdle(context, schedule, viewport, frame, page, look) {
  const { idleStart, idleTicks, idleReason, idleOffsets } = schedule;
  const scale = frame.width / viewport.ticks;
  for (let d = 0; d < schedule.devices; d++) {
    const y = frame.top + d * frame.row + (frame.row - frame.bar) / 2;
    let k = Math.max(idleAt(schedule, d, viewport.begin), idleOffsets[d]);
    for (; k < idleOffsets[d + 1] && idleStart[k] < viewport.end; k++) {
      const left = frame.left + (idleStart[k] - viewport.begin) * scale;
      context.fillStyle = page.idle;
      context.fillRect(left, y, idleTicks[k] * scale, frame.bar);
      if (!look.reasons) continue;
      context.fillStyle = page.reasons[idleReason[k]].colour;
      context.fillRect(left, y + frame.bar / 3, idleTicks[k] * scale, frame.bar / 3);
    }
  }
}

// Return top and height of an operation; of two that run together, the first has the upper half of the bar.
export function extent(schedule, d, i, y, bar) {
  if (schedule.joined[i]) return [y, bar / 2];
  const second = i > schedule.offsets[d] && schedule.joined[i - 1];
  return second ? [y + bar / 2, bar / 2] : [y, bar];
}
