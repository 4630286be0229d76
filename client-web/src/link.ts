/** What a link names: ?relay=https://HOST:4443&session=demo. */
export interface Link {
  /** The relay's URL; without one in the link, port 4443 of the host that serves the page. */
  readonly relay: string;
  /** undefined: show what there is. */
  readonly session: string | undefined;
  /** SHA-256 of the relay's certificate in hex, the only one to be trusted then. */
  readonly certificate: string | undefined;
  readonly receipts: boolean;
  /** A quality by name, or "auto". */
  readonly quality: string;
}

const DEFAULT_PORT = 4443;

export function parseLink(location: { readonly href: string; readonly hostname: string }): Link {
  const q = new URL(location.href).searchParams;
  const fallback = `https://${location.hostname || "localhost"}:${DEFAULT_PORT}/`;
  let relay = fallback;
  const named = q.get("relay");
  if (named) {
    try {
      const u = new URL(named.includes("://") ? named : `https://${named}`);
      if (u.protocol === "moqt:") u.href = u.href.replace(/^moqt:/, "https:");
      if (u.protocol === "https:") relay = u.href;
    } catch {
      // Not a URL: the default, whose message names it.
    }
  }
  return {
    relay,
    session: q.get("session") || undefined,
    certificate: q.get("certificate") || undefined,
    receipts: q.get("receipts") !== "off",
    quality: q.get("quality") || "auto",
  };
}
