// Show a table of all topics that can be sorted and downloaded.

const FIRST_ROWS = 20;
const WORDS_OF_ROW = 10;

// Make the table. Returns a function to mark the row of a topic.
function topicTable(model, { toTopic }) {
  const section = byId("topics");
  const [head, body] = [section.querySelector("thead"), section.querySelector("tbody")];
  const more = byId("more");
  const known = model.coherence !== null;
  const columns = [
    { name: "topic", value: (topic) => -topic },
    { name: `share ${model.whole}`, value: (topic) => model.weights[topic] },
    ...(known ? [{ name: "coherence", value: (topic) => model.coherenceOf(topic) ?? -Infinity }] : []),
  ];
  let sorted = columns[0];
  let all = false;
  let marked = null;

  const classOf = (topic) => `${topic === marked ? "chosen" : ""} ${model.isJunk(topic) ? "junk" : ""}`.trim();
  const rowOf = (topic) => {
    const coherence = model.coherenceOf(topic);
    return element(
      "tr",
      { "data-topic": topic, class: classOf(topic) },
      element("td", { class: "number" }, link(`#topic=${topic}`, () => toTopic(topic), `${topic}`)),
      element("td", { class: "number" }, percent(model.weights[topic])),
      known ? element("td", { class: "number" }, coherence === null ? "" : signed(coherence)) : null,
      element(
        "td",
        {},
        ...(model.isJunk(topic) ? [junkTag(model), " "] : []),
        ...model.firstWords(topic, WORDS_OF_ROW).flatMap((word) => [bdi(word), " "]),
      ),
    );
  };
  const fill = () => {
    // Junk stays at the end, whatever the order.
    const value = (topic) => (model.isJunk(topic) ? 1 : 0);
    const topics = d3.sort(model.weights.keys(), value, (topic) => -sorted.value(topic), (topic) => topic);
    const shown = all ? topics : topics.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map(rowOf));
    more.hidden = shown.length === topics.length;
    more.textContent = `Show all ${whole(topics.length)} topics`;
    for (const [place, cell] of Array.from(head.querySelectorAll("th[data-column]")).entries()) {
      const here = columns[place] === sorted;
      cell.setAttribute("aria-sort", here ? (place ? "descending" : "ascending") : "none");
    }
  };
  const headings = columns.map((column) => {
    const chosen = () => {
      sorted = column;
      fill();
    };
    return element(
      "th",
      { scope: "col", "data-column": column.name },
      element("button", { type: "button", click: chosen }, column.name),
    );
  });
  head.append(element("tr", {}, ...headings, element("th", { scope: "col" }, "words")));
  more.addEventListener("click", () => {
    all = true;
    fill();
    body.children[FIRST_ROWS].querySelector("a").focus();
  });
  byId("download").addEventListener("click", () => download("topics.csv", csv(topicRows(model))));
  byId("coherence-note").hidden = !known;
  byId("junk-note").textContent = model.junk.length ? `Topics marked as junk come last: ${junkReason(model)}.` : "";
  fill();
  return (topic) => {
    marked = topic;
    for (const row of body.children) row.className = classOf(Number(row.dataset.topic));
  };
}

// --- Download --------------------------------------------------------------------------------------

function topicRows(model) {
  const listed = (numbers) => numbers.map((number) => model.words[number]).join(", ");
  const rows = usefulOrder(model).map((topic) => [
    topic,
    model.weights[topic],
    model.coherenceOf(topic) ?? "",
    listed(model.wordsOf(topic).map((one) => one.number)),
    model.subtopicsOf(topic).map(({ subtopic, words }) => `${subtopic}: ${listed(words)}`).join("; "),
  ]);
  return [["number", "share", "coherence", "words", "subtopics"], ...rows];
}

function csv(rows) {
  const cell = (value) => {
    // A spreadsheet takes a text that begins so for a formula, and would run it.
    const text = typeof value === "string" ? value.replace(/^(?=[=+\-@\t\r])/, "'") : `${value}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// Spreadsheets read UTF-8 if the file begins with this mark.
const BYTE_ORDER_MARK = "\ufeff";

function download(name, text) {
  const address = URL.createObjectURL(new Blob([BYTE_ORDER_MARK, text], { type: "text/csv" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
