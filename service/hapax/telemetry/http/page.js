"use strict";
// The status page: fetches status.json every two seconds and puts what has changed into place.
// All that comes from outside becomes text of elements, never markup. Open folds, what is typed into
// the filter, scroll positions and the focus stay. Where no answer comes, the page keeps what it
// has, and says since when.
(() => {
  const EVERY_MS = 2000, WAIT_MS = 5000;
  const MARGIN_BAD_S = 3600, MARGIN_WARN_S = 6 * 3600, OPEN_WARN_S = 60;
  const UNFOLDED_MAX = 20; // rows of a table
  const NAMED_MAX = 3; // partitions of a lane that are named in a cell; status.json has all
  const UNKNOWN = "–", NBSP = "\u00a0";
  const LOOKS = { running: "good", starting: "warn", draining: "warn" };
  const INPUT_COLUMNS = [
    "partition", "low", "committed", "position", "last stable", "end", "lag", "lag, time",
    "deleted in", "open for", "seen",
  ];
  const INPUT_FIGURES = [
    "log_start", "committed", "position", "last_stable", "high_watermark", "lag",
  ];
  const OUTPUT_COLUMNS = [
    "partition", "low", "last stable", "end", "undecided", "open for", "seen",
  ];
  const OUTPUT_FIGURES = ["log_start", "last_stable", "high_watermark", "last_stable_offset_lag"];
  const EXECUTOR_COLUMNS = [
    "executor", "address", "cores", "tasks running", "done", "failed", "storage memory",
  ];
  const LANE_COLUMNS = [
    "lane", "position", "range in flight", "offsets", "for", "last range", "records",
    "transactions", "took", "ended",
  ];
  const TOTALS = [
    ["committed", "transactions_committed"], ["aborted", "transactions_aborted"],
    ["records in", "records_in"], ["records out", "records_out"], ["duplicates", "duplicates"],
    ["filtered", "filtered"], ["dead letters", "dead_letters"],
  ];
  const byId = (id) => document.getElementById(id);

  // -- elements ------------------------------------------------------------------------------

  // Attributes are of this page alone; content is text, other elements, or lists of both.
  function element(name, attributes, ...content) {
    const made = document.createElement(name);
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

  // A table scrolls by itself; the first cell of a row is its heading.
  function table(label, columns, rows) {
    const head = columns.map((name) => element("th", { scope: "col" }, name));
    const body = rows.map(([first, ...rest]) => element("tr", {},
      element("th", { scope: "row" }, first),
      rest.map((cell, at) => element("td", { "data-column": columns[at + 1] }, cell))));
    return element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label },
      element("table", {}, element("thead", {}, element("tr", {}, head)),
        element("tbody", {}, body)));
  }
  function folded(id, label, columns, rows, rest = "more") {
    const first = table(label, columns, rows.slice(0, UNFOLDED_MAX));
    const others = rows.slice(UNFOLDED_MAX);
    if (!others.length) return [first];
    return [first, element("details", { id: `${id}-folded` },
      element("summary", {}, `${number(others.length)} ${rest}`),
      table(`${label}, the others`, columns, others))];
  }

  // -- values --------------------------------------------------------------------------------

  const number = (value) => value == null ? UNKNOWN : value.toLocaleString("en-US");
  const decimal = (value) => value.toLocaleString(
    "en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const perSecond = (rate) => rate == null ? UNKNOWN : `${decimal(rate)}${NBSP}records/s`;
  const milliseconds = (ms) => `${decimal(ms)}${NBSP}ms`;

  function size(bytes) {
    if (bytes == null) return UNKNOWN;
    for (const [power, unit] of [[30, "GiB"], [20, "MiB"], [10, "KiB"]]) {
      if (bytes >= 2 ** power) return `${decimal(bytes / 2 ** power)}${NBSP}${unit}`;
    }
    return `${number(bytes)}${NBSP}B`;
  }
  function span(seconds) {
    if (seconds == null) return UNKNOWN;
    for (const [unit_s, from_s, unit] of [[86400, 172800, "d"], [3600, 7200, "h"], [60, 120, "min"]]) {
      if (seconds >= from_s) return `${(seconds / unit_s).toFixed(1)}${NBSP}${unit}`;
    }
    return seconds >= 0.1 ? `${seconds.toFixed(1)}${NBSP}s` : `0${NBSP}s`;
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

  // -- boxes: each returns what is in it; null hides it ----------------------------------------

  function causes(status) {
    const found = status.causes || [];
    byId("causes").querySelector("h2").textContent = status.ready ? "Ready, at risk" : "Not ready";
    return found.length ? [element("ul", {}, found.map(({ reason, runbook }) => {
      const page = link(runbook, "runbook");
      return element("li", {}, reason, page && [" (", page, ")"]);
    }))] : null;
  }
  function lag(status) {
    const total = status.total_lag || {}, now = (status.rates || []).at(-1) || {};
    const partly = total.known < total.partitions
      ? ` of ${number(total.known)} of ${number(total.partitions)} partitions` : "";
    return [pairs([
      ["total lag", number(total.records) + partly], ["oldest unread", span(total.seconds)],
      ["in", perSecond(now.in_per_s)], ["out", perSecond(now.out_per_s)],
    ])];
  }
  function transactions(status) {
    const totals = status.totals || {}, calls = status.calls;
    const shown = TOTALS.map(([name, key]) => [name, number(totals[key])]);
    if (calls) {
      const oldest = calls.in_flight ? `, the oldest for ${span(calls.oldest_seconds)}` : "";
      shown.push(["calls in flight", number(calls.in_flight) + oldest]);
    }
    return [pairs(shown)];
  }
  function lastTransaction(status) {
    const last = status.last_transaction;
    if (!last) return [none("none yet")];
    const phases = Object.entries(last.phases_ms);
    const longest = Math.max(...phases.map(([, ms]) => ms), 0.001);
    const attempt = last.attempt > 1 ? `, attempt ${number(last.attempt)}` : "";
    return [
      element("p", {}, `${last.outcome} `, clock(last.at), `, ${ago(last.s_ago)}${attempt}: `
        + `${number(last.records)} in, ${number(last.outputs)} out, `
        + milliseconds(last.duration_ms)),
      element("div", { class: "phases" }, pairs(phases.map(([phase, ms]) => [
        phase,
        element("meter", { max: longest, value: ms, "aria-hidden": "true" }),
        element("span", {}, milliseconds(ms)),
      ]))),
    ];
  }
  function microBatch(status) {
    const batch = status.micro_batch;
    return batch ? [pairs([
      ["micro-batch", number(batch.number) + (batch.repeated ? ", published before" : "")],
      ["ended", clock(batch.at), `, ${ago(batch.s_ago)}`],
      ["watermark", batch.watermark || UNKNOWN],
      ["state", `${number(batch.state_rows)} rows, ${size(batch.state_bytes)}`],
      ["dropped as late", number(batch.late)],
      ...Object.entries(batch.inputs).map(([topic, count]) => [`read of ${topic}`, number(count)]),
      ["input rate", perSecond(batch.in_per_s)],
      ...Object.entries(batch.phases_ms).map(([phase, ms]) => [phase, milliseconds(ms)]),
    ])] : null;
  }
  function thisProcess(status) {
    const build = status.build || {}, store = status.claim_store || {}, totals = status.totals || {};
    const outputs = status.outputs_cluster;
    const began_s = status.at == null || status.uptime_s == null
      ? null : status.at - status.uptime_s;
    const cluster = outputs && ["outputs go to", `${outputs.servers} `,
      element("small", {}, outputs.id || "has not answered yet")];
    return [pairs([
      ["instance", status.instance || "?"],
      ["up for", span(status.uptime_s)],
      ["started", clock(began_s)],
      ["claim store", store.away_s == null
        ? store.state || "?" : mark("bad", `away for ${span(store.away_s)}`)],
      ...(cluster ? [cluster] : []),
      ["rebalances", number(totals.rebalances)],
      ["producers rebuilt", number(totals.producers_rebuilt)],
      ["version", build.version || "?"],
      ["Python", build.python || "?"],
      ["librdkafka", build.librdkafka || "?"],
    ])];
  }
  function executors({ spark }) {
    if (!spark) return null;
    const found = spark.executors;
    const same = Object.entries(spark.versions).map((each) => each.join(" ")).join(", ");
    const waits = "none: tasks wait until an executor is free for this driver";
    return [
      spark.waits_for_executors ? element("p", {}, mark("bad", waits))
        : found.length ? folded("executors", "Executors", EXECUTOR_COLUMNS, found.map(executor))
        : none(),
      spark.waits_because && element("p", {}, mark("bad", spark.waits_because)),
      same && paragraph("soft", `all run what the driver runs: ${same}`),
      Object.entries(spark.record_paths).sort().map(([machine, path]) =>
        paragraph("soft", `record path on ${machine}: ${path}`)),
      spark.ui && element("p", {}, link(spark.ui, "Spark's own pages")),
    ];
  }
  const executor = (one) => [
    one.name, one.address, number(one.cores), number(one.running), number(one.done),
    number(one.failed), `${size(one.memory_bytes)} of ${size(one.memory_max_bytes)}`,
  ];
  function lanes({ spark }) {
    if (!spark || !spark.lanes.length) return null;
    return folded("lanes", "Lanes", LANE_COLUMNS, spark.lanes.map(lane));
  }
  function lane(one) {
    const named = (part) => `${part.topic}/${number(part.partition)}:`;
    const some = (all) => all.slice(0, NAMED_MAX).join("; ")
      + (all.length > NAMED_MAX ? `; ${number(all.length - NAMED_MAX)} more` : "");
    const cells = [
      number(one.lane),
      some(one.partitions.map((part) => `${named(part)} ${number(part.position)}`)),
    ];
    const running = one.range, last = one.last_range;
    if (running) {
      const begun = running.offsets.every((part) => part.from != null);
      const again = running.attempt > 1 ? `, attempt ${number(running.attempt)}` : "";
      const count = running.offsets.reduce((sum, part) => sum + part.to - part.from, 0);
      cells.push(some(running.offsets.map((part) =>
        `${named(part)} ${number(part.from)}${NBSP}to${NBSP}${number(part.to)}`)) + again,
      begun ? number(count) : UNKNOWN, span(running.seconds));
    } else cells.push("none", UNKNOWN, UNKNOWN);
    if (!last) return [...cells, "none yet", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN];
    return [
      ...cells, last.outcome === "done" ? "done" : mark("warn", last.outcome),
      number(last.records), number(last.transactions), milliseconds(last.round_ms), ago(last.s_ago),
    ];
  }
  // Stuck first, then being deleted soon, then the oldest and the largest lag.
  function worstFirst(one, other) {
    const keys = (row) => {
      const left_s = row.retention_margin_seconds;
      const soon = left_s != null && left_s < MARGIN_WARN_S;
      return [
        row.stuck ? 0 : 1, soon ? left_s : MARGIN_WARN_S, -(row.lag_seconds || 0),
        -(row.lag || 0), -(row.open_transaction_seconds || 0), row.topic, row.partition,
      ];
    };
    const left = keys(one), right = keys(other);
    const at = left.findIndex((key, each) => key !== right[each]);
    return at < 0 ? 0 : left[at] < right[at] ? -1 : 1;
  }
  function partitions(id, label, columns, rows, cells) {
    if (!rows || !rows.length) return [none()];
    const shown = [...rows].sort(worstFirst).map(cells);
    return folded(id, label, columns, shown, "more, with less lag");
  }
  const partition = (row) => [
    `${row.topic}/${number(row.partition)}`, row.stuck ? [" ", mark("bad", "stuck")] : null];
  const input = (row) => [
    partition(row), ...INPUT_FIGURES.map((key) => number(row[key])), span(row.lag_seconds),
    margin(row.retention_margin_seconds), openFor(row.open_transaction_seconds),
    ago(row.seen_s_ago),
  ];
  const output = (row) => [
    partition(row), ...OUTPUT_FIGURES.map((key) => number(row[key])),
    openFor(row.open_transaction_seconds), ago(row.seen_s_ago),
  ];
  function members({ members: group }) {
    if (!group) return [none("not known yet")];
    const rows = Object.entries(group.hold).map(([name, topics]) => [
      name, number(Object.values(topics).reduce((sum, held) => sum + held.length, 0)),
      Object.entries(topics).map(([topic, held]) => `${topic}: ${ranges(held)}`).join("; ")
        || "nothing",
    ]);
    return rows.length ? [table("Group", ["member", "partitions", "holds"], rows)] : [none()];
  }
  function deadLetters(status) {
    const rows = (status.dead_letters || []).map(({ reason, count, command }) => [
      reason, number(count), command ? element("code", {}, command) : "no topic"]);
    const columns = ["reason", "since the start", "list them"];
    return [rows.length ? table("Dead letters", columns, rows) : none()];
  }
  function troubles(status) {
    const found = status.troubles || [];
    return [found.length ? element("ul", {}, found.map((one) => element(
      "li", { class: one.level === "warning" ? "warn" : "bad" }, element("b", {}, one.event), " ",
      element("small", {}, `${one.level}, `, clock(one.at_s), `, ${ago(one.s_ago)}`),
      ` ${one.text}`))) : none()];
  }
  function settings(status) {
    const named = Object.entries(status.settings || {});
    return named.length ? [element("details", { id: "settings-folded" },
      element("summary", {}, `${number(named.length)} settings`),
      pairs(named.map(([name, value]) => [name, value || element("i", {}, "empty")])))] : null;
  }
  const BOXES = {
    causes, lag, transactions, last: lastTransaction, "micro-batch": microBatch,
    process: thisProcess, executors, lanes,
    inputs: (status) =>
      partitions("inputs", "Input partitions", INPUT_COLUMNS, status.partitions, input),
    outputs: (status) =>
      partitions("outputs", "Written to", OUTPUT_COLUMNS, status.outputs, output),
    members, "dead-letters": deadLetters, troubles, settings,
  };

  // -- what stands small next to the heading of a box ------------------------------------------

  function queried(rows, seen_s_ago) {
    if (!rows || !rows.length) return [];
    const query = seen_s_ago == null
      ? "no complete query yet" : `last complete query ${ago(seen_s_ago)}`;
    return [rows.length > 1 ? `${number(rows.length)}, the worst first; ` : null, query];
  }
  const NOTES = {
    executors: ({ spark }) => spark && [spark.executors_seen_s_ago == null ? "not known yet"
      : `${number(spark.executors.length)}, as of ${ago(spark.executors_seen_s_ago)}`],
    lanes: ({ spark }) => spark && [`${number(spark.lanes.length)}, `
      + `${number(spark.lanes.filter((one) => one.range).length)} with a range in flight`],
    inputs: (status) => queried(status.partitions, status.lag_updated_s_ago),
    outputs: (status) => queried(status.outputs, status.lag_updated_s_ago),
    members: ({ members: group }) => group && [
      `${number(Object.keys(group.hold).length)}, as of `, clock(group.at)],
  };

  // -- charts --------------------------------------------------------------------------------

  const plots = new Map();
  const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
  function plotted(chart, data) {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
    return new uPlot({
      width: chart.clientWidth || 240, height: chart.clientHeight || 96,
      legend: { show: false }, cursor: { show: false }, padding: [8, 30, 0, 0],
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(1, high)] } },
      axes: [
        { ...axis, size: 24, space: 80, values: (_plot, all) => all.map(utc) },
        { ...axis, size: 56, space: 30, values: (_plot, all) => all.map(number) },
      ],
      series: [{}, { stroke: colour("--bar"), width: 2, points: { show: false } }],
    }, data, chart);
  }
  function draw(id, title, rates, key) {
    const figure = byId(id), chart = figure.querySelector(".chart");
    const known = rates.filter((one) => one[key] != null);
    figure.hidden = known.length < 2; // a line has two ends
    if (figure.hidden) return;
    const values = known.map((one) => one[key]), most = number(Math.max(...values));
    figure.querySelector("figcaption").textContent =
      `${title}, ${span(rates.at(-1).at - rates[0].at)}, at most ${most}`;
    chart.setAttribute("aria-label",
      `${title}: from ${number(values[0])} to ${number(values.at(-1))}, at most ${most}`);
    const data = [rates.map((one) => one.at), rates.map((one) => one[key])];
    if (plots.has(id)) plots.get(id).setData(data);
    else plots.set(id, plotted(chart, data));
  }
  const sized = () => plots.forEach((plot) => {
    const chart = plot.root.parentElement;
    if (chart.clientWidth) plot.setSize({ width: chart.clientWidth, height: chart.clientHeight });
  });

  // -- one status into place -----------------------------------------------------------------

  const filter = byId("filter"), live = byId("live"), button = byId("pause");
  const shown = new Map(); // box → its content as it was put into place
  let paused = false, asked = false, seen = null;

  function say(text, look) {
    document.body.className = look;
    if (live.textContent !== text) live.textContent = text;
  }
  function match() {
    const wanted = filter.value.trim().toLowerCase();
    for (const fold of document.querySelectorAll("details[id$='puts-folded']")) {
      if (wanted && !fold.open) { fold.open = true; fold.dataset.forced = ""; }
      if (!wanted && "forced" in fold.dataset) { fold.open = false; delete fold.dataset.forced; }
    }
    for (const row of document.querySelectorAll("#inputs tbody tr, #outputs tbody tr")) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    }
  }
  function swap(id, body, content) {
    const fresh = element("div", {}, content), source = fresh.innerHTML;
    if (shown.get(id) === source) return;
    shown.set(id, source);
    const stops = "[tabindex], summary, a", wide = () => [...body.querySelectorAll(".wide")];
    const open = [...body.querySelectorAll("details[open]")];
    const left = wide().map((each) => each.scrollLeft);
    const focus = [...body.querySelectorAll(stops)].indexOf(document.activeElement);
    body.replaceChildren(...fresh.childNodes);
    for (const fold of open) {
      const again = byId(fold.id);
      if (!again) continue;
      again.open = true;
      if ("forced" in fold.dataset) again.dataset.forced = "";
    }
    wide().forEach((each, at) => { each.scrollLeft = left[at] || 0; });
    if (focus >= 0) body.querySelectorAll(stops)[focus]?.focus({ preventScroll: true });
  }
  function show(status) {
    const app = status.app || "Hapax", state = status.state || "unknown";
    document.title = `${app}: ${state}`;
    byId("app").textContent = app;
    byId("state").textContent = state;
    byId("state").className = `state ${LOOKS[state] || "bad"}`;
    byId("facts").textContent =
      [status.engine, status.guarantee, status.record_path, status.transactional_id]
        .filter(Boolean).join(" · ");
    byId("as-of").replaceChildren("as of ", clock(status.at));
    for (const [id, content] of Object.entries(BOXES)) {
      const box = byId(id), made = content(status);
      box.hidden = made === null;
      swap(id, box.querySelector("h2 + div"), made || []);
      const note = box.querySelector("h2 > small");
      if (note) note.replaceChildren(...element("i", {}, NOTES[id](status) || []).childNodes);
    }
    byId("state").hidden = byId("controls").hidden = byId("boxes").hidden = false;
    draw("chart-in", "records in per second", status.rates || [], "in_per_s");
    draw("chart-lag", "lag", status.rates || [], "lag");
    seen = status.at == null ? "the start" : `${utc(status.at)} UTC`;
    match();
  }
  async function answered() {
    const answer = await fetch(
      "status.json", { cache: "no-store", signal: AbortSignal.timeout(WAIT_MS) });
    if (answer.ok) return answer.json();
    const told = await answer.json().catch(() => ({}));
    throw new Error([answer.status, told.error].filter(Boolean).join(" "));
  }
  async function ask() {
    if (paused || document.hidden || asked) return;
    asked = true;
    let status = null, problem = "";
    try {
      status = await answered();
    } catch (error) {
      problem = error.message;
    } finally { asked = false; }
    if (paused) return;
    if (status !== null) {
      show(status);
      say("Live", "");
    } else if (seen === null) {
      say(`The status cannot be had (${problem}); the pages below answer by themselves`, "gone");
    } else say(`No answer since ${seen} (${problem}); the page shows that moment`, "gone");
  }
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? `Paused at ${seen}` : "Live", paused ? "paused" : "");
    ask();
  });
  filter.addEventListener("input", match);
  document.addEventListener("visibilitychange", ask);
  window.addEventListener("resize", sized);
  matchMedia("(prefers-color-scheme: dark)").addEventListener(
    "change", () => plots.forEach((plot) => plot.redraw()));
  setInterval(ask, EVERY_MS);
  ask();
})();
