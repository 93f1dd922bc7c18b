// The rectangle of an operation has its colour, white lines over it if its kind is hatched, and a strip below
// that is the darker the longer the microbatch, where microbatches differ.
export const STRIP = 0.2; // height of the strip as a share of the rectangle's
const SPACING = 7; // pixels between two lines
let lines = null; // a small tile of the hatching, repeated

// Fill a place, [left, top, width, height] in CSS pixels, with the look of the operation in a row.
export function paint(context, page, schedule, row, place) {
  const kind = schedule.kind[row];
  context.fillStyle = page.colours[kind][schedule.lane[row]];
  context.fillRect(...place);
  if (page.hatched[kind]) {
    lines ??= tile(page.paper);
    context.fillStyle = context.createPattern(lines, "repeat");
    context.fillRect(...place);
  }
  const { length, lengthColours } = schedule.about;
  if (length.length === 0) return;
  const [left, top, width, height] = place;
  context.fillStyle = lengthColours[length[schedule.microbatch[row]]];
  context.fillRect(left, top + (1 - STRIP) * height, width, STRIP * height);
}

function tile(colour) {
  const canvas = new OffscreenCanvas(SPACING, SPACING);
  const context = canvas.getContext("2d");
  context.strokeStyle = colour;
  for (const shift of [-SPACING, 0, SPACING]) {
    context.moveTo(shift, SPACING);
    context.lineTo(shift + SPACING, 0);
  }
  context.stroke();
  return canvas;
}
