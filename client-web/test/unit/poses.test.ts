/**
 * Camera poses corrected during a session. Reception continues, and the view and the subject
 * follow.
 */
import { readFileSync } from "node:fs";
import type { WebGLRenderer } from "three";
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import type { TrackSink } from "../../src/moqt/index.ts";
import { Points } from "../../src/media/points/medium.ts";
import type {
  DecodedFrame,
  FromDecoder,
  FromPoints,
  PageToDecoder,
  ToDecoder,
} from "../../src/media/points/messages.ts";
import { sameTrack, samePose, type CameraTrack, type Transform } from "../../src/media/points/track.ts";
import { parseCatalog } from "../../src/media/session/catalog.ts";
import type { Host } from "../../src/media/session/medium.ts";
import type { Studio } from "../../src/scene/studio.ts";

const origin: Transform = { r: [1, 0, 0, 0, 1, 0, 0, 0, 1], t: [0, 0, 0] };
/** 1.2 m above the floor, 2 m in front of its centre, y up. */
const front: Transform = { r: [1, 0, 0, 0, -1, 0, 0, 0, -1], t: [0, 1200, 2000] };
/** The same, from the right. */
const right: Transform = { r: [0, 0, -1, 0, -1, 0, -1, 0, 0], t: [2000, 1200, 0] };
const grid = { width: 4, height: 2, fx: 500, fy: 500, cx: 2, cy: 1, k: [0, 0, 0, 0, 0, 0], p: [0, 0] };
const track: CameraTrack = {
  track: "points/0/full",
  camera: 0,
  name: "",
  quality: "full",
  layout: "B",
  descriptions: 1,
  maxPoints: 8,
  deliveryTimeout: 0,
  datagrams: false,
  framerate: 30,
  grid,
  pose: origin,
  error: undefined, depthError: undefined,
  bitrate: 0,
  duration: 0,
  timeline: undefined,
};

describe("tracks", () => {
  it.each<[string, Partial<CameraTrack>, boolean]>([
    ["the same", {}, true],
    ["from elsewhere", { pose: front }, true],
    ["with another name", { track: "points/0/low" }, false],
    ["with another lens", { grid: { ...grid, fx: 501 } }, false],
  ])("%s", (_, change, same) => expect(sameTrack(track, { ...track, ...change })).toBe(same));
  it("compare poses by value", () => {
    expect(samePose(origin, { t: [...origin.t], r: [...origin.r] })).toBe(true);
    expect(samePose(origin, front)).toBe(false);
  });
});

describe("a session's point clouds", () => {
  const encoder = new TextEncoder();
  /** A catalog with cameras at the given poses. */
  const catalog = (poses: readonly Transform[], maxPoints = 8, qualities = ["full"]) =>
    parseCatalog(
      encoder.encode(
        JSON.stringify({
          version: "1",
          initDataList: poses.map((pose, i) => ({
            id: `camera-${i}`,
            type: "inline",
            data: btoa(JSON.stringify({ grid, pose, depthMin: 0, depthMax: 9000 })),
          })),
          tracks: [
            ...poses.flatMap((_, i) =>
              qualities.map((quality) => ({
                name: `points/${i}/${quality}`,
                packaging: "hcpf",
                isLive: true,
                initRef: `camera-${i}`,
                framerate: 30,
                hcpf: { camera: i, quality, layout: "B", descriptions: 1, maxPoints },
              })),
            ),
            {
              name: "pose",
              packaging: "eventtimeline",
              eventType: "dev.holocast.pose/v1",
              isLive: true,
              mimeType: "application/json",
              depends: ["points/0/full"],
            },
          ],
        }),
      ),
    );
  const open = () => {
    const toDecoder: ToDecoder[] = [];
    const toPage: FromPoints[] = [];
    const subscribed: string[] = [];
    let cancelled = 0;
    let poses: TrackSink | undefined;
    const session = {
      over: false,
      subscribe: async ({ name }: { name: string }, sink: TrackSink) => {
        subscribed.push(name);
        if (name === "pose") poses = sink;
        return { session, ended: false, done: new Promise(() => {}), cancel: () => void cancelled++ };
      },
    };
    const host = {
      session,
      live: true,
      loops: false,
      rtt: 1,
      track: (name: string) => ({ namespace: [], name }),
      changed: () => {},
    };
    const port = { postMessage: (m: ToDecoder) => void toDecoder.push(m) };
    const points = new Points(
      host as unknown as Host,
      [port as unknown as MessagePort],
      "auto",
      Promise.resolve(true),
      (m) => void toPage.push(m),
    );
    const take = (c: ReturnType<typeof catalog>) => {
      points.prepare(c)();
      points.follow();
      return Promise.resolve();
    };
    const event = (camera: number, pose: Transform) =>
      poses!.object!({
        status: "normal",
        payload: encoder.encode(JSON.stringify([{ T: 1, data: { camera, pose } }])),
      } as never);
    /** A camera's pose as known to the page and to the decoder. */
    const places = (camera: number) => {
      let page: Transform | undefined;
      for (const m of toPage) {
        if (m.type === "cameras") page = m.cameras.find((c) => c.camera === camera)?.pose;
        else if (m.type === "pose" && m.camera === camera) page = m.pose;
      }
      let decoder: Transform | undefined;
      for (const m of toDecoder) {
        if (m.type === "setup" && m.camera.camera === camera) decoder = m.camera.pose;
        else if (m.type === "pose" && m.camera === camera) decoder = m.pose;
      }
      return [page, decoder];
    };
    return { points, toDecoder, subscribed, cancelled: () => cancelled, take, event, places };
  };

  it("continue when a catalog corrects poses", async () => {
    const s = open();
    await s.take(catalog([origin, origin]));
    await s.take(catalog([front, right]));
    expect(s.subscribed.sort()).toEqual(["points/0/full", "points/1/full", "pose"]);
    expect(s.cancelled()).toBe(0);
    expect(s.toDecoder.map((m) => m.type).sort()).toEqual(["pose", "pose", "setup", "setup"]);
    expect([s.places(0), s.places(1)]).toEqual([[front, front], [right, right]]);
  });
  it("are subscribed to again when a catalog changes more than poses", async () => {
    const s = open();
    await s.take(catalog([origin]));
    await s.take(catalog([front], 16));
    expect(s.subscribed.filter((name) => name === "points/0/full")).toHaveLength(2);
    expect(s.cancelled()).toBe(1);
    expect(s.places(0)).toEqual([front, front]);
  });
  it("use the pose of an event until a catalog changes it", async () => {
    const s = open();
    await s.take(catalog([origin]));
    s.event(0, front);
    expect(s.places(0)).toEqual([front, front]);
    await s.take(catalog([origin])); // unchanged
    expect(s.places(0)).toEqual([front, front]);
    await s.take(catalog([right]));
    expect(s.places(0)).toEqual([right, right]);
    s.event(7, front); // an unknown camera
    expect(s.places(7)).toEqual([undefined, undefined]);
  });
  it("keep their pose in another quality", async () => {
    const s = open();
    await s.take(catalog([origin], 8, ["full", "low"]));
    s.event(0, front);
    s.points.take({ type: "quality", quality: "low" });
    expect(s.toDecoder.at(-1)).toMatchObject({ type: "setup", camera: { track: "points/0/low", pose: front } });
    expect(s.places(0)).toEqual([front, front]);
  });
});

describe("the decode worker", () => {
  const testdata = new URL("../../../internal/pointcloud/testdata/", import.meta.url);
  const { valid } = JSON.parse(readFileSync(new URL("manifest.json", testdata), "utf8")) as {
    valid: {
      objects: string[];
      header: { camera: number; layout: string; points: number; width: number; height: number };
    }[];
  };
  const vector = valid.find((v) => v.header.layout === "B" && v.objects.length === 1 && v.header.points > 0)!;
  const { camera } = vector.header;

  it("locates the subject with the current pose", async () => {
    let listen: ((e: { data: PageToDecoder }) => void) | undefined;
    let got: ((f: DecodedFrame) => void) | undefined;
    vi.stubGlobal("location", { href: "http://page.example/" });
    vi.stubGlobal(
      "fetch",
      async (url: URL) =>
        new Response(readFileSync(new URL(`../../src/media/points/${url.pathname.split("/").pop()}`, import.meta.url))),
    );
    vi.stubGlobal("addEventListener", (_: string, f: typeof listen) => (listen = f));
    vi.stubGlobal("postMessage", (m: FromDecoder) => {
      if (m.type === "frame") got!(m);
      else if (m.type === "bad") throw new Error(m.message);
    });
    try {
      await import("../../src/media/points/decode.worker.ts");
      const port = { postMessage: () => {} } as unknown as MessagePort;
      listen!({ data: { network: port } });
      const tell = (m: ToDecoder) => port.onmessage!({ data: m } as MessageEvent<ToDecoder>);
      const decode = () => new Promise<DecodedFrame>((resolve) => {
        got = resolve;
        const objects = vector.objects.map((name) => Uint8Array.from(readFileSync(new URL(name, testdata))));
        tell({ type: "frame", camera, objects, arrived: 0, words: undefined });
      });
      const { width, height, points } = vector.header;
      tell({ type: "setup", camera: { ...track, camera, maxPoints: points, grid: { ...grid, width, height } } });
      const before = (await decode()).subject!;
      expect(before.pose).toEqual(origin);
      expect((await decode()).subject).toBeUndefined(); // not located in every frame
      tell({ type: "pose", camera, pose: { r: origin.r, t: [0, 500, 0] } });
      const after = (await decode()).subject!; // located immediately
      expect(after.middle).toEqual(before.middle);
      expect(after.floor - before.floor).toBeCloseTo(500, 2);
      tell({ type: "pose", camera, pose: after.pose });
      expect((await decode()).subject).toBeUndefined();
      tell({ type: "pose", camera: camera + 1, pose: front });
    } finally {
      vi.unstubAllGlobals();
    }
  });
});

describe("the view", () => {
  let make: () => Studio;
  let presenting = false;

  beforeAll(async () => {
    /** A WebGL context that accepts all calls. */
    const gl = new Proxy({}, { get: () => () => ({}) });
    vi.doMock("three", async (original) => ({
      ...(await original<typeof import("three")>()),
      WebGLRenderer: class implements Partial<Pick<WebGLRenderer, "getContext">> {
        readonly xr = { enabled: false, setReferenceSpaceType: () => {}, get isPresenting() { return presenting; } };
        readonly state = { activeTexture: () => {}, bindTexture: () => {}, pixelStorei: () => {} };
        getContext = () => gl as WebGL2RenderingContext;
      },
    }));
    vi.stubGlobal("addEventListener", () => {});
    const { Studio } = await import("../../src/scene/studio.ts");
    const canvas = () =>
      Object.assign(new EventTarget(), {
        style: {},
        ownerDocument: new EventTarget(),
        getRootNode: () => new EventTarget(),
      }) as unknown as HTMLCanvasElement;
    make = () => new Studio(canvas());
  });
  beforeEach(() => void (presenting = false));
  afterAll(() => {
    vi.doUnmock("three");
    vi.unstubAllGlobals();
  });

  /** A studio with a camera whose subject is 2 m in front of it. */
  const studio = () => {
    const s = make();
    s.setCameras([track]);
    const upload = (pose: Transform, floor = 0) =>
      s.upload(0, new Uint32Array(3), 1, { middle: [0, 0, 2000], spacing: 0, floor, pose });
    const sees = (eye: number[], target: number[]) => {
      for (const [i, v] of [...s.view.eye, ...s.view.target].entries())
        expect(v).toBeCloseTo([...eye, ...target][i]!, 3);
    };
    return { s, upload, sees };
  };
  const atOrigin: [number[], number[]] = [[0, 0, 0], [0, 0, -2]];
  const fromFront: [number[], number[]] = [[0, 1.2, 2], [0, 1.2, 0]];
  const fromRight: [number[], number[]] = [[2, 1.2, 0], [0, 1.2, 0]];

  it.each<[string, (s: Studio, pose: Transform) => void]>([
    ["an event", (s, pose) => s.setPose(0, pose)],
    ["a catalog", (s, pose) => s.setCameras([{ ...track, pose }])],
    ["a catalog with another track", (s, pose) => s.setCameras([{ ...track, track: "points/0/low", pose }])],
  ])("is framed again when %s corrects the camera's pose", (_, correct) => {
    const { s, upload, sees } = studio();
    upload(origin);
    sees(...atOrigin);
    correct(s, front);
    upload(origin, 999); // decoded before the correction
    sees(...atOrigin);
    upload(front);
    sees(...fromFront);
    correct(s, right);
    upload(right);
    sees(...fromRight);
    correct(s, right); // the same pose
    s.lookAt([1, 1, 1], [0, 0, 0]);
    upload(right);
    sees([1, 1, 1], [0, 0, 0]);
  });
  it("keeps a track that a catalog moves", () => {
    const { s, upload } = studio();
    upload(origin);
    expect(s.points).toBe(1);
    s.setCameras([{ ...track, pose: front }]);
    expect(s.points).toBe(1); // a new track would have none yet
  });
  it("keeps the user's view until the user resets it", () => {
    const { s, upload, sees } = studio();
    upload(origin);
    s.camera.position.set(1, 1, 1); // like the controls
    s.setPose(0, front);
    upload(front, 100);
    sees([1, 1, 1], atOrigin[1]);
    expect(s.stage.getObjectByName("floor")!.position.y).toBeCloseTo(0.1, 6); // the floor is found
    s.frame();
    sees(...fromFront);
    s.setPose(0, right);
    upload(right);
    sees(...fromRight);
  });
  it("includes all cameras at their current poses", () => {
    const { s, upload, sees } = studio();
    s.setCameras([track, { ...track, track: "points/1/full", camera: 1 }]);
    upload(origin);
    s.upload(1, new Uint32Array(3), 1, { middle: [0, 0, 2000], spacing: 0, floor: 0, pose: origin });
    s.setPose(0, front);
    s.setPose(1, right);
    upload(front);
    sees(...fromFront); // both see the same subject
  });
  it("moves the subject in front of the user of a WebXR session again", () => {
    const { s, upload } = studio();
    upload(front); // the page does not know this pose yet
    s.setPose(0, front);
    presenting = true;
    s.enterXR("vr");
    s.setPose(0, right);
    upload(right, 100);
    for (const [i, v] of [0, -0.1, -1.8].entries()) expect(s.stage.position.getComponent(i)).toBeCloseTo(v, 3);
    s.enterXR(undefined);
    expect(s.stage.position.length()).toBe(0);
  });
});
