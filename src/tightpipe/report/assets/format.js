// Functions that turn numbers and names into text.
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

export const number = (value) => (Number.isInteger(value) ? whole : short).format(value);
export const percent = (value) => `${(100 * value).toFixed(2)} %`;
export const ticks = (value) => whole.format(value);

export function cell(value, kind) {
  if (value === null || value === undefined) return "–";
  if (kind === "rate") return percent(value);
  return kind === "number" ? number(value) : String(value);
}

export function operation(schedule, page, i) {
  return `${page.kinds[schedule.kind[i]]}${schedule.stage[i]}.${schedule.microbatch[i]}`;
}

// Return an element with attributes and children; text is never read as HTML.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
