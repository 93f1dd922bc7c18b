// Narrow operations are drawn as an image, in which each pixel has the mean colour of what it covers.
import { FADED } from "bars";
import { idleAt, rowAt } from "decode";

const rgb = (colour) => [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
const faded = (colour) => colour.map((value) => FADED * value + (1 - FADED) * 255);

// Draw the operations in a frame as for the bars, but in device pixels, which are the unit of images.
export function drawDensity(context, schedule, viewport, frame, page, look) {
  const [left, top, width] = [frame.left, frame.top, frame.width].map((v) => Math.round(v));
  const height = Math.round(frame.row * schedule.devices);
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer).fill(0xffffffff);
  const palette = page.colours.map((shades) =>
    shades.map(rgb).map(look.critical ? faded : (colour) => colour),
  );
  const grounds = page.reasons.map((reason) => rgb(look.reasons ? reason.colour : page.idle));
  for (let d = 0; d < schedule.devices; d++) {
    const line = new Line(width, viewport);
    addOperations(line, schedule, d, palette);
    addIdle(line, schedule, d, grounds);
    const from = Math.round(d * frame.row + (frame.row - frame.bar) / 2);
    const until = Math.max(from + 1, Math.round(d * frame.row + (frame.row + frame.bar) / 2));
    const colours = line.colours();
    for (let y = from; y < Math.min(until, height); y++) pixels.set(colours, y * width);
  }
  context.putImageData(image, left, top);
}

// A row of pixels, which sums up how much of each pixel has which colour.
class Line {
  constructor(width, viewport) {
    this.width = width;
    this.begin = viewport.begin;
    this.scale = width / viewport.ticks;
    this.sums = new Float32Array(4 * width); // red, green, blue, and how much of the pixel is covered
  }

  add(start, until, [red, green, blue], share) {
    const a = Math.max((start - this.begin) * this.scale, 0);
    const b = Math.min((until - this.begin) * this.scale, this.width);
    for (let x = Math.floor(a), at = 4 * x; x < b; x++, at += 4) {
      const part = share * (Math.min(b, x + 1) - Math.max(a, x));
      this.sums[at] += part * red;
      this.sums[at + 1] += part * green;
      this.sums[at + 2] += part * blue;
      this.sums[at + 3] += part;
    }
  }

  // The part of a pixel that nothing covers is white.
  colours() {
    const { sums, width } = this;
    const line = new Uint32Array(width);
    for (let x = 0, at = 0; x < width; x++, at += 4) {
      const rest = 255 * Math.max(0, 1 - sums[at + 3]);
      const [red, green, blue] = [sums[at] + rest, sums[at + 1] + rest, sums[at + 2] + rest];
      line[x] = (255 << 24) | (Math.min(blue, 255) << 16) | (Math.min(green, 255) << 8) | Math.min(red, 255);
    }
    return line;
  }
}

function addOperations(line, schedule, d, palette) {
  const { start, until, kind, lane, joined, offsets } = schedule;
  const end = line.begin + line.width / line.scale;
  let i = Math.max(rowAt(schedule, d, line.begin) - 1, offsets[d]);
  for (; i < offsets[d + 1] && start[i] < end; i++) {
    const together = joined[i] || (i > offsets[d] && joined[i - 1]);
    line.add(start[i], until[i], palette[kind[i]][lane[i]], together ? 0.5 : 1);
  }
}

function addIdle(line, schedule, d, grounds) {
  const { idleStart, idleTicks, idleReason, idleOffsets } = schedule;
  const end = line.begin + line.width / line.scale;
  let k = Math.max(idleAt(schedule, d, line.begin), idleOffsets[d]);
  for (; k < idleOffsets[d + 1] && idleStart[k] < end; k++) {
    line.add(idleStart[k], idleStart[k] + idleTicks[k], grounds[idleReason[k]], 1);
  }
}
