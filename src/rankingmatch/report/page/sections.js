// --- overview -----------------------------------------------------------------------------------------------
function figure(label, value, more, verdict = "") {
  return el("div", { class: "card" }, el("div", { class: "label" }, label), el("div", { class: `value ${verdict}` }, value),
    more ? el("div", { class: "more" }, more) : null);
}
const between = ([low, high]) => `95 % interval ${low.toFixed(2)} – ${high.toFixed(2)} %`;
function gainFigure(run) {
  const gain = run.gain;
  if (!gain && single && run.method !== "supervised") {
    return figure("Against labels alone", "–", "give a supervised run, too: rankingmatch report RUN SUPERVISED");
  }
  if (!gain) return null;
  const sure = gain.half !== null && Math.abs(gain.gain) > gain.half;
  const interval = gain.half === null ? "" : `± ${gain.half.toFixed(2)} (95 %, same images); `;
  return figure("Against labels alone", `${gain.gain >= 0 ? "−" : "+"}${Math.abs(gain.gain).toFixed(2)} points`,
    `${interval}${percent(gain.baseline)} without the unlabeled images`, sure ? (gain.gain > 0 ? "good" : "bad") : "");
}
function figuresOf(run) {
  const judged = run.confusion, cards = [];
  if (judged) {
    cards.push(figure(`${judged.part === "test" ? "Test" : judged.part === "validation" ? "Validation" : "Unlabeled images'"} error`,
      percent(judged.error), `${between(judged.interval)}, ${count(judged.images)} images`));
  } else if (run.testError !== null || run.valError !== null) {
    const test = run.testError !== null;
    cards.push(figure(test ? "Test error" : "Validation error", percent(test ? run.testError : run.valError), "at the last evaluation"));
  }
  cards.push(gainFigure(run), figure("Labels", count(run.labels), run.unlabeledTotal ? `and ${count(run.unlabeledTotal)} unlabeled images` : ""));
  if (run.confident !== null) {
    cards.push(figure("Confident pseudo-labels", percent(100 * run.confident, 1),
      run.purity === null ? "at the last steps" : `of these ${percent(100 * run.purity, 1)} are right`));
  }
  if (judged) cards.push(figure("Calibration error", percent(judged.calibrationError), "mean gap of confidence and accuracy"));
  cards.push(figure("Steps", count(run.step), run.status === "finished" ? `in ${duration(run.seconds)}` : `of ${count(run.steps)}`));
  return cards.filter(Boolean);
}
sections.overview = (section) => {
  if (single) {
    byId("figures").append(...figuresOf(runs[0]));
    const curves = content.panels.filter((panel) => panel.key === "errors" || panel.key === "pseudo_labels");
    for (const panel of curves) panelPlot(byId("glance"), panel);
    if (runs[0].weights) byId("glance").after(say(`What the model says of images, here and in the other sections, comes from ${runs[0].weights}.`));
  } else {
    for (const run of detailed.filter((one) => one.gain).slice(0, 3)) {
      byId("figures").append(figure(run.name, percent(run.confusion ? run.confusion.error : run.testError),
        run.confusion ? `${between(run.confusion.interval)}, ${count(run.confusion.images)} ${run.confusion.part} images` : "test error"), gainFigure(run));
    }
    compareRuns(byId("comparison"));
    byId("glance").classList.add("after");
    for (const panel of content.panels.filter((one) => ["test_error", "confident"].includes(one.key))) panelPlot(byId("glance"), panel);
  }
  for (const button of section.querySelectorAll(".copy")) {
    button.addEventListener("click", () => {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges(); getSelection().addRange(range);
      if (document.execCommand("copy")) button.textContent = "copied";
    });
  }
};
function compareRuns(place) {
  const { rows, differences } = content.comparison;
  const groups = new Set(rows.map((row) => `${row.dataset} ${row.labels}`));
  const best = {};
  for (const row of rows) {
    const key = `${row.dataset} ${row.labels}`;
    if (row.testError !== null && !(row.testError >= best[key])) best[key] = row.testError;
  }
  const varies = (key) => new Set(rows.map((row) => row[key])).size > 1;
  const about = [["dataset", ""], ["method", ""], ["labels", "number"], ["seed", "number"]]
    .filter(([key]) => varies(key) && !(key === "method" && rows.every((row) => row.name.startsWith(row.method))));
  const body = rows.map((row, number) => {
    const gain = runs[number].gain, judged = runs[number].confusion, lowest = row.testError !== null && row.testError === best[`${row.dataset} ${row.labels}`];
    return [[row.name], ...about.map(([key, kind]) => [row[key], kind]),
      [row.testError === null ? "–" : row.testError.toFixed(2), lowest ? "number best" : "number", row.testError],
      [judged && judged.part === "test" ? `${judged.interval[0].toFixed(2)} – ${judged.interval[1].toFixed(2)}` : "", "number"],
      [gain ? `${gain.gain >= 0 ? "−" : "+"}${Math.abs(gain.gain).toFixed(2)}${gain.half === null ? "" : " ± " + gain.half.toFixed(2)}` : "", "number", gain ? -gain.gain : null],
      [row.valError === null ? "–" : row.valError.toFixed(2), "number", row.valError], [duration(row.seconds), "number", row.seconds],
      [row.memory ? (row.memory / 2 ** 20).toFixed(0) : "–", "number", row.memory],
      [row.status === "finished" ? "finished" : row.status === "diverged" ? `NaN at ${row.step}` : `${row.step} of ${row.steps}`]];
  });
  place.append(el("h2", {}, "The runs"), say("Test error in percent, with the 95 % interval of the test images; against labels alone, the supervised run of the same labels and seed, measured on the same images."),
    sortable(["run", ...about.map(([key]) => key), "test error %", "95 % interval", "vs labels alone", "val. error %", "time", "MB", "status"], body));
  if (!differences.some((row) => row.folds > 1)) return;
  place.append(el("h2", {}, "Differences over folds"),
    say("Test error minus the baseline's with the same seed, in points: below 0 is better than the baseline. Mean and 95 % interval by Student's t; one fold has no interval."));
  const several = groups.size > 1;
  plot(place, "", () => [[{ type: "scatter", mode: "markers", name: "mean", y: differences.map((row) => plotText(gapName(row, several))), x: differences.map((row) => row.mean),
    error_x: { type: "data", array: differences.map((row) => row.half || 0), color: css("soft"), thickness: 1.5 },
    marker: { color: css("accent"), size: 10, symbol: "diamond" }, hovertemplate: "mean %{x:.2f}<extra></extra>" },
  { type: "scatter", mode: "markers", name: "a fold", y: differences.flatMap((row) => Object.keys(row.gaps).map(() => plotText(gapName(row, several)))),
    x: differences.flatMap((row) => Object.values(row.gaps)), text: differences.flatMap((row) => Object.keys(row.gaps)),
    marker: { color: css("soft"), size: 6, opacity: 0.7 }, hovertemplate: "seed %{text}: %{x:.2f}<extra></extra>" }],
  layoutFor({ xaxis: { title: { text: "points" }, zeroline: true, zerolinecolor: css("bad"), zerolinewidth: 2 }, yaxis: { autorange: "reversed" } })],
  differences.length > 6 ? "tall" : "");
  place.append(el("div", { style: "height:14px" }));
}
const gapName = (row, several) => `${row.method} − ${row.baseline}` + (several ? ` (${row.dataset}, ${row.labels})` : "");

// A table whose columns sort; a cell is [text, class, value to sort by].
function sortable(head, rows) {
  const body = el("tbody");
  const fill = () => body.replaceChildren(...rows.map((cells) => el("tr", {}, ...cells.map(([value, kind]) =>
    el("td", { class: kind }, value instanceof Node ? value : String(value))))));
  let sorted = -1, up = true;
  const by = (column) => {
    up = sorted === column ? !up : true;
    sorted = column;
    const key = (cells) => (cells[column].length > 2 ? cells[column][2] : cells[column][0]);
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return (typeof x === "number" ? x - y : String(x).localeCompare(String(y))) * (up ? 1 : -1);
    });
    fill();
  };
  fill();
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name, column) =>
    el("th", { class: "sorts " + (rows.length && (rows[0][column][1] || "").includes("number") ? "number" : ""), onclick: () => by(column) }, name)))), body));
}

// --- training -----------------------------------------------------------------------------------------------
sections.training = (section) => {
  if (!content.panels.length) { section.append(el("p", { class: "note" }, "There is no evaluation yet, so there are no curves.")); return; }
  section.append(say("Averages of the last steps before each evaluation. Losses are the parts of Eq. (1); errors are of the averaged (EMA) weights. "
    + "If one class takes the pseudo-labels of the others, its share shows it."));
  const grid = el("div", { class: "grid" });
  section.append(grid);
  for (const panel of [...content.panels, ...content.sharePanels]) panelPlot(grid, panel);
};

// --- classes ------------------------------------------------------------------------------------------------
const NO_TRUTH = "No labels are known of the images that were looked at, or there is no model yet: nothing can be called right or wrong.";
sections.classes = (section) => perRun(section, (run) => run.confusion, NO_TRUTH, (body, run) => {
  const judged = run.confusion, names = run.classes.map(plotText);
  body.append(say(`${count(judged.images)} ${judged.part} images, ${count(judged.mistakeCount)} mistakes.`));
  const grid = el("div", { class: "grid" });
  body.append(grid);
  confusionPlot(grid, judged, names);
  calibrationPlot(grid, judged);
  body.append(el("h2", {}, "Class by class"), say("A click on a head sorts."), sortable(
    ["class", "images", "error %", "precision %", "most often taken for"],
    judged.rows.map((row) => [[run.classes[row.label]], [row.images, "number"], [row.error === null ? "–" : row.error.toFixed(2), "number", row.error],
      [row.precision === null ? "–" : row.precision.toFixed(2), "number", row.precision], [row.taken.map(([label, n]) => `${run.classes[label]} (${n})`).join(", ")]])));
  body.append(el("h2", {}, "The surest mistakes"), judged.mistakes.length
    ? el("div", { class: "gallery" }, ...judged.mistakes.map((one) => el("div", { class: "tile wrong", title: `${judged.part} image ${one.row}` },
      thumb(run.sheet, one.place, 72, `image ${one.row}`), el("div", { class: "bad" }, run.classes[one.predicted]),
      el("div", {}, "is " + run.classes[one.truth]), el("div", { class: "soft" }, percent(100 * one.confidence, 1)))))
    : say("There are none."));
});
function confusionPlot(grid, judged, names) {
  const totals = judged.confusion.map((row) => Math.max(1, row.reduce((a, b) => a + b, 0)));
  const shares = judged.confusion.map((row, label) => row.map((n) => (100 * n) / totals[label]));
  const few = names.length <= 20;
  let unit = "counts";
  const make = () => [[{ type: "heatmap", x: names.map((_, i) => i), y: names.map((_, i) => i), z: shares, zmin: 0, zmax: 100, colorscale: sequential(), showscale: false, xgap: few ? 1 : 0, ygap: few ? 1 : 0,
    text: few ? judged.confusion.map((row, i) => row.map((n, j) => (n === 0 ? "" : unit === "counts" ? n : shares[i][j].toFixed(shares[i][j] < 10 ? 1 : 0)))) : undefined,
    texttemplate: few ? "%{text}" : undefined,
    customdata: judged.confusion.map((row, i) => row.map((n, j) => [n, names[i], names[j]])),
    hovertemplate: "%{customdata[1]} taken for %{customdata[2]}<br>%{customdata[0]} images, %{z:.1f} % of the class<extra></extra>" }],
  layoutFor({ margin: { l: 70, r: 8, t: 8, b: 60 },
    xaxis: { title: { text: "predicted" }, tickvals: few ? names.map((_, i) => i) : [], ticktext: names, showgrid: false, zeroline: false },
    yaxis: { title: { text: "true" }, tickvals: few ? names.map((_, i) => i) : [], ticktext: names, autorange: "reversed", showgrid: false, zeroline: false } })];
  const area = plot(grid, "Confusion", make, "square");
  if (few) {
    area.before(el("div", { class: "controls", style: "margin:4px 6px 0" }, choice("", [["counts", "images"], ["shares", "percent of the true class"]],
      (value) => { unit = value; Plotly.react(area, ...make()); })));
  }
}
function calibrationPlot(grid, judged) {
  plot(grid, `Calibration: error ${percent(judged.calibrationError)}`, () => [[
    { type: "bar", x: judged.calibration.map((bin) => bin.confidence), y: judged.calibration.map((bin) => bin.count), yaxis: "y2", name: "images", width: 0.03,
      marker: { color: css("line") }, hovertemplate: "%{y} images<extra></extra>" },
    { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], name: "as sure as right", line: { dash: "dot", color: css("soft"), width: 1.5 }, hoverinfo: "skip" },
    { type: "scatter", mode: "lines+markers", x: judged.calibration.map((bin) => bin.confidence), y: judged.calibration.map((bin) => bin.accuracy), name: "the model",
      line: { color: css("accent"), width: 2 }, marker: { size: 7 }, customdata: judged.calibration.map((bin) => bin.count),
      hovertemplate: "confidence %{x:.3f}<br>accuracy %{y:.3f}<br>%{customdata} images<extra></extra>" }],
  layoutFor({ xaxis: { title: { text: "confidence" }, range: [0, 1.03] }, yaxis: { title: { text: "accuracy" }, range: [0, 1.03] },
    yaxis2: { overlaying: "y", side: "right", visible: false, rangemode: "tozero" } })], "square");
}

// --- map ----------------------------------------------------------------------------------------------------
sections.map = (section) => {
  const able = detailed.filter((run) => run.maps);
  if (!able.length) { section.append(el("p", { class: "note" }, "There is no model yet, or there are too few images for a map.")); return; }
  const maps = able[0].maps, body = el("div", { class: "grid" });
  const kinds = Object.keys(maps.maps), wanted = { which: kinds[0], colouring: maps.truth.some((label) => label >= 0) ? "truth" : "predicted" };
  const fill = () => {
    body.replaceChildren();
    if (single) for (const which of kinds) mapPlot(body, able[0], which, wanted.colouring, which === "logits" ? "Logits" : "Representations");
    else for (const run of able) if (run.maps.maps[wanted.which]) mapPlot(body, run, wanted.which, wanted.colouring, `${run.name}${run.confusion ? ": " + percent(run.confusion.error) : ""}`);
  };
  section.append(say(`t-SNE of ${count(maps.rows.length)} of ${count(maps.total)} ${maps.part} images${maps.rows.length < maps.total ? ", drawn at random" : ""}. `
    + "Point at a dot for the image; a click on a class in the legend hides it, a double click shows it alone."));
  section.append(el("div", { class: "controls" },
    single ? null : choice("Of", kinds.map((kind) => [kind, kind]), (value) => { wanted.which = value; fill(); }),
    choice("Colour", [["truth", "label"], ["predicted", "prediction"], ["verdict", "right or wrong"]], (value) => { wanted.colouring = value; fill(); }, wanted.colouring)), body);
  fill();
};

// --- pairs --------------------------------------------------------------------------------------------------
sections.pairs = (section) => perRun(section, (run) => run.pairs, NO_TRUTH + " Or the network gives no representations.", (body, run) => {
  const pairs = run.pairs;
  body.append(say("RankingMatch ranks outputs, not representations: two images of a class should have alike outputs, however different they look. "
    + `Cosine similarities of all pairs among ${count(pairs.images)} of ${count(pairs.total)} ${pairs.part} images.`));
  const grid = el("div", { class: "grid" });
  body.append(grid);
  for (const [key, title] of [["outputs", "Outputs (logits)"], ["representations", "Representations"]]) {
    const values = pairs[key], bins = values.same.length, x = values.same.map((_, bin) => -1 + (2 * (bin + 0.5)) / bins);
    plot(grid, title, () => [[["same", "pairs of a class", css("accent")], ["other", "pairs of two classes", css("soft")]].map(([name, label, ink]) => ({
      type: "scatter", mode: "lines", fill: "tozeroy", line: { color: ink, width: 2, shape: "hvh" }, x, y: values[name],
      name: `${label}${values[name + "Mean"] === null ? "" : ", mean " + values[name + "Mean"].toFixed(3)}`, hovertemplate: "%{y:.2f} % of pairs near %{x:.2f}<extra></extra>" })),
    layoutFor({ xaxis: { title: { text: "cosine similarity" }, range: [-1, 1] }, yaxis: { title: { text: "% of pairs" } } })]);
  }
  body.append(el("h2", {}, "Alike outputs, unlike representations"),
    say("Of each class the pair, both predicted right, in which the two similarities differ most."));
  body.append(pairs.examples.length ? el("div", { class: "grid" }, ...pairs.examples.map((pair) => el("div", { class: "card pair" },
    ...pair.places.map((place, side) => thumb(run.sheet, place, 84, `image ${pair.rows[side]}`)),
    el("table", { class: "facts" }, el("tr", {}, el("th", {}, "class"), el("td", {}, run.classes[pair.label])),
      el("tr", {}, el("th", {}, "outputs"), el("td", {}, pair.outputs.toFixed(4))),
      el("tr", {}, el("th", {}, "representations"), el("td", {}, pair.representations.toFixed(4))))))) : say("No class has two images that were predicted right."));
});
