// The rectangle of an operation has its colour, and white lines over it if its kind is hatched.
const SPACING = 7; // pixels between two lines
let lines = null; // a small tile of the hatching, repeated

// Fill a place, [left, top, width, height] in CSS pixels, with the look of the operation in a row.
export function paint(context, page, schedule, row, place) {
  const kind = schedule.kind[row];
  context.fillStyle = page.colours[kind][schedule.lane[row]];
  context.fillRect(...place);
  if (!page.hatched[kind]) return;
  lines ??= tile(page.paper);
  context.fillStyle = context.createPattern(lines, "repeat");
  context.fillRect(...place);
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
