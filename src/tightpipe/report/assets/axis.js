// The time axis.
import { ticks } from "format";

// Draw marks and times beneath a frame, at round numbers not closer than `apart` pixels.
export function drawAxis(context, viewport, frame, bottom, page, apart = 110) {
  const scale = frame.width / viewport.ticks;
  const step = round((apart * viewport.ticks) / frame.width);
  context.strokeStyle = page.soft;
  context.fillStyle = page.ink;
  context.lineWidth = 1;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "top";
  context.beginPath();
  for (let time = Math.ceil(viewport.begin / step) * step; time <= viewport.end; time += step) {
    const x = Math.round(frame.left + (time - viewport.begin) * scale) + 0.5;
    context.moveTo(x, bottom);
    context.lineTo(x, bottom + 4);
    const half = context.measureText(ticks(time)).width / 2;
    const inside = Math.min(Math.max(x, frame.left - 20 + half), frame.left + frame.width - half);
    context.fillText(ticks(time), inside, bottom + 6);
  }
  context.moveTo(frame.left, bottom + 0.5);
  context.lineTo(frame.left + frame.width, bottom + 0.5);
  context.stroke();
}

// Return the least of 1, 2 and 5 times a power of ten that is at least `value`, and at least one tick.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((m) => m * power).find((v) => v >= value);
}
