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

/** A row; a cell is a text, or a text and its class. */
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

/** What was lost, by reason: totals, and how many since the last report. */
function losses(now, before, reasons) {
  return Object.entries(reasons)
    .filter(([key]) => now[key] > 0)
    .map(([key, why]) => {
      const more = before ? now[key] - before[key] : 0;
      return `${now[key]} ${why}${more > 0 ? ` (+${more})` : ""}`;
    })
    .join(", ");
}

const ofTracks = {
  late_subgroups: "late", behind_subgroups: "viewer behind", duplicate_subgroups: "duplicate",
  evicted_subgroups: "older than the cache", unsent_datagrams: "datagrams unsent",
};
const ofSessions = {
  lost_packets: "packets", late_subgroups: "late", blocked_subgroups: "limit of streams",
  unsent_datagrams: "datagrams unsent", refused_subgroups: "not accepted in time",
};

function show(report) {
  const seconds = last ? (report.time_ms - last.time_ms) / 1000 : 0;
  const sessionsBefore = new Map(last?.sessions.map((s) => [s.number, s]));
  const tracksBefore = new Map(last?.tracks.map((t) => [t.name, t]));
  const rate = (now, before, key) => (before && seconds > 0 ? Math.max(0, now[key] - before[key]) / seconds : undefined);
  const peers = new Map(report.sessions.map((s) => [s.number, `${s.number} ${s.subject || s.peer}`]));
  const called = (numbers) => numbers.map((n) => peers.get(n) ?? n).join(", ");

  document.querySelector("#tracks").replaceChildren(...report.tracks.map((t) => {
    const before = tracksBefore.get(t.name);
    const objects = rate(t, before, "received_objects");
    return row([
      [t.name, "wrap"], [[called(t.from), ...t.upstream].filter(Boolean).join(", ") || "nobody", "wrap"], [called(t.to) || "nobody", "wrap"],
      [bits(rate(t, before, "received_bytes")), "n"], [bits(rate(t, before, "sent_bytes")), "n"],
      [objects === undefined ? "" : objects.toFixed(1), "n"], [si(t.cached_bytes, "B"), "n"], [losses(t, before, ofTracks), "wrap lost"],
    ]);
  }));
  document.querySelector("#sessions").replaceChildren(...report.sessions.map((s) => {
    const before = sessionsBefore.get(s.number);
    const carries = s.bandwidth_bytes_per_second ? `${bits(s.bandwidth_bytes_per_second)}${s.app_limited ? "+" : ""}` : "";
    const watches = report.tracks.filter((t) => t.to.includes(s.number)).map((t) => t.name);
    return row([
      [s.number, "n"], `${s.peer}${s.subject ? ` (${s.subject})` : ""} · ${s.transport}${s.implementation ? ` · ${s.implementation}` : ""}`,
      [s.offers.join(", "), "wrap"], [watches.join(", "), "wrap"],
      [bits(rate(s, before, "received_bytes")), "n"], [bits(rate(s, before, "sent_bytes")), "n"], [carries, "n"],
      [`${s.rtt_ms.toFixed(1)} ms`, "n"], [losses(s, before, ofSessions), "wrap lost"],
    ]);
  }));
  document.querySelector("#no-tracks").hidden = report.tracks.length > 0;
  document.querySelector("#no-sessions").hidden = report.sessions.length > 0;
  state.textContent = `${report.sessions.length} sessions, ${report.tracks.length} tracks · ${new Date(report.time_ms).toLocaleTimeString()}`;
  state.className = "";
  last = report;
}

async function poll() {
  try {
    const response = await fetch("report.json", { signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error(`the relay answered ${response.status}`);
    show(await response.json());
  } catch (e) {
    state.textContent = `No answer: ${e.message}. Trying again.`;
    state.className = "bad";
  }
  setTimeout(poll, 1000);
}

poll();
