"use strict";
// How the status page writes values, and makes elements and tables of them.

const UNKNOWN = "–", NBSP = "\u00a0";
const MARGIN_BAD_S = 3600, MARGIN_WARN_S = 6 * 3600, OPEN_WARN_S = 60;
const UNFOLDED_MAX = 20; // rows of a table
const byId = (id) => document.getElementById(id);

// -- elements ------------------------------------------------------------------------------

// Attributes are of this page alone; content is text, other elements, or lists of both.
function element(name, attributes, ...content) {
  const made = ["svg", "g", "rect"].includes(name)
    ? document.createElementNS(byId("drawing").namespaceURI, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content.flat(Infinity).filter((part) => part != null).map(
    (part) => part instanceof Node ? part : String(part)));
  return made;
}
const paragraph = (look, ...content) => element("p", { class: look }, content);
const none = (text = "none") => paragraph("none", text);
const mark = (look, shown) =>
  element("strong", { class: look }, element("span", { "aria-hidden": "true" }, "⚠ "), shown);
// Whatever an address is called: only one of these leads to a page and runs nothing.
const link = (address, text) =>
  /^https?:\/\//i.test(address) ? element("a", { href: address }, text) : null;
const pairs = (named) => element("dl", {}, named.map(([name, ...value]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, value))));

// A table scrolls by itself; the first cell of a row is its heading. groups: [name, columns].
function table(label, columns, rows, groups = []) {
  const head = columns.map((name) => element("th", { scope: "col" }, name));
  const body = rows.map(([first, ...rest]) => element("tr", {},
    element("th", { scope: "row" }, first),
    rest.map((cell, at) => element("td", { "data-column": columns[at + 1] }, cell))));
  const over = groups.map(([name, count]) => name
    ? element("th", { scope: "colgroup", colspan: count }, name) : element("td", {}));
  return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    element("table", { class: groups.map(([name]) => name).join(" ") }, element("thead", {},
      over.length ? element("tr", { class: "groups" }, over) : null, element("tr", {}, head)),
    element("tbody", {}, body)));
}
function folded(id, label, columns, rows, { shown = UNFOLDED_MAX, rest = "more", groups } = {}) {
  const first = rows.slice(0, Math.min(shown, UNFOLDED_MAX)), others = rows.slice(first.length);
  return [
    first.length ? table(label, columns, first, groups) : null,
    others.length ? element("details", { id: `${id}-folded` },
      element("summary", {}, `${number(others.length)} ${rest}`),
      table(`${label}, the others`, columns, others, groups)) : null,
  ];
}

// -- values --------------------------------------------------------------------------------

const grouped = new Intl.NumberFormat("en-US");
const tenths = new Intl.NumberFormat(
  "en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const number = (value) => value == null ? UNKNOWN : grouped.format(value);
const figure = (value) => value === 0 ? element("span", { class: "zero" }, "0") : number(value);
const decimal = (value) => tenths.format(value);
const perSecond = (rate, unit = "records/s") =>
  rate == null ? UNKNOWN : `${decimal(rate)}${NBSP}${unit}`;
const milliseconds = (ms) => `${decimal(ms)}${NBSP}ms`;

// The largest unit that fits; steps: [size, unit, from which value on].
function scaled(value, steps, otherwise) {
  if (value == null) return UNKNOWN;
  const [each, unit] = steps.find(([size, , from = size]) => value >= from) || [];
  return unit ? `${(value / each).toFixed(1)}${NBSP}${unit}` : otherwise;
}
const size = (bytes) => scaled(
  bytes, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]], `${number(bytes)}${NBSP}B`);
const span = (seconds) => scaled(
  seconds, [[86400, "d", 172800], [3600, "h", 7200], [60, "min", 120], [1, "s", 0.1]], `0${NBSP}s`);
function short(count) {
  const [each, unit] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(
    ([size]) => count >= size) || [];
  const some = count / each;
  return unit ? `${+some.toFixed(some < 10 ? 1 : 0)}${NBSP}${unit}` : number(count);
}
const ago = (seconds) => seconds == null ? UNKNOWN : `${span(seconds)} ago`;
// A moment of Unix time as the log has it: UTC.
const utc = (at_s) => new Date(at_s * 1000).toISOString().slice(11, 19);
function clock(at_s) {
  if (at_s == null) return UNKNOWN;
  const stamp = `${new Date(at_s * 1000).toISOString().slice(0, 19)}Z`;
  return element("time", { datetime: stamp }, `${utc(at_s)}${NBSP}UTC`);
}
function margin(left_s) {
  if (left_s == null) return UNKNOWN;
  if (left_s <= 0) return mark("bad", "being deleted");
  if (left_s < MARGIN_BAD_S) return mark("bad", span(left_s));
  return left_s < MARGIN_WARN_S ? mark("warn", span(left_s)) : span(left_s);
}
const openFor = (open_s) =>
  open_s == null || open_s < OPEN_WARN_S ? span(open_s) : mark("warn", span(open_s));
function ranges(numbers) {
  const runs = [];
  for (const one of numbers) {
    const run = runs.at(-1);
    if (run && one === run[1] + 1) run[1] = one;
    else runs.push([one, one]);
  }
  return runs.map(([from, to]) => from === to ? `${from}` : `${from}-${to}`).join(", ");
}
