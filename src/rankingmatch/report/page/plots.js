// --- plots --------------------------------------------------------------------------------------------------
const PALETTE = ["#4477dd", "#ee7733", "#22996b", "#cc3377", "#8855cc", "#997722", "#33aacc", "#dd4433", "#77aa22", "#888888"];
function colour(number, all) {
  if (all <= PALETTE.length) return PALETTE[number % PALETTE.length];
  return `hsl(${Math.round((number * 137.508) % 360)} ${55 + 15 * (number % 3)}% ${42 + 8 * (number % 4)}%)`;
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function layoutFor(more = {}) {
  const axis = { gridcolor: css("line"), zerolinecolor: css("line"), linecolor: css("line"), automargin: true, ticklabeloverflow: "allow" };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("ink"), size: 12, family: getComputedStyle(document.body).fontFamily },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("soft"), activecolor: css("accent") },
    margin: { l: 52, r: 14, t: 10, b: 40 }, hoverlabel: { bgcolor: css("card"), bordercolor: css("line"), font: { color: css("ink") } },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, xanchor: "left" },
    ...rest, xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
  };
}
// The buttons are named one by one: by default there would be one that sends the plot to a server.
const CONFIG = { displaylogo: false, plotlyServerURL: "", modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };

// A plot follows its card, whatever changes the card's size.
const resized = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (contentRect.width && target.layout && Math.abs(target._fullLayout.width - contentRect.width) > 1) Plotly.Plots.resize(target);
  }
});

// A card with a plot; `make` gives [traces, layout] and is asked again when the colours change.
function plot(parent, title, make, kind = "") {
  const area = el("div", { class: "area" });
  parent.append(el("div", { class: `plot ${kind}` }, title ? el("h3", {}, title) : null, area));
  Plotly.newPlot(area, ...make(), CONFIG);
  plots.push({ area, make });
  resized.observe(area);
  return area;
}

function panelPlot(parent, panel) {
  const title = panel.per === "epoch" ? panel.title + " (between two evaluations)" : panel.title;
  plot(parent, title, () => (panel.grid ? heatPanel(panel) : linePanel(panel)), panel.lines.length > 8 ? "tall" : "");
}
function linePanel(panel) {
  const traces = panel.lines.map((line, number) => ({
    type: "scatter", mode: line.x.length < 3 ? "lines+markers" : "lines", name: plotText(line.name), x: line.x, y: line.y,
    line: { color: lineColour(panel, line, number), width: panel.lines.length > 8 ? 1.5 : 2 },
    hovertemplate: `%{y:.4~g} ${plotText(panel.unit)}<extra>%{fullData.name}</extra>`,
  }));
  return [traces, layoutFor({ hovermode: panel.lines.length > 12 ? "closest" : "x", showlegend: panel.lines.length > 1,
    xaxis: { title: { text: panel.per, standoff: 4 }, dtick: panel.per === "epoch" && panel.lines[0].x.length <= 12 ? 1 : undefined },
    yaxis: { title: { text: plotText(panel.unit) }, type: panel.log ? "log" : "linear",
      rangemode: panel.unit === "%" || panel.unit === "η" ? "normal" : "tozero" } })];
}
// Where lines are runs, a run has the same colour in every plot, though it may be absent from some.
function lineColour(panel, line, number) {
  const run = runs.findIndex((one) => one.name === line.name);
  return single || run < 0 ? colour(number, panel.lines.length) : colour(run, runs.length);
}
function heatPanel(panel) {
  return [[{ type: "heatmap", x: panel.lines[0].x, y: panel.lines.map((line) => plotText(line.name)), z: panel.grid,
    colorscale: sequential(), colorbar: { thickness: 10, ticksuffix: " %" }, hovertemplate: "%{y}<br>step %{x}: %{z:.2f} %<extra></extra>" }],
  layoutFor({ xaxis: { title: { text: "step" } }, yaxis: { autorange: "reversed", showticklabels: panel.lines.length <= 40 } })];
}
function sequential() {
  return document.documentElement.dataset.theme === "dark"
    ? [[0, "#1a202a"], [0.02, "#22344f"], [0.15, "#2d5aa0"], [0.5, "#5b93ee"], [1, "#b9d4ff"]]
    : [[0, "#ffffff"], [0.02, "#e3edfc"], [0.15, "#aecbf8"], [0.5, "#5b8fe6"], [1, "#1f4fae"]];
}

// --- what is under the pointer ------------------------------------------------------------------------------
function showCard(event, key, place, lines) {
  const card = byId("hover");
  card.replaceChildren(thumb(key, place, 96, lines[0]), ...lines.map((line) => el("div", {}, line)));
  card.hidden = false;
  const { clientX = 0, clientY = 0 } = event.touches ? event.touches[0] || {} : event;
  const box = card.getBoundingClientRect();
  card.style.left = Math.max(6, Math.min(clientX + 16, innerWidth - box.width - 8)) + "px";
  card.style.top = Math.max(6, Math.min(clientY + 16, innerHeight - box.height - 8)) + "px";
}
window.addEventListener("scroll", () => { byId("hover").hidden = true; }, { passive: true });

// A map: a trace per class, so that the legend hides and shows classes.
function mapPlot(parent, run, which, colouring, title) {
  const maps = run.maps, [x, y] = maps.maps[which];
  const groups = new Map();
  x.forEach((_, point) => {
    const right = maps.truth[point] === maps.predicted[point];
    const label = colouring === "verdict" ? (maps.truth[point] < 0 ? 2 : right ? 0 : 1)
      : colouring === "predicted" || maps.truth[point] < 0 ? maps.predicted[point] : maps.truth[point];
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(point);
  });
  const labels = [...groups.keys()].sort((a, b) => a - b);
  const verdicts = [["right", "#9aa5b5"], ["wrong", "#dd3333"], ["unknown", "#6677aa"]];
  const ink = (label) => (colouring === "verdict" ? verdicts[label][1] : colour(label, run.classes.length));
  // Hundreds of traces are slow: with many classes there is one, and no legend.
  const shown = labels.length <= 30 ? labels.map((label) => [label, groups.get(label)]) : [[-1, labels.flatMap((label) => groups.get(label))]];
  const inks = new Map(labels.flatMap((label) => groups.get(label).map((point) => [point, ink(label)])));
  const make = () => [shown.map(([label, points]) => {
    return { type: "scatter", mode: "markers", hoverinfo: "none", x: points.map((i) => x[i]), y: points.map((i) => y[i]), customdata: points,
      name: plotText(label < 0 ? "" : colouring === "verdict" ? verdicts[label][0] : run.classes[label]),
      marker: { size: x.length > 1200 ? 4.5 : 6, opacity: 0.8, color: label < 0 ? points.map((point) => inks.get(point)) : ink(label) } };
  }), layoutFor({ hovermode: "closest", dragmode: innerWidth < 640 ? false : "pan", margin: { l: 8, r: 8, t: 6, b: 8 }, showlegend: shown.length > 1,
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, xanchor: "left", itemsizing: "constant" },
    xaxis: { visible: false }, yaxis: { visible: false, scaleanchor: "x" } })];
  const area = plot(parent, title, make, "square");
  const card = (data) => {
    const point = data.points[0].customdata;
    showCard(data.event, run.sheet, maps.places[point], [
      `label: ${nameOf(run, maps.truth[point])}`, `prediction: ${nameOf(run, maps.predicted[point])}`,
      `confidence: ${(100 * maps.confidence[point]).toFixed(1)} %`, `${maps.part} image ${maps.rows[point]}`]);
  };
  area.on("plotly_hover", card);
  area.on("plotly_click", card);
  area.on("plotly_unhover", () => { byId("hover").hidden = true; });
}
