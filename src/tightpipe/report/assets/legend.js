// What the colours mean.
import { make } from "format";

const entry = (colour, text) => make("span", {}, make("i", { style: `background:${colour}` }), text);

export function legend(page, schedules, byReason) {
  const entries = [];
  page.kinds.forEach((kind, k) => {
    page.colours[k].forEach((colour, lane) => {
      const with_it = schedules.find((s) => s.kind.some((value, i) => value === k && s.lane[i] === lane));
      if (with_it) entries.push(entry(colour, with_it.about.laneNoun ? `${kind} ${with_it.about.laneNoun} ${lane}` : kind));
    });
  });
  if (!byReason) return [...entries, entry(page.idle, "idle")];
  const met = page.reasons.filter((_, r) => schedules.some((s) => s.idleReason.includes(r)));
  return [...entries, ...met.map((reason) => entry(reason.colour, `idle: ${reason.name}`))];
}
