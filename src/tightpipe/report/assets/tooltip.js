// The tooltip tells about the operation or the idle time beneath the pointer.
import { source } from "decode";
import { make, operation, percent, ticks } from "format";

const interval = (from, to) => `${ticks(from)} – ${ticks(to)} (${ticks(to - from)} ticks)`;

export function describeOperation(schedule, page, d, i) {
  const lane = schedule.about.laneNoun ? ` · ${schedule.about.laneNoun} ${schedule.lane[i]}` : "";
  const lines = [
    ["", `${operation(schedule, page, i)} on device ${d}${lane}`],
    ["time", interval(schedule.start[i], schedule.until[i])],
    ["waited for", waitedFor(schedule, page, d, i)],
  ];
  if (schedule.held) lines.push(["memory", memory(schedule, d, i)]);
  const { length, lengthTicks } = schedule.about;
  if (length.length > 0) {
    const all = lengthTicks[length[schedule.microbatch[i]]];
    lines.push(["microbatch", `${ticks(all)} ticks in all its operations`]);
  }
  return lines;
}

// Return what the operation waited for last: its stage, its input, or the operation before it on its device.
function waitedFor(schedule, page, d, i) {
  const input = inputOf(schedule, page, i);
  const before = previous(schedule, d, i);
  const free = before < 0 ? -Infinity : schedule.until[before];
  const stage = schedule.ready[i] || -Infinity;
  const last = Math.max(input.time, free, stage);
  if (last === -Infinity) return "nothing";
  const late = schedule.start[i] - last;
  let what;
  if (stage > Math.max(input.time, free)) what = `its stage, which was ready at ${ticks(stage)}`;
  else what = input.time > free ? input.text : deviceOf(schedule, page, d, i, before);
  return late > 0 ? `${what}; starts ${ticks(late)} later than it could` : what;
}

function deviceOf(schedule, page, d, i, before) {
  const text = `${operation(schedule, page, before)} on its device, until ${ticks(schedule.until[before])}`;
  const limit = schedule.about.limit[d];
  const takes = schedule.held ? schedule.takes[i] : 0;
  const full = limit !== null && takes > 0 && schedule.held[before] + takes > limit;
  return full ? `${text}, without room in memory before` : text;
}

function inputOf(schedule, page, i) {
  const from = source(schedule, i);
  if (from < 0) return { time: -Infinity, text: "" };
  const ended = schedule.until[from];
  const time = ended + schedule.linkWait[i] + schedule.transfer[i];
  const parts = [`${operation(schedule, page, from)}, which ended at ${ticks(ended)}`];
  if (schedule.linkWait[i]) parts.push(`${ticks(schedule.linkWait[i])} until its link was free`);
  if (schedule.transfer[i]) parts.push(`${ticks(schedule.transfer[i])} on its way`);
  return { time, text: parts.join(", ") };
}

function previous(schedule, d, i) {
  const head = i > schedule.offsets[d] && schedule.joined[i - 1] ? i - 1 : i;
  return head > schedule.offsets[d] ? head - 1 : -1;
}

function memory(schedule, d, i) {
  const limit = schedule.about.limit[d];
  const held = ticks(schedule.held[i]);
  return limit === null
    ? `${held} held, no limit`
    : `${held} of ${ticks(limit)} held (${percent(schedule.held[i] / limit)})`;
}

export function describeIdle(schedule, page, d, k) {
  const from = schedule.idleStart[k];
  const reason = page.reasons[schedule.idleReason[k]];
  const sentence = reason.sentence.replace(/\{(\w)(\w*)\}/g, (_, first, rest) => {
    return operation(schedule, page, schedule[`idle${first.toUpperCase()}${rest}`][k]);
  });
  return [
    ["", `device ${d} idle · ${page.phases[schedule.idlePhase[k]]}`],
    ["time", interval(from, from + schedule.idleTicks[k])],
    ["waits for", reason.name],
    ["", sentence],
  ];
}

// Show the tooltip beside the pointer, within the window.
export function place(tooltip, event, lines) {
  tooltip.replaceChildren(...lines.map(([name, text]) => make("div", {}, make("span", {}, name), text)));
  tooltip.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = tooltip;
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18;
  tooltip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}
