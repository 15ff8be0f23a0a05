"use strict";
// Candles with their volume-weighted price, the volume below, and histograms: uPlot, in the colours of market.css.

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const utc = seconds => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC");
const dark = matchMedia("(prefers-color-scheme: dark)");

function timeText(seconds) {
  return new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19);
}

/** A time axis's labels: the date at midnight, else the time, with seconds where bars are that short. */
const clock = (step, seconds) => timeText(seconds).slice(11, 19) === "00:00:00" ? timeText(seconds).slice(5, 10) : timeText(seconds).slice(11, step < 60 ? 19 : 16);

function numberText(value) {
  const digits = Math.abs(value) >= 1000 ? 2 : Math.abs(value) >= 1 ? 4 : 6;
  return value.toLocaleString("en", {maximumFractionDigits: digits});
}

function axis(more) {
  const line = {stroke: colour("--line"), width: 1};
  return {stroke: colour("--dim"), grid: line, ticks: line, ...more};
}

/** Draw within the plot's area only, over the bars that are in sight. */
function overBars(plot, draw) {
  const {ctx, bbox} = plot, [first, last] = plot.series[0].idxs;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (let index = first; index <= last; index++) draw(ctx, index);
  ctx.restore();
}

/** What a series of candles shows: `columns` holds time (s), open, high, low, close, vwap and volume as lists. */
class Candles {
  constructor(place, columns, stepSeconds, name, onBar) {
    Object.assign(this, {place, columns, step: stepSeconds, name, onBar, plots: []});
    this.draw();
    dark.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.plots.forEach(plot => plot.setSize(this.size(plot.height)))).observe(place);
  }

  size(height) { return {width: Math.max(this.place.clientWidth, 100), height}; }

  set(columns) {
    this.columns = columns;
    this.data().forEach((data, index) => this.plots[index].setData(data));
    this.tell(null);
  }

  data() {
    const {time, open, high, low, close, vwap, volume} = this.columns;
    return [[time, open, high, low, close, vwap], [time, volume]];
  }

  tell(index) {
    const last = this.columns.time.length - 1, at = index == null || index > last ? last : index;
    if (this.onBar && at >= 0) this.onBar(Object.fromEntries(Object.entries(this.columns).map(([key, list]) => [key, list[at]])));
  }

  draw() {
    this.plots.forEach(plot => plot.destroy());
    const [prices, volumes] = this.data(), hidden = {paths: () => null, points: {show: false}};
    const vwap = {stroke: colour("--vwap"), width: 1.5, points: {show: false}};
    const shared = {cursor: {sync: {key: this.name}, points: {show: false}}, legend: {show: false}, tzDate: utc};
    const scales = {x: {range: (plot, low, high) => [low - this.step / 2, high + this.step / 2]}};
    const told = {setCursor: [plot => this.tell(plot.cursor.idx)]};
    this.plots = [
      new uPlot({
        ...shared, ...this.size(260), scales, series: [{}, hidden, hidden, hidden, hidden, vwap],
        axes: [axis({space: 70, size: 32, values: (plot, values) => values.map(value => clock(this.step, value))}), axis({size: 80, values: (plot, values) => values.map(numberText)})],
        hooks: {...told, drawSeries: [(plot, series) => { if (series === 4) this.drawCandles(plot); }]},
      }, prices, this.place),
      new uPlot({
        ...shared, ...this.size(90), series: [{}, hidden],
        scales: {...scales, y: {range: (plot, low, high) => [0, high > 0 ? high * 1.05 : 1]}},
        axes: [axis({space: 70, size: 12, values: () => []}), axis({size: 80, space: 25, values: (plot, values) => values.map(numberText)})],
        hooks: {...told, drawAxes: [plot => this.drawVolumes(plot)]},
      }, volumes, this.place),
    ];
    this.tell(null);
  }

  /** Return the width of a bar's body in pixels of the canvas. */
  body(plot) {
    const pixels = plot.valToPos(this.step, "x", true) - plot.valToPos(0, "x", true);
    return Math.max(1, Math.floor(pixels * 0.7));
  }

  /** Rising bars are hollow, falling ones filled: told apart without their colours, too. */
  drawCandles(plot) {
    const width = this.body(plot), up = colour("--up"), down = colour("--down"), inside = colour("--panel");
    const {time, open, high, low, close} = this.columns;
    overBars(plot, (ctx, at) => {
      const isUp = close[at] >= open[at], x = Math.round(plot.valToPos(time[at], "x", true));
      const [top, upper, lower, bottom] = [high[at], Math.max(open[at], close[at]), Math.min(open[at], close[at]), low[at]]
        .map(price => Math.round(plot.valToPos(price, "y", true)));
      ctx.strokeStyle = isUp ? up : down;
      ctx.fillStyle = isUp ? inside : down;
      ctx.lineWidth = devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x, top); ctx.lineTo(x, upper); ctx.moveTo(x, lower); ctx.lineTo(x, bottom);
      ctx.stroke();
      if (width > 2) ctx.fillRect(x - width / 2, upper, width, Math.max(1, lower - upper));
      ctx.strokeRect(x - width / 2, upper, width, Math.max(1, lower - upper));
    });
  }

  drawVolumes(plot) {
    const width = this.body(plot), up = colour("--up"), down = colour("--down"), {time, open, close, volume} = this.columns;
    const bottom = plot.valToPos(0, "y", true);
    overBars(plot, (ctx, at) => {
      const top = plot.valToPos(volume[at], "y", true);
      ctx.fillStyle = close[at] >= open[at] ? up : down;
      ctx.fillRect(Math.round(plot.valToPos(time[at], "x", true) - width / 2), top, width, Math.max(1, bottom - top));
    });
  }
}

/** Return a function that writes a bar's numbers into a line of text. */
function readout(line) {
  return bar => {
    line.replaceChildren(...Object.entries(bar).map(([name, value]) => {
      const part = document.createElement("span"), number = document.createElement("b");
      number.textContent = name === "time" ? timeText(value) : numberText(value);
      part.append(name === "time" ? "" : `${name === "vwap" ? "VWAP" : name} `, number);
      return part;
    }));
  };
}

/** A page's data lies in it as JSON. */
function givenData() { return JSON.parse(document.getElementById("data").textContent); }

/** Fill a page of candles: a section for each symbol. */
function showCandles() {
  const {step_seconds, symbols} = givenData();
  for (const [symbol, columns] of Object.entries(symbols)) {
    const section = document.querySelector(`section[data-symbol="${CSS.escape(symbol)}"]`);
    new Candles(section.querySelector(".plot"), columns, step_seconds, symbol, readout(section.querySelector(".readout")));
  }
}

/** Fill a page with the histogram of each series: shares of the whole over bins of log10(ms). */
function showHistogram() {
  const {bins, series} = givenData(), place = document.querySelector(".plot"), names = Object.keys(series);
  const strokes = ["--vwap", "--second", "--up", "--down"], steps = uPlot.paths.stepped({align: 1});
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    const lines = names.map((name, index) => {
      const stroke = colour(strokes[index % strokes.length]);
      return {label: name, stroke, fill: `${stroke}33`, paths: steps, points: {show: false}};
    });
    plot = new uPlot({
      width: place.clientWidth, height: 400, legend: {show: false}, scales: {x: {time: false}}, series: [{}, ...lines],
      axes: [
        axis({label: "ms", splits: (u, index, low, high) => [-1, 0, 1, 2, 3, 4, 5].filter(power => power >= low && power <= high), values: (u, values) => values.map(value => (10 ** value).toLocaleString("en"))}),
        axis({label: "% of ticks", size: 60}),
      ],
    }, [bins, ...names.map(name => series[name])], place);
  };
  draw();
  dark.addEventListener("change", draw);
  new ResizeObserver(() => plot.setSize({width: place.clientWidth, height: 400})).observe(place);
}
