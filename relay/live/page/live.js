// Reads the relay's API every second and shows it. Rates are between two answers.

import { map, shortNames } from "./map.js";

const state = document.querySelector("#state");
let last;

const si = (value, unit) => {
  const steps = ["", "k", "M", "G", "T"];
  let i = 0;
  while (value >= 1000 && i < steps.length - 1) [value, i] = [value / 1000, i + 1];
  return `${value >= 100 || i === 0 ? Math.round(value) : value.toFixed(1)} ${steps[i]}${unit}`;
};
const bits = (bytesPerSecond) => (bytesPerSecond === undefined ? "" : si(8 * bytesPerSecond, "bit/s"));

const of = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

/** A table row. A cell is a text or [text, class]. */
function row(cells) {
  const tr = document.createElement("tr");
  for (const cell of cells) {
    const td = document.createElement("td");
    const [text, kind] = Array.isArray(cell) ? cell : [cell, ""];
    td.textContent = text;
    if (kind) td.className = kind;
    tr.append(td);
  }
  return tr;
}

/** Losses by reason: totals, and the increase since the last report. */
function losses(now, before, reasons) {
  return Object.entries(reasons)
    .filter(([key]) => now[key] > 0)
    .map(([key, why]) => {
      const more = before ? now[key] - before[key] : 0;
      return `${now[key]} ${why}${more > 0 ? ` (+${more})` : ""}`;
    })
    .join(", ");
}

/** Decodes a field of a name, in which bytes other than letters, digits and _ are written as .2f. */
function plain(field) {
  try {
    return decodeURIComponent(field.replace(/\.([0-9a-f]{2})/g, "%$1"));
  } catch {
    return field; // not UTF-8
  }
}

/** A session's name, such as holocast/studio, by its ID. */
const named = (id) => id.split("-").map(plain).join("/");

/** A client's number, by its ID. */
const numbered = (id) => `#${id.split("-")[1]}`;

const inOrder = new Intl.Collator("en", { numeric: true }); // tiles/9 before tiles/10

// Losses by reason. The page explains them below the tables.
const ofTracks = {
  late_subgroups: "late", behind_subgroups: "behind", unsent_datagrams: "datagrams unsent",
  evicted_subgroups: "evicted", duplicate_subgroups: "duplicate",
};
const ofViewers = {
  lost_packets: "packets lost", late_subgroups: "late", blocked_subgroups: "blocked",
  unsent_datagrams: "datagrams unsent", refused_subgroups: "refused",
};

/** The items of a list, and how many it has besides. */
const list = (page) => page.items;
const more = (page) => (page.total > page.items.length ? `, ${page.total - page.items.length} more not shown` : "");

function show(now) {
  const seconds = last ? (now.time - last.time) / 1000 : 0;
  const before = (key) => new Map((last ? list(last[key]) : []).map((one) => [one.id, one]));
  const rate = (one, was, key) => (was && seconds > 0 ? Math.max(0, one[key] - was[key]) / seconds : undefined);
  showTracks(now, before("tracks"), rate);
  showSessions(now);
  showViewers(now, before("viewers"), rate);
  showCluster(list(now.relays));
  showRecordings(now.recordings);
  const viewers = list(now.viewers);
  const watching = viewers.filter((v) => v.watches.length > 0).length;
  state.textContent = `${of(now.sessions.total, "session")}, ${of(now.viewers.total, "client")} ` +
    `(${of(watching, "viewer")})${more(now.viewers)} · ${new Date(now.time).toLocaleTimeString()}`;
  state.className = "";
  last = now;
}

function showTracks(now, before, rate) {
  const peers = new Map(list(now.viewers).map((v) => [v.id, `${numbered(v.id)}\u00a0${v.subject || v.peer}`]));
  const relays = new Map([...shortNames(list(now.relays))].map(([id, name]) => [id, `relay\u00a0${name}`]));
  const called = (ids) => ids.map((id) => peers.get(id) ?? numbered(id)).join(", ");
  const tracks = list(now.tracks);
  tracks.sort((a, b) => inOrder.compare(`${a.session}/${a.name}`, `${b.session}/${b.name}`));
  const rows = [];
  for (const [session, all] of Map.groupBy(tracks, (t) => t.session)) {
    const head = row([[named(session), "head"]]);
    head.firstChild.colSpan = 8;
    rows.push(head);
    for (const t of all.filter((t) => t.viewers > 0)) {
      const was = before.get(t.id);
      const objects = rate(t, was, "received_objects");
      const from = [called(t.from), ...t.upstream.map((up) => relays.get(up) ?? up)].filter(Boolean).join(", ");
      const hidden = t.viewers > t.to.length ? `, ${t.viewers - t.to.length} more` : "";
      rows.push(row([
        [t.name, "wrap"], [from || "none", "wrap"], [called(t.to) + hidden, "wrap"],
        [bits(rate(t, was, "received_bytes")), "n"], [bits(rate(t, was, "sent_bytes")), "n"],
        [objects === undefined ? "" : objects.toFixed(1), "n"], [si(t.cached_bytes, "B"), "n"],
        [losses(t, was, ofTracks), "wrap lost"],
      ]));
    }
    const kept = all.filter((t) => t.viewers === 0);
    if (kept.length) {
      const names = kept.map((t) => `${t.name} from ${called(t.from) || "none"}`);
      const line = row([[`without viewers: ${names.join(", ")}`, "wrap dim"]]);
      line.firstChild.colSpan = 8;
      rows.push(line);
    }
  }
  document.querySelector("#tracks").replaceChildren(...rows);
  document.querySelector("#no-tracks").hidden = tracks.length > 0;
}

function showSessions(now) {
  const relays = new Map(list(now.relays).map((r) => [r.id, r.self ? "this relay" : r.name]));
  document.querySelector("#sessions").replaceChildren(...list(now.sessions).map((s) => row([
    [named(s.id), "wrap"], [s.relay ? (relays.get(s.relay) ?? s.relay) : "nowhere", "wrap"],
    [s.publishers.map(numbered).join(", "), "wrap"], [`${s.viewers}`, "n"], [`${s.tracks}`, "n"],
    [s.blocked ? new Date(s.blocked).toLocaleString() : "", "lost"],
  ])));
  document.querySelector("#no-sessions").hidden = now.sessions.total > 0;
}

function showViewers(now, before, rate) {
  const watched = new Map(); // names by session, by viewer
  for (const t of list(now.tracks)) {
    for (const id of t.to) {
      if (!watched.has(id)) watched.set(id, new Map());
      watched.get(id).set(t.session, [...(watched.get(id).get(t.session) ?? []), t.name]);
    }
  }
  document.querySelector("#viewers").replaceChildren(...list(now.viewers).flatMap((v) => {
    const was = before.get(v.id);
    const bandwidth = v.bandwidth_bytes_per_second
      ? `${v.app_limited ? "≥ " : ""}${bits(v.bandwidth_bytes_per_second)}`
      : "";
    const subject = v.subject ? ` (${v.subject})` : "";
    const moving = v.state === "moving" ? "moving to another relay" : "";
    const peer = [v.peer + subject, v.transport, v.implementation, moving].filter(Boolean).join(" · ");
    const watches = [...(watched.get(v.id) ?? [])].map(([session, names]) => `${named(session)}: ${names.join(", ")}`);
    const paths = v.paths.map((p) => {
      const old = was?.paths.find((q) => q.name === p.name);
      const copied = p.copied_bytes > 0 ? `${si(p.copied_bytes, "B")} sent twice` : "";
      return row([
        "", [`${p.name} · ${p.peer}`, "wrap dim"], [p.down ? "down" : "", "lost"],
        [`${(100 * p.share).toFixed(0)} % of all bytes`, "dim"],
        [bits(rate(p, old, "received_bytes")), "n"], [bits(rate(p, old, "sent_bytes")), "n"],
        [p.bandwidth_bytes_per_second ? bits(p.bandwidth_bytes_per_second) : "", "n"],
        [`${p.rtt_ms.toFixed(1)} ms`, "n"], [copied, "wrap dim"],
      ]);
    });
    return [row([
      v.id, [peer, "wrap"], [v.publishes.map(named).join(", "), "wrap"], [watches.join("; "), "wrap"],
      [bits(rate(v, was, "received_bytes")), "n"], [bits(rate(v, was, "sent_bytes")), "n"], [bandwidth, "n"],
      [`${v.rtt_ms.toFixed(1)} (${v.min_rtt_ms.toFixed(1)}) ms`, "n"], [losses(v, was, ofViewers), "wrap lost"],
    ]), ...paths];
  }));
  document.querySelector("#no-viewers").hidden = now.viewers.total > 0;
}

/** The cluster as a map and as a table. */
function showCluster(relays) {
  const self = relays.find((r) => r.self);
  document.querySelector("#cluster").hidden = !self?.cluster;
  if (!self?.cluster) return;
  const region = self.region ? `, region ${self.region}` : "";
  document.querySelector("#this-relay").textContent = `${self.cluster}: this relay is ${self.name} at ${self.url}${region}.`;
  document.querySelector("#map").replaceChildren(map(relays, (bytes) => bits(bytes)));
  const names = shortNames(relays);
  document.querySelector("#relays").replaceChildren(...relays.map((r) => {
    const from = r.links.map((l) =>
      `${names.get(l.from) ?? l.from}: ${of(l.track_count, "track")}, ${bits(l.ingress_bytes_per_second)}, ${l.rtt_ms.toFixed(1)} ms`);
    return row([
      [r.name + (r.self ? " (this one)" : ""), "wrap"], [r.public_url || r.url, "wrap"], r.region ?? "",
      [r.state, r.state === "serving" ? "" : "lost"], [`${r.clients}`, "n"], [`${r.published_sessions}`, "n"],
      [bits(r.ingress_bytes_per_second), "n"], [bits(r.egress_bytes_per_second), "n"], [from.join("; "), "wrap"],
      [r.self ? "" : `${(r.silent_ms / 1000).toFixed(1)} s ago`, r.state === "silent" ? "n lost" : "n"],
    ]);
  }));
}

const login = document.querySelector("#login");
login.addEventListener("submit", (e) => {
  e.preventDefault();
  sessionStorage.setItem("token", document.querySelector("#token").value.trim());
  login.hidden = true;
  poll();
});

/** Returns the first items of a list of the API. */
async function read(path) {
  const token = sessionStorage.getItem("token");
  const response = await fetch(`../api/v1/${path}?limit=1000`, {
    headers: token ? { Authorization: `Bearer ${token}` } : {}, signal: AbortSignal.timeout(5000),
  });
  if (response.ok) return response.json();
  const { detail } = await response.json().catch(() => ({}));
  throw Object.assign(new Error(detail ?? `the relay answered ${response.status}`), { status: response.status });
}

/** The recordings of the relay, newest first. */
function showRecordings(all) {
  document.querySelector("#recordings").hidden = !all.enabled;
  const now = all.paused
    ? `Recording is paused: ${all.paused}.`
    : `Recording ${all.recording.join(", ") || "nothing"}.`;
  const lost = all.dropped_subgroups ? ` ${of(all.dropped_subgroups, "subgroup")} not recorded.` : "";
  document.querySelector("#recording").textContent = `${now}${lost} ${of(all.total, "finished recording")}, ` +
    `${si(all.bytes, "B")}; ${si(all.free_bytes, "B")} free.`;
  const newest = list(all).toSorted((a, b) => Date.parse(b.ended) - Date.parse(a.ended));
  document.querySelector("#finished").replaceChildren(...newest.map((r) => row([
    [r.name, "wrap"], [si(r.bytes, "B"), "n"], new Date(r.ended).toLocaleString(),
  ])));
  document.querySelector("#no-recordings").hidden = all.total > 0;
}

async function poll() {
  try {
    const paths = ["relays", "sessions", "tracks", "viewers", "recordings"];
    const pages = await Promise.all(paths.map(read));
    show({ time: Date.now(), ...Object.fromEntries(paths.map((path, i) => [path, pages[i]])) });
  } catch (e) {
    state.className = "bad";
    if ([401, 403, 429].includes(e.status)) {
      state.textContent = e.message;
      login.hidden = false; // which polls again
      return;
    }
    state.textContent = `No answer: ${e.message}. Retrying.`;
  }
  setTimeout(poll, 1000);
}

poll();
