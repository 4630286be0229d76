import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { hideWhenIdle } from "../../src/ui/idle.ts";

/** Controls with a class list, and a window with events. */
function page(may: () => boolean) {
  const classes = new Set<string>();
  const used = { focus: false, pointer: false, mouse: true };
  const window = new EventTarget();
  vi.stubGlobal("addEventListener", window.addEventListener.bind(window));
  vi.stubGlobal("matchMedia", () => ({ matches: used.mouse }));
  const controls = {
    classList: { add: (c: string) => classes.add(c), remove: (c: string) => classes.delete(c) },
    querySelector: (s: string) => ((s.includes("focus") ? used.focus : used.pointer) ? {} : null),
  };
  hideWhenIdle(controls as unknown as HTMLElement, may);
  const after = (ms: number) => {
    vi.advanceTimersByTime(ms);
    return classes.has("quiet");
  };
  return { used, after, does: (type: string) => void window.dispatchEvent(new Event(type)) };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("controls over a picture", () => {
  it.each(["pointermove", "pointerdown", "wheel", "keydown", "focusin"])("hide until a %s", (type) => {
    const p = page(() => true);
    expect([p.after(2900), p.after(200)]).toEqual([false, true]);
    p.does(type);
    expect([p.after(0), p.after(2900), p.after(200)]).toEqual([false, false, true]);
  });
  it("stay while they may not hide, as in a pause", () => {
    let paused = true;
    const p = page(() => !paused);
    expect(p.after(60_000)).toBe(false);
    paused = false;
    expect(p.after(3100)).toBe(true);
  });
  it("stay while the keyboard or the pointer is on them", () => {
    const p = page(() => true);
    p.used.focus = true;
    expect(p.after(60_000)).toBe(false);
    Object.assign(p.used, { focus: false, pointer: true });
    expect(p.after(60_000)).toBe(false);
    p.used.mouse = false; // a finger does not hover, but browsers report that it does
    expect(p.after(3100)).toBe(true);
  });
});
