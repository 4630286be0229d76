// Draws a cluster as a map: relays in their regions, and arrows in the direction of the media between them.

const RADIUS = 17; // of a relay
const SPACE = 170; // between relays on the circle of a region
const MARGIN = 80; // around that circle
const GAP = 28; // between regions
const WIDTH = 1240; // of a row of regions
const LABELLED = 12; // links; more have their labels in tooltips only

/** Creates an SVG element. */
function element(name, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  e.append(...children);
  return e;
}

const text = (x, y, content, kind = "") => element("text", { x, y, class: kind }, content);

/** Short names of relays by ID: hosts, with the start of the ID where several relays have the same host. */
export function shortNames(relays) {
  const host = (r) => r.name.split("/")[0];
  const alone = (r) => relays.filter((o) => host(o) === host(r)).length === 1;
  return new Map(relays.map((r) => [r.id, alone(r) ? host(r) : `${host(r)}/${r.id.slice(0, 4)}`]));
}

/** The places of n relays around (0, 0), on an ellipse, and half the size of their region. */
function places(n) {
  if (n === 1) return { points: [[0, 0]], width: MARGIN + 10, height: 62 };
  const length = Math.max(n === 2 ? 110 : 150, (n * SPACE) / (2 * Math.PI));
  const rx = n === 2 ? length : 1.25 * length;
  const ry = n === 2 ? 0 : 0.75 * length;
  const points = Array.from({ length: n }, (_, i) => {
    const angle = (2 * Math.PI * i) / n - (n === 2 ? Math.PI : Math.PI / 2);
    return [rx * Math.cos(angle), ry * Math.sin(angle)];
  });
  return { points, width: rx + MARGIN + 10, height: ry + 62 };
}

/** Places relays in regions, and regions in rows. */
function layout(relays) {
  const regions = [...Map.groupBy(relays, (r) => r.region ?? "")].sort(([a], [b]) => (a < b ? -1 : 1));
  const at = new Map();
  const boxes = [];
  let [x, y, row, right] = [0, 0, 0, 0];
  for (const [name, members] of regions) {
    const { points, width, height } = places(members.length);
    if (x > 0 && x + 2 * width > WIDTH) [x, y, row] = [0, y + row + GAP, 0];
    const centre = [x + width, y + height + 14];
    boxes.push({ name, x, y, width: 2 * width, height: 2 * height + 28 });
    members.sort((a, b) => (a.name < b.name ? -1 : 1)).forEach((r, i) => {
      at.set(r.id, [centre[0] + points[i][0], centre[1] + points[i][1], points[i][1] < -1]);
    });
    x += 2 * width + GAP;
    right = Math.max(right, x - GAP);
    row = Math.max(row, 2 * height + 28);
  }
  return { at, boxes, width: right, height: y + row };
}

/** The arrow from one relay to another, which bends so that its opposite is apart. */
function arrow([x1, y1], [x2, y2]) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const distance = Math.hypot(dx, dy) || 1;
  const bend = Math.min(40, 0.14 * distance);
  const [cx, cy] = [(x1 + x2) / 2 - (dy / distance) * bend, (y1 + y2) / 2 + (dx / distance) * bend];
  const towards = ([x, y], by) => {
    const d = Math.hypot(cx - x, cy - y) || 1;
    return [x + ((cx - x) / d) * by, y + ((cy - y) / d) * by];
  };
  const [sx, sy] = towards([x1, y1], RADIUS + 3);
  const [ex, ey] = towards([x2, y2], RADIUS + 9);
  return { path: `M${sx} ${sy}Q${cx} ${cy} ${ex} ${ey}`, middle: [(sx + 2 * cx + ex) / 4, (sy + 2 * cy + ey) / 4] };
}

/** Returns the map of relays, as the API lists them. bits writes a rate in bytes per second. */
export function map(relays, bits) {
  const { at, boxes, width, height } = layout([...relays]);
  const links = relays.flatMap((r) => r.links.map((l) => ({ ...l, to: r.id }))).filter((l) => at.has(l.from) && at.has(l.to));
  const svg = element("svg", {
    viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, height: height + 4, role: "img",
    "aria-label": `Map of ${relays.length} relays and ${links.length} links between them`,
  }, element("defs", {}, element("marker", {
    id: "tip", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto",
  }, element("path", { d: "M0 0L8 4L0 8Z", class: "tip" }))));
  for (const b of boxes) {
    svg.append(element("rect", { x: b.x, y: b.y, width: b.width, height: b.height, rx: 12, class: "region" }));
    if (b.name) svg.append(text(b.x + 12, b.y + 21, b.name, "name"));
  }
  const name = shortNames(relays);
  const labels = [];
  for (const l of links) {
    const { path, middle } = arrow(at.get(l.from), at.get(l.to));
    const tracks = `${l.track_count} track${l.track_count === 1 ? "" : "s"}`;
    const title = `${name.get(l.from)} to ${name.get(l.to)}: ${tracks}, ${bits(l.ingress_bytes_per_second)}, ` +
      `round trip ${l.rtt_ms.toFixed(1)} ms\n${l.tracks.join("\n")}`;
    const stroke = Math.min(6, 1.2 + Math.log10(1 + (8 * l.ingress_bytes_per_second) / 1e6) * 1.6);
    svg.append(element("path", { d: path, "stroke-width": stroke, class: l.track_count ? "link" : "link idle", "marker-end": "url(#tip)" },
      element("title", {}, title)));
    if (links.length <= LABELLED) labels.push(text(...middle, `${tracks} · ${l.rtt_ms.toFixed(1)} ms`, "label"));
  }
  for (const r of relays) {
    const [x, y, above] = at.get(r.id); // names are outside the circle
    const below = RADIUS + (r.self ? 22 : 18);
    const title = `${r.name}\n${r.public_url || r.url || ""}\n${r.state}, ${r.clients} clients, room for ${r.room}`;
    svg.append(element("g", { class: `relay ${r.state}${r.self ? " self" : ""}` }, element("title", {}, title),
      ...(r.self ? [element("circle", { cx: x, cy: y, r: RADIUS + 5, class: "ring" })] : []),
      element("circle", { cx: x, cy: y, r: RADIUS }), text(x, y + 5, `${r.clients}`, "count"),
      text(x, y + (above ? -below - 8 : below), name.get(r.id), "name"),
      text(x, y + (above ? 6 - below : below + 15), r.state === "serving" ? `${bits(r.egress_bytes_per_second)} out` : r.state, "stat")));
  }
  svg.append(...labels);
  return svg;
}
