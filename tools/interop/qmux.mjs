/**
 * Views a session through our relay with @moq/qmux in the place of WebTransport, under the web
 * viewer's MOQT, while a second viewer uses our own QMux. Both must receive the same bytes. Then
 * publishes with @moq/net, moq-dev's client, and views with it and with ours. Prints a line of TAP
 * without a number for each check.
 *
 *   node --experimental-websocket qmux.mjs PACKAGES PORT STREAMS DATAGRAMS
 *
 * PACKAGES is the folder of moq-dev's packages; STREAMS and DATAGRAMS are sessions in which a capture
 * server sends frames on streams and as datagrams.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const root = resolve(import.meta.dirname, "../../client-web");
const [packages, port, streams, datagrams] = process.argv.slice(2);

const { createServer } = await import(pathToFileURL(join(root, "node_modules/vite/dist/node/index.js")).href);
const vite = await createServer({
  root, configFile: false, appType: "custom", logLevel: "error", cacheDir: join(packages, ".vite"),
  server: { middlewareMode: true, hmr: false, ws: false, watch: null }, optimizeDeps: { noDiscovery: true },
});
const { Session } = await vite.ssrLoadModule("/src/moqt/session.ts");

// Node 20 lacks it.
Promise.withResolvers ??= () => {
  const r = {};
  r.promise = new Promise((resolve, reject) => Object.assign(r, { resolve, reject }));
  return r;
};
Set.prototype.difference ??= function (other) {
  return new Set([...this].filter((x) => !other.has(x)));
};
console.warn = console.debug = () => {}; // @moq/net logs each request
const load = (name) => import(pathToFileURL(join(packages, name, "index.js")).href);
const versionOf = (name) => JSON.parse(readFileSync(join(packages, name, "package.json"), "utf8")).version;
const { default: Theirs } = await load("qmux");
const Moq = await load("net");
const version = versionOf("qmux");
/** The QMux draft of the next session over their library. */
let draft = "qmux-02";
globalThis.WebTransport = class extends Theirs {
  constructor(url, o) {
    const versions = Object.fromEntries(o.protocols.map((p) => [p, draft]));
    super(url, { ...o, versions, requireProtocol: true, requireUnreliable: false });
  }
};

const digest = (b) => createHash("sha256").update(b).digest("hex");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const until = async (what, f) => {
  for (const end = Date.now() + 45_000; !(await f()); await sleep(50)) {
    if (Date.now() > end) throw new Error(`${what} did not happen`);
  }
};

/** Collects the digests of a track's objects, or refuses the streams of every other group. */
class Sink {
  maxObject = 4 << 20;
  got = new Map();
  bytes = 0;
  cuts = 0;
  refusing = false;

  accept(h) {
    return !this.refusing || h.group % 2n === 0n;
  }
  object(o) {
    this.bytes += o.payload.length;
    this.got.set(`${o.group}/${o.id}`, digest(o.payload));
  }
  datagram(d) {
    this.bytes += d.payload.length;
    this.got.set(`${d.group}/${d.object}`, digest(d.payload));
  }
  cut() {
    this.cuts++;
  }
  /** The number of objects that another sink has received too. Throws if one differs. */
  common(other) {
    let n = 0;
    for (const [key, hash] of this.got) {
      if (!other.got.has(key)) continue;
      if (other.got.get(key) !== hash) throw new Error(`object ${key} differs`);
      n++;
    }
    return n;
  }
}

/** Opens a session and subscribes to the points of the first camera. */
async function view(url, session, moqt) {
  const s = await Session.connect(`${url}/${session}`, { protocols: [moqt] });
  const sink = new Sink();
  const points = { namespace: ["holocast", session], name: "points/0/full" };
  await s.subscribe(points, sink, { filter: "largestObject", rendezvousTimeout: 30_000 });
  return { s, sink };
}

async function check(name, f) {
  try {
    console.log(`ok ${name}: ${await f()}`);
  } catch (e) {
    console.log(`not ok ${name}: ${e?.message ?? e}`);
  }
}

/** Views a session over their QMux and over ours, and calls f with both. */
async function both(session, moqt, f) {
  const open = [await view(`http://127.0.0.1:${port}`, session, moqt)];
  try {
    open.push(await view(`ws://127.0.0.1:${port}`, session, moqt));
    const [theirs, ours] = open;
    if (theirs.s.tcp || !ours.s.tcp) throw new Error("the sessions use the wrong transports");
    return await f(theirs, ours);
  } finally {
    for (const { s } of open) s.close();
  }
}

for (const moqt of ["moqt-18", "moqt-20", "moqt-22"]) {
  for (draft of ["qmux-02", "qmux-01"]) {
    await check(`${draft}.${moqt}: @moq/qmux ${version} through our relay`, () =>
      both(streams, moqt, async (theirs, ours) => {
        // Several times their window of 1 MiB.
        await until("3 MB over theirs", () => theirs.sink.bytes > 3e6);
        await until("20 frames over both", () => theirs.sink.common(ours.sink) >= 20);
        return `${theirs.sink.common(ours.sink)} frames, bytes as over our QMux`;
      }),
    );
  }
}
draft = "qmux-02";
await check("@moq/qmux refuses streams", () =>
  both(streams, "moqt-22", async ({ s, sink }) => {
    sink.refusing = true;
    await until("10 refused streams", () => s.counters.streamsRefused >= 10);
    sink.refusing = false;
    const { size } = sink.got;
    await until("10 frames afterwards", () => sink.got.size >= size + 10);
    return `${s.counters.streamsRefused} refused, ${sink.got.size} frames received`;
  }),
);
await check("@moq/qmux receives datagrams", () =>
  both(datagrams, "moqt-22", async (theirs, ours) => {
    await until("500 datagrams over both", () => theirs.sink.common(ours.sink) >= 500);
    return `${theirs.sink.common(ours.sink)} objects, bytes as over our QMux`;
  }),
);
await check("our relay refuses @moq/qmux's oldest draft", async () => {
  draft = "qmux-00";
  const refused = await Session.connect(`http://127.0.0.1:${port}/${streams}`).then(
    (s) => s.close(),
    (e) => e,
  );
  if (!refused) throw new Error("it accepted a session");
  return refused.message;
});

/** Publishes a frame of 40 kB every 50 ms with @moq/net to all who ask. Digests go to sent. */
async function publish(connection, path, sent) {
  const broadcast = new Moq.Broadcast.Producer();
  connection.publish(Moq.Path.from(path), broadcast);
  const request = await broadcast.requested();
  const track = request.accept();
  // Its LARGEST_OBJECT differs from the drafts' (docs/development.md). SUBSCRIBE_OK has none before the first frame.
  await sleep(1000);
  for (let n = 0; track.closed.peek() === undefined; n++) {
    const payload = new Uint8Array(40_000).map((_, i) => (i * (n + 1)) >> 3);
    sent.set(digest(payload), n);
    track.writeFrame({ payload, timestamp: Moq.Time.Timestamp.now() });
    await sleep(50);
  }
}

await check(`@moq/net ${versionOf("net")} publishes, and views through our relay`, async () => {
  const url = new URL(`http://127.0.0.1:${port}/`);
  const sent = new Map();
  const publisher = await Moq.Connection.connect(url);
  const viewer = await Moq.Connection.connect(url);
  publish(publisher, "holocast/net", sent).catch((e) => console.log(`# ${e}`));
  const announced = viewer.announced(Moq.Path.from("holocast"));
  await until("the announcement", async () => (await announced.next())?.path === "net");
  const track = viewer.consume(Moq.Path.from("holocast/net")).subscribe("points/0/full");
  const next = async () => {
    const { payload } = await (await track.recvGroup()).readFrame();
    if (!sent.has(digest(payload))) throw new Error("a frame differs");
  };
  for (let n = 0; n < 20; n++) await Promise.race([next(), sleep(20_000).then(() => Promise.reject("no frame"))]);
  // Our viewer joins.
  const ours = await view(`ws://127.0.0.1:${port}`, "net", "moqt-22");
  await until("20 frames", () => ours.sink.got.size >= 20);
  for (const hash of ours.sink.got.values()) if (!sent.has(hash)) throw new Error("a frame for our viewer differs");
  ours.s.close();
  publisher.close();
  viewer.close();
  return `${publisher.version}; 20 frames to it, ${ours.sink.got.size} to our viewer over moqt-22, bytes as sent`;
});
await vite.close();
process.exit(0);
