"use strict";
// The page that moves: /events sends what changed twice a second; sections of symbols are made as they come.

const STEPS = {"1s": 1, "1m": 60, "1h": 3600}, MAX_BARS = 90;
const NAMES = ["open", "high", "low", "close", "vwap", "volume"];
const bars = new Map();  // by "symbol width": Map of start -> numbers
const shown = new Map();  // by symbol: {section, candles}
const rates = new Map();  // by topic: [[when, records], ...] of the last seconds
let width = "1m";

const byId = id => document.getElementById(id);
const WAITING = byId("status").textContent;
const whole = value => value.toLocaleString("en", {maximumFractionDigits: 0});

function setText(id, text) { if (byId(id).textContent !== text) byId(id).textContent = text; }

function columnsOf(symbol) {
  const found = bars.get(`${symbol} ${width}`) || new Map(), starts = [...found.keys()].sort((a, b) => a - b);
  const columns = {time: starts};
  NAMES.forEach((name, index) => { columns[name] = starts.map(start => found.get(start)[index]); });
  return columns;
}

function keep(changed) {
  const symbols = new Set();
  for (const [symbol, barWidth, start, ...numbers] of changed) {
    const key = `${symbol} ${barWidth}`;
    if (!bars.has(key)) bars.set(key, new Map());
    const slots = bars.get(key);
    slots.set(start, numbers);
    if (slots.size > MAX_BARS) slots.delete(Math.min(...slots.keys()));
    if (barWidth === width) symbols.add(symbol);
  }
  return symbols;
}

function sectionOf(symbol) {
  if (shown.has(symbol)) return shown.get(symbol);
  const section = byId("symbol").content.firstElementChild.cloneNode(true);
  section.dataset.symbol = symbol;
  section.querySelector("h2").textContent = symbol;
  const after = [...shown.keys()].filter(other => other > symbol).sort()[0];
  byId("symbols").insertBefore(section, after === undefined ? null : shown.get(after).section);
  shown.set(symbol, {section, candles: null});
  return shown.get(symbol);
}

function showBars(symbol) {
  const columns = columnsOf(symbol);
  if (columns.time.length === 0) return;
  const one = sectionOf(symbol), place = one.section.querySelector(".plot");
  if (one.candles) one.candles.set(columns);
  else one.candles = new Candles(place, columns, STEPS[width], symbol, readout(one.section.querySelector(".readout")));
  place.setAttribute("aria-label", `${columns.time.length} candles of ${symbol}`);
}

function choose(chosen) {
  width = chosen;
  document.querySelectorAll("[data-width]").forEach(button => button.setAttribute("aria-pressed", String(button.dataset.width === width)));
  for (const [symbol, one] of shown) {
    const columns = columnsOf(symbol);
    if (one.candles && columns.time.length) { one.candles.step = STEPS[width]; one.candles.columns = columns; one.candles.draw(); }
  }
  new Set([...bars.keys()].map(key => key.split(" ")[0])).forEach(symbol => { if (!shown.has(symbol) || !shown.get(symbol).candles) showBars(symbol); });
}

function cell(text, kind, share) {
  const made = document.createElement("td");
  made.className = `num ${kind}`;
  made.textContent = text;
  if (share !== undefined) made.style.setProperty("--share", `${Math.round(share * 100)}%`);
  return made;
}

function showLadder(symbol, book) {
  const {bids, asks} = book || {bids: [], asks: []};
  const rows = Math.max(bids.length, asks.length), most = Math.max(...[...bids, ...asks].map(level => level[1]), 0) || 1;
  const body = sectionOf(symbol).section.querySelector("tbody");
  body.replaceChildren(...Array.from({length: rows}, (_, at) => {
    const row = document.createElement("tr"), bid = bids[at], ask = asks[at];
    row.append(
      cell(bid ? numberText(bid[1]) : "", "bid", bid ? bid[1] / most : 0), cell(bid ? numberText(bid[0]) : "", ""),
      cell(ask ? numberText(ask[0]) : "", ""), cell(ask ? numberText(ask[1]) : "", "ask", ask ? ask[1] / most : 0),
    );
    return row;
  }));
  if (!book) {
    const row = document.createElement("tr"), told = document.createElement("td");
    told.colSpan = 4;
    told.textContent = "An update was lost: waiting for a snapshot.";
    row.append(told);
    body.append(row);
  }
}

function fill(id, rows) {
  byId(id).tBodies[0].replaceChildren(...rows.map(([name, ...numbers]) => {
    const row = document.createElement("tr"), head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head, ...numbers.map(number => cell(number, "")));
    return row;
  }));
}

/** Records a second over the last five seconds. */
function rateOf(topic, records) {
  const now = performance.now(), seen = rates.get(topic) || [];
  seen.push([now, records]);
  while (seen.length > 2 && seen[0][0] < now - 5000) seen.shift();
  rates.set(topic, seen);
  const [at, before] = seen[0];
  return now - at < 500 ? 0 : Math.max(0, (records - before) * 1000 / (now - at));
}

function showFacts({latency, records, jobs}) {
  const milliseconds = value => value === null ? "–" : `${value.toLocaleString("en", {maximumFractionDigits: value < 100 ? 1 : 0})} ms`;
  setText("p50", milliseconds(latency.p50));
  setText("p99", milliseconds(latency.p99));
  setText("rate", whole(latency.rate));
  setText("behind", latency.behind === null ? "–" : whole(latency.behind));
  const all = Object.entries(jobs), batches = all.filter(([name]) => name !== "quotes");
  const sum = (entries, name) => entries.length ? whole(entries.reduce((total, [, job]) => total + job[name], 0)) : "–";
  setText("lag", sum(batches, "lag"));
  setText("late", sum(all, "late"));
  fill("jobs", all.map(([name, job]) => [name, whole(job.rows), whole(job.lag), whole(job.late), whole(job.dead), `${job.batch_s.toFixed(1)} s`]));
  fill("topics", Object.entries(records).map(([topic, count]) => [topic, whole(count), whole(rateOf(topic, count))]));
}

/** Removes what was shown of topics that are no more. */
function forget() {
  bars.clear();
  for (const {section} of shown.values()) section.remove();
  shown.clear();
}

function show(change) {
  if (change.is_anew) forget();
  keep(change.bars).forEach(showBars);
  for (const [symbol, book] of Object.entries(change.books)) showLadder(symbol, book);
  showFacts(change);
  if (!change.is_answered) setText("status", "No broker answers: what you see is the last that was read.");
  else setText("status", shown.size ? "Live, from the topics." : WAITING);
}

const source = new EventSource("events");
source.addEventListener("hello", event => { bars.clear(); choose(JSON.parse(event.data).width); });
source.onmessage = event => {
  const change = JSON.parse(event.data);
  show(change);
  if (change.ended !== null) {
    source.close();
    setText("status", change.ended);
    byId("status").classList.add("ended");
  }
};
source.onerror = () => setText("status", "The page's server does not answer: what you see is the last that it sent.");
document.querySelectorAll("[data-width]").forEach(button => button.addEventListener("click", () => choose(button.dataset.width)));
