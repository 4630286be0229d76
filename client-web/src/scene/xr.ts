import type { Studio } from "./studio.ts";

export type XRMode = "ar" | "vr";

/** The WebXR session modes this device supports. */
export async function supportedXR(): Promise<XRMode[]> {
  const found: XRMode[] = [];
  for (const mode of ["ar", "vr"] as const) {
    if (await navigator.xr?.isSessionSupported(`immersive-${mode}`).catch(() => false)) found.push(mode);
  }
  return found;
}

/** Shows the scene in a WebXR session. Must be called from a click. */
export async function enterXR(studio: Studio, mode: XRMode, ended: () => void): Promise<XRSession> {
  const session = await navigator.xr!.requestSession(`immersive-${mode}`, {
    requiredFeatures: ["local-floor"],
    optionalFeatures: ["hand-tracking"],
  });
  session.addEventListener("end", () => {
    studio.enterXR(undefined);
    ended();
  });
  studio.enterXR(mode);
  try {
    await studio.renderer.xr.setSession(session);
  } catch (e) {
    await session.end().catch(() => undefined); // nothing would be drawn in it
    throw e;
  }
  return session;
}
