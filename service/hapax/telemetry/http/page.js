"use strict";
// The status page: fetches status.json every two seconds and puts what has changed into place.
// All that comes from outside becomes text of elements, never markup. Open folds, what is typed
// into the filter, scroll positions and the focus stay. Where no answer comes, the page keeps what
// it has, and says since when.
(() => {
  const EVERY_MS = 2000, WAIT_MS = 5000;
  const NAMED_MAX = 3; // partitions of a lane that are named in a cell; status.json has all
  const HOUR_S = 3600, SHORT_S = 300; // the time axis of a process that is younger is shorter
  const LOOKS = { running: "good", starting: "warn", draining: "warn", "at risk": "warn" };
  const LIGHTS = { good: "1a8f50", warn: "d48806", bad: "d0222f" };
  const MARKS = [["rebalance", "R"], ["abort", "A"], ["rebuild", "B"]];
  const PHASES = ["identify", "claim", "transform", "plan", "send", "send_offsets", "commit"];
  const INPUT_GROUPS = [["", 1], ["log", 3], ["group", 4], ["risk", 3]];
  const INPUT_COLUMNS = ["partition", "low", "last stable", "end", "committed", "position", "lag",
    "lag, time", "deleted in", "open for", "seen"];
  const INPUT_FIGURES = ["log_start", "last_stable", "high_watermark", "committed", "position"];
  const OUTPUT_GROUPS = [["", 1], ["log", 3], ["risk", 3]];
  const OUTPUT_COLUMNS = [
    "partition", "low", "last stable", "end", "undecided", "open for", "seen"];
  const OUTPUT_FIGURES = ["log_start", "last_stable", "high_watermark", "last_stable_offset_lag"];
  const EXECUTOR_COLUMNS = [
    "executor", "address", "cores", "tasks running", "done", "failed", "storage memory"];
  const LANE_COLUMNS = ["lane", "position", "range in flight", "offsets", "for", "last range",
    "records", "transactions", "took", "ended"];
  const TOTALS = [
    ["committed", "transactions_committed"], ["aborted", "transactions_aborted"],
    ["records in", "records_in"], ["records out", "records_out"], ["duplicates", "duplicates"],
    ["filtered", "filtered"], ["dead letters", "dead_letters"],
    ["rebalances", "rebalances"], ["producers rebuilt", "producers_rebuilt"],
  ];
  // -- boxes: each returns what is in it; null hides it ----------------------------------------

  function causes(status) {
    const found = status.causes || [];
    byId("causes").querySelector("h2").textContent = status.ready ? "Ready, at risk" : "Not ready";
    byId("causes").className = `reasons ${status.ready ? "warn" : "bad"}`;
    return found.length ? [element("ul", {}, found.map(({ reason, runbook }) => {
      const page = link(runbook, "runbook");
      return element("li", {}, reason, page && [" (", page, ")"]);
    }))] : null;
  }
  // Since a minute ago: more, less, or neither is known.
  function trend({ rates = [] }) {
    const now = rates.at(-1)?.lag, then = rates.at(-13)?.lag ?? rates[0]?.lag;
    return now == null || then == null || now === then ? "" : now > then ? "▲" : "▼";
  }
  function headline(status) {
    const total = status.total_lag || {}, now = (status.rates || []).at(-1) || {};
    const partly = total.known < total.partitions
      ? element("small", {}, ` of ${number(total.known)} of ${number(total.partitions)} partitions`)
      : null;
    const ended_s = [status.last_transaction?.s_ago, ...(status.spark?.lanes || []).map(
      (one) => one.last_range?.s_ago)].filter((s_ago) => s_ago != null);
    return [pairs([
      ["lag", total.records < 1e6 ? number(total.records) : short(total.records),
        element("small", { class: "trend" }, trend(status)), partly],
      ["oldest unread", span(total.seconds)], ["in", perSecond(now.in_per_s, "/s")],
      ["out", perSecond(now.out_per_s, "/s")],
      ["last commit", ended_s.length ? ago(Math.min(...ended_s)) : "none yet"],
    ])];
  }
  function transactions(status) {
    const totals = status.totals || {}, calls = status.calls;
    const some = TOTALS.filter(([, key]) => totals[key] !== 0);
    const zero = TOTALS.filter(([, key]) => totals[key] === 0).map(([name]) => name);
    const shown = some.map(([name, key]) => [name, number(totals[key])]);
    if (calls) {
      const oldest = calls.in_flight ? `, the oldest for ${span(calls.oldest_seconds)}` : "";
      shown.push(["calls in flight", number(calls.in_flight) + oldest]);
    }
    return [pairs(shown), zero.length ? paragraph("soft", `0 ${zero.join(", ")}`) : null];
  }
  const looks = (phase) => {
    const at = PHASES.indexOf(phase);
    return `phase-${at < 0 ? (phase.length + 3) % 8 : at}`;
  };
  function strip(all, chosen) {
    const longest = Math.max(...all.map((one) => one.duration_ms), 0.001);
    const bars = all.map((one, at) => {
      let top = 100;
      const parts = Object.entries(one.phases_ms).map(([phase, ms]) => {
        top -= 100 * ms / longest;
        return element("rect", { class: looks(phase), x: at + 0.1, y: top.toFixed(2), width: 0.8,
          height: (100 * ms / longest).toFixed(2) });
      });
      return element("g", { "data-at": one.at, class: one === chosen ? "chosen" : "" },
        element("rect", { class: "back", x: at, y: 0, width: 1, height: 100 }), parts);
    });
    return [
      paragraph("soft", `milliseconds by phase, at most ${milliseconds(longest)}`),
      element("svg", { class: "strip", viewBox: `0 0 ${Math.max(all.length, 30)} 100`,
        preserveAspectRatio: "none", "aria-hidden": "true" }, bars),
    ];
  }
  function lastTransaction(status) {
    const all = status.transactions || [];
    if (!all.length) return [none("none yet")];
    const slowest = [...all].sort((one, other) => other.duration_ms - one.duration_ms).slice(0, 3);
    const one = all.find((each) => `${each.at}` === chosen) || all.at(-1);
    const phases = Object.entries(one.phases_ms);
    const longest = Math.max(...phases.map(([, ms]) => ms), 0.001);
    const attempt = one.attempt > 1 ? `, attempt ${number(one.attempt)}` : "";
    const pick = (at, pressed, text) =>
      element("button", { type: "button", "data-at": at, "aria-pressed": pressed }, text);
    return [
      strip(all, one),
      element("div", { class: "picks", role: "group", "aria-label": "Transaction" },
        pick("", one.at === all.at(-1).at, "last"),
        all.length > 3 ? ["slowest:", slowest.map((each) =>
          pick(each.at, each.at === one.at, milliseconds(each.duration_ms)))] : null),
      element("p", {}, `${one.outcome} `, clock(one.at), `, ${ago(status.at - one.at)}${attempt}: `
        + `${number(one.records)} in, ${number(one.outputs)} out, `
        + milliseconds(one.duration_ms)),
      element("div", { class: "phases" }, pairs(phases.map(([phase, ms]) => [
        [element("i", { class: `swatch ${looks(phase)}` }), phase],
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
    const build = status.build || {}, store = status.claim_store || {};
    const outputs = status.outputs_cluster;
    const began_s = status.at == null || status.uptime_s == null
      ? null : status.at - status.uptime_s;
    const kept = status.keyed_state, waits = kept?.restoring.length;
    const left = waits && kept.restoring.reduce((sum, one) => sum + (one.of ?? 0) - one.read, 0);
    const cluster = outputs && ["outputs go to", `${outputs.servers} `,
      element("small", {}, outputs.id || "has not answered yet")];
    return [pairs([
      ["instance", status.instance || "?"], ["up for", span(status.uptime_s)],
      ["started", clock(began_s)],
      ["claim store", store.away_s == null
        ? store.state || "?" : mark("bad", `away for ${span(store.away_s)}`)],
      ...(kept ? [["state", `${number(kept.entries)} entries, ${size(kept.size_bytes)} of `
        + size(kept.size_max_bytes), waits
          ? [" ", mark("warn", `${number(waits)} partitions wait for ${number(left)} offsets`)]
          : null]] : []),
      ...(cluster ? [cluster] : []), ["version", build.version || "?"],
      ["Python", build.python || "?"], ["librdkafka", build.librdkafka || "?"],
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
        row.stuck ? 0 : 1, row.held_by ? 0 : 1, soon ? left_s : MARGIN_WARN_S, -(row.lag_seconds || 0),
        -(row.lag || 0), -(row.open_transaction_seconds || 0), row.topic, row.partition,
      ];
    };
    const left = keys(one), right = keys(other);
    const at = left.findIndex((key, each) => key !== right[each]);
    return at < 0 ? 0 : left[at] < right[at] ? -1 : 1;
  }
  // Nothing to see: read to its end, in no danger, and no transaction open.
  const quiet = (row) => !row.stuck && !row.held_by && (row.lag ?? row.last_stable_offset_lag) === 0
    && !((row.retention_margin_seconds ?? Infinity) < MARGIN_WARN_S)
    && !(row.open_transaction_seconds >= OPEN_WARN_S);
  function partitions(id, label, columns, rows, { groups, cells, still }) {
    if (!rows || !rows.length) return [none()];
    const sorted = [...rows].sort(worstFirst), noisy = sorted.filter((row) => !quiet(row));
    const rest = rows.length - noisy.length, less = noisy.length - UNFOLDED_MAX;
    const most = Math.max(...rows.map((row) => row.lag || 0), 1);
    return folded(id, label, columns,
      [...noisy, ...sorted.filter(quiet)].map((row) => cells(row, most)), {
        shown: noisy.length, groups, rest: less > 0
          ? `more, with less lag${rest ? `, ${number(rest)} of them ${still}` : ""}` : still });
  }
  const partition = (row) => [
    `${row.topic}/${number(row.partition)}`, row.stuck ? [" ", mark("bad", "stuck")] : null,
    row.held_by ? [" ", mark("warn", `waits for its ${row.held_by}`)] : null];
  const lagBar = (row, most) => [
    element("svg", { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none",
      "aria-hidden": "true" }, element("rect", { width: 100 * (row.lag || 0) / most, height: 1 })),
    figure(row.lag)];
  const input = (row, most) => [
    partition(row), ...INPUT_FIGURES.map((key) => figure(row[key])), lagBar(row, most),
    span(row.lag_seconds), margin(row.retention_margin_seconds),
    openFor(row.open_transaction_seconds), ago(row.seen_s_ago),
  ];
  const output = (row) => [
    partition(row), ...OUTPUT_FIGURES.map((key) => figure(row[key])),
    openFor(row.open_transaction_seconds), ago(row.seen_s_ago),
  ];
  function members({ members: group, instance }) {
    if (!group) return [none("not known yet")];
    const rows = Object.entries(group.hold).map(([name, topics]) => [
      [(!name.includes(`-${instance} (`) && link(group.pages?.[name] || "", name)) || name],
      number(Object.values(topics).reduce((sum, held) => sum + held.length, 0)),
      Object.entries(topics).map(([topic, held]) => `${topic}: ${ranges(held)}`).join("; ")
        || "nothing",
    ]);
    return rows.length ? [table("Group", ["member", "partitions", "holds"], rows)] : [none()];
  }
  function deadLetters(status) {
    const rows = (status.dead_letters || []).map(({ reason, count, command }) => [
      reason, number(count), command ? element("code", {}, command) : "no topic"]);
    const columns = ["reason", "since the start", "list them"];
    return rows.length ? [table("Dead letters", columns, rows)] : null;
  }
  function troubles(status) {
    const found = status.troubles || [];
    return found.length ? [element("ul", {}, found.map((one) => element(
      "li", { class: one.level === "warning" ? "warn" : "bad" }, element("b", {}, one.event), " ",
      element("small", {}, `${one.level}, `, clock(one.at_s), `, ${ago(one.s_ago)}`),
      ` ${one.text}`)))] : null;
  }
  function settings(status) {
    const named = Object.entries(status.settings || {});
    return named.length ? [element("details", { id: "settings-folded" },
      element("summary", {}, `${number(named.length)} settings`),
      pairs(named.map(([name, value]) => [name, value || element("i", {}, "empty")])))] : null;
  }
  const BOXES = {
    causes, headline, last: lastTransaction, transactions, "micro-batch": microBatch,
    process: thisProcess, executors, lanes,
    inputs: (status) => partitions("inputs", "Input partitions", INPUT_COLUMNS, status.partitions,
      { groups: INPUT_GROUPS, cells: input, still: "without lag" }),
    outputs: (status) => partitions("outputs", "Written to", OUTPUT_COLUMNS, status.outputs,
      { groups: OUTPUT_GROUPS, cells: output, still: "with nothing undecided" }),
    members, "dead-letters": deadLetters, troubles, settings,
  };

  // -- what stands small next to the heading of a box ------------------------------------------

  function queried(rows, seen_s_ago) {
    if (!rows || !rows.length) return [];
    const query = seen_s_ago == null
      ? "no complete query yet" : `last complete query ${ago(seen_s_ago)}`;
    return [rows.length > 1 ? `${number(rows.length)}, the worst first; ` : null, query];
  }
  function happened({ history }) {
    return MARKS.map(([what, letter], at) => {
      const all = (history?.marks || []).filter((one) => one.what === what);
      const count = all.reduce((sum, one) => sum + one.count, 0);
      return count
        ? element("span", { class: `mark-${at}` }, `${letter}: ${what} (${number(count)})`) : null;
    });
  }
  const NOTES = {
    last: ({ transactions: all = [] }) => all.length > 1 && [number(all.length)],
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

  // Both charts have the same time axis; the marks are those of the history.
  const plots = new Map();
  let marks = [], axis_s = [0, 1];
  const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
  function marked({ ctx, bbox, valToPos }) {
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    for (const { at, what } of marks) {
      const which = MARKS.findIndex(([name]) => name === what);
      if (which < 0 || at < axis_s[0]) continue;
      const left = Math.round(valToPos(at, "x", true));
      ctx.fillStyle = colour(`--mark-${which}`)();
      ctx.fillRect(left, bbox.top, devicePixelRatio, bbox.height);
      ctx.fillText(MARKS[which][1], left, bbox.top - 2 * devicePixelRatio);
    }
    ctx.restore();
  }
  function plotted(chart, unit, data) {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 } };
    const times = (_plot, all) => all.map((at) => utc(at).slice(0, 5));
    return new uPlot({
      width: chart.clientWidth || 240, height: chart.clientHeight || 96,
      legend: { show: false }, cursor: { show: false }, padding: [14, 20, 0, 0],
      scales: {
        x: { range: () => axis_s },
        y: { range: (_plot, _low, high) => [0, Math.max(1, 1.05 * high)] },
      },
      axes: [
        { ...axis, size: 24, space: 60, incrs: [60, 120, 300, 600, 900], values: times },
        { ...axis, size: 46, space: 28, label: unit, labelSize: 18,
          values: (_plot, all) => all.map(short) },
      ],
      // What is drawn later is thinner, so that one that is the same hides none.
      series: [{}, ...data.slice(1).map((_, at) => ({
        stroke: colour(`--line-${at}`), width: data.length === 2 ? 2 : at ? 1.5 : 4,
        points: { show: false },
      }))],
      hooks: { draw: [marked] },
    }, data, chart);
  }
  // lines: [name, values]
  function draw(id, unit, times, lines) {
    const box = byId(id), chart = box.querySelector(".chart");
    const known = lines.map(([, values]) => values.filter((one) => one != null));
    box.hidden = !known.some((values) => values.length > 1); // a line has two ends
    if (box.hidden) return;
    const most = known.map((values) => `at most ${number(Math.max(...values))}${NBSP}${unit}`);
    box.querySelector("figcaption").replaceChildren(...lines.map(([name], at) => element("span", {},
      element("i", { class: `swatch line-${at}` }), `${name}, ${most[at]}`)));
    chart.setAttribute("aria-label", lines.map(([name], at) => `${name}: from `
      + `${number(known[at][0])} to ${number(known[at].at(-1))}, ${most[at]}`).join("; "));
    const data = [times, ...lines.map(([, values]) => values)];
    if (plots.has(id)) plots.get(id).setData(data);
    else plots.set(id, plotted(chart, unit, data));
  }
  function course({ history, rates = [], at: now_s }) {
    byId("hour").hidden = !history || !history.at.length;
    if (byId("hour").hidden) return;
    const fresh = rates.filter((one) => one.at > history.at.at(-1)).slice(-1);
    const column = (key) => [...history[key], ...fresh.map((one) => one[key])];
    const times = column("at");
    axis_s = [Math.max(now_s - HOUR_S, Math.min(times[0], now_s - SHORT_S)), now_s];
    marks = history.marks;
    draw("chart-rates", "records/s", times,
      [["in", column("in_per_s")], ["out", column("out_per_s")]]);
    draw("chart-lag", "records", times, [["lag", column("lag")]]);
  }
  const sized = () => plots.forEach((plot) => {
    const chart = plot.root.parentElement;
    if (chart.clientWidth) plot.setSize({ width: chart.clientWidth, height: chart.clientHeight });
  });

  // -- one status into place -----------------------------------------------------------------

  const filter = byId("filter"), live = byId("live"), button = byId("pause");
  const shown = new Map(); // box → its content as it was put into place
  let paused = false, asked = false, seen = null, latest = null, chosen = "";

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
    const stops = "[tabindex], summary, a, button";
    const wide = () => [...body.querySelectorAll(".wide")];
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
    const look = LOOKS[state] || (status.paused_by_operator ? "warn" : "bad");
    const records = status.total_lag?.records;
    const said = state === "at risk" ? "running, at risk" : state;
    latest = status;
    document.title = (state === "running" ? app : `${app}: ${said}`)
      + (records ? ` ${trend(status)} ${short(records)}`.replace("  ", " ") : "");
    byId("icon").href = byId("icon").href.replace(/%23[0-9a-f]{6}/, `%23${LIGHTS[look]}`);
    byId("app").textContent = app;
    byId("state").textContent = said;
    byId("state").className = `state ${look}`;
    byId("facts").textContent =
      [status.engine, status.guarantee, status.record_path, status.transactional_id]
        .filter(Boolean).join(" · ");
    byId("as-of").replaceChildren("as of ", clock(status.at));
    const calm = [["dead_letters", "dead letters"], ["troubles", "warnings or errors"]];
    byId("quiet").textContent = calm.filter(([key]) => !(status[key] || []).length)
      .map(([, name]) => `No ${name}. `).join("");
    for (const [id, content] of Object.entries(BOXES)) {
      const box = byId(id), made = content(status);
      box.hidden = made === null;
      swap(id, box.querySelector(":scope > div"), made || []);
      const note = box.querySelector("h2 > small");
      if (note) note.replaceChildren(...element("i", {}, NOTES[id](status) || []).childNodes);
    }
    byId("state").hidden = byId("controls").hidden = byId("boxes").hidden = false;
    course(status);
    byId("happened").replaceChildren(...happened(status).filter(Boolean));
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
  byId("last").addEventListener("click", ({ target }) => {
    const one = target.closest("[data-at]");
    if (one) { chosen = one.dataset.at; show(latest); }
  });
  filter.addEventListener("input", match);
  document.addEventListener("visibilitychange", ask);
  window.addEventListener("resize", sized);
  matchMedia("(prefers-color-scheme: dark)").addEventListener(
    "change", () => plots.forEach((plot) => plot.redraw()));
  setInterval(ask, EVERY_MS);
  ask();
})();
