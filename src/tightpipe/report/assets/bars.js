// Operations as rectangles with their microbatch numbers: for windows in which they are wide enough.
import { idleAt, rowAt } from "decode";

const LOWEST_LABEL = 9; // height of a bar in pixels from which on it bears a number
const FONT = "system-ui, sans-serif";
export const FADED = 0.25; // opacity of what is not on the critical path where that is shown

// `frame` says where: left, top, width, row (pitch of the devices), bar (height), all in CSS pixels.
export function drawBars(context, schedule, viewport, frame, page, look) {
  context.globalAlpha = look.critical ? FADED : 1;
  const scale = frame.width / viewport.ticks;
  const x = (time) => frame.left + (time - viewport.begin) * scale;
  const labels = frame.bar >= LOWEST_LABEL;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${Math.min(11, frame.bar - 2)}px ${FONT}`;
  const digit = context.measureText("0").width;
  for (let d = 0; d < schedule.devices; d++) {
    const y = frame.top + d * frame.row + (frame.row - frame.bar) / 2;
    let i = Math.max(rowAt(schedule, d, viewport.begin), schedule.offsets[d]);
    if (i > schedule.offsets[d] && schedule.joined[i - 1]) i--;
    for (; i < schedule.offsets[d + 1] && schedule.start[i] < viewport.end; i++) {
      const left = Math.max(x(schedule.start[i]), frame.left - 1);
      const right = Math.min(x(schedule.until[i]), frame.left + frame.width + 1);
      const [from, height] = slot(schedule, d, i, y, frame.bar);
      context.fillStyle = page.colours[schedule.kind[i]][schedule.lane[i]];
      const gap = right - left > 3 ? 0.5 : 0;
      context.fillRect(left, from, right - left - gap, height);
      const text = String(schedule.microbatch[i]);
      if (labels && height >= LOWEST_LABEL && right - left > (text.length + 0.8) * digit) {
        context.fillStyle = page.inks[schedule.kind[i]][schedule.lane[i]];
        context.fillText(text, (left + right) / 2, from + height / 2 + 0.5);
      }
    }
  }
  context.globalAlpha = 1;
}

// Idle time that the objective charges, in one colour or in that of its reason.
export function drawIdle(context, schedule, viewport, frame, page, look) {
  const x = (time) => frame.left + ((time - viewport.begin) * frame.width) / viewport.ticks;
  for (let d = 0; d < schedule.devices; d++) {
    const y = frame.top + d * frame.row + (frame.row - frame.bar) / 2;
    const [opens, closes] = [schedule.about.opens[d], schedule.about.closes[d]].map(x);
    context.fillStyle = page.idle;
    context.fillRect(opens, y, closes - opens, frame.bar);
    if (!look.reasons) continue;
    let k = Math.max(idleAt(schedule, d, viewport.begin), schedule.idleOffsets[d]);
    for (; k < schedule.idleOffsets[d + 1] && schedule.idleStart[k] < viewport.end; k++) {
      const left = x(schedule.idleStart[k]);
      context.fillStyle = page.reasons[schedule.idleReason[k]].colour;
      context.fillRect(left, y, x(schedule.idleStart[k] + schedule.idleTicks[k]) - left, frame.bar);
    }
  }
}

// Of two operations that run together the first has the upper half of the bar.
export function slot(schedule, d, i, y, bar) {
  if (schedule.joined[i]) return [y, bar / 2];
  const second = i > schedule.offsets[d] && schedule.joined[i - 1];
  return second ? [y + bar / 2, bar / 2] : [y, bar];
}
