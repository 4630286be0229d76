const UPDATE_INTERVAL = 2000;

/** Keeps the screen on while something is watched, if the browser supports it. */
export function keepAwake(watching: () => boolean): void {
  if (!("wakeLock" in navigator)) return;
  let lock: WakeLockSentinel | undefined;
  let asking = false;
  const update = async (): Promise<void> => {
    const wanted = document.visibilityState === "visible" && watching();
    if (asking || wanted === (lock?.released === false)) return;
    asking = true;
    try {
      if (wanted) lock = await navigator.wakeLock.request();
      else await lock?.release();
    } catch {
      // Refused, for example to save battery. A later request may succeed.
    }
    asking = false;
  };
  setInterval(() => void update(), UPDATE_INTERVAL);
  document.addEventListener("visibilitychange", () => void update()); // a hidden page loses its lock
}
