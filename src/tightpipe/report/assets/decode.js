// The compressed arrays of a chart are turned into a schedule.
const TYPES = { Float64Array, Int32Array, Uint16Array, Uint8Array };

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// Return a schedule. Its rows are operations; device d has the rows offsets[d] to offsets[d + 1] - 1.
export async function decode(about, text) {
  const buffer = await inflate(text);
  const schedule = { about, devices: about.offsets.length - 1, offsets: about.offsets };
  for (const [name, type, offset, length] of about.layout) {
    schedule[name] = new TYPES[type](buffer, offset, length);
  }
  addTimes(schedule);
  schedule.isCritical = new Uint8Array(schedule.kind.length);
  schedule.critical.forEach((row) => (schedule.isCritical[row] = 1));
  return schedule;
}

function addTimes(schedule) {
  const start = schedule.startStep; // becomes the start itself
  for (let i = 1; i < start.length; i++) start[i] += start[i - 1];
  const until = start.map((time, i) => time + schedule.duration[i]);
  schedule.start = start;
  schedule.until = until;
  [schedule.begin, schedule.end] = schedule.about.shown;
}

// Return the row whose result row i needs, or -1.
export function source(schedule, i) {
  return schedule.sourceStep[i] === 0 ? -1 : i + schedule.sourceStep[i];
}

// Return the last row of device d that starts at or before a time; offsets[d] - 1 if none does.
export function rowAt(schedule, d, time) {
  return lastAtOrBefore(schedule.start, schedule.offsets[d], schedule.offsets[d + 1], time);
}

// Return the last idle interval of device d that starts at or before a time.
export function idleAt(schedule, d, time) {
  return lastAtOrBefore(schedule.idleStart, schedule.idleOffsets[d], schedule.idleOffsets[d + 1], time);
}

function lastAtOrBefore(times, low, high, time) {
  const first = low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return Math.max(low, first) - 1;
}
