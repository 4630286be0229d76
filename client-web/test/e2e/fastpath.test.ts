/**
 * Sessions through the relay's kernel fast path, where the browser must accept packets that the
 * relay's QUIC library did not create.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freePort, Lab, metric, shows, stats, until } from "./lab.ts";

const lab = new Lab();
/** Minimum duration; set it for a longer run by hand. */
const seconds = Number(process.env["FASTPATH_SECONDS"] ?? 0);

beforeAll(() => lab.open());
afterAll(() => lab.close());

describe.skipIf(process.getuid!() !== 0)("the kernel fast path", () => {
  it("keeps a session over a path that drops, duplicates and reorders packets and changes addresses", async () => {
    const [port, path] = [await freePort(), await freePort()];
    const relay = await lab.relay(port, "--http", `127.0.0.1:${path}`, "--fastpath", "chacha20");
    await lab.rough(path, port);
    const hash = (await (await fetch(`http://127.0.0.1:${path}/certificate.sha256`)).text()).trim();
    await lab.performer(port, "rough", "--certificate-hash", hash, "--fps", "10", "--delivery", "datagram");
    const page = await lab.page();
    await page.goto(lab.link(path, "rough"));
    const counts = async () => {
      const of = (name: string) => metric(path, `holocast_relay_fastpath_${name}_total`);
      return {
        forwarded: await of("forwarded_packets"),
        lost: await of("lost_packets"),
        moves: await of("migrated_viewers"),
      };
    };
    const { frames } = await shows(page);
    const end = Date.now() + 1000 * seconds;
    let c = await counts();
    const all = await until("packets forwarded and lost by the kernel, and address changes", async () => {
      c = await counts();
      return Date.now() >= end && c.forwarded > 50 && c.lost > 0 && c.moves > 1 ? c : undefined;
    }).catch((e: unknown) => {
      throw new Error(`${String(e)}: ${JSON.stringify(c)}`, { cause: e });
    });
    const s = await stats(page);
    console.log(JSON.stringify({ ...all, frames: s.frames, parts: s.parts, reconnects: s.reconnects }));
    await shows(page, Math.max(s.frames, frames) + 3);
    expect(s.reconnects).toBe(0);
    expect(relay.output.match(/msg="session closed".*/g)).toBeNull();
    await page.close();
    const closed = await until("end of the session", async () => /msg="session closed".*/.exec(relay.output)?.[0]);
    expect(closed).not.toMatch(/PROTOCOL|CRYPTO|INTERNAL|FRAME_ENCODING/);
  });
});
