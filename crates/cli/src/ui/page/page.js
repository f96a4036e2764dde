// The page of `kubectl tenure ui`: the runs, their floors and their ends. What others have written is text here, and never markup.
"use strict";

const { html, render, useEffect, useLayoutEffect, useRef, useState } = htmPreact;

const HOUR = 3600e3;
const SPANS = { "2 hours": 2 * HOUR, "12 hours": 12 * HOUR, "2 days": 48 * HOUR, "2 weeks": 336 * HOUR };
const LINE = 34;
const exported = document.getElementById("exported");

/* What is known. Rows are by namespace, kind and name. */

const known = { rows: new Map(), parts: {}, offset: 0, heard: 0, every: 0, error: null, lost: null, version: 0 };
const listeners = new Set();
let told = 0;

/** Has the page drawn again. */
function tell() {
  told += 1;
  for (const listener of listeners) listener(told);
}

/** Computes something once for each version of what is known, and each minute. */
function cached(compute) {
  const answers = new Map();
  let stamp = null;
  return (...of) => {
    const current = `${known.version} ${Math.floor(now() / 60e3)}`;
    if (stamp !== current) answers.clear();
    stamp = current;
    const key = JSON.stringify(of);
    if (!answers.has(key)) answers.set(key, compute(...of));
    return answers.get(key);
  };
}

/** Takes what has changed. Rows and parts that are null are gone. */
function take(update) {
  if (update.all) known.rows.clear();
  for (const [id, row] of Object.entries(update.rows)) {
    if (row) known.rows.set(id, { id, ...row });
    else known.rows.delete(id);
  }
  for (const [name, part] of Object.entries(update.parts)) known.parts[name] = part;
  if (Object.keys(update.rows).length || Object.keys(update.parts).length) known.version += 1;
  const age = update.age ?? 0;
  known.at = Date.parse(update.now);
  // the clock of the API server, which may differ from that of this machine
  known.offset = known.at + age - Date.now();
  known.heard = Date.now() - age;
  known.every = update.every ?? 0;
  known.error = update.error ?? null;
  known.took ??= performance.now();
  known.lost = null;
  tell();
}

function all() {
  const rows = Object.fromEntries([...known.rows].map(([id, row]) => [id, row]));
  const { parts, every, error, heard } = known;
  return { all: true, rows, parts, every, error, age: Date.now() - heard, now: new Date(known.at).toISOString() };
}

/** The time of what is shown: an export and files stand still. */
function now() {
  return exported || frozen() ? known.at : Date.now() + known.offset;
}

function frozen() {
  return known.parts.facts && !known.parts.facts.isLive;
}

/* The server. Its key is kept where pages and servers of other ports can't read it. */

const key = exported ? null : localStorage.getItem("tenure-key") ?? "";

/** Sends a request with the key. An answer that is no success is an error with its text. */
async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...options.headers, "X-Tenure-Key": key } });
  if (answer.status === 401) throw new Error(SIGNED_OUT);
  return answer;
}

/** Listens to the server: one tab does, and tells the others. */
function listen() {
  const tabs = new BroadcastChannel(`tenure ${key}`);
  let listens = false;
  tabs.onmessage = ({ data }) => {
    if (data.asks && listens && known.heard) tabs.postMessage({ update: all(), isAnswer: true });
    if (data.update && !(data.isAnswer && known.heard)) take(data.update);
    if (data.lost) lose(data.lost);
  };
  tabs.postMessage({ asks: true });
  navigator.locks.request(`tenure ${key}`, async () => {
    listens = true;
    for (;;) {
      try {
        await follow((update) => {
          take(update);
          tabs.postMessage({ update });
        });
      } catch (error) {
        const lost = error.message === SIGNED_OUT ? SIGNED_OUT : LOST;
        lose(lost);
        tabs.postMessage({ lost });
      }
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
    }
  });
}

/** Reads the server-sent events, until the stream ends. */
async function follow(receive) {
  const reader = (await ask("events")).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error(LOST);
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) receive(JSON.parse(event.slice("data: ".length)));
  }
}

function lose(why) {
  known.lost = why;
  tell();
}

const LOST = "No answer from kubectl tenure ui. If it has ended, start it again; else this page goes on by itself.";
const SIGNED_OUT = "This page is of a server that has ended, or of another browser. Open the page again as kubectl tenure ui says.";

/* Times in words */

/** The two largest units of a time: "2 h 5 min". */
function words(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const units = [[Math.floor(seconds / 86400), "d"], [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"], [seconds % 60, "s"]];
  const first = units.findIndex(([number]) => number > 0);
  if (first < 0) return "0 s";
  const told = units.slice(first, first + 2).filter(([number, unit]) => number > 0 && !(unit === "s" && first < 2));
  return told.map(([number, unit]) => `${number} ${unit}`).join(" ");
}

/** A time here, and in UTC: "14:05 (12:05 UTC)". */
function clock(at) {
  const of = (timeZone) => {
    const on = (time) => new Date(time).toLocaleDateString("en-GB", { timeZone });
    const day = on(at) === on(now()) ? {} : { month: "short", day: "numeric" };
    return new Date(at).toLocaleString("en-GB", { ...day, hour: "2-digit", minute: "2-digit", timeZone });
  };
  const [local, utc] = [of(undefined), of("UTC")];
  return local === utc ? `${utc} UTC` : `${local} (${utc} UTC)`;
}

function time(text) {
  return text ? Date.parse(text) : null;
}

/* Rows in words */

/** What comes next for a workload, and when. */
function next(row) {
  const at = now();
  const expires = time(row.expiresAt);
  const runsDry = known.parts.facts?.runsDry;
  switch (row.state) {
    case "Paused": return { text: `paused${since(row.pausedAt)}, until it is resumed` };
    case "Requeueing": return row.requeueAt
      ? { text: time(row.requeueAt) > at ? `comes back in ${words(time(row.requeueAt) - at)}` : "comes back any moment", at: time(row.requeueAt) }
      : { text: "comes back soon" };
    case "Inactive": return { text: `inactive${since(row.pausedAt)}, until it is activated` };
    case "Exempt": return { text: `never touched (${row.reason})` };
    case "Terminating": return { text: "terminating" };
    case "Expired": return { text: runsDry ? "would be paused: the keeper is in dry-run mode" : `over its ceiling for ${words(at - expires)}`, at: expires };
    default:
  }
  if (expires) return { text: `${runsDry ? "would end" : "ends"} in ${words(expires - at)}`, at: expires };
  if (row.queueIsHidden) return { text: "its end isn't shown to you" };
  if (row.queueIsUnknown) return { text: `queue ${row.queue} doesn't exist: no ceiling` };
  if (row.state === "Pending") return { text: row.ceilingFrom ? "pending: its ceiling counts from its start" : "pending" };
  return { text: "no ceiling" };
}

function since(text) {
  return text ? ` for ${words(now() - time(text))}` : "";
}

function gpus(number) {
  return number === 1 ? "1 GPU" : `${number} GPUs`;
}

function safety(row) {
  const until = time(row.floorUntil);
  return until && until > now() ? `protected for ${words(until - now())}` : "";
}

/** The whole row as a sentence, for those who listen. */
function sentence(row) {
  const parts = [`${row.workload} in ${row.namespace}`, row.queue ? `queue ${row.queue}` : "no queue", row.state,
    row.gpus ? gpus(row.gpus) : "", next(row).text, safety(row)];
  return parts.filter(Boolean).join(", ");
}

/** A word of a command for a shell. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** A command for a shell, with the flags of this server. */
function command(verb, row, ...more) {
  const facts = known.parts.facts ?? {};
  const flags = verb === "explain" || facts.isLive ? facts.flags ?? [] : [];
  return ["kubectl", "tenure", verb, row.workload, ...more, "-n", row.namespace, ...flags].map(quoted).join(" ");
}

function commands(row) {
  const verb = { Paused: "resume", Requeueing: "requeue", Inactive: "activate" }[row.state];
  const change = verb ? [command(verb, row)] : row.state === "Running" && row.expiresAt ? [command("extend", row, "2h")] : [];
  return [...change, command("explain", row)];
}

/* Lines of the list: sections, queues and workloads */

/** Times in UTC sort as text does. What has no end comes last. */
function byEnd(one, other) {
  const [ours, theirs] = [one.expiresAt ?? "~", other.expiresAt ?? "~"];
  if (ours !== theirs) return ours < theirs ? -1 : 1;
  return one.id < other.id ? -1 : 1;
}

function matches(row, filter) {
  const text = filter.text.trim().toLowerCase();
  return (!text || `${row.id} ${row.queue ?? ""} ${row.reason ?? ""}`.toLowerCase().includes(text))
    && (!filter.queue || row.queue === filter.queue)
    && (!filter.namespace || row.namespace === filter.namespace)
    && (!filter.state || row.state === filter.state)
    && (!filter.mine || row.namespace === known.parts.facts?.namespace);
}

const lines = cached((filter) => {
  const rows = [...known.rows.values()].filter((row) => matches(row, filter)).sort(byEnd);
  const runs = (row) => ["Running", "Pending"].includes(row.state) || (row.state === "Expired" && !known.parts.facts?.runsDry);
  const soon = rows.filter((row) => runs(row) && row.expiresAt && time(row.expiresAt) - now() < HOUR);
  const result = [];
  const section = (title, rows, note = "") => {
    if (rows.length) result.push({ key: `# ${title}`, title, note, count: rows.length, depth: 0 });
    for (const row of rows) result.push({ key: `${title} ${row.id}`, row, depth: 1, urgent: title === SOON });
  };
  section(SOON, soon);
  const of = new Map();
  for (const row of rows) {
    const key = row.queueIsUnknown ? "?" : `${row.family} ${row.queue}`;
    if (!of.has(key)) of.set(key, []);
    of.get(key).push(row);
  }
  const shown = new Set();
  const queues = [...(known.parts.queues ?? [])].sort((one, other) => path(one).localeCompare(path(other)));
  const used = new Set(queues.filter((queue) => of.has(`${queue.family} ${queue.name}`)).flatMap((queue) => queue.path.map((name) => `${queue.family} ${name}`)));
  for (const queue of queues) {
    const key = `${queue.family} ${queue.name}`;
    if (!used.has(key)) continue;
    const rows = of.get(key) ?? [];
    shown.add(key);
    const depth = queue.path.length - 1;
    result.push({ key: `# ${key}`, title: queue.name, note: limits(queue), count: rows.length, depth });
    for (const row of rows) result.push({ key: row.id, row, depth: depth + 1 });
  }
  section("In queues that don't exist", of.get("?") ?? [], "no ceiling applies: check the name");
  const rest = [...of].filter(([key]) => key !== "?" && !shown.has(key)).flatMap(([, rows]) => rows);
  section("In queues that aren't shown to you, or no longer in a queue", rest);
  return result;
});

const SOON = "Ends within the hour";

function path(queue) {
  return `${queue.family}\n${queue.path.join("\n")}`;
}

function limits(queue) {
  const of = (name, value) => (value && value.value !== "0s" ? `${name} ${value.value}${value.from === queue.name || value.from === `queue "${queue.name}"` ? "" : ` from ${value.from}`}` : "");
  return [of("ceiling", queue.maxDuration), of("floor within", queue.preemptMinRuntime), of("floor between", queue.reclaimMinRuntime)]
    .filter(Boolean).join(", ");
}

/* Parts of the page */

function App() {
  const [, update] = useState(0);
  const [view, setView] = useState("runs");
  const [filter, setFilter] = useState({ text: "", queue: "", namespace: "", state: "", mine: false, span: "12 hours" });
  const [open, setOpen] = useState(null);
  const [tried, setTried] = useState({ limits: { maxDuration: "2d", preemptMinRuntime: "", reclaimMinRuntime: "" } });
  useEffect(() => {
    listeners.add(update);
    const tick = setInterval(tell, 1000);
    return () => { listeners.delete(update); clearInterval(tick); };
  }, []);
  if (!known.heard) return html`<main class="wait"><p role="status">${known.lost ?? "Reading the cluster…"}</p></main>`;
  const tabs = [["runs", "Runs"], ["queues", "Queues"], ["matrix", "Floors between queues"]];
  if (simulates() || known.parts.simulation) tabs.push(["simulation", "What if"]);
  return html`
    <header>
      <h1>Tenure</h1>
      <nav aria-label="Views">${tabs.map(([name, title]) => html`
        <button key=${name} aria-pressed=${view === name} onClick=${() => { setView(name); setOpen(null); }}>${title}</button>`)}
      </nav>
      <${Age} />
    </header>
    <${Notes} />
    ${view === "runs" && html`<${Free} /><${Filters} filter=${filter} set=${setFilter} /><${Runs} filter=${filter} open=${open} setOpen=${setOpen} /><${Strays} />`}
    ${view === "queues" && html`<${Queues} />`}
    ${view === "matrix" && html`<${MatrixView} />`}
    ${view === "simulation" && html`<${WhatIf} tried=${tried} set=${setTried} />`}
    ${open && html`<${Detail} key=${open} id=${open} close=${() => { setOpen(null); document.querySelector(".runs")?.focus({ focusVisible: false }); }} />`}`;
}

function Age() {
  if (exported || (frozen() && !known.lost)) return html`<p class="age">as of ${clock(known.at)}</p>`;
  const age = Date.now() - known.heard;
  const late = known.lost || known.error || age > Math.max(15000, 3 * known.every);
  return html`<p class=${late ? "age late" : "age"}>${late ? `as of ${words(age)} ago` : "live"}</p>`;
}

function Notes() {
  const facts = known.parts.facts ?? {};
  const notes = [
    known.lost,
    known.error && `The cluster can't be read: ${known.error}`,
    facts.runsDry && "The keeper is in dry-run mode: workloads past their ceiling run on.",
    facts.only && `Only namespace ${facts.only} is shown.`,
    ...(known.parts.warnings ?? []),
  ].filter(Boolean);
  return notes.length > 0 && html`<ul class="notes" role="status" aria-label="Notes">${notes.map((note) => html`<li key=${note}>${note}</li>`)}</ul>`;
}

function Free() {
  const rows = known.parts.free ?? [];
  const amounts = (free) => Object.entries(free).filter(([name]) => name.endsWith("/gpu"));
  const names = new Set(rows.flatMap(({ free }) => amounts(free).map(([name]) => name)));
  if (!names.size) return null;
  return html`<section class="free" aria-label="GPUs that come free">
    <h2>${known.parts.facts?.runsDry ? "GPUs that would come free without the keeper's dry run" : "GPUs that come free, at the latest"}</h2>
    <ol>${rows.slice(0, 6).map(({ by, free }) => html`<li key=${by}>
      <b>${amounts(free).map(([name, amount]) => (names.size > 1 ? `${amount} ${name}` : amount)).join(", ")}</b>
      ${" "}by ${clock(time(by))} <small>in ${words(time(by) - now())}</small></li>`)}</ol>
    <p><small>By ceilings alone: a bound, no promise of who gets them. kubectl tenure forecast has more.</small></p>
  </section>`;
}

const values = cached((name) => [...new Set([...known.rows.values()].map((row) => row[name]).filter(Boolean))].sort());

function Filters({ filter, set }) {
  const change = (name) => (event) => set({ ...filter, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
  const select = (name, label, options) => html`<label>${label}${" "}
    <select name=${name} value=${filter[name]} onChange=${change(name)}><option value="">all</option>
    ${options.map((value) => html`<option key=${value} value=${value}>${value}</option>`)}</select></label>`;
  const mine = known.parts.facts?.namespace;
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>Find${" "}<input type="search" name="text" value=${filter.text} onInput=${change("text")} placeholder="press / to type"/></label>
    ${select("queue", "Queue", values("queue"))}
    ${select("namespace", "Namespace", values("namespace"))}
    ${select("state", "State", values("state"))}
    ${mine && html`<label title="The namespace of your context"><input type="checkbox" name="mine" checked=${filter.mine} onChange=${change("mine")}/> mine (${mine})</label>`}
    <label>Time${" "}<select name="span" value=${filter.span} onChange=${change("span")}>${Object.keys(SPANS).map((span) => html`<option key=${span} value=${span} selected=${span === filter.span}>${span}</option>`)}</select></label>
  </form>`;
}

/** The list, of which only the lines in sight are drawn. */
function Runs({ filter, open, setOpen }) {
  const box = useRef(null);
  const [, scrolled] = useState(0);
  const [active, setActive] = useState(null);
  const all = lines(filter);
  useLayoutEffect(notePaint, []);
  const [top, height] = [box.current?.scrollTop ?? 0, box.current?.clientHeight || 600];
  const first = Math.max(0, Math.floor(top / LINE) - 4);
  const visible = all.slice(first, first + Math.ceil(height / LINE) + 8);
  const place = active === null ? -1 : all.findIndex((line) => line.key === active);
  const move = (steps) => {
    const places = all.flatMap((line, place) => (line.row ? [place] : []));
    const at = places.indexOf(place);
    const to = places[Math.min(places.length - 1, Math.max(0, at < 0 ? 0 : at + steps))];
    if (to === undefined) return;
    setActive(all[to].key);
    const y = to * LINE;
    const list = box.current;
    if (y < list.scrollTop) list.scrollTop = y;
    if (y + LINE > list.scrollTop + list.clientHeight) list.scrollTop = y + LINE - list.clientHeight;
  };
  const page = Math.max(1, Math.floor(height / LINE) - 1);
  const keys = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  const onKeyDown = (event) => {
    if (event.key in keys) {
      event.preventDefault();
      move(keys[event.key]);
    } else if (event.key === "Enter" && all[place]?.row) {
      setOpen(all[place].row.id);
    }
  };
  if (!all.length) return html`<p class="none" role="status">${known.rows.size ? "No workload is like that." : "No workload in a queue."}</p>`;
  const span = SPANS[filter.span];
  return html`<${Axis} span=${span} /><div class="runs" role="grid" aria-label="Workloads" aria-rowcount=${all.length} tabindex="0" ref=${box}
      aria-activedescendant=${place >= first && place < first + visible.length ? `line-${place}` : null} onKeyDown=${onKeyDown}
      onFocus=${(event) => active === null && event.target.matches(":focus-visible") && move(0)} onScroll=${(event) => scrolled(event.target.scrollTop)}>
    <div role="rowgroup" style=${{ height: `${all.length * LINE}px`, position: "relative" }}>
      ${visible.map((line, number) => html`<${Line} key=${line.key} line=${line} place=${first + number} span=${span}
        active=${line.key === active} open=${line.row && line.row.id === open}
        choose=${() => { setActive(line.key); setOpen(line.row.id); }} />`)}
    </div>
  </div>`;
}

/** The times of the lane, above it. */
function Axis({ span }) {
  const at = (share) => now() + (share - 0.25) * span;
  return html`<div class="line axis" aria-hidden="true"><div></div><div class="lane">${[0, 0.25, 0.5, 0.75].map((share) => html`
    <span key=${share} style=${{ left: `${share * 100}%` }}>${share === 0.25 ? "now" : clock(at(share))}</span>`)}</div><div></div></div>`;
}

/** When the first lines were there to see, for measurements. */
function notePaint() {
  requestAnimationFrame(() => { known.painted ??= performance.now(); });
}

function Line({ line, place, span, active, open, choose }) {
  const style = { top: `${place * LINE}px`, height: `${LINE}px` };
  const indent = { paddingLeft: `${0.5 + line.depth}rem` };
  if (!line.row) {
    return html`<div role="row" class="line group" id=${`line-${place}`} aria-rowindex=${place + 1} style=${style}>
      <div role="rowheader" style=${indent}><b>${line.title}</b> <small>${[line.count && (line.count === 1 ? "1 workload" : `${line.count} workloads`), line.note].filter(Boolean).join(" · ")}</small></div></div>`;
  }
  const { row } = line;
  const what = next(row);
  const soon = what.at && row.state !== "Requeueing" && what.at - now() < HOUR;
  const state = ["line", row.state.toLowerCase(), line.urgent || soon ? "soon" : "", active ? "active" : "", open ? "open" : ""].join(" ");
  return html`<div role="row" class=${state} id=${`line-${place}`} aria-rowindex=${place + 1} aria-selected=${active} aria-label=${sentence(row)}
      style=${style} onClick=${choose}>
    <div role="gridcell" class="name" style=${indent}><bdi>${row.workload}</bdi> <small><bdi>${row.namespace}</bdi>${row.gpus ? ` · ${gpus(row.gpus)}` : ""}</small></div>
    <div role="gridcell" class="lane" aria-hidden="true"><${Bar} row=${row} span=${span} /></div>
    <div role="gridcell" class="left">${what.text} <small>${[what.at && clock(what.at), safety(row)].filter(Boolean).join(" · ")}</small></div>
  </div>`;
}

/** The run on a line of time: a quarter of it is past. */
function Bar({ row, span }) {
  const from = now() - span / 4;
  const x = (at) => Math.min(100, Math.max(0, ((at - from) / span) * 100));
  const piece = (kind, begin, end) => begin !== null && end > begin && x(end) > 0
    && html`<i class=${kind} style=${{ left: `${x(begin)}%`, width: `${Math.max(0.2, x(end) - x(begin))}%` }} />`;
  const [started, expires, floor, returns] = [row.startedAt, row.expiresAt, row.floorUntil, row.requeueAt].map(time);
  const begins = started ?? (row.state === "Running" ? from : null);
  const ends = expires ?? from + span;
  return html`
    ${piece(expires ? "run" : "run endless", begins, row.state === "Expired" ? now() : ends)}
    ${piece("floor", begins, floor ?? 0)}
    ${row.state === "Expired" && piece("would", expires, from + span)}
    ${returns && piece("returns", returns, from + span)}
    ${expires && expires > from && expires < from + span && html`<i class="end" style=${{ left: `${x(expires)}%` }} />`}
    <i class="now" style=${{ left: "25%" }} />`;
}

function Strays() {
  const strays = known.parts.strays ?? [];
  return strays.length > 0 && html`<details class="strays"><summary>${strays.length === 1 ? "1 pod has" : `${strays.length} pods have`} GPUs and no queue</summary>
    <ul>${strays.slice(0, 200).map((pod) => html`<li key=${`${pod.namespace}/${pod.name}`}><bdi>${pod.namespace}/${pod.name}</bdi>
      <small>${gpus(pod.gpus)}${pod.node ? ` on ${pod.node}` : ""}</small></li>`)}</ul></details>`;
}

/** What runs in each queue and below it: the number of workloads, and their GPUs. */
const held = cached(() => {
  const sums = new Map();
  const paths = new Map((known.parts.queues ?? []).map((queue) => [`${queue.family} ${queue.name}`, queue.path]));
  for (const row of known.rows.values()) {
    if (!["Running", "Expired", "Exempt", "Terminating"].includes(row.state)) continue;
    for (const name of paths.get(`${row.family} ${row.queue}`) ?? []) {
      const [runs, gpus] = sums.get(`${row.family} ${name}`) ?? [0, 0];
      sums.set(`${row.family} ${name}`, [runs + 1, gpus + (row.gpus ?? 0)]);
    }
  }
  return sums;
});

function Queues() {
  const queues = [...(known.parts.queues ?? [])].sort((one, other) => (path(one) < path(other) ? -1 : 1));
  const cell = (value) => html`<td>${value ? value.value : "none"} <small>${value ? `from ${value.from}` : ""}</small></td>`;
  if (!queues.length) return html`<p class="none">No queues, as far as you may see.</p>`;
  return html`<div class="scroll"><table><caption>Queues, with their floors and ceilings and where each comes from</caption>
    <thead><tr><th scope="col">Queue</th><th scope="col">Ceiling</th><th scope="col">Floor within it</th><th scope="col">Floor against other trees</th>
      <th scope="col">Runs, with those below it</th><th scope="col">GPUs</th></tr></thead>
    <tbody>${queues.map((queue) => {
      const [runs, gpus] = held().get(`${queue.family} ${queue.name}`) ?? [0, 0];
      return html`<tr key=${path(queue)}><th scope="row" style=${{ paddingLeft: `${0.5 + queue.path.length - 1}rem` }}><bdi>${queue.name}</bdi> <small>${queue.family}</small></th>
        ${cell(queue.maxDuration)}${cell(queue.preemptMinRuntime)}${cell(queue.reclaimMinRuntime)}<td>${runs}</td><td>${gpus}</td></tr>`;
    })}</tbody></table></div>`;
}

/** The floors between queues, the darker the longer. */
function MatrixView() {
  const pairs = known.parts.matrix;
  if (!pairs) return html`<p class="none">There are too many queues for a table: kubectl tenure matrix --victim-queue QUEUE</p>`;
  const names = [...new Set(pairs.flatMap((pair) => [pair.preemptor, pair.victim]))].sort();
  if (!names.length) return html`<p class="none">There are no two queues with floors between them, as far as you may see.</p>`;
  const of = new Map(pairs.map((pair) => [`${pair.preemptor}\n${pair.victim}`, pair]));
  const units = { w: 604800, d: 86400, h: 3600, m: 60, s: 1, ms: 0, us: 0, ns: 0 };
  const seconds = (text) => [...text.matchAll(/([\d.]+)([mun]?s|[wdhm])/g)].reduce((sum, [, number, unit]) => sum + number * units[unit], 0);
  const longest = Math.max(1, ...pairs.map((pair) => seconds(pair.value)));
  return html`<div class="scroll"><table class="matrix"><caption>The floor of a workload in the queue of the row, against a preemptor in that of the column</caption>
    <thead><tr><th scope="col">Runs in</th>${names.map((name) => html`<th scope="col" key=${name}><bdi>${name}</bdi></th>`)}</tr></thead>
    <tbody>${names.map((victim) => html`<tr key=${victim}><th scope="row"><bdi>${victim}</bdi></th>${names.map((preemptor) => {
      const pair = of.get(`${preemptor}\n${victim}`);
      const heat = pair ? Math.round((Math.log1p(seconds(pair.value)) / Math.log1p(longest)) * 60) : 0;
      return html`<td key=${preemptor} title=${pair ? `from ${pair.from}` : ""} style=${{ backgroundColor: `color-mix(in srgb, var(--floor) ${heat}%, transparent)` }}>${pair ? pair.value : ""}</td>`;
    })}</tr>`)}</tbody></table></div>`;
}

/* What if: a simulation of the past by other limits */

/** Whether the page can ask for a simulation. */
function simulates() {
  return !exported && Boolean(known.parts.facts?.isLive);
}

const LIMITS = [["maxDuration", "--max-duration", "Ceiling"], ["preemptMinRuntime", "--preempt-min-runtime", "Floor within a tree"],
  ["reclaimMinRuntime", "--reclaim-min-runtime", "Floor against other trees"]];

function WhatIf({ tried, set }) {
  const { limits, report = known.parts.simulation, error, busy } = tried;
  const given = LIMITS.filter(([name]) => limits[name].trim());
  const facts = known.parts.facts ?? {};
  const namespace = facts.only ? ["-n", facts.only] : [];
  const shown = ["kubectl", "tenure", "simulate", "--from-cluster", ...given.flatMap(([name, flag]) => [flag, limits[name].trim()]), ...namespace, ...facts.flags ?? []]
    .map(quoted).join(" ");
  const run = async (event) => {
    event.preventDefault();
    set({ ...tried, error: null, busy: true });
    try {
      const answer = await (await ask(`simulation?${new URLSearchParams(limits)}`)).json();
      set(answer.error ? { ...tried, error: answer.error, busy: false } : { ...tried, report: answer, error: null, busy: false });
    } catch (failure) {
      set({ ...tried, error: failure.message === SIGNED_OUT ? SIGNED_OUT : LOST, busy: false });
    }
  };
  return html`<div class="scroll">
    ${simulates() && html`<form class="filters" onSubmit=${run} aria-label="Limits to try">
      ${LIMITS.map(([name, , title]) => html`<label key=${name}>${title}${" "}<input name=${name} size="6" value=${limits[name]}
        onInput=${(event) => set({ ...tried, limits: { ...limits, [name]: event.target.value } })} /></label>`)}
      <button disabled=${busy || !given.length}>${busy ? "Reading the past…" : "Simulate"}</button>
    </form>
    <p><code>${shown}</code></p>`}
    ${error && html`<pre role="status" class="failed">${error}</pre>`}
    ${report && html`<${Simulated} report=${report} />`}</div>`;
}

/** The numbers of a simulation: what each queue used, and what it would have used. */
function Simulated({ report }) {
  const { unit } = report;
  const queues = [...report.queues, report.total].filter(Boolean);
  const longest = Math.max(1e-9, ...report.queues.map((queue) => queue.used ?? 0));
  const losers = report.losers ?? [];
  const ran = Math.max(1, ...losers.map((loser) => loser.ranSeconds));
  const amount = (number) => (number ?? 0).toLocaleString("en-US", { maximumSignificantDigits: 3 });
  const bar = (kind, share) => html`<i class=${kind} style=${{ width: `${Math.min(100, share * 100)}%` }} />`;
  const [before, after] = report.schedules ?? [];
  const estimate = (name, of) => html`<tr key=${name}><th scope="row">${name}</th><td>${of.waitP50 === null ? "" : words(of.waitP50 * 1000)}</td>
    <td>${of.waitP95 === null ? "" : words(of.waitP95 * 1000)}</td><td>${of.cut}</td><td>${of.preempted}</td><td>${amount(of.lost)}</td></tr>`;
  return html`
    <p class="said" role="status">${report.sentence}</p>
    <p><small>${report.depth === "schedule" ? "Who is cut is exact; the second table is an estimate." : "A replay: runs keep their start times. Which runs are cut is exact; nothing is rescheduled."}
      ${" "}${(report.missing ?? []).map((of) => `Missing: ${of}. `)}</small></p>
    <table class="simulated"><caption>Each queue before (${report.baseline}) and after (${report.policy}), in ${unit}</caption>
      <thead><tr><th scope="col">Queue</th><th scope="col">Before and after</th><th scope="col">${unit}</th><th scope="col">Jobs</th><th scope="col">Cut</th>
        <th scope="col">Users cut</th><th scope="col">Nearly finished</th><th scope="col">Preempted</th><th scope="col">Avoided by floors</th></tr></thead>
      <tbody>${queues.map((queue) => html`<tr key=${queue.queue}><th scope="row"><bdi>${queue.queue}</bdi></th>
        <td class="bars" aria-hidden="true">${queue !== report.total && html`${bar("before", queue.used / longest)}${bar("after", (queue.used - queue.freed) / longest)}`}</td>
        <td>${amount(queue.used)} → ${amount(queue.used - queue.freed)}</td><td>${queue.jobs}</td><td>${queue.cut}</td><td>${queue.usersCut}</td>
        <td>${queue.nearlyFinished}</td><td>${queue.preempted}</td><td>${queue.preemptionsAvoided}</td></tr>`)}</tbody></table>
    ${before && after && html`<table><caption>Placed again in one pool: an estimate</caption><thead><tr><th scope="col">Policy</th><th scope="col">Median wait</th>
      <th scope="col">95 % wait at most</th><th scope="col">Cut</th><th scope="col">Preempted</th><th scope="col">Lost ${unit}</th></tr></thead>
      <tbody>${estimate("before", before)}${estimate("after", after)}</tbody></table>`}
    ${losers.length > 0 && html`<table class="simulated"><caption>Who would lose most</caption><thead><tr><th scope="col">Workload</th><th scope="col">User</th>
      <th scope="col">Queue</th><th scope="col">Before and after</th><th scope="col">Ran</th><th scope="col">Cut after</th><th scope="col">Loses ${unit}</th></tr></thead>
      <tbody>${losers.map((of) => html`<tr key=${`${of.workload} ${of.user}`}><th scope="row"><bdi>${of.workload}</bdi></th><td><bdi>${of.user}</bdi></td><td><bdi>${of.queue}</bdi></td>
        <td class="bars" aria-hidden="true">${bar("before", of.ranSeconds / ran)}${bar("after", of.cutAfterSeconds / ran)}</td>
        <td>${words(of.ranSeconds * 1000)}</td><td>${words(of.cutAfterSeconds * 1000)}</td><td>${amount(of.lost)}</td></tr>`)}</tbody></table>`}`;
}

function Detail({ id, close }) {
  const row = known.rows.get(id);
  const [about, setAbout] = useState(null);
  const [done, setDone] = useState(null);
  const panel = useRef(null);
  const state = JSON.stringify([row?.state, row?.expiresAt, row?.queue]);
  useEffect(() => {
    if (exported || !row) return;
    const left = new AbortController();
    setAbout(null);
    ask(`workload?id=${encodeURIComponent(id)}`, { signal: left.signal }).then((answer) => answer.json()).then(
      setAbout, (error) => left.signal.aborted || setAbout({ error: error.message === SIGNED_OUT ? SIGNED_OUT : LOST }));
    return () => left.abort();
  }, [id, state]);
  useLayoutEffect(() => panel.current?.focus(), [id]);
  if (!row) return html`<aside class="detail" tabindex="-1" ref=${panel}><p role="status">${id} is gone.</p><button onClick=${close}>Close</button></aside>`;
  const copied = (text) => navigator.clipboard?.writeText(text);
  return html`<aside class="detail" role="region" aria-label=${`About ${id}`} tabindex="-1" ref=${panel}
      onKeyDown=${(event) => event.key === "Escape" && close()}>
    <button class="close" onClick=${close} aria-label="Close">×</button>
    <h2><bdi>${row.workload}</bdi> <small><bdi>${row.namespace}</bdi></small></h2>
    <p>${sentence(row)}.</p>
    ${about?.verb && html`<${Change} key=${about.verb} row=${row} verb=${about.verb} done=${setDone} />`}
    ${done && html`<pre role="status" class=${done.succeeded ? "" : "failed"}>${done.text || done.error}</pre>`}
    <h3>Commands</h3>
    <ul class="commands">${commands(row).map((command) => html`<li key=${command}><code>${command}</code> <button onClick=${() => copied(command)} aria-label=${`Copy ${command}`}>Copy</button></li>`)}</ul>
    ${!exported && html`<h3>Why</h3><pre class="why">${about ? about.explained?.text ?? about.error : "…"}</pre>`}
    ${about?.events?.length > 0 && html`<h3>Events</h3><ul>${about.events.map((event) => html`<li key=${`${event.at}${event.reason}`}>
      <small>${event.at ? `${words(now() - time(event.at))} ago` : ""}</small> <b>${event.reason}</b> ${event.message}</li>`)}</ul>`}
  </aside>`;
}

/** A button that asks before it changes something. */
function Change({ row, verb, done }) {
  const dialog = useRef(null);
  const [more, setMore] = useState("2h");
  const [busy, setBusy] = useState(false);
  const title = verb[0].toUpperCase() + verb.slice(1);
  const shown = command(verb, row, ...(verb === "extend" ? [more] : []));
  const confirm = async () => {
    dialog.current.close();
    setBusy(true);
    const body = JSON.stringify({ id: row.id, verb, duration: verb === "extend" ? more : null });
    try {
      const answer = await ask("change", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      done(await answer.json());
    } catch (error) {
      done({ error: error.message === SIGNED_OUT ? SIGNED_OUT : LOST });
    }
    setBusy(false);
  };
  return html`
    <p><button class="change" disabled=${busy} onClick=${() => dialog.current.showModal()}>${title}…</button></p>
    <dialog ref=${dialog} aria-label=${`${title} ${row.workload}?`} onKeyDown=${(event) => event.stopPropagation()}>
      <p>${title} <b><bdi>${row.workload}</bdi></b> in namespace <bdi>${row.namespace}</bdi>?</p>
      ${verb === "extend" && html`<p><label>By${" "}<input name="duration" value=${more} onInput=${(event) => setMore(event.target.value)} size="6"/></label></p>`}
      <pre>${shown}</pre>
      <p><button class="confirm" onClick=${confirm}>${title}</button>${" "}<button onClick=${() => dialog.current.close()}>Cancel</button></p>
    </dialog>`;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement?.tagName)) {
    event.preventDefault();
    document.querySelector("input[type=search]")?.focus();
  }
});

if (exported) take({ all: true, ...JSON.parse(exported.textContent) });
else listen();
render(html`<${App} />`, document.getElementById("root"));
