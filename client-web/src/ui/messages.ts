import type { Link } from "./link.ts";
import type { Phase, TCPReason } from "../media/session/messages.ts";

/**
 * Wraps a name in Unicode isolates, since a right-to-left name would otherwise reorder the words
 * around it.
 */
export const name = (text: string): string => `\u2068${text}\u2069`;

/** Notice when sound appears. Browsers play none before a click. */
export const MUTED = "This session has sound. Select Sound or press M to hear it.";

/** Notice of a session over TCP, with its reason and cost. */
export function tcpNotice(why: Exclude<TCPReason, "link">): string {
  const reason = {
    browser: "because this browser has no WebTransport that lasts",
    network: "because the relay does not answer over UDP in this network",
  }[why];
  return `Connected over TCP, ${reason}. When the network loses packets, the picture stops for a moment.`;
}

/** The message for a phase; undefined while there is a picture. */
export function messageFor(
  phase: Phase,
  detail: string,
  link: Link,
  hasPicture: boolean,
): { title: string; advice: string } | undefined {
  const host = name(new URL(link.relay).host);
  const session = name(link.session ?? "");
  switch (phase) {
    case "connecting":
      return { title: "Connecting…", advice: `to the relay at ${host}` };
    case "no-webtransport":
      return {
        title: "This browser has no WebTransport",
        advice: "Remove transport=quic from the link, to connect over TCP.",
      };
    case "unreachable":
      return {
        title: "Relay unreachable",
        advice: `${detail} Trying again. Check that the relay is running and that the link names it correctly.`,
      };
    case "certificate":
      return { title: "Certificate refused", advice: `${detail} Ask for a new link. Trying again.` };
    case "refused":
      return { title: "The relay does not serve this", advice: detail };
    case "lost":
      return { title: "Connection lost", advice: `Trying again. ${detail}` };
    case "unplayable":
      return {
        title: "This browser cannot play it",
        advice: `${detail} Open the link in a current Chrome, Edge, Firefox or Safari.`,
      };
    case "encrypted":
      return { title: "This link cannot open the session", advice: detail };
    case "foreign":
      return { title: "Published by another program", advice: `“${session}” at ${host}: ${detail}` };
    case "graphics":
      return {
        title: "No picture",
        advice: "The browser took the graphics processor from this page, as after a driver's crash. " +
          "The page continues by itself if it gets it back; otherwise reload it, or restart the browser.",
      };
    case "waiting":
      return {
        title: "Nothing published yet",
        advice: `Session “${session}” at ${host} has no media yet. It appears here when it starts.`,
      };
    case "silent":
      return {
        title: "The publisher is silent",
        advice: `“${session}” is published at ${host}, but has sent nothing for some seconds. ` +
          "It continues here when it does.",
      };
    case "ended":
      return {
        title: "Session ended",
        advice: `“${session}” is no longer published. It appears here if it starts again.`,
      };
    case "live":
      return hasPicture ? undefined : { title: "Connecting…", advice: "waiting for the first frame" };
    case "listing":
      return undefined;
  }
}

/** Replaces the page with the reason that it cannot start, such as missing WebGL 2. */
export function showFailure(e: unknown): void {
  const message = document.querySelector<HTMLElement>("#message")!;
  for (const part of document.querySelectorAll<HTMLElement>("#stats, #bottom")) part.hidden = true;
  message.querySelector("h1")!.textContent = "The viewer cannot start";
  message.querySelector("p")!.textContent =
    `${e instanceof Error ? e.message : String(e)} It needs WebGL 2, which may be turned off in this browser. ` +
    "Reload the page to try again.";
  message.hidden = false;
}
