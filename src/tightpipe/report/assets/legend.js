// The legend says what the colours mean.
import { make } from "format";

const entry = (colour, text, look = "") =>
  make("span", {}, make("i", { class: look, style: `background-color:${colour}` }), text);

export function legend(page, schedules, byReason) {
  const entries = [];
  page.kinds.forEach((kind, k) => {
    page.colours[k].forEach((colour, lane) => {
      const holder = schedules.find((s) => s.kind.some((value, i) => value === k && s.lane[i] === lane));
      const noun = holder?.about.laneNoun;
      const look = page.hatched[k] ? "hatched" : "";
      if (holder) entries.push(entry(colour, noun ? `${kind} ${noun} ${lane}` : kind, look));
    });
  });
  const named = new Map(); // each length of microbatches once, though several charts have it
  for (const { lengthNames, lengthColours } of schedules.map((s) => s.about)) {
    for (const [place, name] of lengthNames) named.set(name, entry(lengthColours[place], name));
  }
  entries.push(...named.values());
  if (!byReason) return [...entries, entry(page.idle, "idle")];
  const met = page.reasons.filter((_, r) => schedules.some((s) => s.idleReason.includes(r)));
  return [...entries, ...met.map((reason) => entry(reason.colour, `idle: ${reason.name}`))];
}
