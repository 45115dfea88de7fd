"""How the status page looks: light and dark, wide and narrow.

Text has a contrast of at least 4.5 to 1 against its ground in both schemes (WCAG 2.1, AA).
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --ground: #f6f7f9; --card: #ffffff; --line: #d9dde3; --ink: #1c2430; --soft: #566071;
  --good: #12653a; --good-ground: #dff3e6; --warn: #7a4b00; --warn-ground: #fdf0d5;
  --bad: #a3141f; --bad-ground: #fde3e4; --bar: #5b7fb8; --link: #1a56a8; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #12161c; --card: #1b2129; --line: #333c48; --ink: #e6eaf0; --soft: #a2adbb;
  --good: #7fdba4; --good-ground: #12351f; --warn: #f3c46b; --warn-ground: #3a2a08;
  --bad: #ff9a9f; --bad-ground: #43161a; --bar: #5e86c6; --link: #8ab8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; background: var(--ground);
  color: var(--ink); font: 0.95rem/1.45 system-ui, sans-serif; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 0.4rem 0.9rem;
  margin-bottom: 1rem; }
h1 { margin: 0; font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { margin: 0 0 0.6rem; font-size: 1rem; }
small { color: var(--soft); font-weight: normal; font-size: 0.85rem; }
p { margin: 0 0 0.5rem; }
.state { margin: 0; padding: 0.15rem 0.8rem; border-radius: 1rem; font-weight: 600; }
.soft { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
#who, #controls { display: flex; flex-wrap: wrap; align-items: center; gap: 0.4rem 0.9rem; }
#controls[hidden] { display: none; }
#controls { margin-left: auto; } #live { margin: 0; color: var(--soft); min-width: 3rem; }
button, input { font: inherit; color: inherit; background: var(--card); border-radius: 0.4rem;
  border: 1px solid var(--soft); padding: 0.2rem 0.6rem; max-width: 100%; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.gone #live { color: var(--bad); font-weight: 600; }
.gone main { border-left: 0.3rem solid var(--bad); padding-left: 0.6rem; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
.state.good { background: var(--good-ground); } .state.warn { background: var(--warn-ground); }
.state.bad { background: var(--bad-ground); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 0.6rem;
  padding: 0.9rem 1rem; margin-bottom: 1rem; }
.reasons { border-color: var(--bad); background: var(--bad-ground); color: var(--bad); }
.none { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0 1rem; }
dl { margin: 0; }
dl div { display: flex; justify-content: space-between; gap: 1rem; }
dt { color: var(--soft); }
dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; text-align: right; }
dt { overflow-wrap: anywhere; }
figure { margin: 0.5rem 0 0; } figcaption { color: var(--soft); font-size: 0.85rem; }
.chart { display: block; width: 100%; height: 2.5rem; }
.chart polyline { fill: none; stroke: var(--bar); stroke-width: 2;
  vector-effect: non-scaling-stroke; }
.phases dt { flex: 0 0 7rem; }
.phases dd { flex: 1; display: flex; align-items: center; justify-content: space-between;
  gap: 0.5rem; }
.phases dd span { white-space: nowrap; }
.bar { display: inline-block; flex: 1; min-width: 0; height: 0.6rem; fill: var(--bar); }
details { margin-top: 0.6rem; } summary { cursor: pointer; color: var(--link); }
code { font-size: 0.9rem; overflow-wrap: anywhere; white-space: normal; }
#members td:last-child, #dead-letters td:last-child { text-align: left; white-space: normal;
  overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; }
tr > :last-child { padding-right: 0; }
tr > :first-child { text-align: left; padding-left: 0; font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
ul { margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
li { margin-bottom: 0.25rem; } li::marker { color: inherit; }
li.warn, li.bad { color: var(--ink); } li.warn b { color: var(--warn); }
li.bad b { color: var(--bad); }
footer { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; }
a { color: var(--link); } .reasons a { color: inherit; }
@media (max-width: 44rem) {
  body { padding: 0.6rem; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody { display: block; }
  tbody tr { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
    gap: 0 1.4rem; }
  tbody th { grid-column: 1 / -1; }
  tbody th, td { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    padding: 0.1rem 0; white-space: normal; }
  tbody th { overflow-wrap: anywhere; }
  td::before { color: var(--soft); }
  tr[hidden] { display: none; } #controls { margin-left: 0; }
  tbody tr { padding: 0.5rem 0; border-bottom: 1px solid var(--line); }
  tbody tr:last-child { border-bottom: 0; }
}
"""
