// Operations as rectangles with kind and microbatch: for windows in which they are wide enough.
import { idleAt, rowAt } from "decode";
import { paint } from "paint";

const LOWEST_LABEL = 9; // height of a bar in pixels from which on it bears a number
const FONT = "system-ui, sans-serif";
export const FADED = 0.25; // opacity of what is not on the critical path where that is shown

// `frame` says where: left, top, width, row (pitch of the devices), bar (height), all in CSS pixels.
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
      const [from, height] = slot(schedule, d, i, y, frame.bar);
      paint(context, page, schedule, i, [left, from, width - (width > 3 ? 0.5 : 0), height]);
      if (height >= LOWEST_LABEL) labels.push([i, left + width / 2, from + height / 2 + 0.5, width, height]);
    }
  }
  drawNumbers(context, schedule, labels, page);
  context.globalAlpha = 1;
}

// Write the microbatches into the bars that are wide enough, with the kind before them where it fits too.
function drawNumbers(context, schedule, labels, page) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  let size = 0;
  let digit = 0;
  for (const [i, x, y, width, height] of labels) {
    const fitting = Math.min(11, Math.floor(height));
    if (fitting !== size) {
      context.font = `${fitting}px ${FONT}`;
      [size, digit] = [fitting, context.measureText("0").width];
    }
    const number = String(schedule.microbatch[i]);
    const named = page.kinds[schedule.kind[i]] + number;
    const fits = (text) => width >= context.measureText(text).width + 0.8 * digit;
    const text = [named, number].find(fits);
    if (!text) continue;
    context.fillStyle = page.inks[schedule.kind[i]][schedule.lane[i]];
    context.fillText(text, x, y);
  }
}

// Idle time that the objective charges, in one colour or in that of its reason.
export function drawIdle(context, schedule, viewport, frame, page, look) {
  const { idleStart, idleTicks, idleReason, idleOffsets } = schedule;
  const scale = frame.width / viewport.ticks;
  for (let d = 0; d < schedule.devices; d++) {
    const y = frame.top + d * frame.row + (frame.row - frame.bar) / 2;
    let k = Math.max(idleAt(schedule, d, viewport.begin), idleOffsets[d]);
    for (; k < idleOffsets[d + 1] && idleStart[k] < viewport.end; k++) {
      context.fillStyle = look.reasons ? page.reasons[idleReason[k]].colour : page.idle;
      const left = frame.left + (idleStart[k] - viewport.begin) * scale;
      context.fillRect(left, y, idleTicks[k] * scale, frame.bar);
    }
  }
}

// Of two operations that run together the first has the upper half of the bar.
export function slot(schedule, d, i, y, bar) {
  if (schedule.joined[i]) return [y, bar / 2];
  const second = i > schedule.offsets[d] && schedule.joined[i - 1];
  return second ? [y + bar / 2, bar / 2] : [y, bar];
}
