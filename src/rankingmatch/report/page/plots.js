// Plotly in the page's colors, and panels of curves.

/**
 * @typedef {Object} CurveData
 * @property {string} name
 * @property {number[]} x
 * @property {(number|null)[]} y
 */
/**
 * @typedef {Object} PanelData
 * @property {string} key
 * @property {string} title
 * @property {string} x_label
 * @property {string} y_label
 * @property {CurveData[]} curves
 * @property {(number|null)[][]|null} heat_map
 */

const PALETTE = ["#4477dd", "#ee7733", "#22996b", "#cc3377", "#8855cc", "#997722", "#33aacc", "#dd4433", "#77aa22",
  "#888888"];
function colorOf(number, total) {
  if (total <= PALETTE.length) return PALETTE[number % PALETTE.length];
  return `hsl(${Math.round((number * 137.508) % 360)} ${55 + 15 * (number % 3)}% ${42 + 8 * (number % 4)}%)`;
}
// A color of page.css in the current theme, such as css("accent").
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
function colorScale() {
  return document.documentElement.dataset.theme === "dark"
    ? [[0, "#1a202a"], [0.02, "#22344f"], [0.15, "#2d5aa0"], [0.5, "#5b93ee"], [1, "#b9d4ff"]]
    : [[0, "#ffffff"], [0.02, "#e3edfc"], [0.15, "#aecbf8"], [0.5, "#5b8fe6"], [1, "#1f4fae"]];
}

const LEGEND = { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, xanchor: "left" };
function layoutFor({ xaxis = {}, yaxis = {}, ...options } = {}) {
  const axis = { gridcolor: css("line"), zerolinecolor: css("line"), linecolor: css("line"), automargin: true,
    ticklabeloverflow: "allow" };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: css("text"), size: 12, family: getComputedStyle(document.body).fontFamily },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("muted"), activecolor: css("accent") },
    margin: { l: 52, r: 14, t: 10, b: 40 }, legend: LEGEND,
    hoverlabel: { bgcolor: css("card"), bordercolor: css("line"), font: { color: css("text") } },
    ...options, xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
  };
}
// Ticks named by class; without names if there are too many to read.
const classAxis = (names, most) =>
  ({ tickvals: names.length <= most ? names.map((_, label) => label) : [], ticktext: names });
// Without a list of buttons, Plotly adds one that uploads the plot to a server.
const CONFIG = { displaylogo: false, plotlyServerURL: "",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };

// A plot follows the size of its card.
const resized = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (contentRect.width && target.layout && Math.abs(target._fullLayout.width - contentRect.width) > 1) {
      Plotly.Plots.resize(target);
    }
  }
});

// Appends a card with a plot. `make` returns [traces, layout] and is called again when the theme changes.
function plot(parent, title, make, size = "") {
  const area = element("div", { class: "area" });
  parent.append(element("div", { class: `plot ${size}` }, title ? element("h3", {}, title) : null, area));
  Plotly.newPlot(area, ...make(), CONFIG);
  plots.push({ area, make });
  resized.observe(area);
  return area;
}

// --- panels of curves ---------------------------------------------------------------------------------------
/** @param {PanelData[]} panels */
function plotPanels(parent, panels) {
  const grid = element("div", { class: "grid" });
  parent.append(grid);
  for (const panel of panels) {
    const make = () => (panel.heat_map ? heatMap(panel) : curves(panel));
    plot(grid, panel.title, make, panel.curves.length > 8 ? "tall" : "");
  }
}
function curves(panel) {
  const traces = panel.curves.map((curve, number) => ({
    type: "scatter", mode: curve.x.length < 3 ? "lines+markers" : "lines",
    name: plotText(curve.name), x: curve.x, y: curve.y,
    line: { color: curveColor(panel, curve, number), width: panel.curves.length > 8 ? 1.5 : 2 },
    hovertemplate: `%{y:.4~g} ${plotText(panel.y_label)}<extra>%{fullData.name}</extra>`,
  }));
  const fewEpochs = panel.x_label === "epoch" && panel.curves[0].x.length <= 12;
  return [traces, layoutFor({
    hovermode: panel.curves.length > 12 ? "closest" : "x", showlegend: panel.curves.length > 1 || !single,
    xaxis: { title: { text: plotText(panel.x_label), standoff: 4 }, dtick: fewEpochs ? 1 : undefined },
    yaxis: { title: { text: plotText(panel.y_label) }, rangemode: /^[%η]/.test(panel.y_label) ? "normal" : "tozero" },
  })];
}
// Where curves are runs, a run has the same color in every plot, even if it is missing from some.
function curveColor(panel, curve, number) {
  const run = runs.findIndex((header) => header.name === curve.name);
  return single || run < 0 ? colorOf(number, panel.curves.length) : colorOf(run, runs.length);
}
function heatMap(panel) {
  return [[{
    type: "heatmap", x: panel.curves[0].x, y: panel.curves.map((curve) => plotText(curve.name)), z: panel.heat_map,
    colorscale: colorScale(), colorbar: { thickness: 10, ticksuffix: "%" },
    hovertemplate: "%{y}<br>step %{x}: %{z:.2f}%<extra></extra>",
  }], layoutFor({
    xaxis: { title: { text: plotText(panel.x_label) } },
    yaxis: { autorange: "reversed", showticklabels: panel.curves.length <= 40 },
  })];
}
