// The console's own script: streams of records, charts, keyboard. Pages are rendered on the server; htmx renews parts.
"use strict";

const MAX_ROWS = 500;

function show(element, isShown) { if (element) element.hidden = !isShown; }

function problem(text) {
  const place = document.getElementById("problem");
  place.textContent = text;
  place.className = "problem";
  show(place, text !== "");
}

function said(text) {
  problem(text);
  document.getElementById("problem").className = "done";
}

// -- searches and tails: server-sent events, rows are HTML that the server has escaped

class Stream {
  constructor(place) {
    this.place = place;
    this.url = place.dataset.stream;
    this.isLive = place.dataset.live === "1";
    this.body = place.querySelector("tbody");
    this.state = place.querySelector(".state");
    this.progress = place.querySelector("progress");
    this.skipped = 0;
    this.at = "";
    this.events = null;
    const stop = place.querySelector(".stop"), pause = place.querySelector(".pause");
    if (stop) stop.addEventListener("click", () => this.end("Stopped. " + this.state.textContent));
    if (pause) pause.addEventListener("click", () => this.toggle(pause));
    this.open();
  }

  open() {
    const url = new URL(this.url, location.href);
    if (this.isLive) {
      url.searchParams.set("live", "1");
      url.searchParams.set("from", "positions");
      if (this.at) url.searchParams.set("at", this.at);
    }
    const events = this.events = new EventSource(url);
    events.addEventListener("rows", event => {
      this.add(event.data);
      this.at = event.lastEventId;
    });
    events.addEventListener("skipped", event => { this.skipped += Number(event.data); });
    events.addEventListener("progress", event => this.tell(JSON.parse(event.data)));
    events.addEventListener("problem", event => problem(event.data));
    events.addEventListener("ended", event => this.end(event.data));
    events.onerror = () => {
      events.close();
      if (!this.isLive) return this.end("The console does not answer.");
      this.state.textContent = "The console does not answer, trying again…";
      this.again = setTimeout(() => this.open(), 2000);
    };
  }

  add(html) {
    this.body.insertAdjacentHTML(this.isLive ? "afterbegin" : "beforeend", this.isLive ? reversed(html) : html);
    show(this.place.querySelector(".results"), true);
    while (this.body.rows.length > MAX_ROWS) this.body.deleteRow(this.isLive ? -1 : 0);
  }

  tell(progress) {
    problem("");
    this.at = progress.at;
    this.total = progress.total;
    const dot = this.place.querySelector(".dot");
    if (dot) dot.classList.add("on");
    if (this.isLive) {
      const skipped = this.skipped ? `, ${this.skipped.toLocaleString()} not shown` : "";
      this.state.textContent = `Following: ${progress.matched.toLocaleString()} records${skipped}`;
      return;
    }
    this.progress.max = Math.max(1, progress.total);
    this.progress.value = progress.scanned;
    this.state.textContent = `${progress.scanned.toLocaleString()} of ${progress.total.toLocaleString()} looked through, ${progress.matched.toLocaleString()} found`;
  }

  toggle(button) {
    if (this.events) {
      clearTimeout(this.again);
      this.events.close();
      this.events = null;
      this.place.querySelector(".dot").classList.remove("on");
      button.textContent = "Go on";
      this.state.textContent = "Paused. " + this.state.textContent;
    } else {
      button.textContent = "Pause";
      this.open();
    }
  }

  end(text) {
    if (this.events) this.events.close();
    this.events = null;
    this.state.textContent = text;
    const dot = this.place.querySelector(".dot");
    if (dot) dot.classList.remove("on");
    show(this.progress, false);
    show(this.place.querySelector(".stop"), false);
    show(this.place.querySelector(".pause"), false);
    show(this.place.querySelector(".nothing"), !this.isLive && this.total === 0);
    this.place.dataset.ended = "1";
  }
}

function reversed(html) {
  const parsed = document.createElement("tbody");
  parsed.innerHTML = html;
  return [...parsed.children].reverse().map(row => row.outerHTML).join("");
}

// -- charts

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function clock(seconds) { return new Date(seconds * 1000).toISOString().slice(11, 19); }

function compact(value) { return Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1}).format(value); }

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (Math.abs(value) >= 1024 && power < units.length - 1) { value /= 1024; power++; }
  return `${value.toFixed(power && value < 100 ? 1 : 0)} ${units[power]}`;
}

function withUnit(value, unit) {
  if (unit.startsWith("B")) return bytes(value) + unit.slice(1);
  if (unit === "s" && Math.abs(value) < 1) return `${compact(value * 1000)} ms`;
  return compact(value) + (unit.startsWith("/") || !unit ? unit : ` ${unit}`);
}

function showNewest(place, points, labels, unit) {
  const last = points[points.length - 1];
  place.replaceChildren(...labels.filter((label, index) => last[index + 1] != null).map((label, index) => {
    const part = document.createElement("span");
    part.className = labels.length > 1 ? `series-${index}` : "";
    part.textContent = (labels.length > 1 ? `${label} ` : "") + withUnit(last[index + 1], unit);
    return part;
  }));
}

async function draw(place) {
  const answer = await fetch(place.dataset.points);
  if (!answer.ok) return;
  const points = (await answer.json())[place.dataset.field];
  const labels = place.dataset.label.split(","), unit = place.dataset.unit || "";
  const onAxis = unit.length > 3 ? "" : unit;  // a word stands above the chart, there is no room for it beside each line
  const now = place.parentElement.querySelector(".now");
  const isFlat = points.every(point => point.slice(1).every(value => !value));
  const isFolded = now !== null && (isFlat || points.length < 2);  // a chart of zeros, or of one point, needs no room
  place.classList.toggle("folded", isFolded);
  if (now && isFlat) now.textContent = points.length ? "0 throughout" : "no values yet";
  else if (now) showNewest(now, points, labels, unit);
  if (isFolded) return;
  const data = points.length ? points[0].map((_, column) => points.map(point => point[column])) : [[], []];
  if (place.plot) { place.plot.setData(data); return; }
  const axis = {stroke: colour("--dim"), grid: {stroke: colour("--line"), width: 1}, ticks: {stroke: colour("--line")}};
  const strokes = [colour("--accent"), colour("--warn")];
  place.plot = new uPlot({
    width: place.clientWidth - 10, height: 180, legend: {show: false}, tzDate: seconds => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: {y: {range: (plot, low, high) => [Math.min(0, low || 0), high > 0 ? high * 1.1 : 1]}},
    axes: [{...axis, space: 80, values: (plot, values) => values.map(clock)}, {...axis, size: 90, values: (plot, values) => values.map(value => withUnit(value, onAxis))}],
    series: [{value: (plot, seconds) => seconds == null ? "–" : clock(seconds)}, ...labels.map((label, index) => ({label, stroke: strokes[index], width: 2, spanGaps: true, value: (plot, value) => value == null ? "–" : withUnit(value, unit), points: {show: points.length < 3}}))],
  }, data, place);
}

const NOT_DRAWN = "Charts stand still: the console does not answer.";

async function drawAll() {
  if (typeof uPlot === "undefined" || document.hidden) return;
  const drawn = await Promise.allSettled([...document.querySelectorAll(".chart")].map(draw));
  const isSaid = document.getElementById("problem").textContent === NOT_DRAWN;
  if (drawn.some(each => each.status === "rejected")) problem(NOT_DRAWN); else if (isSaid) problem("");
}

window.addEventListener("resize", () => {
  for (const place of document.querySelectorAll(".chart")) {
    if (place.plot) place.plot.setSize({width: place.clientWidth - 10, height: 180});
  }
});

// -- tables that are here as a whole: sorted by a click on a column, filtered by a field; both are kept in the URL

const FACTORS = {"": 1, B: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824, TiB: 1099511627776, ms: 1, s: 1000, min: 60000, h: 3600000, "%": 1};

function sortValue(cell) {
  const text = cell.textContent.trim();
  const found = /^(-?[\d\u202f.]+)\s*(B|KiB|MiB|GiB|TiB|ms|s|min|h|%)?(?: ago)?$/.exec(text);
  if (found) return Number(found[1].replaceAll("\u202f", "")) * FACTORS[found[2] || ""];
  return text === "–" ? null : text.toLowerCase();
}

function compare(a, b) {
  if (a === null || b === null) return 0;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", {numeric: true});
}

function sortTable(table, column, isDescending) {
  const rows = [...table.tBodies[0].rows].filter(row => row.cells.length > column);
  const values = new Map(rows.map(row => [row, sortValue(row.cells[column])]));
  const known = rows.filter(row => values.get(row) !== null), unknown = rows.filter(row => values.get(row) === null);
  known.sort((a, b) => (isDescending ? -1 : 1) * compare(values.get(a), values.get(b)));
  table.tBodies[0].append(...known, ...unknown);
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    const mark = cell.querySelector(".mark");
    if (index === column) cell.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
    if (mark) mark.textContent = index === column ? (isDescending ? " ↓" : " ↑") : "";
  });
}

function keepInUrl(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value); else url.searchParams.delete(name);
  history.replaceState(history.state, "", url);
}

function filterTables(text) {
  const wanted = text.toLowerCase();
  document.querySelectorAll("table.sorts tbody tr, table.configs tbody tr").forEach(row => {
    row.classList.toggle("filtered", wanted !== "" && !row.textContent.toLowerCase().includes(wanted));
  });
}

function prepareTables() {
  const kept = new URLSearchParams(location.search);
  document.querySelectorAll("table.sorts").forEach((table, number) => {
    const name = `by${number}`;
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      if (cell.querySelector(".hidden") || cell.querySelector("button")) return;
      const button = document.createElement("button"), mark = document.createElement("span");
      button.type = "button";
      button.className = "sort";
      mark.className = "mark";
      mark.ariaHidden = "true";
      button.append(...cell.childNodes, mark);
      cell.append(button);
      button.addEventListener("click", () => {
        const isDescending = cell.ariaSort ? cell.ariaSort === "ascending" : cell.classList.contains("num");
        sortTable(table, column, isDescending);
        keepInUrl(name, `${column}${isDescending ? "d" : "a"}`);
      });
    });
    const order = /^(\d{1,2})([ad])$/.exec(kept.get(name) || "");
    if (order && Number(order[1]) < table.tHead.rows[0].cells.length) sortTable(table, Number(order[1]), order[2] === "d");
  });
  const field = document.querySelector("[data-filter]"), text = kept.get("filter") || "";
  if (field && document.activeElement !== field) field.value = text;
  if (field) filterTables(field.value);
  document.querySelectorAll(".scroll").forEach(place => { if (place.scrollWidth > place.clientWidth) place.tabIndex = 0; });
}

// -- forms, keyboard, messages

function showsFields(select) {
  for (const label of select.form.querySelectorAll("[data-for]")) label.hidden = label.dataset.for !== select.value;
}

const GOES = {o: "/", t: "/topics", g: "/groups", b: "/brokers", x: "/transactions", a: "/access", l: "/clients", c: "/charts"};
let isGoing = false;

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  } else if (isGoing && GOES[event.key]) {
    location.href = document.body.dataset.base + GOES[event.key];
  }
  isGoing = !isGoing && event.key === "g";
});

document.addEventListener("change", event => {
  if (event.target.matches("[data-toggle=defaults]")) {
    document.querySelector(".configs").classList.toggle("hide-defaults", !event.target.checked);
  }
  if (event.target.matches("[data-shows]")) showsFields(event.target);
});

document.addEventListener("input", event => {
  if (event.target.matches("[name=key]") && event.target.form.elements.null_key) event.target.form.elements.null_key.checked = false;
});

document.addEventListener("input", event => {
  if (!event.target.matches("[data-filter]")) return;
  document.querySelectorAll("[data-filter]").forEach(field => { field.value = event.target.value; });
  filterTables(event.target.value);
  keepInUrl("filter", event.target.value);
});

document.addEventListener("htmx:afterSettle", prepareTables);
document.addEventListener("htmx:beforeSwap", event => { if (event.detail.xhr.status < 400) problem(""); });
document.addEventListener("htmx:responseError", event => {
  const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
  const said = page.querySelector("[role=alert].note");
  problem("Not renewed: " + (said ? said.textContent : event.detail.xhr.statusText));
});
document.addEventListener("htmx:sendError", () => problem("Not renewed: the console does not answer."));

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-shows]").forEach(showsFields);
  document.querySelectorAll("[data-stream]").forEach(place => new Stream(place));
  const done = new URLSearchParams(location.search).get("done");
  if (done && document.referrer.startsWith(location.origin + "/")) said(done);  // not what a link from elsewhere says
  prepareTables();
  drawAll();
  setInterval(drawAll, 5000);
});
