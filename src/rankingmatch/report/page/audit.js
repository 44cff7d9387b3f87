// --- pseudo-labels ------------------------------------------------------------------------------------------
const PAGE = 96; // tiles at a time
sections["pseudo-labels"] = (section) => perRun(section, (run) => run.audit,
  "There are no unlabeled images, or there is no model yet.", (body, run) => {
    const audit = run.audit, all = audit.rows.map((_, i) => i);
    const known = audit.truth.some((label) => label >= 0), tau = audit.threshold;
    const wrong = (i) => audit.truth[i] >= 0 && audit.truth[i] !== audit.predicted[i];
    const right = (i) => audit.truth[i] >= 0 && audit.truth[i] === audit.predicted[i];
    const sure = (i) => tau !== null && audit.confidence[i] >= tau;
    const wanted = { label: "", verdict: "", least: 0, most: 1, text: "", order: "surest" };
    if (all.some(wrong)) wanted.verdict = "wrong";
    body.append(say(`What the model believes of ${count(audit.rows.length)} of ${count(audit.total)} unlabeled images, as they are, without augmentation`
      + (tau === null ? "." : `; confident means a probability of at least τ = ${tau}.`)
      + (known ? " The true label is known here, and only measures." : " The true labels are not known.")));
    const grid = el("div", { class: "grid" });
    body.append(grid);
    auditPlots(grid, run, known);

    const words = all.map((i) => `${nameOf(run, audit.predicted[i])} ${audit.truth[i] < 0 ? "" : nameOf(run, audit.truth[i])} ${audit.rows[i]}`.toLowerCase());
    const matches = () => all.filter((i) => (wanted.label === "" || audit.predicted[i] === Number(wanted.label))
      && (wanted.verdict === "" || { wrong, right, sure, unsure: (j) => !sure(j), surewrong: (j) => sure(j) && wrong(j) }[wanted.verdict](i))
      && audit.confidence[i] >= wanted.least && audit.confidence[i] <= wanted.most && (!wanted.text || words[i].includes(wanted.text)))
      .sort((a, b) => (wanted.order === "surest" ? audit.confidence[b] - audit.confidence[a] : audit.confidence[a] - audit.confidence[b]));
    const gallery = el("div", { class: "gallery" }), found = el("p", { class: "say", role: "status", id: "found" });
    const more = el("button", { type: "button", class: "more-button" }, "more");
    let shown = PAGE;
    const tile = (i) => el("div", { class: "tile" + (wrong(i) ? " wrong" : ""), title: `training image ${audit.rows[i]}` },
      thumb(run.auditSheet, audit.places[i], 72, `image ${audit.rows[i]}`), el("div", { class: wrong(i) ? "bad" : "" }, nameOf(run, audit.predicted[i])),
      wrong(i) ? el("div", {}, "is " + nameOf(run, audit.truth[i])) : null, el("div", { class: "soft" }, percent(100 * audit.confidence[i], 1)));
    const fill = () => {
      const match = matches(), pictured = match.filter((i) => audit.places[i] >= 0);
      gallery.replaceChildren(...pictured.slice(0, shown).map(tile));
      found.textContent = `${count(match.length)} images match` + (known && match.length ? `, ${count(match.filter(wrong).length)} of them wrong` : "")
        + `; ${count(Math.min(shown, pictured.length))} shown` + (pictured.length < match.length ? ` of ${count(pictured.length)} with a picture on this page.` : ".");
      more.hidden = pictured.length <= shown;
    };
    const set = (name) => (value) => { wanted[name] = value; shown = PAGE; fill(); };
    more.addEventListener("click", () => { shown += 2 * PAGE; fill(); });
    const range = (label, name, start) => {
      const value = el("span", {}, start.toFixed(2));
      const input = el("input", { type: "range", min: 0, max: 1, step: 0.01, value: start, "aria-label": label,
        oninput: () => { value.textContent = Number(input.value).toFixed(2); set(name)(Number(input.value)); } });
      return el("label", {}, label, input, value);
    };
    const verdicts = [["", "all"]];
    if (known) verdicts.push(["wrong", "wrong"], ["right", "right"]);
    if (tau !== null) verdicts.push(["sure", "confident"], ["unsure", "not confident"]);
    if (known && tau !== null) verdicts.push(["surewrong", "confident and wrong"]);
    body.append(el("h2", {}, "Gallery"), el("div", { class: "controls", id: "filters" },
      choice("Pseudo-label", [["", "any"], ...run.classes.map((name, label) => [String(label), name])], set("label")),
      choice("Show", verdicts, set("verdict"), wanted.verdict), range("From", "least", 0), range("to", "most", 1),
      choice("Order", [["surest", "surest first"], ["unsure", "least sure first"]], set("order")),
      el("label", {}, "Search", el("input", { type: "search", placeholder: "class or number", oninput: (event) => set("text")(event.target.value.trim().toLowerCase()) })),
      el("button", { type: "button", id: "csv", onclick: () => download(run, matches()) }, "Download as CSV")), found, gallery, more);
    fill();
  });

function auditPlots(grid, run, known) {
  const audit = run.audit, bins = 20, sums = { right: Array(bins).fill(0), wrong: Array(bins).fill(0), unknown: Array(bins).fill(0) };
  const shares = Array(run.classes.length).fill(0), truths = Array(run.classes.length).fill(0);
  audit.rows.forEach((_, i) => {
    const verdict = audit.truth[i] < 0 ? "unknown" : audit.truth[i] === audit.predicted[i] ? "right" : "wrong";
    sums[verdict][Math.min(bins - 1, Math.floor(audit.confidence[i] * bins))] += 1;
    shares[audit.predicted[i]] += 100 / audit.rows.length;
    if (audit.truth[i] >= 0) truths[audit.truth[i]] += 100 / audit.rows.length;
  });
  const x = Array.from({ length: bins }, (_, bin) => (bin + 0.5) / bins);
  const inks = () => ({ right: css("good"), wrong: css("bad"), unknown: css("soft") });
  plot(grid, "Confidence", () => [Object.keys(sums).filter((name) => sums[name].some(Boolean)).map((name) => ({ type: "bar", name, x, y: sums[name], marker: { color: inks()[name] },
    hovertemplate: `%{y} ${name} near %{x:.2f}<extra></extra>` })),
  layoutFor({ barmode: "stack", bargap: 0.05, showlegend: true, xaxis: { title: { text: "confidence" }, range: [0, 1] }, yaxis: { title: { text: "images (log)" }, type: "log" },
    shapes: audit.threshold === null ? [] : [{ type: "line", x0: audit.threshold, x1: audit.threshold, yref: "paper", y0: 0, y1: 1, line: { color: css("ink"), width: 1, dash: "dot" } }] })]);
  const names = run.classes.map(plotText), few = names.length <= 30;
  plot(grid, "Share of each class", () => [[
    { type: "bar", name: "pseudo-labels", x: names.map((_, i) => i), y: shares, text: names, textposition: "none", marker: { color: css("accent") }, hovertemplate: "%{text}: %{y:.2f} %<extra>pseudo-labels</extra>" },
    ...(known ? [{ type: "bar", name: "truth", x: names.map((_, i) => i), y: truths, text: names, textposition: "none", marker: { color: css("soft") }, hovertemplate: "%{text}: %{y:.2f} %<extra>truth</extra>" }] : [])],
  layoutFor({ showlegend: known, xaxis: { tickvals: few ? names.map((_, i) => i) : [], ticktext: names }, yaxis: { title: { text: "% of images" } } })]);
}

function csvOf(run, places) {
  const cell = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replace(/"/g, '""')}"` : String(value));
  const audit = run.audit, lines = ["row,pseudo_label,confidence,truth"];
  for (const i of places) lines.push([audit.rows[i], nameOf(run, audit.predicted[i]), audit.confidence[i], audit.truth[i] < 0 ? "" : nameOf(run, audit.truth[i])].map(cell).join(","));
  return lines.join("\r\n") + "\r\n";
}
function download(run, places) {
  const address = URL.createObjectURL(new Blob([csvOf(run, places)], { type: "text/csv" }));
  const link = el("a", { href: address, download: "pseudo-labels.csv" });
  document.body.append(link); link.click(); link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

start();
