/** Catalogs of other programs. */
import { describe, expect, it } from "vitest";
import { findForeign, listTracks } from "../../src/media/session/foreign.ts";
import type { Session, TrackSink } from "../../src/moqt/index.ts";

/** A catalog as written by moq-pub. */
const moqPub = {
  version: 1, streamingFormat: 1, streamingFormatVersion: "0.2", supportsDeltaUpdates: false,
  commonTrackFields: { namespace: "demo", packaging: "cmaf", renderGroup: 1 },
  tracks: [
    { name: "1.m4s", initTrack: "0.mp4", selectionParams: { codec: "avc1.64001f", width: 1280, height: 720 } },
    { name: "2.m4s", initTrack: "0.mp4", selectionParams: { codec: "mp4a.40.2", samplerate: 44100 } },
  ],
};

describe("another program's catalog", () => {
  it.each([
    ["moq-pub's", moqPub, "1.m4s (cmaf, avc1.64001f), 2.m4s (cmaf, mp4a.40.2)"],
    ["MSF with ordinary video", { tracks: [{ name: "hd", packaging: "loc", codec: "av01" }] }, "hd (loc, av01)"],
    ["many tracks", { tracks: Array.from({ length: 99 }, (_, i) => ({ name: `t${i}` })) }, "t0, t1, t2, t3, …"],
    ["long names", { tracks: [{ name: "x".repeat(9999) }] }, "x".repeat(40)],
    ["no tracks", { tracks: [] }, ""],
    ["tracks as an object", { tracks: { name: "a" } }, ""],
    ["odd types", { tracks: [null, 7, { name: 3 }, { name: "a", codec: {}, selectionParams: [] }] }, "a"],
    ["no object", "text", ""],
    ["nothing", undefined, ""],
  ])("%s", (_, catalog, text) => expect(listTracks(catalog)).toBe(text));

  const session = (published: Record<string, string>) => {
    const cancelled: string[] = [];
    const subscribe = async ({ name }: { name: string }, sink: TrackSink) => {
      const payload = published[name];
      if (payload === undefined) throw new Error("does not exist");
      sink.object({ status: "normal", payload: new TextEncoder().encode(payload) } as never);
      return { done: new Promise(() => {}), cancel: () => void cancelled.push(name) };
    };
    return { cancelled, session: { subscribe } as unknown as Session };
  };
  const track = (name: string) => ({ namespace: ["holocast", "x"], name });

  it("is found and described", async () => {
    const s = session({ ".catalog": JSON.stringify(moqPub) });
    expect(await findForeign(s.session, track)).toMatch(/“\.catalog” of another program, with 1\.m4s \(cmaf, avc1/);
    expect(s.cancelled).toEqual([".catalog"]);
  });
  it("is found if it is not understood", async () => {
    const s = session({ "catalog.json": "<xml>" });
    expect(await findForeign(s.session, track)).toMatch(/“catalog\.json” of another program\. This viewer/);
  });
  it("need not exist", async () => expect(await findForeign(session({}).session, track)).toBeUndefined());
});
