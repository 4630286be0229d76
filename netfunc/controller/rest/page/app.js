// The status page: it polls the controller once a second and draws the result.
// Data from edges is only shown as text and attributes, never as markup.

const $ = (id) => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
const PERIOD = 1000; // ms between polls
const HIDDEN_PERIOD = 10000;
const SAMPLES = 120; // of RTT for a sparkline
const KEEP = 4096; // decisions
const SHOWN = 200; // rows of decisions
const TIMELINES = 24;

let token = sessionStorage.getItem('token') ?? '';
let paused = false;
let timer = 0;
let decisions = [];
let last = null; // the last responses
let heard = 0; // time of the last response, performance.now()
let drawnUpTo = -1;
const rtts = new Map(); // "edge path" → samples

/** Creates an element with attributes and children. */
function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

function svg(name, attributes = {}, ...children) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

class Refused extends Error {}

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: 'no-store', signal: AbortSignal.timeout(5000) });
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  const why = problem.detail || problem.title || answer.statusText;
  if (answer.status === 401 || answer.status === 403) throw new Refused(why);
  throw new Error(why);
}

async function round() {
  clearTimeout(timer);
  try {
    const since = decisions.length ? decisions[decisions.length - 1].sequence : 0;
    const status = await ask('v1/status'); // first, so a wrong token fails once
    const [edges, flows, fresh] = await Promise.all([ask('v1/edges'), ask('v1/flows'), ask(`v1/decisions?since=${since}`)]);
    // A restarted controller may number its decisions from the start.
    if (status.sequence < since) decisions = [];
    else decisions = decisions.concat(fresh.decisions).slice(-KEEP);
    last = { status, edges: edges.edges, flows: flows.flows };
    heard = performance.now();
    sample(last.edges);
    $('login').hidden = true;
    $('main').hidden = false;
    connection('ok', `Live · ${status.version}`);
    if (!paused) draw();
    const more = status.sequence > (decisions.at(-1)?.sequence ?? 0);
    timer = setTimeout(round, more ? 50 : document.hidden ? HIDDEN_PERIOD : PERIOD);
  } catch (e) {
    if (e instanceof Refused) return login(e.message);
    connection('bad', `No answer from the controller: ${e.message}. Trying again.`);
    timer = setTimeout(round, 2 * PERIOD);
  }
}

function connection(kind, text) {
  const c = $('connection');
  c.className = kind;
  if (c.textContent !== text) c.textContent = text; // otherwise screen readers would repeat it
}

function login(why) {
  $('main').hidden = true;
  $('login').hidden = false;
  $('login-why').textContent = token ? `The controller refused the token: ${why}.` : 'This controller requires a token. It is stored in this tab only.';
  connection('bad', 'Token required');
  $('token').focus();
}

$('login').addEventListener('submit', (event) => {
  event.preventDefault();
  token = $('token').value.trim();
  sessionStorage.setItem('token', token);
  $('token').value = '';
  round();
});
$('pause').addEventListener('click', () => {
  paused = !paused;
  $('pause').setAttribute('aria-pressed', String(paused));
  $('pause').textContent = paused ? 'Resume' : 'Pause';
  if (!paused && last) draw();
});
for (const id of ['window', 'filter']) $(id).addEventListener('input', () => last && drawTimelines());
addEventListener('resize', () => last && drawTimelines());
document.addEventListener('visibilitychange', () => { if (!document.hidden) round(); });

function sample(edges) {
  const known = new Set();
  for (const e of edges) {
    for (const p of e.paths ?? []) {
      const key = `${e.name} ${p.index}`;
      known.add(key);
      const list = rtts.get(key) ?? [];
      list.push(e.lost || !p.up ? null : p.rtt_ms || null);
      rtts.set(key, list.slice(-SAMPLES));
    }
  }
  for (const key of rtts.keys()) if (!known.has(key)) rtts.delete(key);
}

// ---- formatting

const ms = (v) => (v ? `${v < 10 ? v.toFixed(2) : v.toFixed(1)} ms` : '–');
const count = (v) => (v ?? 0).toLocaleString('en');

function span(milliseconds) {
  const s = Math.max(0, Math.round(milliseconds / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d`;
}

const pad = (n, w = 2) => String(n).padStart(w, '0');

function clock(t, fine) {
  const d = new Date(t);
  const s = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return fine ? `${s}.${pad(d.getMilliseconds(), 3)}` : s;
}

/** The controller's current time: its clock may differ from the browser's. */
const now = () => Date.parse(last.status.now) + (performance.now() - heard);

function chips(paths, all) {
  if (!paths.length) return el('span', { class: 'dim' }, 'plain routing');
  const box = el('span', { class: 'paths', role: 'img', 'aria-label': `paths ${paths.join(', ')}` });
  for (const i of all) box.append(el('i', paths.includes(i) ? { class: 'on' } : {}, String(i)));
  return box;
}

/** Reports whether a decision concerns a destination. */
function concerns(d, destination) {
  return d.destination === destination || (d.others ?? []).includes(destination);
}

/** All paths of edges and decisions. */
function allPaths(destination) {
  const set = new Set();
  for (const e of last.edges) for (const p of e.paths ?? []) set.add(p.index);
  for (const d of decisions) if (concerns(d, destination)) for (const i of [...d.from, ...d.to]) set.add(i);
  return [...set].sort((a, b) => a - b);
}

const badge = (state) => el('span', { class: `badge ${state}` }, state);

// ---- drawing

function draw() {
  drawSummary();
  drawTimelines();
  drawFlows();
  drawEdges();
  drawDecisions();
}

function drawSummary() {
  const { status, edges, flows } = last;
  const rows = [
    ['Edges', String(status.edges), edges.length > status.edges ? `of ${edges.length}` : ''],
    ['Flows', String(flows.filter((f) => f.live).length), flows.some((f) => !f.live) ? `live of ${flows.length}` : 'live'],
    ['Duplicating', String(flows.filter((f) => f.paths.length > 1).length), ''],
    ['Mode', status.mode, ''],
    ['Trigger', status.trigger.rule === 'paper'
      ? `${status.trigger.count} × > ${status.trigger.interval_ms} ms`
      : `${status.trigger.rule}, sensitivity ${status.trigger.sensitivity}`, ''],
    ['Signalling packets', count(status.signals), ''],
    ['Up', span(Date.parse(status.now) - Date.parse(status.started)), ''],
  ];
  $('summary').replaceChildren(...rows.map(([k, v, note]) =>
    el('div', {}, el('dt', {}, k), el('dd', {}, v, note ? ' ' : '', note ? el('small', {}, note) : ''))));
  const alarms = [];
  const lost = edges.filter((e) => e.lost).map((e) => e.name);
  if (lost.length) alarms.push(`Lost: ${lost.join(', ')}.`);
  const deaf = flows.filter((f) => !f.applied && now() - Date.parse(f.since) > 2000).length;
  if (deaf) alarms.push(`${deaf} ${deaf === 1 ? 'flow has' : 'flows have'} a path set that the sender has not reported in force.`);
  if (status.state_err) alarms.push(`The state is not saved: ${status.state_err}.`);
  $('alarm').hidden = !alarms.length;
  if ($('alarm').textContent !== alarms.join(' ')) $('alarm').textContent = alarms.join(' ');
}

/** Splits a flow's decisions into periods of constant path set. */
function stretches(flow, from, to) {
  const about = decisions.filter((d) => concerns(d, flow.destination) && d.state);
  const out = [];
  // The time before the first decision and the start of the controller is unknown.
  const began = Math.min(Date.parse(last.status.started), Date.parse(decisions[0]?.time ?? last.status.now));
  let start = about.length ? began : Date.parse(flow.since);
  let paths = about.length ? about[0].from : flow.paths;
  let state = about.length ? 'armed' : flow.state;
  const push = (end) => {
    if (end > from && start < to) out.push({ start: Math.max(start, from), end: Math.min(end, to), paths, state });
  };
  for (const d of about) {
    const t = Date.parse(d.time);
    push(t);
    [start, paths, state] = [t, d.to, d.state];
  }
  push(Infinity);
  return out;
}

const STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200];

function drawTimelines() {
  const wanted = $('filter').value.trim().toLowerCase();
  const flows = last.flows.filter((f) => f.destination.includes(wanted))
    .sort((a, b) => b.live - a.live || b.paths.length - a.paths.length).slice(0, TIMELINES);
  $('no-flows').hidden = last.flows.length > 0;
  const to = now();
  const from = to - Number($('window').value) * 1000;
  $('timelines').replaceChildren(...flows.map((f) => timeline(f, from, to)));
}

function timeline(flow, from, to) {
  const LEFT = 58, LANE = 15, GAP = 3, TOP = 14, AXIS = 18;
  const width = Math.max(320, $('timelines').clientWidth);
  const right = width - 2;
  const x = (t) => LEFT + ((t - from) / (to - from)) * (right - LEFT);
  const lanes = [0, ...allPaths(flow.destination)]; // 0 is plain routing
  const y = new Map(lanes.map((p, n) => [p, TOP + n * (LANE + GAP)]));
  const bottom = TOP + lanes.length * (LANE + GAP);
  const parts = stretches(flow, from, to);

  const g = svg('svg', { viewBox: `0 0 ${width} ${bottom + AXIS}`, height: bottom + AXIS, role: 'img' });
  const spoken = parts.slice(-6).map((p) =>
    `${p.paths.length ? `paths ${p.paths.join(', ')} (${p.state})` : 'plain routing'} for ${span(p.end - p.start)}`).join('; then ');
  g.append(svg('title', {}, `${flow.destination}: ${spoken || 'nothing in this window'}. The table of decisions has the same in words.`));

  const seconds = (to - from) / 1000;
  const step = (STEPS.find((s) => seconds / s <= Math.max(2, (right - LEFT) / 110)) ?? 14400) * 1000;
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    g.append(svg('line', { class: 'grid', x1: x(t), x2: x(t), y1: TOP - 2, y2: bottom }));
    if (x(t) < right - 20) g.append(svg('text', { x: x(t), y: bottom + 12, 'text-anchor': 'middle' }, clock(t)));
  }
  for (const p of lanes) {
    g.append(svg('rect', { class: 'lane', x: LEFT, y: y.get(p), width: right - LEFT, height: LANE, rx: 3 }));
    g.append(svg('text', { class: 'name', x: LEFT - 8, y: y.get(p) + 11.5, 'text-anchor': 'end' }, p ? `path ${p}` : 'plain'));
  }
  for (const part of merged(parts)) {
    const [x0, x1] = [x(part.start), x(part.end)];
    const cls = part.path ? (part.state === 'armed' ? 'single' : part.state) : 'plain';
    const bar = svg('rect', { class: `bar ${cls}`, x: x0, y: y.get(part.path) ?? 0, width: Math.max(1.5, x1 - x0), height: LANE, rx: Math.min(3, (x1 - x0) / 2) });
    bar.append(svg('title', {}, `${part.path ? `path ${part.path}, ${part.state}` : 'plain routing'}: ${clock(part.start, true)} – ${clock(part.end, true)} (${span(part.end - part.start)})`));
    g.append(bar);
  }
  for (const d of decisions) {
    const t = Date.parse(d.time);
    if (!concerns(d, flow.destination) || t < from || t > to || (d.kind !== 'start' && d.kind !== 'redirect')) continue;
    const mark = svg('g', {}, svg('path', { class: 'tick', d: `M${x(t)} ${TOP - 6}V${bottom - GAP}` }), svg('path', { class: 'tick head', d: `M${x(t) - 4} ${TOP - 12}h8l-4 7z` }));
    mark.append(svg('title', {}, `${clock(t, true)} ${d.kind}: ${d.reason}`));
    g.append(mark);
  }
  return el('div', { class: 'timeline' },
    el('h3', {}, flow.destination, badge(flow.state), el('span', { class: 'dim' }, flow.live ? '' : 'no viewer')), g);
}

/** Periods by path; adjacent ones with the same state are merged. */
function merged(parts) {
  const out = [];
  const open = new Map();
  for (const part of parts) {
    const mine = part.paths.length ? part.paths : [0];
    for (const path of mine) {
      const before = open.get(path);
      const look = path && part.state === 'armed' ? 'single' : part.state;
      if (before && before.end === part.start && (before.state === look || !path)) {
        before.end = part.end;
      } else {
        const bar = { path, state: look, start: part.start, end: part.end };
        open.set(path, bar);
        out.push(bar);
      }
    }
  }
  return out;
}

function drawFlows() {
  const t = now();
  $('flows').replaceChildren(...last.flows.map((f) => el('tr', {},
    el('td', {}, f.destination),
    el('td', {}, f.mode, f.allowed.length ? el('span', { class: 'dim' }, ` of ${f.allowed.join(', ')}`) : ''),
    el('td', {}, badge(f.state)),
    el('td', {}, chips(f.paths, allPaths(f.destination))),
    f.applied ? el('td', { class: 'good' }, 'yes') : el('td', { class: 'bad' }, 'not yet'),
    el('td', {}, f.sender || '–', ' → ', f.receiver || el('span', { class: 'warn' }, 'no receiver')),
    el('td', { class: 'n' }, f.live ? ms(f.interval_ms) : el('span', { class: 'dim' }, 'no viewer')),
    el('td', { class: 'n' }, span(t - Date.parse(f.since))))));
}

function drawEdges() {
  const t = now();
  $('no-edges').hidden = last.edges.length > 0;
  $('edges').replaceChildren(...last.edges.map((e) => {
    const rows = (e.paths ?? []).map((p) => el('tr', e.lost ? { class: 'dim' } : {},
      el('td', {}, String(p.index)),
      el('td', {}, p.interface || '–'),
      e.lost ? el('td', { class: 'dim' }, `was ${p.up ? 'up' : 'down'}`) : p.up ? el('td', { class: 'good' }, 'up') : el('td', { class: 'bad' }, 'down'),
      el('td', {}, spark(`${e.name} ${p.index}`, p)),
      el('td', { class: 'n' }, ms(p.rtt_ms)),
      el('td', { class: 'n' }, ms(p.min_rtt_ms)),
      el('td', { class: p.loss >= 0.05 ? 'n bad' : 'n' }, `${(100 * (p.loss ?? 0)).toFixed(1)} %`),
      ...[p.sent, p.first, p.late, p.rogue].map((v) => el('td', { class: 'n' }, v ? count(v) : el('span', { class: 'dim' }, '–')))));
    return el('div', { class: 'edge' },
      el('h3', {}, e.name, el('span', { class: 'dim' }, e.role),
        e.lost ? el('span', { class: 'bad' }, `lost for ${span(t - Date.parse(e.since))}`) : el('span', { class: 'good' }, 'reports'),
        el('span', { class: 'dim' }, [e.signal ? `signalling to ${e.signal}` : '', e.towards?.length ? `towards ${e.towards.join(', ')}` : '',
          e.behind?.length ? `behind it ${e.behind.join(', ')}` : ''].filter(Boolean).join(' · '))),
      el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `Paths of ${e.name}` }, el('table', {},
        el('thead', {}, el('tr', {}, ...['Path', 'Interface', 'State', 'RTT since page load'].map((h) => el('th', { scope: 'col' }, h)),
          ...['RTT', 'Least', 'Loss', 'Sent', 'First', 'Late', 'Rogue'].map((h) => el('th', { scope: 'col', class: 'n' }, h)))),
        el('tbody', {}, ...rows))));
  }));
}

function spark(key, path) {
  const W = 160, H = 22;
  const list = rtts.get(key) ?? [];
  const most = Math.max(1, ...[...rtts.values()].flat().filter((v) => v !== null)) * 1.05; // one scale for all
  const g = svg('svg', { class: 'spark', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `RTT ${ms(path.rtt_ms)}` },
    svg('rect', { class: 'lane', width: W, height: H, rx: 3 }));
  let points = [];
  const flush = () => {
    if (points.length === 1) points.push(points[0]);
    if (points.length) g.append(svg('polyline', { points: points.map((p) => p.join(',')).join(' ') }));
    points = [];
  };
  list.forEach((v, n) => {
    if (v === null) return flush();
    points.push([((n + SAMPLES - list.length) * W / (SAMPLES - 1)).toFixed(1), (H - 1 - (v / most) * (H - 2)).toFixed(1)]);
  });
  flush();
  return g;
}

function drawDecisions() {
  const newest = decisions.at(-1)?.sequence ?? 0;
  if (newest === drawnUpTo) return; // keeps a row in place while it is read or copied
  drawnUpTo = newest;
  $('decisions').replaceChildren(...decisions.slice(-SHOWN).reverse().map((d) => {
    const rewards = (d.rewards ?? []).map((r) => `path ${r.path}: ${r.reward} of ${r.window}`).join(', ');
    const text = (p) => (p.length ? p.join('+') : '–');
    const same = d.from.join() === d.to.join();
    return el('tr', {},
      el('td', { title: d.time }, clock(d.time, true)),
      el('td', {}, d.kind),
      el('td', {}, (d.destination || d.edge || '') + (d.others ? ` and ${d.others.length} more` : '')),
      el('td', {}, same ? text(d.to) : `${text(d.from)} → ${text(d.to)}`),
      el('td', { class: 'reason' }, d.reason, rewards ? el('span', { class: 'dim' }, ` (rewards: ${rewards})`) : ''));
  }));
}

round();
