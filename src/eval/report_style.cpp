// The style sheet. One column of at most 58rem; colours by variables, light and dark; everything
// that could be wider than a phone wraps.
#include "eval/report_parts.hpp"

namespace gigaknn {

const char* const report_style = R"css(
:root {
  color-scheme: light dark; --paper: #fdfcfb; --ink: #1d1b19; --soft: #6a645e; --line: #e6e1db;
  --tile: #f4f1ed; --accent: #0d6e6e; --pale: #9cc5c2; --alarm: #bf4408;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #151413; --ink: #ebe7e2; --soft: #a39c94; --line: #322f2c; --tile: #211f1d;
    --accent: #55bdb5; --pale: #2c5f5c; --alarm: #ff9455;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans",
    sans-serif;
  font-variant-numeric: tabular-nums lining-nums;
}
main {
  max-width: 58rem; margin: 0 auto; padding: clamp(1.5rem, 5vw, 4rem) clamp(1rem, 4vw, 2rem) 3rem;
}
h1 {
  margin: 0; font-size: clamp(1.7rem, 1.2rem + 2.4vw, 2.6rem); line-height: 1.15;
  letter-spacing: -0.02em; font-weight: 700; text-wrap: balance; overflow-wrap: anywhere;
}
h2 {
  margin: 0 0 0.4rem; font-size: 1.3rem; line-height: 1.3; letter-spacing: -0.01em;
  font-weight: 650;
}
h3 { margin: 0; font-size: 1rem; line-height: 1.4; font-weight: 600; }
p { margin: 0 0 0.75rem; max-width: 44rem; text-wrap: pretty; }
figure { margin: 0; }
section { margin-top: clamp(2.5rem, 6vw, 4rem); }
.brand {
  margin: 0 0 0.6rem; color: var(--accent); font-size: 0.85rem; font-weight: 600;
  letter-spacing: 0.02em;
}
.lede { margin: 0.9rem 0 0; color: var(--soft); font-size: 1.1rem; }
.note, figcaption, .small { color: var(--soft); font-size: 0.875rem; line-height: 1.45; }
.bad, .key { color: var(--alarm); font-weight: 600; }

.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1.25rem 1.5rem;
  margin: 2.25rem 0 0; padding: 1.25rem 0; border-block: 1px solid var(--line);
}
.figures dt { color: var(--soft); font-size: 0.875rem; }
.figures dd { margin: 0; }
.figures .value {
  font-size: 1.75rem; line-height: 1.25; font-weight: 650; letter-spacing: -0.015em;
  white-space: nowrap;
}

.gallery { margin-top: 1.25rem; }
.query {
  display: grid; grid-template-columns: 6rem 1fr; gap: 1.25rem; padding: 1rem 0;
  border-top: 1px solid var(--line); break-inside: avoid;
}
.found {
  display: grid; grid-template-columns: repeat(10, minmax(0, 1fr)); gap: 0.6rem 0.5rem;
  align-content: start;
}
.query img, .frame img {
  display: block; width: 100%; height: auto; border-radius: 4px; background: var(--tile);
}
.coarse { image-rendering: pixelated; }
.query figcaption, .frame figcaption {
  margin-top: 0.3rem; font-size: 0.75rem; line-height: 1.3; text-align: center;
  overflow-wrap: anywhere;
}
.asked figcaption { text-align: left; font-size: 0.8125rem; }
.asked b { color: var(--ink); font-weight: 600; }
.found i { color: var(--alarm); font-style: normal; }

.path + .path { margin-top: 2rem; }
.path { margin-top: 1.25rem; }
.strip {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(7.4rem, 1fr)); gap: 0.9rem 0;
  margin-top: 0.5rem;
}
.frame { display: flex; align-items: flex-start; break-inside: avoid; }
.frame figure { flex: 0 0 4rem; }
.step {
  position: relative; flex: 1; height: 4rem; padding-top: 0.7rem; color: var(--soft);
  font-size: 0.75rem; line-height: 1.2; text-align: center; white-space: nowrap;
}
.step::before {
  content: ""; position: absolute; left: 0.45rem; right: 0.5rem; top: 2rem;
  border-top: 1.5px solid;
}
.step::after {
  content: ""; position: absolute; right: 0.5rem; top: 2rem; width: 7px; height: 7px;
  margin-top: -2.75px; border: solid; border-width: 1.5px 1.5px 0 0; transform: rotate(45deg);
}
.step.largest { color: var(--alarm); font-weight: 700; }
.step.largest::before { border-top-width: 3px; margin-top: -0.75px; }
.step.largest::after { border-width: 3px 3px 0 0; width: 9px; height: 9px; margin-top: -3.75px; }
.words-only figure {
  padding: 0.3rem 0.1rem; border: 1px solid var(--line); border-radius: 4px;
  background: var(--tile);
}
.words-only figcaption { margin: 0; color: var(--ink); }
.words-only .step { height: 2rem; padding-top: 0; margin-top: -0.2rem; }
.words-only .step::before, .words-only .step::after { top: 1.15rem; }

.charts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 2rem 2.5rem; margin: 1.25rem 0 1.5rem;
}
.charts figure { break-inside: avoid; }
.chart { display: block; width: 100%; height: auto; margin: 0.6rem 0 0.5rem; overflow: visible; }
.chart text { fill: var(--soft); font-size: 12.5px; }
.chart .name { fill: var(--ink); }
.chart .mark { fill: var(--alarm); font-weight: 600; }
.chart .grid { stroke: var(--line); }
.chart .axis { stroke: var(--soft); }
.chart .median { stroke: var(--alarm); stroke-width: 1.5; stroke-dasharray: 4 3; }
.chart .bar { fill: var(--accent); }
.chart .beyond { fill: var(--pale); }

.columns {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  gap: 1.5rem 3rem; margin-top: 1rem; align-items: start;
}
.facts {
  display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.35rem 1.25rem;
  margin: 0;
}
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
table { width: 100%; border-collapse: collapse; font-size: 0.9375rem; }
caption { padding-bottom: 0.35rem; font-weight: 600; text-align: left; }
th { color: var(--soft); font-weight: 400; }
th, td { padding: 0.25rem 0 0.25rem 0.75rem; text-align: right; }
th:first-child, td:first-child { padding-left: 0; }
td, tbody th { border-top: 1px solid var(--line); }
.words, .time th { text-align: left; overflow-wrap: anywhere; }
.time td:last-child, .time th { width: 1%; white-space: nowrap; }
.length span {
  display: block; height: 0.6rem; min-width: 2px; border-radius: 2px; background: var(--accent);
}
.total { font-weight: 600; }
.tables {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1.75rem 2.5rem;
  margin-top: 1.25rem;
}
.tables table { align-self: start; break-inside: avoid; font-size: 0.875rem; }

footer {
  margin-top: clamp(2.5rem, 6vw, 4rem); padding-top: 1.25rem; border-top: 1px solid var(--line);
  color: var(--soft); font-size: 0.8125rem;
}
footer p { margin-bottom: 0.35rem; }
pre {
  margin: 0 0 1rem; padding: 0.75rem 1rem; border-radius: 6px; background: var(--tile);
  color: var(--ink);
  font: 0.8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere;
}

@media (max-width: 40rem) {
  .query { grid-template-columns: 4rem 1fr; gap: 0.75rem; }
  .found { grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 0.6rem 0.35rem; }
  .found figcaption { font-size: 0.6875rem; letter-spacing: -0.02em; margin-inline: -0.15rem; }
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .figures .value { font-size: 1.5rem; }
  .asked figcaption { font-size: 0.75rem; }
  .frame figcaption { font-size: 0.6875rem; }
  .strip { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .frame figure { flex-basis: 3.5rem; }
  .step { height: 3.5rem; padding-top: 0.5rem; font-size: 0.6875rem; letter-spacing: -0.02em; }
  .step::before, .step::after { top: 1.75rem; }
}
@media print {
  :root {
    --paper: #fff; --ink: #000; --soft: #555; --line: #ccc; --tile: #f4f4f4; --accent: #0d6e6e;
    --pale: #9cc5c2; --alarm: #bf4408; color-scheme: light;
  }
  @page { margin: 16mm; }
  body { font-size: 10pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  h2, h3 { break-after: avoid; }
  .charts { grid-template-columns: 1fr 1fr; gap: 8mm; }
}
)css";

}  // namespace gigaknn
