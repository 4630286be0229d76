// Reads the relay's report every second and shows it. Rates are between two reports.

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

/** The namespace and the name of a track, such as holocast/studio and points/0/full. */
function parts(name) {
  const [namespace, ...track] = name.split("--");
  return [namespace.split("-").map(plain).join("/"), plain(track.join("--"))];
}

const inOrder = new Intl.Collator("en", { numeric: true }); // tiles/9 before tiles/10

// Losses by reason. The page explains them below the tables.
const ofTracks = {
  late_subgroups: "late", behind_subgroups: "behind", unsent_datagrams: "datagrams unsent",
  evicted_subgroups: "evicted", duplicate_subgroups: "duplicate",
};
const ofSessions = {
  lost_packets: "packets lost", late_subgroups: "late", blocked_subgroups: "blocked",
  unsent_datagrams: "datagrams unsent", refused_subgroups: "refused",
};

function show(report) {
  const seconds = last ? (report.time_ms - last.time_ms) / 1000 : 0;
  const sessionsBefore = new Map(last?.sessions.map((s) => [s.number, s]));
  const tracksBefore = new Map(last?.tracks.map((t) => [t.name, t]));
  const rate = (now, before, key) =>
    before && seconds > 0 ? Math.max(0, now[key] - before[key]) / seconds : undefined;
  const peers = new Map(report.sessions.map((s) => [s.number, `#${s.number}\u00a0${s.subject || s.peer}`]));
  const called = (numbers) => numbers.map((n) => peers.get(n) ?? `#${n}`).join(", ");

  report.tracks.sort((a, b) => inOrder.compare(parts(a.name).join("/"), parts(b.name).join("/")));
  const byNamespace = new Map(); // tracks with viewers and without
  for (const t of report.tracks) {
    const [namespace, name] = parts(t.name);
    if (!byNamespace.has(namespace)) byNamespace.set(namespace, { sent: [], kept: [] });
    byNamespace.get(namespace)[t.to.length ? "sent" : "kept"].push([name, t]);
  }
  const rows = [];
  for (const [namespace, { sent, kept }] of byNamespace) {
    const head = row([[namespace, "head"]]);
    head.firstChild.colSpan = 8;
    rows.push(head);
    for (const [name, t] of sent) {
      const before = tracksBefore.get(t.name);
      const objects = rate(t, before, "received_objects");
      rows.push(row([
        [name, "wrap"], [[called(t.from), ...t.upstream].filter(Boolean).join(", ") || "none", "wrap"],
        [called(t.to), "wrap"],
        [bits(rate(t, before, "received_bytes")), "n"], [bits(rate(t, before, "sent_bytes")), "n"],
        [objects === undefined ? "" : objects.toFixed(1), "n"], [si(t.cached_bytes, "B"), "n"],
        [losses(t, before, ofTracks), "wrap lost"],
      ]));
    }
    if (kept.length) {
      const names = kept.map(([name, t]) => `${name} from ${called(t.from) || "none"}`);
      const line = row([[`without viewers: ${names.join(", ")}`, "wrap dim"]]);
      line.firstChild.colSpan = 8;
      rows.push(line);
    }
  }
  document.querySelector("#tracks").replaceChildren(...rows);

  document.querySelector("#sessions").replaceChildren(...report.sessions.flatMap((s) => {
    const before = sessionsBefore.get(s.number);
    const bandwidth = s.bandwidth_bytes_per_second
      ? `${s.app_limited ? "≥ " : ""}${bits(s.bandwidth_bytes_per_second)}`
      : "";
    const watched = new Map(); // names by namespace
    for (const t of report.tracks.filter((t) => t.to.includes(s.number))) {
      const [namespace, name] = parts(t.name);
      watched.set(namespace, [...(watched.get(namespace) ?? []), name]);
    }
    const subject = s.subject ? ` (${s.subject})` : "";
    const peer = [s.peer + subject, s.transport, s.implementation].filter(Boolean).join(" · ");
    const subscriptions = [...watched].map(([namespace, names]) => `${namespace}: ${names.join(", ")}`);
    const paths = s.paths.map((p) => {
      const was = before?.paths.find((q) => q.name === p.name);
      const copied = p.copied_bytes > 0 ? `${si(p.copied_bytes, "B")} sent twice` : "";
      return row([
        "", [`${p.name} · ${p.peer}`, "wrap dim"], [p.down ? "down" : "", "lost"],
        [`${(100 * p.share).toFixed(0)} % of all bytes`, "dim"],
        [bits(rate(p, was, "received_bytes")), "n"], [bits(rate(p, was, "sent_bytes")), "n"],
        [p.bandwidth_bytes_per_second ? bits(p.bandwidth_bytes_per_second) : "", "n"],
        [`${p.rtt_ms.toFixed(1)} ms`, "n"], [copied, "wrap dim"],
      ]);
    });
    return [row([
      [`#${s.number}`, "n"], [peer, "wrap"],
      [s.offers.map((o) => parts(o)[0]).join(", "), "wrap"], [subscriptions.join("; "), "wrap"],
      [bits(rate(s, before, "received_bytes")), "n"], [bits(rate(s, before, "sent_bytes")), "n"], [bandwidth, "n"],
      [`${s.rtt_ms.toFixed(1)} (${s.min_rtt_ms.toFixed(1)}) ms`, "n"], [losses(s, before, ofSessions), "wrap lost"],
    ]), ...paths];
  }));
  document.querySelector("#cluster").hidden = !report.cluster;
  if (report.cluster) showCluster(report.cluster, last?.cluster, rate);
  document.querySelector("#recordings").hidden = !report.recordings;
  if (report.recordings) showRecordings(report.recordings);
  document.querySelector("#no-tracks").hidden = report.tracks.length > 0;
  document.querySelector("#no-sessions").hidden = report.sessions.length > 0;
  const to = report.sessions.filter((s) => report.tracks.some((t) => t.to.includes(s.number))).length;
  const offered = report.sessions.flatMap((s) => s.offers.map((o) => parts(o)[0]));
  const namespaces = new Set([...byNamespace.keys(), ...offered]).size;
  const time = new Date(report.time_ms).toLocaleTimeString();
  state.textContent =
    `${of(namespaces, "namespace")}, ${of(report.sessions.length, "session")} (${of(to, "subscriber")}) · ${time}`;
  state.className = "";
  last = report;
}

/** The other relays of the cluster, and the sessions that they serve to viewers of this one. */
function showCluster(cluster, before, rate) {
  const relaysBefore = new Map(before?.relays.map((r) => [r.name, r]));
  const region = cluster.region ? `, region ${cluster.region}` : "";
  document.querySelector("#this-relay").textContent = `${cluster.name}: this relay is ${cluster.relay} at ` +
    `${cluster.url}${region}. It announces ${of(cluster.published_namespaces, "namespace")}.`;
  document.querySelector("#relays").replaceChildren(...cluster.relays.map((r) => {
    const was = relaysBefore.get(r.name);
    const routes = r.routes.map((o) => parts(o)[0]);
    if (r.serves > routes.length) routes.push(`${r.serves - routes.length} more`);
    return row([
      [r.name, "wrap"], [r.url, "wrap"], r.region, [routes.join(", "), "wrap"], [`${r.namespaces}`, "n"],
      ...(r.open
        ? [[bits(rate(r, was, "received_bytes")), "n"], [bits(rate(r, was, "sent_bytes")), "n"],
          [`${r.rtt_ms.toFixed(1)} ms`, "n"], [losses(r, was, { lost_packets: "packets lost" }), "wrap lost"]]
        : ["", "", ["no session", "dim n"], ""]),
      [`${(r.silent_ms / 1000).toFixed(1)} s ago`, r.silent_ms > 1000 ? "n lost" : "n"],
    ]);
  }));
  document.querySelector("#no-relays").hidden = cluster.relays.length > 0;
}

/** The recordings of the relay, newest first. */
function showRecordings(all) {
  const now = all.paused
    ? `Recording is paused: ${all.paused}.`
    : `Recording ${all.recording.join(", ") || "nothing"}.`;
  const lost = all.dropped_subgroups ? ` ${of(all.dropped_subgroups, "subgroup")} not recorded.` : "";
  document.querySelector("#recording").textContent = `${now}${lost} ${of(all.finished, "finished recording")}, ` +
    `${si(all.bytes, "B")}; ${si(all.free_bytes, "B")} free.`;
  document.querySelector("#finished").replaceChildren(...all.newest.map((r) => row([
    [r.name, "wrap"], [si(r.bytes, "B"), "n"], new Date(r.ended_ms).toLocaleString(),
  ])));
  document.querySelector("#no-recordings").hidden = all.finished > 0;
}

async function poll() {
  try {
    const response = await fetch("report.json", { signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error(`the relay answered ${response.status}`);
    show(await response.json());
  } catch (e) {
    state.textContent = `No answer: ${e.message}. Retrying.`;
    state.className = "bad";
  }
  setTimeout(poll, 1000);
}

poll();
