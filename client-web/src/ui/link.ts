import type { WatchOptions } from "../media/session/messages.ts";

/**
 * Parses a link: ?relay=https://HOST:4443&session=demo#token=TOKEN&e2e=KEYS. The relay defaults to
 * port 4443 of the host that serves the page. Token and keys are in the fragment, which browsers do
 * not send.
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
  const secrets = new URLSearchParams(here.hash.slice(1));
  return {
    relay,
    session: q.get("session") || undefined,
    certificate: q.get("certificate") || undefined,
    token: secrets.get("token") || undefined,
    keys: secrets.get("e2e") || undefined,
    receipts: q.get("receipts") !== "off",
    quality: q.get("quality") || "auto",
    transport: transport === "quic" || transport === "tcp" ? transport : "auto",
    rate: Number(q.get("rate")) > 0 ? 1e6 * Number(q.get("rate")) : Infinity,
  };
}

/** Returns an address without the keys, for the address bar and the history. */
export function withoutKeys(href: string): string {
  const u = new URL(href);
  const secrets = new URLSearchParams(u.hash.slice(1));
  if (!secrets.has("e2e")) return href;
  secrets.delete("e2e");
  u.hash = secrets.toString();
  return u.href;
}
