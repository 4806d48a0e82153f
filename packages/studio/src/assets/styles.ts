/** The style sheet of the pages: light or dark, as the visitor's system is set. */
export const STYLES_TEXT = `
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --text: #1b1f27; --dim: #5a6372; --line: #dde1e8; --soft: #eef0f4;
  --accent: #4338ca; --on-accent: #fff; --accent-soft: #eceafd; --good: #14603a; --good-soft: #ddf3e6;
  --warn: #7a4a06; --warn-soft: #fcefd3; --bad: #a3182b; --bad-soft: #fde8ea; --shadow: 0 1px 2px rgb(20 25 40 / 6%);
  --mono: ui-monospace, "SF Mono", "Cascadia Code", "DejaVu Sans Mono", Menlo, Consolas, monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101319; --card: #181c24; --text: #e7eaf0; --dim: #a0a9b8; --line: #2d3340; --soft: #222833;
    --accent: #a5a0ff; --on-accent: #14122e; --accent-soft: #272548; --good: #7fd6a4; --good-soft: #173326;
    --warn: #f1c274; --warn-soft: #3a2c12; --bad: #ff9aa6; --bad-soft: #431b22; --shadow: none;
  }
}
*, ::before, ::after { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 8.2rem; }
body { margin: 0; background: var(--page); color: var(--text); font: 0.9375rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1, h2, h3, h4, p, ol, ul, dl, dd, figure, pre { margin: 0; }
h1 { font-size: 1.5rem; line-height: 1.25; letter-spacing: -0.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; }
h3 { font-size: 0.8125rem; margin: 1.1rem 0 0.35rem; }
h4 { font-size: 0.75rem; color: var(--dim); font-weight: 600; margin: 0.5rem 0 0.2rem; }
ol, ul { padding: 0; list-style: none; }
a { color: var(--accent); text-underline-offset: 0.22em; text-decoration-thickness: 1px; }
a.quiet { color: inherit; text-decoration-color: var(--line); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
main:focus { outline: none; }
code, pre { font-family: var(--mono); font-size: 0.8125rem; }
.dim, .id, .by { color: var(--dim); }
.id { font-family: var(--mono); font-size: 0.78rem; overflow-wrap: anywhere; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.skip { position: absolute; left: 0.5rem; top: -4rem; background: var(--card); padding: 0.5rem 1rem; border-radius: 6px; z-index: 3; }
.skip:focus { top: 0.5rem; }

.top { position: sticky; top: 0; z-index: 2; display: flex; align-items: center; gap: 1.75rem; padding: 0 max(1.25rem, calc((100vw - 78rem) / 2)); height: 3.5rem; background: var(--card); border-bottom: 1px solid var(--line); }
.brand { display: flex; align-items: center; gap: 0.55rem; font-weight: 650; color: var(--text); text-decoration: none; letter-spacing: -0.01em; }
.brand span { width: 1.1rem; height: 1.1rem; border-radius: 0.35rem; background: linear-gradient(135deg, #4f46e5, #8b5cf6); }
.top nav { display: flex; gap: 0.25rem; }
.top nav a { color: var(--dim); text-decoration: none; padding: 0.3rem 0.7rem; border-radius: 6px; }
.top nav a:hover { background: var(--soft); color: var(--text); }
.top nav a[aria-current] { color: var(--text); background: var(--soft); font-weight: 550; }
main { max-width: 78rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
.crumbs ol { display: flex; flex-wrap: wrap; font-size: 0.8125rem; margin-bottom: 0.6rem; }
.crumbs li { overflow-wrap: anywhere; }
.crumbs li + li::before { content: "/"; color: var(--dim); margin: 0 0.5rem; }
.crumbs a { color: var(--dim); text-decoration: none; }
.crumbs a:hover { color: var(--text); text-decoration: underline; }
.heading { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: flex-start; gap: 0.75rem 1.5rem; margin-bottom: 1.1rem; }
main > h1 { margin-bottom: 1.1rem; }
.facts { display: flex; flex-wrap: wrap; align-items: center; gap: 0.2rem 0.9rem; margin-top: 0.4rem; color: var(--dim); font-size: 0.8125rem; }
.actions, .pages { display: flex; flex-wrap: wrap; align-items: center; gap: 0.5rem; } .actions .quiet { padding: 0 0.5rem; }
.pages { margin-top: 1rem; }

button, .button, input, select, textarea { font: inherit; color: inherit; border: 1px solid var(--line); border-radius: 7px; background: var(--card); padding: 0.36rem 0.75rem; min-height: 2.25rem; }
button, .button { display: inline-flex; align-items: center; white-space: nowrap; text-decoration: none; color: var(--text); cursor: pointer; font-weight: 500; font-size: 0.875rem; box-shadow: var(--shadow); }
button:hover, .button:hover { background: var(--soft); }
.button[aria-disabled] { color: var(--dim); cursor: default; background: none; box-shadow: none; }
button.primary { background: var(--accent); border-color: var(--accent); color: var(--on-accent); }
button.primary:hover { filter: brightness(1.08); }
.danger { color: var(--bad); }
button.danger { background: var(--bad); color: var(--card); border-color: var(--bad); }
input, select, textarea { border-color: color-mix(in srgb, var(--dim) 70%, var(--card)); }
input::placeholder { color: var(--dim); opacity: 1; }
label { display: flex; flex-direction: column; gap: 0.2rem; font-size: 0.8125rem; font-weight: 550; }
label > .dim { font-weight: 400; }
label input, label select, label textarea { font-weight: 400; font-size: 0.9rem; }

.search { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.9rem, 1fr)); gap: 0.75rem; align-items: end; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.9rem 1rem; margin-bottom: 1.1rem; }
.search label { min-width: 0; }
.search input, .search select { width: 100%; height: 2.25rem; }
.search input[type="date"] { padding-inline: 0.45rem; }
.search button { justify-content: center; max-width: 12rem; }

.list { width: 100%; border-collapse: separate; border-spacing: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; box-shadow: var(--shadow); }
.list th, .list td { text-align: left; padding: 0.62rem 1rem; border-top: 1px solid var(--line); vertical-align: baseline; font-weight: 400; overflow-wrap: anywhere; }
.list .id { font-weight: 400; }
.list td { min-width: 9.5rem; } .list td.number, .list td.action { min-width: 0; } .list tbody th { min-width: 13rem; } .list .action, .list td:has(.spark) { white-space: nowrap; }
.list thead th { border-top: 0; color: var(--dim); font-size: 0.78rem; font-weight: 550; white-space: nowrap; }
.sort { color: inherit; text-decoration: none; } .sort:hover { text-decoration: underline; } [aria-sort] .sort { color: var(--text); font-weight: 650; }
[aria-sort="descending"] .sort::after { content: " ↓"; } [aria-sort="ascending"] .sort::after { content: " ↑"; }
.list tbody th a { font-weight: 550; text-decoration: none; }
.list tbody th a:hover { text-decoration: underline; }
.list .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.list .id { display: block; }
.dense th, .dense td { padding-inline: 0.5rem; } .dense td { min-width: 6rem; } .dense tbody th { min-width: 10rem; } .dense .number .id { white-space: normal; } #apps td[data-label^="Tokens"] { min-width: 14rem; }
.list .way { display: inline-block; margin-right: 0.5rem; line-height: 1.5rem; font-size: 0.8125rem; font-weight: 400; text-decoration: underline; text-decoration-color: var(--line); } .way:last-child { margin: 0; } .ways { display: block; }
.fixed { table-layout: fixed; } .fixed thead .number { width: 8.5rem; } .board .fixed thead .number { width: 8rem; } .board #waits thead .number, .board #runs thead .number { width: 4.4rem; } .fixed thead .action { width: 10.3rem; } #latest thead .action { width: 3.5rem; } #latest .line { font-weight: 400; }
#runs th, #runs td { vertical-align: top; } #runs thead th:first-child { width: 37.5%; } #failed thead th:first-child { width: 54%; } #latest thead th:first-child { width: 55%; }
.list time { font-variant-numeric: tabular-nums; } .list .line { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.does { display: flex; flex-wrap: wrap; gap: 0 0.5rem; align-items: baseline; } .does .args { flex: 1 1 5rem; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.does::before { content: ""; flex-basis: 100%; order: 1; } .does .chip, .does .dim { order: 2; } .does .chip { min-width: 4.6rem; text-align: center; } .does .chip:first-child { min-width: 13.8rem; } .does .dim { min-width: 8.4rem; }
.list .legend { margin-right: 0.2rem; font-size: 0.8125rem; color: var(--dim); }
.thumb { width: 2.5rem; height: 2.5rem; object-fit: cover; vertical-align: middle; margin-right: 0.6rem; border-radius: 6px; border: 1px solid var(--line); }
.list + p, .list + .block { margin-top: 0.8rem; } .block > .note:has(+ .list) { margin: -0.35rem 0 0.6rem; } .note:has(+ .list), .dim:has(+ .cards), .turns > .note { margin-block: 0.8rem; }
.list .chip { margin: 0.2rem 0.3rem 0 0; } .list a.dim { white-space: nowrap; }

.chip { display: inline-block; border-radius: 999px; padding: 0.05rem 0.6rem; font-size: 0.75rem; line-height: 1.5; background: var(--soft); color: var(--text); overflow-wrap: anywhere; }
.chip.filter { background: var(--accent-soft); } a.chip { text-decoration-color: var(--line); }
.chip.quiet { background: none; color: var(--dim); padding: 0.05rem 0; }
.chip.warn { background: var(--warn-soft); color: var(--warn); }
.chip.bad { background: var(--bad-soft); color: var(--bad); }
.chip.good { background: var(--good-soft); color: var(--good); }
.empty { text-align: center; padding: 3.5rem 1rem; border: 1px dashed var(--line); border-radius: 10px; background: var(--card); }
.block .empty { padding: 1.5rem 1rem; }
.empty p > .button { display: flex; width: fit-content; margin: 0.9rem auto 0; }
.empty p { color: var(--dim); margin: 0.5rem auto 0; max-width: 34rem; }

.columns { display: grid; grid-template-columns: minmax(0, 1fr) 20.5rem; gap: 1.5rem; align-items: start; }
aside { position: sticky; top: 8.2rem; max-height: calc(100vh - 9.2rem); overflow-y: auto; }
.panel, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.85rem 1.1rem 1.1rem; box-shadow: var(--shadow); }
.panel > summary { cursor: pointer; }
.panel > summary h2 { display: inline; }
.state > div { padding: 0.42rem 0.6rem; margin: 0 -0.6rem; border-radius: 6px; }
.state > div + div { margin-top: 0.1rem; }
.state dt { font-family: var(--mono); font-size: 0.8125rem; font-weight: 600; overflow-wrap: anywhere; }
.state dd > code { display: block; overflow-wrap: anywhere; white-space: pre-wrap; max-height: 9rem; overflow: hidden; }
.state .by { display: block; font-size: 0.75rem; margin-top: 0.1rem; overflow-wrap: anywhere; }
.state .current, .list .current { background: var(--accent-soft); }
.state dt a { color: inherit; text-decoration: none; } .state dt a:hover { text-decoration: underline; } .whole .state dd > code { max-height: none; }
.changes code { white-space: pre-wrap; } .changes tbody th { min-width: 8rem; } .changes td { min-width: 5.5rem; } .changes td[data-label="Change"] { width: 55%; } .delta dt a { display: inline-block; color: inherit; line-height: 1.5rem; }

.bar { position: sticky; top: 3.5rem; z-index: 2; display: grid; grid-template-columns: minmax(0, 1fr) auto; align-items: start; gap: 0.2rem 1rem; background: var(--page); border-bottom: 1px solid var(--line); padding: 0.4rem 0; margin-bottom: 1rem; }
.bar h1 { max-width: 26rem; max-height: 2.6em; font-size: 1.05rem; letter-spacing: 0; overflow: hidden; }
.bar .facts { margin: 0; } .about { display: flex; flex-wrap: wrap; align-items: center; align-content: center; gap: 0.2rem 1rem; min-height: 2rem; }
.bar nav { display: flex; gap: 0.25rem; }
.facts, .side { font-variant-numeric: tabular-nums; } .bar [data-lasted] { display: inline-block; min-width: 3.4em; text-decoration: inherit; }
.bar nav a { color: var(--dim); text-decoration: none; padding: 0.2rem 0.7rem; border-radius: 6px; }
.bar nav a:hover { background: var(--soft); }
.bar nav a[aria-current] { background: var(--accent-soft); color: var(--text); font-weight: 550; }

.went { margin-bottom: 0.9rem; overflow-wrap: anywhere; } .most { font-size: 1.15rem; }
.shares { display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; margin-top: 0.4rem; } .turn .shares { margin: 0; } .shares .legend, .turn .facts .legend { margin: 0; white-space: normal; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(16rem, 100%), 1fr)); gap: 0.8rem; margin-bottom: 0.8rem; }
.side { border: 1px solid var(--line); border-top: 3px solid var(--hue); border-radius: 8px; padding: 0.5rem 0.75rem 0.65rem; min-width: 0; overflow-wrap: anywhere; }
.side h4 { margin: 0; font-size: 0.9375rem; } .side h4 a, .lane > a { color: var(--hue-text); } .side li { margin-top: 0.25rem; font-size: 0.875rem; } .side > p { font-size: 0.8125rem; margin-top: 0.3rem; } .side .facts { gap: 0 0.7rem; } .panel h2 .dim, .heading h2 .dim { font-weight: 400; font-size: 0.875rem; } .bar + h2 { margin-bottom: 0.6rem; }
#branches { margin-top: 0.8rem; } #branches .panel:not([open]) { padding-block: 0.4rem; } #branches .panel:not([open]) > summary { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; } #branches .panel:not([open]) h2 { font-size: 0.875rem; font-weight: 550; } #branches .sides { margin: 0.6rem 0; grid-template-columns: repeat(auto-fit, minmax(min(11.5rem, 100%), 1fr)); }
.list + .charts { margin-top: 1rem; }
.turn { margin-bottom: 0.9rem; } .turn > summary strong { overflow-wrap: anywhere; }
.lanes { margin-top: 0.6rem; } .lane { display: grid; grid-template-columns: 11rem minmax(0, 1fr); gap: 0.8rem; align-items: start; border-top: 1px solid var(--line); padding: 0.15rem 0; }
.lane > a { font-size: 0.8125rem; font-weight: 600; color: var(--hue-text); overflow-wrap: anywhere; }
.lane .failed, .lane .unknown { stroke: #dc2626; stroke-width: 2px; vector-effect: non-scaling-stroke; } .lane .unknown { stroke: #7b8494; }
.lane svg { display: block; width: 100%; background: var(--soft); border-radius: 4px; }
.axis { display: flex; justify-content: space-between; margin-left: 11.8rem; font-size: 0.72rem; color: var(--dim); }
.turn .model { fill: #6366f1; } .turn .tool { fill: #0d9488; } .turn .failed { fill: #dc2626; } .turn .wait { fill: url(#hatch); } .turn .unknown { fill: #7b8494; }
#hatch path { stroke: #d97706; stroke-width: 2.5; }
.legend { white-space: nowrap; margin-right: 0.9rem; }
.legend::before { content: ""; display: inline-block; width: 0.8rem; height: 0.7rem; border-radius: 2px; margin-right: 0.3rem; }
.legend.model::before { background: #6366f1; } .legend.tool::before { background: #0d9488; } .legend.failed::before { background: #dc2626; } .legend.unknown::before { background: #7b8494; } .legend.between::before { background: var(--soft); border: 1px solid var(--dim); }
.legend.wait::before { background: repeating-linear-gradient(135deg, #d97706 0 2px, transparent 2px 5px); }
.blocks > summary { cursor: pointer; font-size: 0.8125rem; color: var(--dim); margin-top: 0.5rem; }
.blocks li { font-size: 0.8125rem; border-left: 3px solid var(--hue); padding-left: 0.6rem; overflow-wrap: anywhere; }
.blocks button { min-height: 1.5rem; padding: 0 0.3rem; border: 0; background: none; box-shadow: none; color: var(--accent); text-decoration: underline; font-size: inherit; }
.timeline { display: flex; flex-wrap: wrap; align-items: center; gap: 0.5rem 0.6rem; margin-bottom: 0.9rem; }
.timeline ol { display: flex; flex: 1 1 12rem; overflow-x: auto; padding: 2px; min-width: 0; }
.timeline li { flex: 0 0 auto; position: relative; }
.timeline li a { display: flex; align-items: center; justify-content: center; width: 24px; height: 34px; border-radius: 5px; }
.timeline li a::before { content: ""; width: 8px; height: 14px; border-radius: 4px; background: var(--hue); }
.timeline li .user::before { height: 24px; background: var(--dim); }
.timeline li a:hover, .timeline li a[aria-current] { background: var(--accent-soft); }
.timeline li a[aria-current] { box-shadow: inset 0 0 0 2px var(--accent); }
.timeline form { display: flex; gap: 0.4rem; align-items: center; }
.timeline label { flex-direction: row; align-items: center; gap: 0.4rem; }
.timeline input { width: 6.2rem; }
.pager { display: flex; align-items: center; justify-content: center; flex-wrap: wrap; gap: 0.6rem; padding: 0.6rem 0; font-size: 0.8125rem; }

.events { display: flex; flex-direction: column; gap: 0.8rem; }
.event { background: var(--card); border: 1px solid var(--line); border-left: 3px solid var(--hue); border-radius: 10px; padding: 0.65rem 1rem 0.8rem; width: 100%; max-width: 46rem; box-shadow: var(--shadow); content-visibility: auto; contain-intrinsic-size: auto 7rem; scroll-margin-top: 0.5rem; }
.event:nth-last-child(-n + 12) { content-visibility: visible; }
.event.user { align-self: flex-end; width: fit-content; min-width: min(22rem, 100%); max-width: 40rem; background: var(--accent-soft); border-color: transparent; border-left-color: transparent; }
.event.current, .event:target { outline: 2px solid var(--accent); outline-offset: 1px; }
.event.damaged { border-color: var(--bad); color: var(--bad); }
.depth-1 { margin-left: 1.5rem; width: calc(100% - 1.5rem); } .depth-2 { margin-left: 3rem; width: calc(100% - 3rem); } .depth-3 { margin-left: 4.5rem; width: calc(100% - 4.5rem); }
.meta { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.1rem 0.7rem; font-size: 0.78rem; color: var(--dim); margin-bottom: 0.25rem; }
.event.user .meta, .event.user .dim, .event.user .note { color: color-mix(in srgb, var(--dim) 70%, var(--text)); }
.author { font-weight: 650; font-size: 0.875rem; color: var(--hue-text); overflow-wrap: anywhere; }
.event.user .author { color: var(--text); }
.tools { margin-left: auto; display: flex; gap: 0.75rem; }
.tools a { color: inherit; text-decoration-color: var(--line); padding: 0.1rem 0; }
.tools a:hover { color: var(--accent); }
.body > * + * { margin-top: 0.5rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.markdown { overflow-wrap: anywhere; }
.markdown > * + *, .markdown li > * + *, .markdown blockquote > * + * { margin-top: 0.5rem; }
.markdown .caption { font-weight: 650; }
.markdown > .caption:not(:first-child) { margin-top: 0.9rem; }
.markdown ul, .markdown ol { padding-inline-start: 1.5rem; }
.markdown ul { list-style: disc; } .markdown ol { list-style: decimal; }
.markdown li + li { margin-top: 0.2rem; }
.markdown .task { list-style: none; margin-inline-start: -1.3rem; }
.code { position: relative; } .code:has(.copy) pre { padding-right: 4.6rem; }
.copy { position: absolute; top: 0.35rem; right: 0.35rem; min-height: 1.6rem; padding: 0 0.5rem; font-size: 0.75rem; opacity: 0.85; }
.markdown blockquote { margin-inline: 0; margin-bottom: 0; padding-inline-start: 0.8rem; border-inline-start: 3px solid var(--line); color: var(--dim); }
.markdown :not(pre) > code { background: var(--soft); border-radius: 4px; padding: 0.05rem 0.3rem; }
.markdown hr { border: 0; border-top: 1px solid var(--line); }
.markdown table { border-collapse: collapse; font-size: 0.875rem; }
.markdown th, .markdown td { border: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: start; vertical-align: top; overflow-wrap: normal; }
.scrolled { overflow-x: auto; }
.thought .markdown { color: var(--dim); }
.note { font-size: 0.8125rem; color: var(--dim); }
.error { background: var(--bad-soft); color: var(--bad); border-radius: 7px; padding: 0.4rem 0.7rem; overflow-wrap: anywhere; }
.chips { display: flex; flex-wrap: wrap; gap: 0.35rem; }
.fold { border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
.fold > summary { cursor: pointer; padding: 0.4rem 0.75rem; font-size: 0.875rem; overflow-wrap: anywhere; min-height: 2.1rem; }
.fold > summary code { font-weight: 600; }
.fold[open] > summary { border-bottom: 1px solid var(--line); }
.fold > div { padding: 0.4rem 0.75rem 0.7rem; }
.fold .what { color: var(--dim); } .why[open] .brief { display: none; } .why:not([open]) { border-color: transparent; background: none; } .why > summary { color: var(--dim); font-size: 0.8125rem; min-height: 1.6rem; } .why:not([open]) > summary { padding: 0.15rem 0; } .why .what { color: var(--text); font-weight: 650; }
.why .note { margin-top: 0.3rem; } .why .delta { border: 0; padding: 0; gap: 0.2rem; } .why .delta dt { width: 9rem; font-family: inherit; } .why .delta dd { flex: 1; }
.args { font-family: var(--mono); font-size: 0.8125rem; color: var(--dim); overflow-wrap: anywhere; }
.waiting .args { color: inherit; }
.waiting a:not(.button) { color: inherit; font-size: 0.8125rem; }
.waiting li { display: flex; flex-wrap: wrap; align-items: center; gap: 0.2rem 0.7rem; } .waiting li span { min-width: 0; overflow-wrap: anywhere; } .waiting .button { margin-left: auto; }
.question { font-size: 1.1rem; font-weight: 600; line-height: 1.4; overflow-wrap: anywhere; }
.more > summary { cursor: pointer; font-size: 0.875rem; color: var(--dim); } .more > label { margin-top: 0.6rem; }
.question code, .question .args { font-size: 0.95rem; color: inherit; }
.event.slim:not(.current, :target) { display: none; }
.event.slim { box-shadow: none; background: none; border-color: transparent; border-left-color: var(--hue); border-radius: 0; padding-block: 0; contain-intrinsic-size: auto 3rem; }
.thought > summary { color: var(--dim); font-style: italic; }
.thought .text { color: var(--dim); }
.fold .fold { margin-top: 0.5rem; }
pre { background: var(--soft); border-radius: 7px; padding: 0.6rem 0.75rem; overflow: auto; max-height: 22rem; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 2; }
pre.raw { max-height: none; background: var(--card); border: 1px solid var(--line); }
figure img { display: block; max-width: min(100%, 24rem); max-height: 20rem; border-radius: 7px; border: 1px solid var(--line); background: repeating-conic-gradient(var(--soft) 0 25%, var(--card) 0 50%) 0 / 16px 16px; }
figcaption, .file { font-size: 0.8125rem; margin-top: 0.25rem; overflow-wrap: anywhere; }
.delta { border-left: 2px solid var(--line); padding-left: 0.7rem; font-size: 0.8125rem; display: grid; gap: 0.1rem; }
.delta > div { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 0.6rem; }
.delta dt { font-family: var(--mono); font-weight: 600; overflow-wrap: anywhere; }
.delta dd { min-width: 0; overflow-wrap: anywhere; }
.change { align-self: stretch; font-size: 0.8125rem; color: var(--dim); padding: 0 0.25rem; }
.change > p { display: flex; align-items: center; gap: 0.75rem; }
.change > p::before, .change > p::after { content: ""; height: 1px; background: var(--line); flex: 1; }
.change .delta { width: fit-content; max-width: 100%; margin: 0.3rem auto 0; }
.waiting { margin-top: 1rem; border: 1px solid var(--warn); background: var(--warn-soft); color: var(--warn); border-radius: 10px; padding: 0.7rem 1rem; }
.live { width: fit-content; margin: 0 auto 0.6rem; border-radius: 999px; padding: 0.12rem 0.8rem; font-size: 0.78rem; font-weight: 550; background: var(--good-soft); color: var(--good); }
.heading .live, .bar .live { margin: auto 0; }
.heading .live[data-state="off"] { position: fixed; right: 1.25rem; z-index: 3; }
.live::before { content: ""; display: inline-block; width: 0.5rem; height: 0.5rem; border-radius: 50%; background: currentcolor; margin-right: 0.45rem; }
.live[data-state="off"] { background: var(--bad-soft); color: var(--bad); }

.cards .id { display: block; font: inherit; font-size: 0.8125rem; font-weight: 400; letter-spacing: 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 0.9rem; margin-bottom: 1.5rem; }
.card dt { color: var(--dim); font-size: 0.8125rem; }
.card dd { font-size: 1.35rem; font-weight: 600; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.block { margin-bottom: 1.75rem; }
.block > h2 { margin-bottom: 0.6rem; } .block > h2 .dim { font-weight: 400; font-size: 0.9rem; }
.spark { border-bottom: 1px solid var(--line); font-family: var(--mono); font-size: 0.7rem; color: var(--accent); white-space: pre; letter-spacing: -0.05em; }
.block > p { margin: 0.4rem 0; }
@media (min-width: 60rem) { #latest .id, #largest .id { display: inline; margin-left: 0.4rem; } }
@media (min-width: 72rem) { .board { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 1.25rem; align-items: start; } }
.board .list { font-size: 0.875rem; } .board .list code, .board .list .args { font-size: 0.78rem; } .board .list td { min-width: 0; } .list td a.dim, .list td a.chip { display: inline-block; line-height: 1.5rem; }
.asks { display: block; } .list .by { display: block; font-weight: 400; font-size: 0.8125rem; } .list .by .id { display: inline; margin-right: 0.5rem; }
.heading .search { display: flex; flex: 1; margin: 0; max-width: 30rem; padding: 0; border: 0; background: none; gap: 0.5rem; } .heading .search label { flex: 1; flex-direction: row; align-items: center; gap: 0.7rem; white-space: nowrap; }
.before ol { border-left: 2px solid var(--line); padding-left: 0.8rem; display: grid; gap: 0.3rem; font-size: 0.875rem; } .before li { overflow-wrap: anywhere; } .before li > span { white-space: pre-line; }
.before h2 { margin-bottom: 0.4rem; } .before h2 .dim { font-weight: 400; font-size: 0.8125rem; } .before .user .author { color: var(--dim); } .bad { color: var(--bad); } .good { color: var(--good); }
.findings pre { margin-top: 0.4rem; }
.chart { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.85rem 1.1rem; margin-bottom: 1rem; box-shadow: var(--shadow); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); gap: 1rem; margin-bottom: 1rem; } .charts .chart { margin: 0; }
.chart figcaption { font-weight: 600; margin: 0 0 0.4rem; }
.chart svg { display: block; width: 100%; height: auto; overflow: visible; }
.chart rect { fill: var(--hue); } .chart line { stroke: var(--line); }
.chart .cut { stroke: var(--card); stroke-width: 4; fill: none; }
.chart text { fill: var(--dim); font-size: 15px; } .chart .end { text-anchor: end; }
.chart ul { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; margin-top: 0.5rem; font-size: 0.8125rem; }
.chart li::before { content: ""; display: inline-block; width: 0.7rem; height: 0.7rem; border-radius: 3px; margin-right: 0.4rem; background: var(--hue); }
.tabs { display: flex; gap: 0.35rem; flex-wrap: wrap; margin-bottom: 1.25rem; }
.tabs a[aria-current] { background: var(--accent-soft); border-color: var(--accent); }
.form { max-width: 36rem; display: grid; gap: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.25rem; }
.form .actions { margin-top: 0.25rem; }
.check { flex-direction: row; align-items: baseline; gap: 0.6rem; font-weight: 400; font-size: 0.9rem; }
.check input { min-height: 0; width: 1.05rem; height: 1.05rem; }

.hue-0 { --hue: #4f46e5; --hue-text: #4338ca; } .hue-1 { --hue: #0d8a6f; --hue-text: #0a6b56; }
.hue-2 { --hue: #c2410c; --hue-text: #a83a0c; } .hue-3 { --hue: #be185d; --hue-text: #a81552; }
.hue-4 { --hue: #0369a1; --hue-text: #075985; } .hue-5 { --hue: #7c3aed; --hue-text: #6d28d9; }
.hue-6 { --hue: #4d7c0f; --hue-text: #3f6212; } .hue-7 { --hue: #a16207; --hue-text: #854d0e; }
@media (prefers-color-scheme: dark) {
  .hue-0 { --hue: #818cf8; --hue-text: #a5b4fc; } .hue-1 { --hue: #34d3a6; --hue-text: #5eead4; }
  .hue-2 { --hue: #fb923c; --hue-text: #fdba74; } .hue-3 { --hue: #f472b6; --hue-text: #f9a8d4; }
  .hue-4 { --hue: #38bdf8; --hue-text: #7dd3fc; } .hue-5 { --hue: #a78bfa; --hue-text: #c4b5fd; }
  .hue-6 { --hue: #a3e635; --hue-text: #bef264; } .hue-7 { --hue: #facc15; --hue-text: #fde047; }
}
@media (max-width: 80rem) {
  .bar { display: flex; flex-wrap: wrap; align-items: center; } .about { display: contents; } .bar h1 { flex: 1 1 calc(100% - 20rem); max-width: none; } .bar .facts, .bar .filter, .bar .live { order: 1; }
}
@media (max-width: 60rem) {
  .columns { grid-template-columns: minmax(0, 1fr); }
  aside { position: static; max-height: none; }
  .chart text { font-size: 12px; }
  .list thead { display: none; }
  .list tr { display: block; padding: 0.6rem 0.5rem 0.6rem 0; border-top: 1px solid var(--line); }
  .list tbody tr:first-child { border-top: 0; }
  .list th, .list td { display: block; border: 0; padding: 0.1rem 0.9rem; }
  .list td { display: inline-block; min-width: 0; max-width: 100%; padding-right: 0; font-size: 0.8125rem; line-height: 1.5rem; }
  .list tbody th { min-width: 0; } .list .number, .list td:has(.spark) { text-align: left; white-space: normal; }
  .list td:empty { display: none; } .list td:has(.id) { display: block; padding-top: 0.35rem; }
  .list td[data-label]::before { content: attr(data-label) " "; color: var(--dim); }
  .findings td { display: block; padding-right: 0.9rem; }
  .list .line { white-space: normal; padding-bottom: 0.25rem; } .list .number time[data-lasted] { display: inline-block; min-width: 3.6rem; }
}
@media (max-width: 40rem) {
  main { padding: 1.1rem 0.9rem 3rem; }
  .top { position: static; flex-wrap: wrap; gap: 0 0.6rem; padding: 0 0.9rem; height: auto; min-height: 3.5rem; } .top nav { flex-wrap: wrap; gap: 0; } .top nav a { padding-inline: 0.45rem; font-size: 0.875rem; }
  .heading .search { order: 1; flex-basis: 100%; }
  #branches .panel:not([open]) > summary { white-space: normal; } .event.user { max-width: 94%; } .why .delta dt { width: 100%; } .why .delta dd { flex-basis: 100%; }
  .depth-1, .depth-2, .depth-3 { margin-left: 0.75rem; width: calc(100% - 0.75rem); }
  .timeline ol { flex-basis: 100%; order: -1; }
  .bar { position: static; } .bar .live[data-state="off"] { position: fixed; top: 0.6rem; right: 0.9rem; z-index: 3; } .bar h1 { flex-basis: 100%; max-width: 100%; max-height: none; }
  .lane { grid-template-columns: minmax(0, 1fr); gap: 0.1rem; } .axis { margin-left: 0; }
  .cards { display: block; margin-bottom: 1.1rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; } .card { display: flex; justify-content: space-between; align-items: baseline; gap: 0.75rem; border: 0; background: none; box-shadow: none; padding: 0.1rem 0.75rem; } .card + .card { border-top: 1px solid var(--line); border-radius: 0; }
  .card dt { flex: none; max-width: 50%; } .card dd { font-size: 1rem; line-height: 1.4; text-align: right; } .cards .id { display: inline; margin-left: 0.4rem; } .chart text { font-size: 22px; }
}
@media (prefers-reduced-motion: no-preference) {
  .event.new { animation: arrive 0.35s ease-out; }
  @keyframes arrive { from { opacity: 0; transform: translateY(6px); } }
}
@media (forced-colors: active) {
  .timeline li a::before { background: LinkText; }
}
`;
