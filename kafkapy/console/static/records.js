// Pages of records: JSON as a tree, copies and downloads, saved searches, files of JSON lines. Beside console.js.
"use strict";

// -- records: JSON as a tree, copies and downloads, once more into the form

function tree(value, depth = 0) {
  if (value === null || typeof value !== "object") {
    const leaf = document.createElement("span");
    leaf.className = value === null || typeof value === "boolean" ? "j-literal" : `j-${typeof value}`;
    leaf.textContent = JSON.stringify(value);
    return leaf;
  }
  const entries = Object.entries(value), isList = Array.isArray(value);
  const branch = document.createElement("details"), summary = document.createElement("summary"), list = document.createElement("ul");
  branch.open = depth < 2 && entries.length <= 50;
  const count = document.createElement("span");
  count.className = "j-count";
  count.textContent = isList ? `[${entries.length}]` : `{${entries.length}}`;
  summary.append(count);
  branch.append(summary, list);
  const fill = () => {
    if (list.childElementCount) return;
    for (const [key, each] of entries) {
      const item = document.createElement("li"), name = document.createElement("span");
      name.className = "j-key";
      name.textContent = `${isList ? key : JSON.stringify(key)}: `;
      const below = tree(each, depth + 1);
      if (below.tagName === "DETAILS") below.firstChild.prepend(name); else item.append(name);
      item.append(below);
      list.append(item);
    }
  };
  if (branch.open) fill();
  branch.addEventListener("toggle", fill);
  return branch;
}

function showTrees(place) {
  for (const text of place.querySelectorAll("pre[data-json]")) {
    delete text.dataset.json;
    if (!/^[{[]/.test(text.textContent) || text.textContent.length > 200000) continue;
    try {
      const shown = document.createElement("div");
      shown.className = "tree mono";
      shown.append(tree(exactly(text.textContent)));
      text.replaceWith(shown);
    } catch { /* not JSON, or cut: it stays text */ }
  }
}

// Numbers that JavaScript would round stay as they are written.
function exactly(text) {
  const value = JSON.parse(text);
  if (/\d{16}/.test(text)) throw new Error("digits would be lost");
  return value;
}

function linesOf(place) { return [...place.querySelectorAll("tr[data-line]")].map(row => row.dataset.line); }

function csv(lines) {
  const field = value => {
    let text = value == null ? "" : typeof value === "string" ? value : JSON.stringify(value);
    if (/^[=+@\t\r]|^-(?!\d)/.test(text)) text = `'${text}`;  // spreadsheets would take it for a formula
    return `"${text.replaceAll('"', '""')}"`;
  };
  const names = ["topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"];
  return [names.join(","), ...lines.map(line => { const row = JSON.parse(line); return names.map(name => field(row[name])).join(","); })].join("\r\n") + "\r\n";
}

function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    said(`Copied ${what}.`);
  } catch { problem("The browser does not let this page copy: it must be reached by https or as localhost."); }
}

function produceAgain(row) {
  const record = JSON.parse(row.dataset.line), form = document.querySelector("form[action='/change/produce']");
  const isExact = record.key_base64 !== undefined || record.value_base64 !== undefined;
  const encoded = name => record[`${name}_base64`] ?? (record[name] == null ? "" : btoa(unescape(encodeURIComponent(plain(record[name])))));
  const plain = value => value == null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  form.elements.encoding.value = isExact ? "base64" : "text";
  for (const name of ["key", "value"]) form.elements[name].value = isExact ? encoded(name) : plain(record[name]);
  form.elements.null_key.checked = record.key === null;
  form.elements.null_value.checked = record.value === null;
  form.elements.headers.value = Object.entries(record.headers).map(([name, value]) => `${name}=${value ?? ""}`).join("\n");
  form.elements.partition.value = "";
  form.scrollIntoView();
  form.elements.value.focus();
}

const DOES = {
  copy: (button, place) => copy(button.closest("tr").dataset.line + "\n", "the record"),
  again: button => produceAgain(button.closest("tr")),
  jsonl: (button, place) => download(`${topicName()}.jsonl`, linesOf(place).map(line => line + "\n").join(""), "application/jsonl"),
  csv: (button, place) => download(`${topicName()}.csv`, csv(linesOf(place)), "text/csv"),
  "copy-all": (button, place) => copy(linesOf(place).map(line => line + "\n").join(""), `${linesOf(place).length} records`),
};

function topicName() { return new URLSearchParams(location.search).get("name"); }

document.addEventListener("click", event => {
  const button = event.target.closest("[data-does]");
  if (!button) return;
  const place = document.getElementById("stream");
  const left = place.querySelectorAll(".records tbody tr").length - linesOf(place).length;
  DOES[button.dataset.does](button, place);
  if (left && ["jsonl", "csv", "copy-all"].includes(button.dataset.does)) problem(`${left} records are too large for a page: kafkapy consume --json has them.`);
});

document.addEventListener("toggle", event => { if (event.target.open) showTrees(event.target); }, true);

// -- searches saved in the browser by name

const SAVED = "kafkapy.searches";

function showSaved(place) {
  const kept = JSON.parse(localStorage.getItem(SAVED) || "{}"), list = place.querySelector("ul");
  place.hidden = false;
  list.replaceChildren(...Object.entries(kept).map(([name, query]) => {
    const item = document.createElement("li"), link = document.createElement("a"), remove = document.createElement("button");
    const url = new URL(location.pathname, location.origin);
    url.search = query;
    url.searchParams.set("name", topicName());
    link.href = url;
    link.textContent = name;
    remove.type = "button";
    remove.className = "link";
    remove.textContent = "×";
    remove.ariaLabel = `Forget ${name}`;
    remove.addEventListener("click", () => {
      delete kept[name];
      localStorage.setItem(SAVED, JSON.stringify(kept));
      showSaved(place);
    });
    item.append(link, remove);
    return item;
  }));
}

function prepareSaved(place) {
  const name = place.querySelector("input");
  showSaved(place);
  place.querySelector("button.quiet").addEventListener("click", () => {
    if (!name.value.trim()) return name.focus();
    const kept = JSON.parse(localStorage.getItem(SAVED) || "{}"), query = new URLSearchParams(location.search);
    query.delete("name");
    kept[name.value.trim()] = query.toString();
    localStorage.setItem(SAVED, JSON.stringify(kept));
    name.value = "";
    showSaved(place);
  });
}

// -- a file of JSON lines, produced part by part

const PART_BYTES = 512 * 1024, PART_LINES = 2000;

function parts(lines) {
  const found = [];
  let part = [], bytes = 0;
  for (const line of lines) {
    if (part.length >= PART_LINES || (part.length && bytes + line.length > PART_BYTES)) { found.push(part); part = []; bytes = 0; }
    part.push(line);
    bytes += line.length;
  }
  if (part.length) found.push(part);
  return found;
}

function prepareLoading(form) {
  const confirm = form.querySelector("[data-confirm]"), progress = form.querySelector("[data-progress]");
  let lines = [];
  form.addEventListener("submit", async event => {
    event.preventDefault();
    lines = (await form.elements.file.files[0].text()).split("\n").filter(line => line.trim());
    confirm.querySelector("span").textContent = `${lines.length.toLocaleString()} records of ${form.elements.file.files[0].name} to ${topicName()}?`;
    show(confirm, true);
  });
  confirm.querySelector("button").addEventListener("click", async () => {
    show(confirm, false);
    show(progress, true);
    const bar = progress.querySelector("progress"), text = progress.querySelector("span");
    let sent = 0;
    bar.max = Math.max(1, lines.length);
    for (const part of parts(lines)) {
      const answer = await fetch(form.dataset.load, {method: "POST", headers: {"x-csrf-token": form.elements.csrf.value}, body: part.join("\n")});
      const outcome = answer.headers.get("content-type").startsWith("application/json") ? await answer.json() : {sent: 0, error: await answer.text()};
      sent += outcome.sent;
      bar.value = sent;
      text.textContent = `${sent.toLocaleString()} of ${lines.length.toLocaleString()} produced`;
      if (outcome.error) { text.textContent += `. Stopped after line ${(sent).toLocaleString()}: ${outcome.error}`; return; }
    }
    text.textContent += ". Done.";
  });
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("[data-saved]").forEach(prepareSaved);
  document.querySelectorAll("[data-load]").forEach(prepareLoading);
  if (!document.querySelector(".records")) showTrees(document.querySelector("main"));
});
