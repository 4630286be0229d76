import type { Link } from "./link.ts";
import type { Phase } from "../media/session/messages.ts";

/** A name of whatever script, whose direction does not move the words beside it. */
export const name = (text: string): string => `\u2068${text}\u2069`;

/** What a person is told in each phase; undefined where the picture speaks. */
export function messageFor(phase: Phase, detail: string, link: Link, hasPicture: boolean): { title: string; advice: string } | undefined {
  const host = name(new URL(link.relay).host);
  const session = name(link.session ?? "");
  switch (phase) {
    case "connecting":
      return { title: "Connecting…", advice: `to the relay at ${host}` };
    case "no-webtransport":
      return {
        title: "This browser has no WebTransport",
        advice: "Open the link in a current Chrome, Edge, Firefox or Safari. A page that is not from this machine needs https.",
      };
    case "unreachable":
      return { title: "Relay unreachable", advice: `${detail} Trying again. Is the relay running, and does the link name it rightly?` };
    case "certificate":
      return { title: "Certificate refused", advice: `${detail} Ask whoever sent the link for a new one. Trying again.` };
    case "refused":
      return { title: "The relay does not serve this", advice: detail };
    case "lost":
      return { title: "Connection lost", advice: `Trying again. ${detail}` };
    case "waiting":
      return { title: "Nothing published yet", advice: `Session “${session}” at ${host} has no cameras so far. It will show here when it begins.` };
    case "silent":
      return { title: "The publisher is silent", advice: `“${session}” is published at ${host}, but no frame has come for some seconds. It goes on here when one does.` };
    case "ended":
      return { title: "Session ended", advice: `Nobody publishes “${session}” any more. It will show here if it begins again.` };
    case "live":
      return hasPicture ? undefined : { title: "Connecting…", advice: "waiting for the first frame" };
    case "listing":
      return undefined;
  }
}

/** Says in place of the page that there is none: without WebGL 2 nothing can be drawn. */
export function showFailure(e: unknown): void {
  const message = document.querySelector<HTMLElement>("#message")!;
  for (const part of document.querySelectorAll<HTMLElement>("#stats, #bottom")) part.hidden = true;
  message.querySelector("h1")!.textContent = "The viewer cannot start";
  message.querySelector("p")!.textContent =
    `${e instanceof Error ? e.message : String(e)} It needs WebGL 2, which this browser may have turned off, and the whole page: try to load it again.`;
  message.hidden = false;
}
