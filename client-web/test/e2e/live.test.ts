/** The relay's live page. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { Fixture, small } from "./fixture.ts";
import { freePort, shows, until } from "./lab.ts";

const fixture = new Fixture();
const { lab, open } = fixture;

describe("the live page", () => {
  const dir = mkdtempSync(join(tmpdir(), "holocast-live-"));
  afterAll(() => rmSync(dir, { recursive: true }));

  it("asks for the token, and shows the cluster as a map, tracks, sessions and viewers", async () => {
    const [secret, tokens] = [join(dir, "cluster.key"), join(dir, "admin.token")];
    const token = "0123456789abcdef0123";
    writeFileSync(tokens, token, { mode: 0o600 });
    lab.run("relay", "key", secret, "--algorithm", "HS256");
    const seed = await freePort();
    const relay = async (region: string, listen: string): Promise<number> => {
      const port = await freePort();
      open.push(await lab.relay(port, "--cluster", "test", "--cluster-secret", secret, "--cluster-listen", listen,
        "--cluster-join", `127.0.0.1:${seed}`, "--cluster-region", region, "--admin-token", tokens));
      return port;
    };
    const first = await relay("near", `127.0.0.1:${seed}`);
    const second = await relay("far", "127.0.0.1:0");
    open.push(await lab.publisher(first, "live", ...small));
    const viewer = await fixture.view(lab.link(second, "live"));
    await shows(viewer, 2);

    const page = await lab.page();
    open.push(page);
    const failures: string[] = [];
    page.on("pageerror", (e) => failures.push(e.message));
    await page.goto(`http://127.0.0.1:${second}/live/`);
    await page.locator("#token").fill("wrong, but long enough");
    await page.locator("#login button").click();
    await until("the refusal", async () => /token is not in/.test(await page.locator("#state").innerText()));
    await page.locator("#token").fill(token);
    await page.locator("#login button").click();

    await until("a link that carries tracks", async () => (await page.locator("#map .link:not(.idle)").count()) === 1);
    expect(await page.locator("#map .region").count()).toBe(2);
    expect(await page.locator("#map .relay").count()).toBe(2);
    expect(await page.locator("#map .relay.self").count()).toBe(1);
    const labels = await page.locator("#map .label").allTextContents(); // one or both directions
    expect(labels.length).toBeGreaterThan(0);
    for (const text of labels) expect(text).toMatch(/\d+ tracks? · [\d.]+ ms/);
    expect(await page.locator("#relays tr").count()).toBe(2);
    expect(await page.locator("#sessions").innerText()).toMatch(/holocast\/live/);
    expect(await page.locator("#tracks").innerText()).toMatch(/points\/0\//);
    expect(await page.locator("#viewers").innerText()).toMatch(/webtransport/);
    expect(await page.locator("#state").innerText()).toMatch(/1 session, 1 client \(1 viewer\)/);
    expect(failures).toEqual([]);
  });
});
