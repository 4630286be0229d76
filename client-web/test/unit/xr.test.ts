/** Entering and leaving WebXR, including a session that the renderer refuses. */
import { afterEach, expect, it, vi } from "vitest";
import { enterXR } from "../../src/scene/xr.ts";
import type { Studio } from "../../src/scene/studio.ts";

afterEach(() => void vi.unstubAllGlobals());

class Session extends EventTarget {
  ended = false;
  end(): Promise<void> {
    this.ended = true;
    this.dispatchEvent(new Event("end"));
    return Promise.resolve();
  }
}

/** A studio whose renderer uses setSession, and the modes it has entered. */
function studio(setSession: () => Promise<void>): { studio: Studio; modes: (string | undefined)[] } {
  const modes: (string | undefined)[] = [];
  return {
    studio: { enterXR: (mode?: string) => modes.push(mode), renderer: { xr: { setSession } } } as unknown as Studio,
    modes,
  };
}

function offer(): Session {
  const session = new Session();
  vi.stubGlobal("navigator", { xr: { requestSession: () => Promise.resolve(session) } });
  return session;
}

it("shows the scene until the session ends", async () => {
  const session = offer(), ended = vi.fn(), { studio: s, modes } = studio(() => Promise.resolve());
  await enterXR(s, "vr", ended);
  expect(modes).toEqual(["vr"]);
  await session.end();
  expect(modes).toEqual(["vr", undefined]);
  expect(ended).toHaveBeenCalledOnce();
});

it("ends a session that the renderer refuses, and reports the reason", async () => {
  const session = offer(), { studio: s, modes } = studio(() => Promise.reject(new Error("no such reference space")));
  await expect(enterXR(s, "ar", () => undefined)).rejects.toThrow("no such reference space");
  expect(session.ended).toBe(true);
  expect(modes).toEqual(["ar", undefined]);
});
