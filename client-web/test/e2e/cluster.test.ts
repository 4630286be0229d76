/** A session at several relays. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Fixture, small } from "./fixture.ts";
import { freePort, shows, stats, until, type Program } from "./lab.ts";

const fixture = new Fixture();
const { lab, open } = fixture;

describe("a cluster of relays", () => {
  const dir = mkdtempSync(join(tmpdir(), "holocast-cluster-"));
  const secret = join(dir, "cluster.key");
  let seed: number;

  beforeAll(async () => {
    lab.run("relay", "key", secret, "--algorithm", "HS256");
    seed = await freePort();
  });
  afterAll(() => rmSync(dir, { recursive: true }));

  const relay = async (listen: string): Promise<{ port: number; p: Program }> => {
    const port = await freePort();
    const p = await lab.relay(port, "--cluster", "test", "--cluster-secret", secret, "--cluster-listen", listen,
      "--cluster-join", `127.0.0.1:${seed}`);
    open.push(p);
    return { port, p };
  };

  it("continues at another relay when one is killed, and when one is drained", async () => {
    const a = await relay(`127.0.0.1:${seed}`);
    const b = await relay("127.0.0.1:0");
    const c = await relay("127.0.0.1:0");
    const publisher = await lab.publisher(a.port, "cluster", ...small);
    open.push(publisher);
    const page = await fixture.view(lab.link(b.port, "cluster"));
    await shows(page, 3);
    await b.p.stop("SIGKILL");
    const moved = await until("a move", async () => {
      const s = await stats(page);
      return s.reconnects > 0 ? s : undefined;
    });
    const after = await shows(page, moved.frames + 5);
    expect(after.phase).toBe("live");

    // The viewer and the publisher are at one or two of the relays a and c. Draining c moves only the viewer.
    const d = await relay("127.0.0.1:0");
    const drained = lab.program("relay", "drain", "--listen", `127.0.0.1:${c.port}`);
    await until("the end of the drained relay", async () => !c.p.running);
    expect(drained.output).toMatch(/sessions moved/);
    const last = await stats(page);
    await shows(page, last.frames + 5);
    await d.p.stop("SIGKILL");
    await shows(page, (await stats(page)).frames + 5);
  });
});
