/** Time without input after which controls hide, ms. */
const QUIET = 3000;

/**
 * Hides controls over a picture while the user does nothing and `may` returns true. Returns a function that
 * shows them again, as input does.
 */
export function hideWhenIdle(controls: HTMLElement, may: () => boolean): () => void {
  let resting: ReturnType<typeof setTimeout> | undefined;
  const stir = (): void => {
    controls.classList.remove("quiet");
    clearTimeout(resting);
    resting = setTimeout(rest, QUIET);
  };
  const rest = (): void => {
    const used =
      controls.querySelector(":focus-visible") !== null ||
      (matchMedia("(hover: hover)").matches && controls.querySelector(".panel:hover") !== null);
    if (used || !may()) stir();
    else controls.classList.add("quiet");
  };
  for (const type of ["pointermove", "pointerdown", "wheel", "keydown", "focusin"])
    addEventListener(type, stir, { capture: true, passive: true });
  stir();
  return stir;
}
