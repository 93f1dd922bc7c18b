// All charts share one time window.
const NARROWEST = 1e-6; // of the whole time

export class Viewport {
  constructor(begin, end) {
    this.whole = [begin, end];
    [this.begin, this.end] = this.whole;
    this.listeners = new Set();
  }

  get ticks() {
    return this.end - this.begin;
  }

  // Show the time from `begin` to `end`, as far as it lies within the whole time.
  set(begin, end) {
    const [first, last] = this.whole;
    const most = last - first;
    const ticks = Math.min(most, Math.max(end - begin, most * NARROWEST, Math.min(4, most)));
    this.begin = Math.min(Math.max(begin, first), last - ticks);
    this.end = this.begin + ticks;
    this.listeners.forEach((listener) => listener());
  }

  fit() {
    this.set(...this.whole);
  }

  pan(ticks) {
    this.set(this.begin + ticks, this.end + ticks);
  }

  // Change the width by `factor`; the time at `place` (0 is left, 1 is right) stays where it is.
  zoom(place, factor) {
    const ticks = Math.min(this.ticks * factor, this.whole[1] - this.whole[0]);
    const fixed = this.begin + place * this.ticks;
    this.set(fixed - place * ticks, fixed + (1 - place) * ticks);
  }
}
