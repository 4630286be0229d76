import type { Link } from "./link.ts";
import type { Phase } from "./live/protocol.ts";

/** What a person is told in each phase; undefined where the picture speaks. */
export function messageFor(phase: Phase, detail: string, link: Link, hasPicture: boolean): { title: string; advice: string } | undefined {
  const host = new URL(link.relay).host;
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
      return { title: "Nothing published yet", advice: `Session “${link.session ?? ""}” at ${host} has no cameras so far. It will show here when it begins.` };
    case "silent":
      return { title: "The publisher is silent", advice: `“${link.session ?? ""}” is published at ${host}, but no frame has come for some seconds. It goes on here when one does.` };
    case "ended":
      return { title: "Session ended", advice: `Nobody publishes “${link.session ?? ""}” any more. It will show here if it begins again.` };
    case "live":
      return hasPicture ? undefined : { title: "Connecting…", advice: "waiting for the first frame" };
    case "listing":
      return undefined;
  }
}
