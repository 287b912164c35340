// Style and scripts of a report's page. Without "<" and "&", so that the page is well-formed as XML.
#pragma once

namespace sinter::nn::html {

inline constexpr const char* kStyle = R"(
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 16px; background: #fff; color: #1a1c1f; font: 15px/1.5 system-ui, "Segoe UI", "Liberation Sans", sans-serif; }
h1 { font-size: 26px; line-height: 1.25; margin: 8px 0; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 36px 0 8px; padding-top: 8px; border-top: 2px solid #d5d9de; }
h3 { font-size: 16px; margin: 16px 0 4px; }
p { margin: 6px 0; max-width: 90ch; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 16px; list-style: none; margin: 8px 0; padding: 0; }
a { color: #0b4fa8; }
a:focus-visible, summary:focus-visible, button:focus-visible, .scroll:focus-visible { outline: 3px solid #0b4fa8; outline-offset: 2px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 8px; margin: 16px 0; padding: 0; }
.facts div { background: #f1f3f6; border-radius: 6px; padding: 8px 12px; }
.facts dt { color: #4a5058; font-size: 13px; }
.facts dd { margin: 0; font-size: 18px; font-weight: 600; overflow-wrap: anywhere; }
details { border: 1px solid #c9ced5; border-radius: 6px; margin: 6px 0; padding: 0 12px; }
summary { cursor: pointer; padding: 8px 0; overflow-wrap: anywhere; }
details.fold { background: #f8f9fb; }
details.fold summary { color: #3a4048; font-size: 14px; }
ul.done, ul.missed { margin: 4px 0 8px; padding-left: 22px; columns: 340px; column-gap: 32px; font-size: 14px; }
ul.done li, ul.missed li { break-inside: avoid; overflow-wrap: anywhere; }
.pair { display: flex; flex-wrap: wrap; gap: 8px 24px; border-top: 1px solid #e3e6ea; padding: 6px 0; }
figure { margin: 0; flex: 1 1 340px; max-width: 520px; min-width: 0; }
figcaption { font-size: 13px; color: #4a5058; }
figure svg { width: 100%; height: auto; display: block; }
svg text { font: 11.5px ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; fill: #1a1c1f; }
svg text.s { font-size: 10.5px; fill: #3a4048; }
svg text.t, svg text.r { text-anchor: end; }
svg text.t { font-size: 10.5px; fill: #3a4048; }
svg text.m { text-anchor: middle; }
svg .w { font-style: italic; }
.e { fill: none; stroke: #68707a; stroke-width: 1.3; }
.n rect { fill: #f3f4f7; stroke: #8a919b; }
.removed rect, .legend i.removed { fill: #fde5e3; stroke: #a3231b; background: #fde5e3; border-color: #a3231b; }
.added rect, .legend i.added { fill: #def3e2; stroke: #17652a; background: #def3e2; border-color: #17652a; }
.changed rect, .legend i.changed { fill: #fff2cc; stroke: #7d5200; background: #fff2cc; border-color: #7d5200; }
.moved rect, .legend i.moved { fill: #e3ebff; stroke: #2448a8; background: #e3ebff; border-color: #2448a8; }
.removed rect, .added rect, .changed rect, .moved rect { stroke-width: 2; }
.legend { font-size: 14px; }
.legend span { white-space: nowrap; margin-right: 12px; }
.legend i { display: inline-block; width: 16px; height: 12px; border: 2px solid #8a919b; background: #f3f4f7; margin: 0 4px 0 0; vertical-align: -1px; }
ol.run { list-style: none; margin: 4px 0; padding: 0; font: 12px/1.55 ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; min-width: 100%; }
caption { text-align: left; padding: 6px 0; color: #3a4048; }
th, td { text-align: left; padding: 3px 10px; border-bottom: 1px solid #e3e6ea; vertical-align: top; }
th { border-bottom: 2px solid #8a919b; white-space: nowrap; }
td { overflow-wrap: break-word; max-width: 460px; }
.num { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th button { font: inherit; font-weight: 600; background: none; border: 0; padding: 0; cursor: pointer; color: #0b4fa8; }
.tools button { font: inherit; padding: 4px 12px; margin: 4px 8px 4px 0; border: 1px solid #0b4fa8; border-radius: 6px; background: #fff; color: #0b4fa8; cursor: pointer; }
svg.memory { width: 100%; min-width: 760px; height: auto; display: block; }
svg.memory rect { stroke: #fff; stroke-width: 0.2; }
svg.memory .kept, .legend i.kept { fill: #3b6fc4; background: #3b6fc4; }
svg.memory .fore, .legend i.fore { fill: #2f8f83; background: #2f8f83; }
svg.memory .back, .legend i.back { fill: #b8662c; background: #b8662c; }
.grid { stroke: #d5d9de; fill: none; }
.use { fill: none; stroke: #1a1c1f; stroke-width: 1.4; }
.peak { stroke: #a3231b; stroke-width: 1.6; fill: none; }
.loss { stroke: #1a1c1f; stroke-width: 1; stroke-dasharray: 4 3; fill: none; }
pre { overflow-x: auto; font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; background: #f8f9fb; padding: 8px; }
@media (max-width: 600px) { body { padding: 10px; } details { padding: 0 8px; } details details { padding: 0 4px; } h1 { font-size: 22px; } }
@media print { details { break-inside: avoid; } }
)";

// Buttons are made here: without scripts there are none that do nothing.
inline constexpr const char* kScript = R"(
document.querySelectorAll('table.sortable').forEach(function (table) {
  var body = table.tBodies[0];
  Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
    var button = document.createElement('button');
    button.type = 'button';
    button.textContent = head.textContent;
    head.textContent = '';
    head.appendChild(button);
    button.addEventListener('click', function () {
      var numeric = head.classList.contains('num');
      var sorted = head.getAttribute('aria-sort');
      var up = numeric ? sorted === 'descending' : sorted !== 'ascending';
      var key = function (row) {
        var text = row.cells[column].textContent;
        if (!numeric) return text;
        var number = parseFloat(text);
        return isNaN(number) ? -Infinity : number;
      };
      var rows = Array.from(body.rows).map(function (row) { return [key(row), row]; });
      rows.sort(function (a, b) {
        var order = numeric ? a[0] - b[0] : a[0].localeCompare(b[0], 'en', { numeric: true });
        if (isNaN(order)) order = 0;
        return up ? order : -order;
      });
      rows.forEach(function (entry) { body.appendChild(entry[1]); });
      Array.from(table.tHead.rows[0].cells).forEach(function (other) { other.removeAttribute('aria-sort'); });
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
    });
  });
});
document.querySelectorAll('.tools').forEach(function (place) {
  [['Unfold all', true], ['Fold all', false]].forEach(function (what) {
    var button = document.createElement('button');
    button.type = 'button';
    button.textContent = what[0];
    button.addEventListener('click', function () {
      place.parentElement.querySelectorAll('details').forEach(function (each) { each.open = what[1]; });
    });
    place.appendChild(button);
  });
});
)";

}  // namespace sinter::nn::html
