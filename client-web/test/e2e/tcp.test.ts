/** Sessions over TCP: a WebSocket in the place of WebTransport. */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Cinema, sharp } from "./cinema.ts";
import { message, notice, reliable, small } from "./fixture.ts";
import { freePort, metrics, repo, shows, stats, until } from "./lab.ts";

const cinema = new Cinema();
const { lab, open } = cinema;

const overTCP = "&transport=tcp";

/** A copy of the built viewer for browsers without WebTransport. */
const without = mkdtempSync(join(tmpdir(), "holocast-without-"));
beforeAll(() => {
  cpSync(process.env["DIST"] ?? join(repo, "client-web/dist"), without, { recursive: true });
  for (const name of readdirSync(without, { recursive: true }) as string[]) {
    if (!/network\.worker.*\.js$/.test(name)) continue;
    const file = join(without, name);
    writeFileSync(file, `delete globalThis.WebTransport;\n${readFileSync(file, "utf8")}`);
  }
});
afterAll(() => rmSync(without, { recursive: true, force: true }));

/** Forwards TCP connections to a port, from another one at which nothing answers over UDP. */
async function forward(to: number): Promise<{ port: number; server: Server }> {
  const server = createServer((from) => {
    const onward = connect(to, "127.0.0.1");
    from.pipe(onward).pipe(from);
    for (const end of [from, onward]) end.on("error", () => [from, onward].forEach((s) => s.destroy()));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { port: (server.address() as AddressInfo).port, server };
}

/** The relay's number of sessions over WebSockets. */
async function socketSessions(port: number): Promise<number> {
  const text = await metrics(port);
  return Number(/holocast_relay_sessions\{transport="websocket"\} (\d+)/.exec(text)?.[1]);
}

it("is used by a browser without WebTransport", async () => {
  const port = await freePort();
  open.push(await lab.relay(port, "--web", without));
  open.push(await lab.publisher(port, "without", ...small, ...reliable));
  const link = `http://127.0.0.1:${port}/?relay=https://127.0.0.1:${port}/&session=without`;
  const page = await cinema.view(link);
  await notice(page, /Connected over TCP, because this browser/);
  const s = await shows(page, 5);
  expect(s.transport).toBe("tcp");
  expect(s.rtt_ms).toBeGreaterThan(0);
  expect(await socketSessions(port)).toBe(1);
  // QUIC alone fails there.
  await message(await cinema.view(`${link}&transport=quic`), /no WebTransport/);
});

it("is used where the relay does not answer over UDP", async () => {
  const { port, server } = await forward(cinema.port);
  await cinema.publisher("blocked", ...small, ...reliable);
  const page = await cinema.view(lab.link(port, "blocked", "&transport=auto"));
  await notice(page, /Connected over TCP, because the relay does not answer over UDP/);
  expect((await shows(page, 5)).transport).toBe("tcp");
  await page.close();
  server.close();
});

it("is not used otherwise", async () => {
  await cinema.publisher("quic", ...small, ...reliable);
  const page = await cinema.view(lab.link(cinema.port, "quic"));
  expect((await shows(page, 2)).transport).toBe("quic");
});

// A busy machine is a slow path, over which datagrams get lost.
const points: [string, number, ...string[]][] = [
  ["in four descriptions", 0, "--descriptions", "4"],
  ["in datagrams", Infinity, "--layout", "a", "--datagrams", "0"],
];
it.each(points)("shows points %s, with sound", async (name, mayLose, ...args) => {
  await cinema.publisher(name, ...small, ...reliable, ...args, "--sound", "stream");
  const page = await cinema.view(lab.link(cinema.port, name, overTCP));
  const s = await shows(page, 20);
  expect([s.transport, s.streams_malformed]).toEqual(["tcp", 0]);
  expect(s.frames_lost).toBeLessThanOrEqual(mayLose);
  await page.locator("body").press("m");
  await until("sound", async () => ((await stats(page)).sound?.packets_played ?? 0) > 50);
});

it("shows 360° video", async () => {
  await cinema.publish("cinema", cinema.mono.file);
  const page = await cinema.watch("cinema", overTCP);
  await sharp(page);
  expect((await stats(page)).transport).toBe("tcp");
});

it("seeks in a replay", async () => {
  const size = ["--width", "276", "--height", "248", "--fps", "10", "--frames", "60"];
  lab.replay(cinema.port, "again", lab.recording("take.mcap", ...size));
  const page = await cinema.view(lab.link(cinema.port, "again", overTCP));
  await shows(page, 3);
  await until("the playback bar", () => page.locator("#playback").isVisible());
  await page.locator("#position").fill("3000");
  await until("the position", async () => {
    const { playback } = await stats(page);
    return playback?.live === false && !playback.waiting && playback.position_ms >= 3000;
  });
});

it("returns after a restart of the relay", async () => {
  const port = await freePort();
  const relay = await lab.relay(port);
  open.push(await lab.publisher(port, "restart", ...small, ...reliable));
  const page = await cinema.view(lab.link(port, "restart", overTCP));
  const before = await shows(page, 3);
  await relay.stop();
  open.push(await lab.relay(port)); // the publisher connects again, too
  await until("frames again", async () => {
    const s = await stats(page);
    return s.reconnects > 0 && s.frames > before.frames + 3;
  });
  expect((await stats(page)).transport).toBe("tcp");
});
