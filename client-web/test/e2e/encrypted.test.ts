/** An encrypted session: capture-server, relay, viewer, recording and replay. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Fixture, message } from "./fixture.ts";
import { shows, stats, until } from "./lab.ts";

const fixture = new Fixture();
const { lab } = fixture;

describe("an encrypted session", () => {
  const dir = mkdtempSync(join(tmpdir(), "holocast-e2e-"));
  const file = join(dir, "session.key");
  const keyText = (): string =>
    readFileSync(file, "utf8")
      .split("\n")
      .filter((line) => /^[0-9]/.test(line))
      .map((line) => line.replace(" ", "."))
      .join(",");

  beforeAll(() => lab.run("holocast", "key", file));
  afterAll(() => rmSync(dir, { recursive: true }));

  const opened = async (page: Parameters<typeof stats>[0]): Promise<number> => (await stats(page)).encryption!.opened;

  it("is shown with the key in the link, through a rotation, and replays from a recording", async () => {
    const p = await lab.performer(fixture.port, "secret", "--fps", "5", "--e2e-key", file, "--audio", "synthetic");
    fixture.open.push(p);
    const link = lab.link(fixture.port, "secret");
    const first = keyText();
    lab.run("holocast", "key", file, "--rotate");

    const page = await fixture.view(`${link}#e2e=${keyText()}`);
    await shows(page, 1);
    expect(page.url()).not.toContain("e2e");
    expect((await stats(page)).encryption!.refused).toEqual({
      unencrypted: 0, "unknown key": 0, forged: 0, replayed: 0, malformed: 0,
    });

    const none = await fixture.view(link);
    await message(none, /cannot open the session[\s\S]*encrypted, and the link has no key/);
    const wrong = await fixture.view(`${link}#e2e=1.AAECAwQFBgcICQoLDA0ODw`);
    await message(wrong, /cannot be decrypted: the link has another key 1/);
    const damaged = await fixture.view(`${link}#e2e=1.AAEC`);
    await message(damaged, /The key in the link is damaged/);
    for (const done of [none, wrong, damaged]) await done.close();

    const recording = join(dir, "secret.mcap");
    lab.run("holocast", "record", `moqt://127.0.0.1:${fixture.port}/secret`, recording, "--duration", "2s");

    const old = await fixture.view(`${link}#e2e=${first}`);
    await shows(old, 1);
    p.signal("SIGHUP");
    await p.says(/configuration reloaded/);
    const before = await opened(page);
    await until("frames after the rotation", async () => (await opened(page)) > before + 30);
    expect(Object.values((await stats(page)).encryption!.refused)).toEqual([0, 0, 0, 0, 0]);
    await message(old, /encrypted with key 2, which the link lacks/);
    expect((await stats(old)).encryption!.refused["unknown key"]).toBeGreaterThan(5);
    await old.close();
    const late = await fixture.view(`${link}#e2e=${first}`);
    await message(late, /encrypted with key 2, which the link lacks/);
    for (const done of [page, late]) await done.close();
    await p.stop();

    fixture.open.push(lab.replay(fixture.port, "again", recording));
    const replayed = await fixture.view(`${lab.link(fixture.port, "again")}#e2e=${first}`);
    await shows(replayed, 1);
    await until("a second pass", async () => (await stats(replayed)).frames_received > 25);
    expect((await stats(replayed)).encryption!.refused.forged).toBe(0);
    expect(lab.errors).toEqual([]);
  });

  it("is shown with points in datagrams", async () => {
    fixture.open.push(
      await lab.performer(fixture.port, "parts", "--fps", "2", "--e2e-key", file, "--delivery", "datagram"),
    );
    const page = await fixture.view(`${lab.link(fixture.port, "parts")}#e2e=${keyText()}`);
    await shows(page, 1);
    expect((await stats(page)).encryption!.refused.forged).toBe(0);
  });

  it("is refused if it is not encrypted although the link has a key", async () => {
    await fixture.publisher("open");
    const page = await fixture.view(`${lab.link(fixture.port, "open")}#e2e=${keyText()}`);
    await message(page, /not encrypted, although the link has a key/);
  });
});
