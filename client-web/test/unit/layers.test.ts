/** The viewer's layers. No folder imports from a higher layer. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../src/", import.meta.url));

/** A layer may import from earlier ones. Folders of the same layer do not import each other. */
const layers: readonly (readonly string[])[] = [
  ["moqt"],
  ["media/session", "media/choice"],
  ["media/points", "media/sound", "media/tiles"],
  ["media"],
  ["scene"],
  ["ui"],
  ["."],
];

interface Import {
  readonly from: string;
  readonly to: string;
}

/** Static and dynamic imports and workers, including types. */
const statement = /(?:\bfrom|\bimport|\bimport\(|new URL\()\s*"(\.[^"]*)"/g;

const folder = (file: string): string => dirname(file);
const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter(
  (f) => f.endsWith(".ts") && !f.includes("kernel/"),
);
const imports: Import[] = files.flatMap((from) =>
  [...readFileSync(resolve(root, from), "utf8").matchAll(statement)].map((m) => ({
    from, to: relative(root, resolve(root, folder(from), m[1]!.replace(/\?.*/, ""))),
  })),
);

/** The layer of a folder; ui/hud belongs to ui. */
function layer(dir: string): { readonly rank: number; readonly name: string } {
  for (let d = dir; ; d = dirname(d)) {
    const rank = layers.findIndex((names) => names.includes(d));
    if (rank >= 0) return { rank, name: d };
    if (d === ".") throw new Error(`${dir} belongs to no layer`);
  }
}

it("finds imports", () => {
  expect(imports.length).toBeGreaterThan(100);
  expect(imports).toContainEqual({ from: "main.ts", to: "ui/page.ts" }); // a dynamic import
  expect(imports).toContainEqual({ from: "media/workers.ts", to: "media/network.worker.ts" });
});

it("has no imports from higher layers or between folders of a layer", () => {
  const wrong = imports.filter(({ from, to }) => {
    const [a, b] = [layer(folder(from)), layer(folder(to))];
    return b.rank > a.rank || (b.rank === a.rank && b.name !== a.name);
  });
  expect(wrong.map(({ from, to }) => `${from} → ${to}`)).toEqual([]);
});
