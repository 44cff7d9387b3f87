// Parts that several sections use: choices, sortable tables, thumbnails with captions, the card under the pointer.

// A labeled select; `options` are [value, text].
function choice(label, options, onchange, selected) {
  const select = element("select", { onchange: () => onchange(select.value) },
    ...options.map(([value, text]) => element("option", { value, selected: value === selected ? "" : null }, text)));
  return element("label", {}, label, select);
}

// Draws one run of a section, with a choice of the run where there are several; `items` have the index of their run.
function drawOneRun(container, items, missing, draw) {
  if (!items.length) {
    container.append(note(missing));
    return;
  }
  const body = element("div");
  const fill = (number) => {
    body.replaceChildren();
    draw(body, items[number], runs[items[number].run]);
  };
  if (!single) {
    const names = items.map((item, number) => [String(number), runs[item.run].name]);
    container.append(element("div", { class: "controls" }, choice("Run", names, (value) => fill(Number(value)))));
  }
  container.append(body);
  fill(0);
}

// A table that sorts by the clicked column. A cell is {text, kind, value}: `kind` is its class, `value` the sort key.
function sortableTable(columns, rows) {
  const body = element("tbody");
  const fill = () => body.replaceChildren(...rows.map((cells) =>
    element("tr", {}, ...cells.map(({ text, kind }) => element("td", { class: kind }, String(text))))));
  const sortKey = (cell) => (cell.value === undefined ? cell.text : cell.value);
  let sorted = -1, ascending = true;
  const sortBy = (column) => {
    ascending = sorted === column ? !ascending : true;
    sorted = column;
    rows.sort((first, second) => {
      const [a, b] = [sortKey(first[column]), sortKey(second[column])];
      if (a === null || b === null) return (a === null) - (b === null);
      return (typeof a === "number" ? a - b : String(a).localeCompare(String(b))) * (ascending ? 1 : -1);
    });
    heads.forEach((head, index) =>
      head.setAttribute("aria-sort", index !== column ? "none" : ascending ? "ascending" : "descending"));
    fill();
  };
  const isNumber = (column) => rows.length && (rows[0][column].kind || "").includes("number");
  const heads = columns.map((name, column) => element("th",
    { class: isNumber(column) ? "number" : null, "aria-sort": "none", title: "Click to sort" },
    element("button", { type: "button", onclick: () => sortBy(column) }, name)));
  fill();
  return element("div", { class: "scroll" },
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
}
const numberCell = (value, digits = 2) =>
  ({ text: fixed(value, digits), kind: "number", value: isMissing(value) ? null : value });

// A two-column table of names and values.
function factsTable(facts) {
  return element("table", { class: "facts" },
    ...facts.map(([name, value]) => element("tr", {}, element("th", {}, name), element("td", {}, value))));
}

// A thumbnail with the predicted class, the label if it differs, and the confidence.
function predictionTile(run, { sprite, index, description, predicted, truth, confidence }) {
  const wrong = truth >= 0 && truth !== predicted;
  return element("div", { class: "tile" + (wrong ? " wrong" : ""), title: description },
    thumbnail(sprite, index, 72, description),
    element("div", { class: wrong ? "bad" : "" }, className(run, predicted)),
    wrong ? element("div", {}, "label: " + className(run, truth)) : null,
    element("div", { class: "muted" }, percent(100 * confidence, 1)));
}

// Shows an image and lines of text next to the pointer.
function showHoverCard(event, sprite, index, lines) {
  const card = byId("hover");
  card.replaceChildren(thumbnail(sprite, index, 96, lines[0]), ...lines.map((line) => element("div", {}, line)));
  card.hidden = false;
  const { clientX = 0, clientY = 0 } = event.touches ? event.touches[0] || {} : event;
  const box = card.getBoundingClientRect();
  card.style.left = Math.max(6, Math.min(clientX + 16, innerWidth - box.width - 8)) + "px";
  card.style.top = Math.max(6, Math.min(clientY + 16, innerHeight - box.height - 8)) + "px";
}
window.addEventListener("scroll", () => { byId("hover").hidden = true; }, { passive: true });
