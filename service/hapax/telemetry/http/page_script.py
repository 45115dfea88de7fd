"""The script of the status page: it fetches the page again, and puts what has changed into place.

Open folds, what is typed into the filter, scroll positions and the focus stay. When no answer
comes, the page keeps what it has, and says since when.
"""

from __future__ import annotations

from typing import Final

SCRIPT: Final = """
"use strict";
(() => {
  const everyMs = 2000, waitMs = 5000;
  const one = (id) => document.getElementById(id);
  const filter = one("filter"), live = one("live"), button = one("pause");
  const main = document.querySelector("main");
  const at = (page) => page.querySelector("footer time").textContent;
  const name = (part) => part.id || part.localName;
  const sources = new Map();
  let paused = false, asked = 0, seen = at(document);

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
  function keep(part) { sources.set(name(part), part.outerHTML); }
  function swap(old, part) {
    if (sources.get(name(part)) === part.outerHTML) return;
    const stops = "[tabindex], summary, a", wide = (each) => [...each.querySelectorAll(".wide")];
    const open = [...old.querySelectorAll("details[open]")];
    const left = wide(old).map((each) => each.scrollLeft);
    const focus = [...old.querySelectorAll(stops)].indexOf(document.activeElement);
    keep(part);
    old.replaceWith(part);
    for (const fold of open) {
      const again = one(fold.id);
      if (!again) continue;
      again.open = true;
      if ("forced" in fold.dataset) again.dataset.forced = "";
    }
    wide(part).forEach((each, i) => { each.scrollLeft = left[i] || 0; });
    const focused = focus < 0 ? null : part.querySelectorAll(stops)[focus];
    if (focused) focused.focus({ preventScroll: true });
  }
  function fill(into, from) {
    const fresh = [...from.children], names = new Set(fresh.map(name));
    for (const old of [...into.children]) if (!names.has(name(old))) old.remove();
    fresh.forEach((part, i) => {
      const old = into.children[i];
      if (!old || name(old) !== name(part)) { keep(part); into.insertBefore(part, old || null); }
      else if (part.id === "cards") fill(old, part);
      else swap(old, part);
    });
  }
  function show(page) {
    document.title = page.title;
    swap(one("who"), page.getElementById("who"));
    swap(document.querySelector("footer"), page.querySelector("footer"));
    fill(main, page.querySelector("main"));
    seen = at(document);
    match();
  }
  async function ask() {
    if (paused || document.hidden || asked) return;
    const mine = asked = Date.now();
    try {
      const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(waitMs) });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (paused || mine !== asked) return;
      show(page);
      say("Live", "");
    } catch {
      if (!paused) say("No answer since " + seen + "; the page shows that moment", "gone");
    } finally { asked = 0; }
  }
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume updates" : "Pause updates";
    say(paused ? "Paused at " + seen : "Live", paused ? "paused" : "");
    ask();
  });
  filter.addEventListener("input", match);
  document.addEventListener("visibilitychange", ask);
  document.querySelectorAll("#who, footer, main section").forEach(keep);
  one("controls").hidden = false;
  say("Live", "");
  setInterval(ask, everyMs);
})();
"""
