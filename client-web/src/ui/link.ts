import type { WatchOptions } from "../media/session/messages.ts";

/**
 * Parses a link: ?relay=https://HOST:4443&session=demo#token=TOKEN. The relay defaults to port 4443
 * of the host that serves the page. The token is in the fragment, which browsers do not send.
 */
export type Link = WatchOptions;

const DEFAULT_PORT = 4443;

export function parseLink(location: { readonly href: string; readonly hostname: string }): Link {
  const here = new URL(location.href);
  const q = here.searchParams;
  const fallback = `https://${location.hostname || "localhost"}:${DEFAULT_PORT}/`;
  let relay = fallback;
  const named = q.get("relay");
  if (named) {
    try {
      const u = new URL(named.includes("://") ? named : `https://${named}`);
      if (u.protocol === "moqt:") u.href = u.href.replace(/^moqt:/, "https:");
      if (u.protocol === "https:") relay = u.href;
    } catch {
      // Not a URL. Use the default relay, which the messages name.
    }
  }
  const transport = q.get("transport");
  return {
    relay,
    session: q.get("session") || undefined,
    certificate: q.get("certificate") || undefined,
    token: new URLSearchParams(here.hash.slice(1)).get("token") || undefined,
    receipts: q.get("receipts") !== "off",
    quality: q.get("quality") || "auto",
    transport: transport === "quic" || transport === "tcp" ? transport : "auto",
    rate: Number(q.get("rate")) > 0 ? 1e6 * Number(q.get("rate")) : Infinity,
  };
}
